//! The charts of Figs. 6 to 10.

use takt_log::stats::{Histogram, TaskStats};
use takt_report::{Figure, Form, Series};

use super::super::findings::Drawn;
use super::{Measured, TABLE_VI, TABLE_VII, median, share_of};

pub(super) fn all(measured: &Measured) -> Vec<Drawn> {
    let mut figures = vec![throughput(measured)];
    if let Some(driver) = &measured.driver {
        figures.extend(distributions(driver));
    }
    figures.extend(of_files(measured));
    figures
}

/// Figs. 7 and 8.
pub(super) fn distributions(driver: &TaskStats) -> [Drawn; 2] {
    [
        pmf("driver-interrupts.svg", "Fig. 7: time between interrupts of the driver's thread", &driver.inter_arrivals),
        pmf("driver-executions.svg", "Fig. 8: execution times of the driver's thread", &driver.executions),
    ]
}

/// Figs. 9 and 10.
pub(super) fn of_files(measured: &Measured) -> [Drawn; 2] {
    [files(measured, true), files(measured, false)]
}

pub(super) fn series(name: &str, form: Form, colour: usize, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), points, form, colour }
}

pub(super) fn throughput(measured: &Measured) -> Drawn {
    let rows = |period: u64| {
        let of = |(i, (_, t, _)): (usize, &(u64, u64, f64))| {
            (*t == period).then_some(()).and_then(|()| Some((share_of(i) * 100.0, measured.percent(i)?)))
        };
        TABLE_VI.iter().enumerate().filter_map(of).collect::<Vec<_>>()
    };
    let paper = TABLE_VI.iter().enumerate().map(|(i, (.., percent))| (share_of(i) * 100.0, *percent)).collect();
    let bend = measured.share.map_or(100.0, |share| share * 100.0);
    let figure = Figure::new(
        "Throughput of the driver against what it reserves",
        "Q/T in %",
        "% of the throughput at a fixed priority",
        vec![
            series(
                "expected here: (Q/T)/u, at most all",
                Form::Dashed,
                7,
                vec![(0.0, 0.0), (bend, 100.0), (100.0, 100.0)],
            ),
            series("paper", Form::Rings, 1, paper),
            series("measured, T = 100ms", Form::Dots, 0, rows(100)),
            series("measured, T = 1000ms", Form::Dots, 2, rows(1000)),
        ],
    );
    Drawn::of(
        "throughput-by-reservation.svg",
        &figure,
        "Fig. 6 and Table VI: throughput",
        "The paper's values are those of Table VI, without DMA.",
    )
}

/// A probability mass function. Its 80 bins span 1.3 times the 99th percentile. A last bin holds
/// all longer times.
fn pmf(file: &str, title: &str, values: &Histogram) -> Drawn {
    let end = values.percentile(99).unwrap_or(1).max(1) as f64 * 1.3;
    let width = end / 80.0;
    let mut bins = vec![0u64; 81];
    for bucket in values.buckets() {
        let bin = (bucket.upper_ns as f64 / width) as usize;
        bins[bin.min(80)] += bucket.count;
    }
    let count = values.count().max(1) as f64;
    let points = bins
        .iter()
        .enumerate()
        .filter(|(_, in_bin)| **in_bin > 0)
        .map(|(i, in_bin)| ((i as f64 + 0.5) * width / 1e6, *in_bin as f64 / count))
        .collect();
    let figure = Figure::new(
        title,
        "time in ms; the last bin has all that is longer",
        "probability",
        vec![series(&format!("{} values", values.count()), Form::Bars, 0, points)],
    );
    Drawn::of(file, &figure, title, "As the kernel's tracer saw the driver's thread at a fixed priority.")
}

/// Table VII as a chart: the rate of reading, or the time of reading, relative to that without a
/// reservation.
fn files(measured: &Measured, rate: bool) -> Drawn {
    let shown = |slower: f64| if rate { 100.0 / slower } else { slower };
    let alone = median(&measured.seconds(0));
    let mut own = Vec::new();
    let mut paper = Vec::new();
    for (row, (q, [average, ..])) in TABLE_VII.iter().enumerate() {
        let Some(q) = q else { continue };
        paper.push((*q as f64, shown(average / TABLE_VII[0].1[0])));
        if let Some((time, alone)) = median(&measured.seconds(row)).zip(alone) {
            own.push((*q as f64, shown(time / alone)));
        }
    }
    let share = measured.file_share.unwrap_or(1.0) * 100.0;
    let expected = (25..=100).map(|q| (f64::from(q), shown((share / f64::from(q)).max(1.0)))).collect();
    let figure = Figure {
        x_from_zero: false,
        ..Figure::new(
            if rate { "Rate at which a file is read" } else { "Time that a file takes" },
            "Q/T in %, T = 100ms",
            if rate { "% of that without a reservation" } else { "times that without a reservation" },
            vec![
                series("expected here", Form::Dashed, 7, expected),
                series("paper, Table VII", Form::Rings, 1, paper),
                series("measured", Form::Dots, 0, own),
            ],
        )
    };
    if rate {
        Drawn::of("file-rate.svg", &figure, "Fig. 9: throughput of reading a file", "Medians of the repetitions.")
    } else {
        Drawn::of(
            "file-time.svg",
            &figure,
            "Fig. 10: total time of reading a file",
            "Medians of the repetitions; proportional to T/Q, as long as the reservation is less than what the \
             driver needs.",
        )
    }
}
