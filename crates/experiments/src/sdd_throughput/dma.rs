//! Figs. 6 to 8 in a guest of the lab: the interrupt thread of a virtio disk. Like that of a disk with DMA it copies
//! nothing, and only ends requests. So reservations are chosen by the share of the CPU that it needs.

use takt_log::stats::{Collector, TaskStats};
use takt_log::{ReadError, Reader};
use takt_report::{Figure, Form};

use super::super::context::Context;
use super::super::findings::{Comparison, Drawn, Findings, MEASURED, Row, all, decimal, mean, within};
use super::charts::{distributions, series};
use super::{median, span};
use crate::failure::Failure;
use crate::host::LAB_LOG;

/// Reservations in percent of what the thread needs at its fixed priority.
const PERCENTS: [u64; 6] = [20, 40, 60, 80, 140, 200];
/// Periods in ms, and how many of them are measured. The latter with --short, too.
const PERIODS: [(u64, u64, u64); 2] = [(100, 5, 3), (1000, 2, 1)];
const ROWS: usize = PERCENTS.len() * PERIODS.len();
/// Requests of 4 KiB that are read to measure a throughput that no reservation limits, and for Figs. 7 and 8.
const REQUESTS: u64 = 8_000;
const OBSERVED_REQUESTS: u64 = 5_000;
/// The distributions need this many interrupts.
const INTERRUPTS_MIN: u64 = 1_000;
/// Section IV-B: the average utilisation, and the largest by the longest execution and the shortest time between
/// interrupts.
const PAPER_UTILISATIONS: (f64, f64) = (0.002_183_3, 0.410_96);

/// The guest's part. Each call of `dma` reads in a reservation of $2 percent of the need every $3 us.
const FUNCTIONS: &str = r#"
use /dev/vda "$(awk '/virtio[0-9]+-req/ {sub(":", "", $1); print $1; exit}' /proc/interrupts)" 4k "$requests"
fixed dma-fixed
each=$((work / most)); alone=$took; need=$work
dma() {
    q=$(($3 * need * $2 / alone / 100))
    [ "$q" -le $(($3 / 10 * 9)) ] || q=$(($3 / 10 * 9))
    reserve "$q" "$3" || { echo "dma-refused $1"; return; }
    limited "$q" "$3" "$4"
    echo "dma-row $1 $q $read_blocks $took $work"
    release
}
"#;

/// After [`super::lab`]'s functions.
pub(super) fn script(short: bool) -> String {
    let rows = (0..ROWS).map(|row| {
        let (percent, (t, usual, few)) = kind(row);
        format!("dma {row} {percent} {} {}\n", t * 1_000, if short { few } else { usual })
    });
    let rows: String = rows.collect();
    let observe = format!(
        "takt observe --tid \"$thread\" --suspensions -o {LAB_LOG} -- dd if=/dev/vda of=/dev/null bs=4k \
         count={OBSERVED_REQUESTS} iflag=direct > observed 2>&1 || cat observed >&2\n"
    );
    format!("requests={REQUESTS}\n{FUNCTIONS}{rows}fixed dma-fixed\n{observe}echo \"dma-observed $thread\"\n")
}

/// Percent of the need, and the period.
fn kind(row: usize) -> (u64, (u64, u64, u64)) {
    (PERCENTS[row / PERIODS.len()], PERIODS[row % PERIODS.len()])
}

/// The measurements of the virtio disk.
#[derive(Default)]
pub(super) struct Dma {
    /// The thread's share of the CPU at a fixed priority.
    share: Option<f64>,
    /// Requests a second at a fixed priority.
    fixed: Vec<f64>,
    /// By row: Q/T, and requests a second.
    rows: [Option<(f64, f64)>; ROWS],
    refused: usize,
    thread: Option<u64>,
    driver: Option<TaskStats>,
}

impl Dma {
    /// Takes a line of the guest's output in. `None`: it is none of its lines.
    pub(super) fn line(&mut self, kind_of_line: &str, numbers: &[u64]) -> Option<()> {
        let rate = |requests: u64, took: u64| (took > 0).then(|| requests as f64 / (took as f64 / 1e9));
        match (kind_of_line, numbers) {
            ("dma-fixed", &[requests, took, work]) => {
                self.fixed.push(rate(requests, took)?);
                self.share = Some(work as f64 / took as f64);
            }
            ("dma-row", &[row, q_us, requests, took, _]) => {
                let row = usize::try_from(row).ok().filter(|row| *row < ROWS)?;
                let (_, (t, ..)) = kind(row);
                self.rows[row] = Some((q_us as f64 / (t * 1_000) as f64, rate(requests, took)?));
            }
            ("dma-refused", &[_]) => self.refused += 1,
            ("dma-observed", &[thread]) => self.thread = Some(thread),
            _ => return None,
        }
        Some(())
    }

    /// Whether there is a throughput to compare with.
    pub(super) fn is_complete(&self) -> bool {
        self.share.is_some_and(|share| share > 0.0)
    }

    /// Reads the recording of the interrupt thread.
    pub(super) fn read_log(
        &mut self,
        context: &Context,
        findings: &mut Findings,
        log: Option<&[u8]>,
    ) -> Result<(), Failure> {
        const FILE: &str = "virtio-driver.takt";
        let (Some(thread), Some(log)) = (self.thread, log) else {
            findings.notes.push("The guest recorded no interrupt thread, so Figs. 7 and 8 are missing.".to_owned());
            return Ok(());
        };
        context.write(FILE, log)?;
        findings.files.push(FILE.to_owned());
        let broken = |error: ReadError| Failure::trouble(format_args!("the log of the guest: {error}"));
        let stats = Collector::read(&mut Reader::new(log).map_err(broken)?).map_err(broken)?;
        let of_it = format!("-{thread}");
        self.driver = stats.tasks.into_iter().find(|task| task.task.ends_with(&of_it));
        Ok(())
    }

    /// The throughput in percent of that at a fixed priority.
    fn percent(&self, row: usize) -> Option<f64> {
        let (_, rate) = self.rows[row]?;
        Some(rate / median(&self.fixed)? * 100.0)
    }

    fn expected(&self, row: usize) -> Option<f64> {
        let (reserved, _) = self.rows[row]?;
        Some((reserved / self.share?).min(1.0) * 100.0)
    }

    pub(super) fn table(&self) -> Comparison {
        let row = |row: usize| {
            let (percent, (t, ..)) = kind(row);
            let q = self.rows[row].map(|(reserved, _)| reserved * t as f64);
            Row {
                name: format!("({}ms, {t}ms), {percent} % of the need", decimal(q, 3)),
                values: vec![vec![self.percent(row)], vec![self.expected(row)]],
            }
        };
        Comparison::new(
            "Throughput of a virtio disk with its interrupt thread in a reservation",
            "Fig. 6",
            "% of the throughput at a fixed priority",
            2,
        )
        .with("reservation", [""], [MEASURED, "expected"], (0..ROWS).map(row))
    }

    pub(super) fn figures(&self) -> Vec<Drawn> {
        let share = self.share.unwrap_or(1.0);
        let points = |period: usize| {
            let of = |row: usize| Some((self.rows[row]?.0 / share * 100.0, self.percent(row)?));
            (0..ROWS).filter(|row| row % PERIODS.len() == period).filter_map(of).collect()
        };
        let figure = Figure::new(
            "Throughput of a virtio disk against what its interrupt thread reserves",
            "Q/T in % of what the thread needs",
            "% of the throughput at a fixed priority",
            vec![
                series("expected", Form::Dashed, 7, vec![(0.0, 0.0), (100.0, 100.0), (200.0, 100.0)]),
                series("measured, T = 100ms", Form::Dots, 0, points(0)),
                series("measured, T = 1000ms", Form::Dots, 2, points(1)),
            ],
        );
        let mut figures = vec![Drawn::of(
            "virtio-throughput.svg",
            &figure,
            "Fig. 6: throughput of a disk with DMA",
            "In the paper the thread needs 0.218 %, and Q/T = 0.3 % gives the full throughput.",
        )];
        if let Some(driver) = &self.driver {
            figures.extend(distributions(driver));
        }
        figures
    }

    /// The utilisation on average, and the largest by Eq. 1.
    fn utilisations(&self) -> Option<(f64, f64)> {
        let driver = self.driver.as_ref()?;
        let (executions, arrivals) = (driver.executions.summary()?, driver.inter_arrivals.summary()?);
        let sums = driver.executions.sum() as f64 / driver.inter_arrivals.sum() as f64;
        let most = executions.max as f64 / arrivals.min as f64;
        (sums.is_finite() && most.is_finite()).then_some((sums, most))
    }

    pub(super) fn claims(&self, findings: &mut Findings) {
        let rows = |low: u64, high: u64| (0..ROWS).filter(move |row| (low..high).contains(&kind(*row).0));
        let measured = self.rows.iter().flatten().count() as u64;
        let relative = |row: usize| Some(self.percent(row)? / self.expected(row)?);
        let known: Vec<f64> = rows(0, 95).filter_map(relative).collect();
        findings
            .claim(
                "dma-proportional",
                "with DMA, too, the throughput is proportional to Q/T below the thread's need: each within 35 % of \
                 (Q/T)/u",
                format!("by (Q/T)/u: {}; u = {}", span(&known), decimal(self.share, 3)),
                all(rows(0, 95).map(|row| within(relative(row), 1.0, 0.65, 1.35))),
            )
            .needs(measured, ROWS as u64, "reservations");
        let pairs: Vec<Option<f64>> = (0..ROWS)
            .step_by(PERIODS.len())
            .map(|short| Some(self.percent(short)? / self.percent(short + 1)?))
            .collect();
        let ratios: Vec<f64> = pairs.iter().copied().flatten().collect();
        findings
            .claim(
                "dma-period",
                "with DMA, too, the throughput depends on Q/T alone, not on T: T = 100ms as T = 1000ms within 35 %",
                format!("T = 100ms by T = 1000ms: {}", span(&ratios)),
                all(pairs.iter().map(|pair| within(*pair, 1.0, 0.65, 1.35))),
            )
            .needs(measured, ROWS as u64, "reservations");
        let full: Vec<f64> = rows(105, u64::MAX).filter_map(|row| Some(self.percent(row)? / 100.0)).collect();
        findings
            .claim(
                "dma-enough",
                "a reservation a little larger than the average utilisation gives the full throughput (1.37 times \
                 in the paper; here 1.4 and 2 times give 85 % of it or more, on average)",
                format!("of the throughput at a fixed priority: {}", span(&full)),
                mean(full.iter().copied()).map(|part| part >= 0.85),
            )
            .needs(measured, ROWS as u64, "reservations");
        let utilisations = self.utilisations();
        let interrupts = self.driver.as_ref().map_or(0, |driver| driver.executions.count());
        let ratio = utilisations.map(|(mean, most)| most / mean);
        findings
            .claim(
                "dma-pessimistic",
                format!(
                    "Eq. 1 by the longest execution and the shortest time between interrupts reserves too much: \
                     more than the 1.4 times of the average utilisation that suffice ({:.0} times in the paper)",
                    PAPER_UTILISATIONS.1 / PAPER_UTILISATIONS.0
                ),
                format!(
                    "an average of {}, and {} by Eq. 1: {} times",
                    decimal(utilisations.map(|(mean, _)| mean), 3),
                    decimal(utilisations.map(|(_, most)| most), 3),
                    decimal(ratio, 1)
                ),
                ratio.map(|ratio| ratio > 1.4),
            )
            .needs(interrupts, INTERRUPTS_MIN, "interrupts");
    }

    pub(super) fn differences(&self, findings: &mut Findings) {
        findings.differences.push(format!(
            "The virtio disk stands for the paper's disk with DMA. Requests have 4 KiB, one at a time. The disk \
             answers at once, so its interrupt thread needs {:.1} % of the CPU, in the paper 0.2 %. The times of \
             Fig. 7 are those of reader and kernel, without a disk's time. The recorder's work is in Figs. 7 and 8.",
            self.share.unwrap_or(0.0) * 100.0
        ));
        if self.refused > 0 {
            let refused = self.refused;
            findings.differences.push(format!("The kernel did not admit {refused} reservations for the virtio disk."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk whose thread needs a quarter of the CPU, and whose rates are `rate` times what is expected.
    fn measured(rate: f64) -> Dma {
        let mut dma = Dma::default();
        dma.line("dma-fixed", &[8_000, 400_000_000, 100_000_000]).expect("a line of the guest");
        for row in 0..ROWS {
            let (percent, (t, ..)) = kind(row);
            let requests = 20_000.0 * (percent as f64 / 100.0).min(1.0) * rate;
            let numbers = [row as u64, t * percent * 5 / 2, requests as u64, 1_000_000_000, 0];
            dma.line("dma-row", &numbers).expect("a line of the guest");
        }
        dma
    }

    fn holding(dma: &Dma) -> Vec<Option<bool>> {
        let mut findings = Findings::default();
        dma.claims(&mut findings);
        findings.claims.iter().map(|claim| claim.holds).collect()
    }

    #[test]
    fn claims_follow_the_rates() {
        assert_eq!(holding(&measured(1.0)), [Some(true), Some(true), Some(true), None]);
        assert_eq!(holding(&measured(0.5)), [Some(false), Some(true), Some(false), None]);
        let mut one_is_missing = measured(1.0);
        one_is_missing.rows[3] = None;
        assert_eq!(holding(&one_is_missing), [None; 4]);
    }

    #[test]
    fn a_line_of_another_form_is_refused() {
        let mut dma = Dma::default();
        let wrong: [(&str, &[u64]); 4] = [
            ("dma-fixed", &[1, 0, 1]),
            ("dma-row", &[12, 1, 1, 1, 1]),
            ("dma-row", &[0, 1, 1, 0, 1]),
            ("row", &[0, 1, 1, 1]),
        ];
        for (word, numbers) in wrong {
            assert_eq!(dma.line(word, numbers), None, "{word} {numbers:?}");
        }
        assert!(!dma.is_complete());
        assert_eq!(script(true).lines().filter(|line| line.starts_with("dma ")).count(), ROWS);
    }
}
