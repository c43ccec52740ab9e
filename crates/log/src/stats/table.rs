//! Statistics as text for a terminal.

use std::fmt::Write as _;

use takt_model::{Lateness, Span};

use super::{Interval, Merged, Stats};

/// Tasks, then chains, then CPUs, in columns; `-` where something is unknown. Times are rounded to four digits.
#[must_use]
pub fn table(stats: &Stats) -> String {
    let mut out = String::new();
    let mut rows = vec![row(&[
        "task",
        "node",
        "released",
        "completed",
        "missed",
        "cancelled",
        "unfinished",
        "resp min",
        "mean",
        "p50",
        "p99",
        "max",
        "laxity min",
        "preempt",
        "migrate",
    ])];
    let count = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for task in &stats.tasks {
        let mut cells = vec![
            task.task.clone(),
            task.node.clone(),
            task.released.to_string(),
            task.completed.to_string(),
            count(task.missed),
            task.cancelled.to_string(),
            task.unfinished.to_string(),
        ];
        let response = task.response_ns.map(|s| [s.min, s.mean, s.p50, s.p99, s.max]);
        cells.extend(spans(response));
        cells.push(task.laxity_ns.map_or_else(|| "-".to_owned(), |laxity| lateness(laxity.min)));
        cells.push(count(task.preemptions));
        cells.push(count(task.migrations));
        rows.push(cells);
    }
    columns(&mut out, &rows, 2);
    let latencies: Vec<_> =
        stats.tasks.iter().filter_map(|task| Some((&task.task, (*task.release_latency_ns.as_ref()?)?))).collect();
    if !latencies.is_empty() {
        let mut rows = vec![row(&["release latency", "min", "mean", "p50", "p99", "max"])];
        for (task, s) in latencies {
            let mut cells = vec![task.clone()];
            cells.extend(spans(Some([s.min, s.mean, s.p50, s.p99, s.max])));
            rows.push(cells);
        }
        out.push('\n');
        columns(&mut out, &rows, 1);
    }
    if !stats.chains.is_empty() {
        let mut rows = vec![row(&["chain", "completed", "resp min", "mean", "p50", "p99", "max"])];
        for chain in &stats.chains {
            let mut cells = vec![chain.chain.clone(), chain.responses.count().to_string()];
            cells.extend(spans(chain.response_ns.map(|s| [s.min, s.mean, s.p50, s.p99, s.max])));
            rows.push(cells);
        }
        out.push('\n');
        columns(&mut out, &rows, 1);
    }
    let mut rows = vec![row(&["cpu", "node", "busy", "of the time"])];
    for cpu in &stats.cpus {
        let (busy, part) = match cpu.busy_ns {
            Some(busy) if stats.duration_ns > 0 => {
                let permille = u128::from(busy) * 1000 / u128::from(stats.duration_ns);
                (span(busy), format!("{}.{} %", permille / 10, permille % 10))
            }
            Some(busy) => (span(busy), "-".to_owned()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        rows.push(vec![cpu.cpu.to_string(), cpu.node.clone(), busy, part]);
    }
    if rows.len() > 1 {
        out.push('\n');
        columns(&mut out, &rows, 2);
    }
    let _ = writeln!(out, "\nover {}", Span::from_ns(stats.duration_ns));
    let censored: u64 = stats.tasks.iter().map(|task| task.censored).sum();
    if stats.lost_events != Some(0) || censored > 0 {
        let lost = stats.lost_events.map_or_else(|| "an unknown number of".to_owned(), |lost| lost.to_string());
        let _ = writeln!(out, "incomplete: {lost} events were lost; {censored} jobs of unknown fate are in no count");
    }
    out
}

/// The table of all runs together, then the confidence intervals.
#[must_use]
pub fn merged_table(merged: &Merged) -> String {
    let mut out = table(&merged.stats);
    let mut rows = vec![row(&["95 % confidence", "mean response", "from", "to", "miss ratio", "from", "to"])];
    for task in &merged.confidence {
        let mut cells = vec![task.task.clone()];
        let response = |x: f64| span(if x > 0.0 { x as u64 } else { 0 });
        let ratio = |x: f64| format!("{:.4}", x.clamp(0.0, 1.0));
        cells.extend(interval(task.response_mean_ns, response));
        cells.extend(interval(task.miss_ratio, ratio));
        rows.push(cells);
    }
    let _ = writeln!(out, "in {} runs\n", merged.runs);
    columns(&mut out, &rows, 1);
    out
}

fn interval(interval: Option<Interval>, show: impl Fn(f64) -> String) -> [String; 3] {
    interval.map_or_else(|| ["-", "-", "-"].map(str::to_owned), |i| [i.mean, i.low, i.high].map(show))
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn spans(values: Option<[u64; 5]>) -> [String; 5] {
    values.map_or_else(|| ["-"; 5].map(str::to_owned), |values| values.map(span))
}

/// Four significant digits.
fn span(ns: u64) -> String {
    let mut unit = 1u64;
    while ns / unit >= 10_000 {
        unit *= 10;
    }
    // Rounding half up; 9999.5 becomes 10000, which is as short.
    let rounded = (u128::from(ns) + u128::from(unit / 2)) / u128::from(unit) * u128::from(unit);
    Span::from_ns(u64::try_from(rounded).unwrap_or(ns)).to_string()
}

fn lateness(ns: i64) -> String {
    let magnitude = span(ns.unsigned_abs());
    if Lateness::from_ns(ns) < Lateness::ZERO { format!("-{magnitude}") } else { magnitude }
}

/// Aligned columns: the first `left` to the left, numbers to the right.
fn columns(out: &mut String, rows: &[Vec<String>], left: usize) {
    let width = |column: usize| {
        rows.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if i == 0 { "" } else { "  " };
            let _ = if i < left { write!(line, "{gap}{cell:<width$}") } else { write!(line, "{gap}{cell:>width$}") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
