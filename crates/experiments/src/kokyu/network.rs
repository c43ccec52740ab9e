//! [KOKYU VII] asks how network latency changes the result. Another node needs the result of each
//! operation by its deadline, and the way there takes time.
//!
//! The dispatcher knows the latency: the deadlines that it gets are earlier by the latency. In
//! simulation a result arrives at its completion plus the latency. Live, the end of each job is an
//! event for another node. It leaves with the time that is left until the deadline. The link
//! between two network namespaces has the latency.
//!
//! `run.rs` has one run. This file has the runs of all points, their tables and their claims.

mod run;

use takt_log::stats::Histogram;
use takt_model::{Builtin, Span};
use takt_report::{Figure, Form, Series};

use super::delay::Link;
use super::live::{undecided, uninterrupted};
use super::window::{SHRINK, WINDOW_MIN, cpus, rest, window};
use super::{Comparison, Context, Drawn, Failure, Findings, Row, Variant, figure, seed_of};
use crate::failure::Status;
use run::{DeadlineCounts, LiveWindow, RatePair, remote_plan, run_simulated};

/// Latencies in ms of the application.
const LATENCIES: [u64; 5] = [0, 1, 5, 10, 20];
/// Latencies of the live windows with `--short`.
const SHORT_LATENCIES: [u64; 2] = [0, 10];
/// In the first region rm meets all deadlines. In the second it misses some.
const REGIONS: [usize; 2] = [6, 10];
const VARIANTS: [Variant; 5] = [
    Variant { strategy: Some(Builtin::Rm), cancel: false },
    Variant { strategy: Some(Builtin::Muf), cancel: false },
    Variant { strategy: Some(Builtin::Muf), cancel: true },
    Variant { strategy: Some(Builtin::RmsMlf), cancel: false },
    Variant { strategy: Some(Builtin::RmsMlf), cancel: true },
];
const PORT: u16 = 7000;
/// From this latency on, in ms, a dispatcher that knows the latency must do better.
const KNOWN_LATENCY_MIN_MS: u64 = 5;
/// The share of the critical deadlines that must be met live, in percent. It leaves room for pauses
/// of the machine.
const CRITICAL_MET_MIN_PERCENT: u64 = 95;
const LIVE_CLAIM: (&str, &str) = (
    "live_network",
    "between two nodes on this kernel rms+mlf meets 95 % or more of the critical deadlines, over all latencies, \
     and in overload rm meets a smaller share at each latency (by the clock of the receiving handler, without \
     jobs during a pause of a node's CPU or in the frame after it)",
);

fn variant_index(wanted: Variant) -> usize {
    VARIANTS.iter().position(|variant| *variant == wanted).unwrap_or(VARIANTS.len())
}

/// By region, by latency, by variant.
type PointGrid<T> = Vec<Vec<Vec<T>>>;

struct Network {
    /// Long simulations of this duration, of a dispatcher that knows the latency and of one that does
    /// not.
    long: [PointGrid<RatePair>; 2],
    duration: Span,
    /// The windows of this kernel, simulated and live. `window` is their length here.
    simulated: PointGrid<RatePair>,
    live: PointGrid<Option<RatePair>>,
    /// By latency: the delays of results from send to receive.
    delays: Vec<Histogram>,
    /// Totals of all windows: results that came too late, and log entries that found no room.
    late: u64,
    lost: u64,
    window: Span,
}

/// The values of all points.
fn for_each_point<T>(
    mut value: impl FnMut(usize, usize, Variant) -> Result<T, Failure>,
) -> Result<PointGrid<T>, Failure> {
    let mut all = Vec::new();
    for region in REGIONS {
        let mut latencies = Vec::new();
        for latency in 0..LATENCIES.len() {
            let of = |variant: &Variant| value(region, latency, *variant);
            latencies.push(VARIANTS.iter().map(of).collect::<Result<Vec<T>, Failure>>()?);
        }
        all.push(latencies);
    }
    Ok(all)
}

/// Simulates, measures and adds the results. Adds the reason instead if this machine or user cannot
/// measure.
pub(super) fn add(context: &Context, duration: Span, findings: &mut Findings) -> Result<(), Failure> {
    let simulate_long = |latency_known| {
        for_each_point(|region, latency, variant| {
            uninterrupted(context)?;
            let latency = Span::from_ms(LATENCIES[latency]);
            let remote = remote_plan(region, variant, latency, latency_known, false)?;
            run_simulated(&remote, latency, duration, seed_of(context.seed, region), &|| context.stopped())
        })
    };
    let window = window(context);
    let window_latency = |latency: usize| Span::from_ns(Span::from_ms(LATENCIES[latency]).as_ns() / SHRINK);
    let in_windows = for_each_point(|region, latency, variant| {
        let remote = remote_plan(region, variant, window_latency(latency), true, true)?;
        run_simulated(&remote, window_latency(latency), window, seed_of(context.seed, region), &|| false)
    })?;
    let long = match simulate_long(true).and_then(|known| Ok([known, simulate_long(false)?])) {
        Err(failure) if context.stopped() => {
            undecided(findings, &[LIVE_CLAIM], &failure);
            return Ok(());
        }
        long => long?,
    };
    let mut network = Network {
        long,
        duration,
        simulated: in_windows,
        live: for_each_point(|_, _, _| Ok(None))?,
        delays: vec![Histogram::default(); LATENCIES.len()],
        late: 0,
        lost: 0,
        window,
    };
    let refused = match network.measure(context, window, window_latency) {
        Err(failure) if failure.status != Status::Cannot => return Err(failure),
        measured => measured.err(),
    };
    if let Err(interrupted) = uninterrupted(context) {
        undecided(findings, &[LIVE_CLAIM], &interrupted);
        return Ok(());
    }
    network.tables(findings, refused.is_none());
    network.figures(findings, refused.is_none());
    network.claims(findings);
    match refused {
        Some(failure) => undecided(findings, &[LIVE_CLAIM], &failure),
        None => network.claim_live(findings),
    }
    network.notes(findings);
    Ok(())
}

impl Network {
    fn measure(
        &mut self,
        context: &Context,
        window: Span,
        window_latency: impl Fn(usize) -> Span,
    ) -> Result<(), Failure> {
        let cpus = cpus(context)?;
        let link = Link::lay(PORT)?;
        let bar = (context.host.bar)("windows", (REGIONS.len() * LATENCIES.len() * VARIANTS.len()) as u64);
        let regions = REGIONS.iter().zip(&mut self.live).skip(usize::from(context.short));
        for (region, latencies) in regions {
            for (latency, of) in latencies.iter_mut().enumerate() {
                if context.short && !SHORT_LATENCIES.contains(&LATENCIES[latency]) {
                    continue;
                }
                for (variant, into) in VARIANTS.iter().zip(of) {
                    if context.stopped() {
                        return Ok(());
                    }
                    let (delay, seed) = (window_latency(latency), seed_of(context.seed, *region));
                    let remote = &remote_plan(*region, *variant, delay, true, true)?;
                    let run = LiveWindow { link: &link, remote, latency: delay, cpus, duration: window, seed }.run()?;
                    *into = Some(run.met);
                    self.delays[latency].merge(&run.delays);
                    (self.late, self.lost) = (self.late + run.late, self.lost + run.lost);
                    rest(window);
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// A value of a table, from both classes and a time in seconds.
type Value = fn(&RatePair, f64) -> f64;

const CRITICAL: (&str, &str, Value) =
    ("Critical deadlines met on another node", "% of those due", |both, _| percent(both[0]));
const NONCRITICAL: (&str, &str, Value) =
    ("Noncritical deadlines met on another node", "deadlines/s of the application", |both, seconds| {
        both[1].met as f64 / seconds
    });

fn percent(met: DeadlineCounts) -> f64 {
    if met.due == 0 { 100.0 } else { 100.0 * met.met as f64 / met.due as f64 }
}

impl Network {
    fn seconds(&self) -> f64 {
        self.duration.as_ns() as f64 / 1e9
    }

    fn window_seconds(&self) -> f64 {
        (self.window.as_ns() * SHRINK) as f64 / 1e9
    }

    fn tables(&self, findings: &mut Findings, live: bool) {
        for (title, unit, value) in [CRITICAL, NONCRITICAL] {
            let of = |all: &PointGrid<RatePair>, at: (usize, usize), seconds: f64| {
                all[at.0][at.1].iter().map(|both| Some(value(both, seconds))).collect::<Vec<_>>()
            };
            let table = |title: String,
                         sources: Vec<&'static str>,
                         values: &dyn Fn((usize, usize)) -> Vec<Vec<Option<f64>>>| {
                let all =
                    (0..REGIONS.len()).flat_map(|region| (0..LATENCIES.len()).map(move |latency| (region, latency)));
                let name = |at: (usize, usize)| format!("{}, {} ms", REGIONS[at.0], LATENCIES[at.1]);
                let rows = all.map(|at| Row { name: name(at), values: values(at) }).collect();
                let columns = VARIANTS.iter().map(|variant| variant.name()).collect();
                let (cite, row_head) = ("section VII", "region, latency");
                Comparison { title, cite, unit, digits: 1, row_head, columns, sources, rows }
            };
            let [known, unknown] = &self.long;
            findings.tables.push(table(
                format!("{title}, simulated: told of the latency, and not"),
                vec!["told", "untold"],
                &|at| vec![of(known, at, self.seconds()), of(unknown, at, self.seconds())],
            ));
            if live {
                findings.tables.push(table(format!("{title}, on this kernel"), vec!["simulated", "live"], &|at| {
                    let live =
                        self.live[at.0][at.1].iter().map(|both| both.map(|both| value(&both, self.window_seconds())));
                    vec![of(&self.simulated, at, self.window_seconds()), live.collect()]
                }));
            }
        }
    }

    fn figures(&self, findings: &mut Findings, live: bool) {
        let region = REGIONS.len() - 1;
        let source = if live {
            "The same windows, simulated and on this kernel, between two network namespaces."
        } else {
            "The windows of this kernel, simulated; it did not run them."
        };
        for (file, (title, unit, value)) in
            [("network-critical.svg", CRITICAL), ("network-noncritical.svg", NONCRITICAL)]
        {
            let mut all = Vec::new();
            for (colour, variant) in VARIANTS.iter().enumerate() {
                let points = |of: &dyn Fn(usize) -> Option<RatePair>| {
                    let met =
                        |(at, latency): (usize, &u64)| Some((*latency as f64, value(&of(at)?, self.window_seconds())));
                    LATENCIES.iter().enumerate().filter_map(met).collect::<Vec<_>>()
                };
                let simulated = points(&|at| Some(self.simulated[region][at][colour]));
                let live = points(&|at| self.live[region][at][colour]);
                let name = variant.name();
                all.push(Series { name: format!("{name}, simulated"), points: simulated, form: Form::Dashed, colour });
                if !live.is_empty() {
                    all.push(Series { name: format!("{name}, live"), points: live, form: Form::Rings, colour });
                }
            }
            let title = format!("{title}, region {}", REGIONS[region]);
            let figure = Figure { x: "latency in ms of the application".to_owned(), ..figure(&title, unit, all) };
            findings.figures.push(Drawn::of(
                file,
                &figure,
                title,
                format!(
                    "The other node needs each job's result by the job's deadline. The dispatcher knows the \
                     latency. {source}"
                ),
            ));
        }
    }

    /// Returns `None` if the simulation is too short.
    fn decide(&self, holds: bool) -> Option<bool> {
        (self.duration >= super::REGION_MIN).then_some(holds)
    }

    fn claims(&self, findings: &mut Findings) {
        let [known, unknown] = &self.long;
        let (feasible, overload) = (0, REGIONS.len() - 1);
        let losing = |variant: Variant| {
            let at = variant_index(variant);
            known.iter().flatten().filter(|of| of.get(at).is_some_and(|both| both[0].met < both[0].due)).count()
        };
        let both = |strategy| [false, true].map(|cancel| Variant { strategy: Some(strategy), cancel });
        let hybrids = both(Builtin::RmsMlf);
        let lost: usize = hybrids.iter().map(|variant| losing(*variant)).sum();
        let cases = hybrids.len() * REGIONS.len() * LATENCIES.len();
        let least = both(Builtin::Muf).map(|muf| {
            let farthest = |region: &Vec<Vec<RatePair>>| Some(percent((*region.last()?.get(variant_index(muf))?)[0]));
            known.iter().filter_map(farthest).fold(f64::INFINITY, f64::min)
        });
        findings.claim(
            "network_rms_mlf_keeps_critical",
            format!(
                "the paper's question of network latency: with up to {} ms, rms+mlf keeps the critical \
                 deadlines on another node, with cancellation and without, and muf does not, because its \
                 critical operations wait for each other in one level",
                LATENCIES[LATENCIES.len() - 1]
            ),
            format!(
                "rms+mlf loses some in {lost} of {cases} cases; at the longest latency muf meets {:.1} % without \
                 cancellation and {:.1} % with it, in the worse region",
                least[0], least[1]
            ),
            self.decide(lost == 0 && least.iter().all(|least| *least < 100.0)),
        );
        let met = |all: &PointGrid<RatePair>, region: usize, latency: usize, at: usize| all[region][latency][at][1].met;
        let rm: Vec<u64> = (0..LATENCIES.len()).map(|latency| met(known, feasible, latency, 0)).collect();
        let best = |latency: usize| (0..VARIANTS.len()).all(|at| met(known, feasible, latency, at) <= rm[latency]);
        let share = |at: usize| {
            100.0 * met(known, feasible, LATENCIES.len() - 1, at) as f64 / met(known, feasible, 0, at).max(1) as f64
        };
        findings.claim(
            "network_rm_is_best_while_feasible",
            "the paper's question of network latency: while the load is feasible, no strategy meets more \
             noncritical deadlines on another node than rm, at any latency",
            format!(
                "from the shortest to the longest latency rm keeps {:.1} % of them, rms+mlf {:.1} %",
                share(0),
                share(variant_index(hybrids[0]))
            ),
            self.decide(rm.iter().all(|met| *met > 0) && (0..LATENCIES.len()).all(best)),
        );
        let cancelling: Vec<usize> = (0..VARIANTS.len()).filter(|at| VARIANTS[*at].cancel).collect();
        let mut gains = Vec::new();
        for latency in (0..LATENCIES.len()).filter(|latency| LATENCIES[*latency] >= KNOWN_LATENCY_MIN_MS) {
            for at in &cancelling {
                let (with, without) = (met(known, overload, latency, *at), met(unknown, overload, latency, *at));
                gains.push(with as f64 / without.max(1) as f64);
            }
        }
        let (least, most) =
            gains.iter().fold((f64::INFINITY, 0.0), |(a, b), gain| (f64::min(a, *gain), f64::max(b, *gain)));
        findings.claim(
            "network_telling_pays",
            format!(
                "the paper's question of network latency: in overload with cancellation, from \
                 {KNOWN_LATENCY_MIN_MS} ms of latency on, a dispatcher that knows the latency meets more \
                 noncritical deadlines on another node than a dispatcher that does not"
            ),
            format!("{least:.2} to {most:.2} times as many"),
            self.decide(least > 1.0),
        );
    }

    /// Adds the claim that windows on this kernel decide. A pause of the machine loses deadlines in
    /// few windows.
    fn claim_live(&self, findings: &mut Findings) {
        let measured = || self.live.iter().flatten();
        let hybrids: Vec<usize> =
            (0..VARIANTS.len()).filter(|at| VARIANTS[*at].strategy == Some(Builtin::RmsMlf)).collect();
        let mut all = DeadlineCounts::default();
        for both in measured().flat_map(|of| hybrids.iter().filter_map(|at| *of.get(*at)?)) {
            (all.due, all.met) = (all.due + both[0].due, all.met + both[0].met);
            all.left_out += both[0].left_out;
        }
        let overload = self.live.last().into_iter().flatten();
        let critical = |of: &[Option<RatePair>], at: usize| Some(percent((*of.get(at)?)?[0]));
        let pairs: Vec<(f64, f64)> =
            overload.filter_map(|of| critical(of, 0).zip(hybrids.first().and_then(|at| critical(of, *at)))).collect();
        let fewer = pairs.iter().filter(|(rm, hybrid)| rm < hybrid).count();
        findings.claim(
            LIVE_CLAIM.0,
            LIVE_CLAIM.1,
            format!(
                "rms+mlf meets {} of {}, {} left out for pauses; rm meets a smaller share in overload at \
                 {fewer} of {} latencies; {} ends of jobs came too late under any strategy, and {} log entries \
                 were lost",
                all.met,
                all.due,
                all.left_out,
                pairs.len(),
                self.late,
                self.lost
            ),
            // The claim stays undecided if pauses took most of the time, if log entries were lost,
            // or if the windows were too short.
            (all.due > all.left_out && !pairs.is_empty() && self.lost == 0 && self.window >= WINDOW_MIN)
                .then_some(all.met * 100 >= all.due * CRITICAL_MET_MIN_PERCENT && fewer == pairs.len()),
        );
    }

    fn notes(&self, findings: &mut Findings) {
        findings.differ([
            "The paper has no network latency. Its values are flushed to other processors at their deadlines. \
             Here each value leaves when its job is complete, and the latency takes from the time that is left \
             until the deadline. Live, a thread between two cables holds each datagram for the latency, since \
             many kernels lack a queueing discipline for this (netem).",
        ]);
        let median = |(latency, delays): (&u64, &Histogram)| {
            let us = delays.percentile(50)? as f64 / 1e3;
            Some(format!("{us:.0} us where {} us are added", latency * 1000 / SHRINK))
        };
        let medians: Vec<String> = LATENCIES.iter().zip(&self.delays).filter_map(median).collect();
        if !medians.is_empty() {
            findings
                .notes
                .push(format!("The end of a job reaches the other node after (medians) {}.", medians.join("; ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// rms+mlf keeps all deadlines. muf loses some at the longest latency. Knowing the latency
    /// helps.
    fn usual() -> Network {
        let met = |met| DeadlineCounts { due: 100, met, left_out: 0 };
        let of = |latency_known: bool| {
            let one = |_, latency, variant: Variant| {
                let last = latency + 1 == LATENCIES.len();
                let critical = if variant.strategy == Some(Builtin::Muf) && last { 99 } else { 100 };
                let gain = u64::from(latency_known && variant.cancel);
                let noncritical = if variant.strategy == Some(Builtin::Rm) { 80 } else { 50 };
                Ok([met(critical), met(noncritical + 10 * gain)])
            };
            for_each_point(one).unwrap()
        };
        let live = |_, _, variant: Variant| {
            Ok(Some([met(if variant.strategy == Some(Builtin::Rm) { 50 } else { 96 }), met(10)]))
        };
        Network {
            long: [of(true), of(false)],
            duration: super::super::REGION_MIN,
            simulated: of(true),
            live: for_each_point(live).unwrap(),
            delays: vec![Histogram::default(); LATENCIES.len()],
            late: 0,
            lost: 0,
            window: WINDOW_MIN,
        }
    }

    fn verdicts(change: impl Fn(&mut Network)) -> Vec<Option<bool>> {
        let (mut network, mut findings) = (usual(), Findings::default());
        change(&mut network);
        network.claims(&mut findings);
        network.claim_live(&mut findings);
        findings.claims.iter().map(|claim| claim.holds).collect()
    }

    #[test]
    fn the_share_of_no_deadlines_is_100_percent() {
        let counts = [DeadlineCounts { due: 4, met: 1, left_out: 0 }, DeadlineCounts::default()];
        assert_eq!(counts.map(percent), [25.0, 100.0]);
    }

    #[test]
    fn each_claim_can_fail() {
        assert_eq!(verdicts(|_| ()), [Some(true); 4]);
        let (rms_mlf, last) = (3, LATENCIES.len() - 1);
        assert_eq!(verdicts(|network| network.long[0][1][2][rms_mlf][0].met = 99)[0], Some(false));
        let kept = |network: &mut Network| {
            network.long[0].iter_mut().for_each(|region| region[last][1][0].met = 100);
        };
        assert_eq!(verdicts(kept)[0], Some(false), "muf without cancellation keeps all");
        assert_eq!(verdicts(|network| network.long[0][0][2][rms_mlf][1].met = 81)[1], Some(false));
        assert_eq!(verdicts(|network| network.long[1][1][2][4][1].met = 60)[2], Some(false));
        assert_eq!(verdicts(|network| network.live[1][0][0] = network.live[1][0][rms_mlf])[3], Some(false));
        let missing = |network: &mut Network| {
            let all = network.live.iter_mut().flatten().flatten().flatten();
            all.for_each(|both| both[0].met = both[0].met.min(90));
        };
        assert_eq!(verdicts(missing)[3], Some(false));
        assert_eq!(verdicts(|network| network.lost = 1)[3], None);
        let short =
            |network: &mut Network| (network.duration, network.window) = (Span::from_ms(100), Span::from_ms(50));
        assert_eq!(verdicts(short), [None; 4], "too short");
    }
}
