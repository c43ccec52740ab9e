//! [HEDF IV-B], Fig. 6, on this kernel: the messages of the simulation, a hundred times slower.

use takt_linux::tc::Rule;
use takt_model::{Link, Rate, Span, Time};
use takt_report::{Form, Series};

use super::super::cluster::{Cluster, LINK, Message};
use super::super::misses::{DEADLINES, KNEE, LOADS, Outcome, Rule as Order, cluster, drawn, load_of, ms, name};
use super::node::ClientRecord;
use super::{Lab, Run};
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::{Comparison, Drawn, Findings, LIVE, Row, SIMULATED};

/// Two CPUs carry the paper's eight nodes at a hundredth of its rates. All times are a hundred times
/// as long, so that loads, bursts and deadlines keep their proportions.
const SLOWNESS: u64 = 100;
/// Rows of [`LOADS`] with `--short`: an empty network, its knee, full links, and the most bursts.
const SHORT: [usize; 4] = [0, KNEE, KNEE + 1, 9];
/// The load at which EDF that drops late packets is compared with order of arrival. Links are always
/// full there.
const FULL: usize = 9;
/// Shorter measurements decide nothing.
const LEAST_MS: u64 = 3_000;
/// With fewer messages missed in order of arrival, a tenth of them is not told from chance.
const LEAST_MISSED: u64 = 100;
/// Points of a percentage by which stable miss rates may differ.
const STABLE: f64 = 1.0;
/// The same between a simulated and a live rate.
const ALIKE: f64 = 10.0;

#[derive(Clone, Copy, Default)]
struct OutcomePair {
    simulated: Outcome,
    live: Outcome,
}

/// By rule and load.
struct Measured {
    loads: Vec<usize>,
    /// By D.
    all: Vec<[Vec<OutcomePair>; 3]>,
    disturbed: Disturbances,
}

/// Causes of late or lost messages besides the load.
#[derive(Default)]
struct Disturbances {
    lost: u64,
    sender_late: Span,
    blocked: u64,
    full: u64,
}

pub(in super::super) fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let duration = context.duration(Span::from_s(6), Span::from_ms(1_500));
    let deadlines = if context.short { &DEADLINES[..1] } else { &DEADLINES[..] };
    let loads = if context.short { SHORT.to_vec() } else { (0..LOADS.len()).collect() };
    let mut lab = Lab::build()?;
    lab.share(Some(&Link::at(Rate::from_bps(LINK / SLOWNESS))), &Rule::usual(false))?;
    lab.share_ports(&Link::at(Rate::from_bps(LINK / SLOWNESS)))?;
    let mut measured =
        Measured { loads, all: vec![Default::default(); deadlines.len()], disturbed: Disturbances::default() };
    let bar = (context.host.bar)("measuring", (deadlines.len() * measured.loads.len() * Order::ALL.len()) as u64);
    'all: for (i, deadline) in deadlines.iter().enumerate() {
        for at in measured.loads.clone() {
            // All rules see the same messages, one after the other, so that disturbances are alike.
            for (k, rule) in Order::ALL.into_iter().enumerate() {
                let hosts = (Span::ZERO, Span::ZERO);
                let cluster = Cluster { hosts, ..cluster(LOADS[at], rule, Span::from_us(*deadline)) };
                let both = measure(context, &lab, &cluster, at, duration, &mut measured.disturbed)?;
                let Some(both) = both else { break 'all };
                measured.all[i][k].push(both);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    measured.disturbed.full = lab.dropped();
    let mut findings = Findings::default();
    if !context.stopped() {
        findings.tables.extend(measured.tables());
        findings.tables.push(measured.counts());
        findings.figures.extend(measured.pictures());
        measured.claims(&mut findings);
        for claim in &mut findings.claims {
            claim.needs(duration.as_ns() / 1_000_000, LEAST_MS, "ms of a measurement");
            claim.needs(measured.fewest(), 1, "messages of each rate");
        }
    }
    differences(&mut findings);
    measured.notes(&mut findings);
    Ok(findings)
}

fn measure(
    context: &Context,
    lab: &Lab,
    cluster: &Cluster,
    at: usize,
    duration: Span,
    disturbed: &mut Disturbances,
) -> Result<Option<OutcomePair>, Failure> {
    let seed = context.seed.wrapping_add((at as u64) << 32);
    let duration = Span::from_ns(duration.as_ns() / SLOWNESS);
    let simulated = cluster.run(seed, duration)?;
    // Deadlines are up to twice D, so after that time each message is in time or late.
    let drain = Span::from_ns(cluster.deadline.as_ns() * SLOWNESS * 2);
    let run = Run {
        cluster,
        seed,
        duration,
        slowness: SLOWNESS,
        queue: Some(cluster.classes[0].queue),
        drain,
        background: false,
    };
    let ran = lab.run(context, &run)?;
    disturbed.lost += ran.lost;
    disturbed.blocked += ran.blocked;
    disturbed.sender_late = disturbed.sender_late.max(ran.sender_late);
    // Frames that wait are made after the end in the simulation.
    let end = Time::ZERO.saturating_add(duration);
    let within = simulated.messages.iter().filter(|message| message.created < end);
    let simulated = Outcome::from_in_time(within.map(Message::in_time));
    let end = Time::ZERO.saturating_add(run.slow(duration));
    let within = ran.messages.iter().filter(|message| message.created < end);
    let live = Outcome::from_in_time(within.map(ClientRecord::in_time));
    Ok((!ran.stopped).then_some(OutcomePair { simulated, live }))
}

impl Measured {
    fn tables(&self) -> Vec<Comparison> {
        let table = |(deadline, of): (&u64, &[Vec<OutcomePair>; 3])| {
            let row = |(i, at): (usize, &usize)| {
                let values = |pick: fn(&OutcomePair) -> f64| {
                    let missed = of.iter().map(|of| of.get(i).map(pick));
                    std::iter::once(Some(load_of(LOADS[*at]))).chain(missed).collect()
                };
                Row {
                    name: name(LOADS[*at]),
                    values: vec![values(|both| both.simulated.missed()), values(|both| both.live.missed())],
                }
            };
            Comparison::new(
                format!("Deadline misses at D = {} ms on this kernel", ms(*deadline)),
                "Fig. 6",
                "% of the messages, and the load of a link in %",
                1,
            )
            .with(
                "(mps, burst)",
                std::iter::once("load").chain(Order::ALL.map(Order::name)),
                [SIMULATED, LIVE],
                self.loads.iter().enumerate().map(row),
            )
        };
        DEADLINES.iter().zip(&self.all).map(table).collect()
    }

    fn counts(&self) -> Comparison {
        let row = |(i, at): (usize, &usize)| {
            let values = |pick: fn(&OutcomePair) -> u64| {
                let of = |k: usize| self.all.iter().filter_map(|of| Some(pick(of[k].get(i)?))).sum::<u64>() as f64;
                (0..Order::ALL.len()).map(|k| Some(of(k))).collect()
            };
            let values = vec![values(|both| both.simulated.messages), values(|both| both.live.messages)];
            Row { name: name(LOADS[*at]), values }
        };
        Comparison::new("Messages on this kernel", "Fig. 6", "messages of all clients", 0).with(
            "(mps, burst)",
            Order::ALL.map(Order::name),
            [SIMULATED, LIVE],
            self.loads.iter().enumerate().map(row),
        )
    }

    fn pictures(&self) -> Vec<Drawn> {
        let picture = |(deadline, of): (&u64, &[Vec<OutcomePair>; 3])| {
            let series = Order::ALL.iter().zip(of).enumerate().flat_map(|(colour, (rule, of))| {
                let points = |pick: fn(&OutcomePair) -> f64| {
                    self.loads.iter().zip(of).map(|(at, both)| (*at as f64 + 1.0, pick(both))).collect()
                };
                let [simulated, live] = [points(|both| both.simulated.missed()), points(|both| both.live.missed())];
                [
                    Series {
                        name: format!("{}, simulated", rule.name()),
                        points: simulated,
                        form: Form::Dashed,
                        colour,
                    },
                    Series { name: format!("{}, live", rule.name()), points: live, form: Form::Rings, colour },
                ]
            });
            let title = format!("Deadline misses at D = {} ms on this kernel", ms(*deadline));
            let caption = "The same messages, simulated and on this kernel.";
            drawn(&format!("live-misses-{deadline}us.svg"), title, caption, series.collect())
        };
        DEADLINES.iter().zip(&self.all).map(picture).collect()
    }

    fn fewest(&self) -> u64 {
        let each = self.all.iter().flatten().flatten();
        each.map(|both| both.simulated.messages.min(both.live.messages)).min().unwrap_or(0)
    }

    fn rates(&self, i: usize, rule: Order) -> Vec<f64> {
        let k = Order::ALL.iter().position(|of| *of == rule).unwrap_or(0);
        self.all.get(i).map_or_else(Vec::new, |of| of[k].iter().map(|both| both.live.missed()).collect())
    }

    /// The places of loads in the table that satisfy this.
    fn places(&self, is_meant: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.loads.len()).filter(|i| is_meant(self.loads[*i])).collect()
    }

    fn describe(&self, rates: &[f64], places: &[usize]) -> String {
        let rate_of = |i: &usize| Some(format!("{} {:.1} %", name(LOADS[self.loads[*i]]), rates.get(*i)?));
        places.iter().filter_map(rate_of).collect::<Vec<_>>().join(", ")
    }

    fn claims(&self, findings: &mut Findings) {
        let [fifo, edf] = [Order::Fifo, Order::Edf].map(|rule| self.rates(0, rule));
        let (before, after) = (self.places(|at| at < KNEE), self.places(|at| at > KNEE));
        let at = |rates: &[f64], places: &[usize]| places.iter().map(|i| rates[*i]).collect::<Vec<f64>>();
        let [stable, growing] = [&before, &after].map(|places| at(&fifo, places));
        findings.claim(
            "live_few_miss_before_the_links_are_full",
            format!(
                "On this kernel, in order of arrival, the miss rate is stable before (4400, 40): within {STABLE} \
                 points of a percentage"
            ),
            self.describe(&fifo, &before),
            is_stable(&stable),
        );
        findings.claim(
            "live_misses_grow_when_the_links_are_full",
            "On this kernel it grows from there with the workload and the size of bursts",
            self.describe(&fifo, &after),
            Some(growing.is_sorted() && most(&growing) > 3.0 * most(&stable) + STABLE),
        );
        let better = where_missed(&growing, &at(&edf, &after), |fifo, edf| edf < fifo);
        findings.claim(
            "live_edf_misses_less_when_bursts_fill_the_links",
            "On this kernel EDF before the device misses less where bursts fill the links",
            format!("{}; in order of arrival {}", self.describe(&edf, &after), self.describe(&fifo, &after)),
            better,
        );
        if self.all.len() > 1 {
            let later = self.rates(1, Order::Fifo);
            let lower = where_missed(&growing, &at(&later, &after), |fifo, later| later <= fifo);
            findings.claim(
                "live_a_later_deadline_shows_the_same",
                "On this kernel D = 1.0 ms shows the same, with fewer misses",
                format!("in order of arrival {}", self.describe(&later, &after)),
                lower,
            );
        }
        self.claim_tenth(findings);
        self.claim_alike(findings);
    }

    /// The claim of takt itself about dropping late packets.
    fn claim_tenth(&self, findings: &mut Findings) {
        let drop = self.rates(0, Order::EdfDrop);
        let fifo = self.rates(0, Order::Fifo);
        let Some(full) = self.places(|at| at == FULL).first().copied() else { return };
        let missed = self.all.first().and_then(|of| Some(of.first()?.get(full)?.live.missed));
        let claim = findings.claim(
            "live_dropping_late_packets_leaves_a_tenth",
            format!(
                "Not in the paper: where links are always full, at {}, EDF that drops late packets misses at most a \
                 tenth as many as order of arrival, of the same messages",
                name(LOADS[FULL])
            ),
            format!("{:.2} % of the messages, and {:.2} %", drop[full], fifo[full]),
            where_missed(&[fifo[full]], &[drop[full]], |fifo, drop| drop * 10.0 <= fifo),
        );
        claim.needs(missed.unwrap_or(0), LEAST_MISSED, "messages missed in order of arrival");
    }

    fn claim_alike(&self, findings: &mut Findings) {
        let each = self.all.iter().flat_map(|of| of.iter().flatten());
        let off = each.map(|both| (both.live.missed() - both.simulated.missed()).abs());
        let widest = off.fold(0.0, f64::max);
        let all: usize = self.all.iter().flat_map(|of| of.iter().map(Vec::len)).sum();
        findings.claim(
            "live_rates_are_the_simulated_ones",
            format!("Each miss rate on this kernel is within {ALIKE} points of a percentage of the simulated one"),
            format!("{all} rates differ by {widest:.1} points at most"),
            Some(widest <= ALIKE),
        );
    }

    fn notes(&self, findings: &mut Findings) {
        let Disturbances { lost, sender_late, blocked, full } = &self.disturbed;
        findings.notes.push(format!(
            "A frame that waited for no other was made {sender_late} late at most, and a line takes 373 us for a \
             message. {lost} datagrams were lost at sockets, {full} at full queues of devices. {blocked} frames waited \
             for the one before."
        ));
    }
}

fn most(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// Whether rates are alike. One alone decides nothing.
fn is_stable(rates: &[f64]) -> Option<bool> {
    let least = rates.iter().copied().fold(100.0, f64::min);
    (rates.len() > 1).then(|| most(rates) - least <= STABLE)
}

/// Whether `holds` of each rate in order of arrival and the other rate. Nobody can miss less than
/// nobody, so rates up to [`STABLE`] do not count. `None`: no rate counts.
fn where_missed(fifo: &[f64], other: &[f64], holds: impl Fn(f64, f64) -> bool) -> Option<bool> {
    let pairs: Vec<(f64, f64)> = fifo.iter().copied().zip(other.iter().copied()).collect();
    let missed: Vec<&(f64, f64)> = pairs.iter().filter(|(fifo, _)| *fifo > STABLE).collect();
    (!missed.is_empty()).then(|| missed.iter().all(|(fifo, other)| holds(*fifo, *other)))
}

fn differences(findings: &mut Findings) {
    findings.differ([
        "The paper has eight computers. Here eight network namespaces of one computer meet at a bridge, and one thread \
         of each is client and server. Threads run under SCHED_FIFO, and so do the kernel's threads that take packets \
         in."
            .to_owned(),
        format!(
            "Two CPUs cannot carry the paper's eight lines of 1 Gbit/s. Here all is {SLOWNESS} times slower. HTB \
             limits each node and each port of the bridge to 10 Mbit/s, and frames and deadlines take {SLOWNESS} \
             times as long. So D = 0.8 ms of the tables is 80 ms here. Loads, bursts and proportions are the paper's."
        ),
        "Hosts of the paper take up to a millisecond, of deadlines from 0.8 ms on. Here they take a hundredth of that \
         share. So few messages miss before links are full; the paper says about 5 %."
            .to_owned(),
        "Messages are UDP datagrams of 466 B on the wire, as many as those of the paper have over TCP. TCP would not \
         drop late ones."
            .to_owned(),
        "EDF order is decided in user space, and the kernel holds three packets at most. In order of arrival the same \
         queue is used; its departures are those of HTB with a pfifo."
            .to_owned(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_show_nothing_decide_nothing() {
        let none: &[f64] = &[];
        assert_eq!([is_stable(none), is_stable(&[2.0])], [None, None]);
        assert_eq!([is_stable(&[2.0, 2.5]), is_stable(&[2.0, 4.0])], [Some(true), Some(false)]);
        let less = |fifo: &[f64], other: &[f64]| where_missed(fifo, other, |fifo, other| other < fifo);
        assert_eq!([less(none, none), less(&[0.0, STABLE], &[0.0, 2.0])], [None, None]);
        assert_eq!([less(&[0.0, 9.0], &[0.0, 8.0]), less(&[0.0, 9.0], &[0.0, 9.0])], [Some(true), Some(false)]);
    }

    #[test]
    fn a_tenth_is_decided_of_enough_missed_messages() {
        let of = |missed| OutcomePair { live: Outcome { messages: 1_000, missed }, ..OutcomePair::default() };
        let found = |load, fifo, drop| {
            let all = vec![[vec![of(fifo)], vec![of(fifo)], vec![of(drop)]]];
            let mut findings = Findings::default();
            Measured { loads: vec![load], all, disturbed: Disturbances::default() }.claim_tenth(&mut findings);
            findings.claims.first().map(|claim| claim.holds)
        };
        assert_eq!([found(FULL, 400, 0), found(FULL, 400, 39)], [Some(Some(true)); 2]);
        assert_eq!([found(FULL, 400, 41), found(FULL, 100, 100)], [Some(Some(false)); 2]);
        assert_eq!([found(FULL, 99, 0), found(FULL, 99, 99), found(FULL, 0, 0)], [Some(None); 3]);
        assert_eq!(found(KNEE, 400, 0), None);
    }

    #[test]
    fn a_measurement_without_messages_has_the_fewest() {
        let of = |messages| Outcome { messages, missed: 0 };
        let both = |live| OutcomePair { simulated: of(5), live: of(live) };
        let measured = |all| Measured { loads: vec![0], all, disturbed: Disturbances::default() };
        assert_eq!(measured(vec![[vec![both(7)], vec![both(0)], vec![both(7)]]]).fewest(), 0);
        assert_eq!(measured(vec![[vec![both(7)], vec![both(4)], vec![both(7)]]]).fewest(), 4);
        assert_eq!(measured(Vec::new()).fewest(), 0);
    }
}
