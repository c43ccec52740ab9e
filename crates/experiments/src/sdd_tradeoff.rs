//! [SDD] Table VIII, Figs. 11 and 12: a video player shares a CPU with the kernel thread that
//! receives packets. CPU time reserved for one is missing for the other.
//!
//! The thread belongs to a device with threaded NAPI. A filter on the receiver's socket makes each
//! packet as costly as the driver of a slow computer. The packet rate is chosen so that the thread
//! needs [`DRIVER_SHARE`] of the CPU to receive all packets.

mod guest;
mod lab;

use takt_linux::clock::pause;
use takt_linux::cpuset::Partitions;
use takt_linux::net::Cable;
use takt_linux::{Class, SchedError};
use takt_model::{Span, Time};
use takt_run::RunError;
use takt_run::load::{FrameSequence, LoadContext, Member, Place, ShowTimes, player};

use super::context::Context;
use super::findings::{Comparison, Drawn, Findings, MEASURED, PAPER, Row, all, decimal, within};
use super::players::{self, Played, frames_of, periods};
use super::traffic::{PAYLOAD, Traffic, refused};
use super::{Experiment, SDD, loads};
use crate::failure::Failure;

pub use guest::{Play, play};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sdd-tradeoff",
    paper: &SDD,
    shows: "Table VIII, Figs. 11 and 12",
    what: "a player and the kernel thread that takes packets in on one CPU: inter-frame times against throughput, \
        by priorities and by reservations",
    needs: "root (SCHED_FIFO, SCHED_DEADLINE, a cgroup v1 cpuset of one CPU, network namespaces), threaded NAPI \
        (Linux 5.12) and two CPUs",
    takes: (Span::from_s(70), Span::from_s(25)),
    longest: Span::MAX,
    repeats: false,
    simulated: false,
    live: None,
    lab: Some(lab::FORM),
    run: reproduce,
};

/// CPU time that a frame takes to decode, in ms.
const FRAME_MS: (u64, u64) = (18, 28);
/// The CPU share that receiving all packets takes. The player leaves less, so the two compete.
const DRIVER_SHARE: f64 = 0.55;
/// The packet rate during the measurement of their cost, and the largest rate, both per second.
const PROBE_RATE: f64 = 1_000.0;
const RATE_MAX: f64 = 60_000.0;
/// SCHED_FIFO priorities of the thread and of a more important player. The thread's one lies
/// between ordinary threads and takt's.
const DRIVER_PRIORITY: u8 = 40;
const PLAYER_PRIORITY: u8 = 46;
/// A claim needs this many inter-frame times of each player.
const FRAMES_MIN: u64 = 125;
/// Reservations (Q, T) of the player and of the thread in us. The player's are the paper's. The
/// thread's are what the kernel admits beside them.
const RESERVED: [[(u64, u64); 2]; 5] = [
    [(29_000, 40_000), (16_000, 100_000)],
    [(28_000, 40_000), (19_000, 100_000)],
    [(26_000, 40_000), (24_000, 100_000)],
    [(25_000, 40_000), (26_000, 100_000)],
    [(20_000, 40_000), (39_000, 100_000)],
];
/// Table VIII: throughput in Mbit/s, Test1 to Test5. Section IV-C: the largest throughput is 88,
/// and that beside a more important player 58.
const TABLE_VIII: [f64; 5] = [59.75, 65.43, 70.83, 76.14, 88.55];
const PAPER_MBITS_MAX: f64 = 88.0;
const PAPER_MBITS_FIFO: f64 = 58.0;

#[derive(Clone, Copy)]
struct Trial {
    name: &'static str,
    player: Option<Class>,
    driver: Option<Class>,
}

#[derive(Default)]
struct Outcome {
    played: Played,
    throughput: Option<f64>,
    /// The share of the CPU that the thread used.
    used: Option<f64>,
}

fn trials() -> Vec<Trial> {
    let fifo = |priority| Some(Class::Fifo { priority });
    let mut trials = vec![
        Trial { name: "packets alone", player: None, driver: fifo(DRIVER_PRIORITY) },
        Trial { name: "player alone", player: Some(Class::Other), driver: None },
        Trial { name: "player SCHED_OTHER", player: Some(Class::Other), driver: fifo(DRIVER_PRIORITY) },
        Trial { name: "player SCHED_FIFO", player: fifo(PLAYER_PRIORITY), driver: fifo(DRIVER_PRIORITY) },
    ];
    let names = ["Test1", "Test2", "Test3", "Test4", "Test5"];
    trials.extend(names.iter().zip(RESERVED).map(|(name, [player, driver])| Trial {
        name,
        player: Some(loads::reserved(player.0, player.1)),
        driver: Some(loads::reserved(driver.0, driver.1)),
    }));
    trials
}
const PACKETS_ALONE: usize = 0;
const PLAYER_ALONE: usize = 1;
const PLAYER_OTHER: usize = 2;
const PLAYER_FIFO: usize = 3;
const FIRST_TEST: usize = 4;

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    let place = loads::one_cpu(context)?;
    let Place::Cpu(cpu) = place else { return Err(Failure::cannot("this process may use no CPU")) };
    let others: Vec<u32> = context.machine.cpus.iter().copied().filter(|other| *other != cpu).collect();
    if others.is_empty() {
        return Err(Failure::cannot("this experiment wants two CPUs: packets are sent from the other one"));
    }
    let length = context.duration(Span::from_s(6), Span::from_ms(1_600));
    let mut findings = Findings::default();
    let cost = cost(cpu, &others)?;
    let rate = rate_at(cost, DRIVER_SHARE);
    let frame = frames_of("frame", FRAME_MS);
    let film = players::film(context.seed, length, |_| &frame);
    let mut outcomes = Vec::new();
    for trial in trials() {
        let outcome = if context.stopped() {
            Outcome::default()
        } else {
            admitted(|| perform(context, trial, &place, &others, rate, &film, length))?
        };
        outcomes.push(outcome);
    }
    findings.notes.push(format!(
        "A packet cost the thread {:.1} us; {rate:.0} packets a second ({:.1} Mbit/s) would take {:.0} % of the CPU.",
        cost.as_ns() as f64 / 1e3,
        rate * PAYLOAD as f64 * 8.0 / 1e6,
        rate * cost.as_ns() as f64 / 1e7
    ));
    report(context, &mut findings, &outcomes)?;
    differences(&mut findings);
    Ok(findings)
}

/// Adds the tables, the charts and the claims of these outcomes.
fn report(context: &Context, findings: &mut Findings, outcomes: &[Outcome]) -> Result<(), Failure> {
    findings.tables.push(throughputs(outcomes));
    findings.tables.push(inter_frame_times(outcomes));
    let names = |indices: &[usize]| indices.iter().map(|i| (*i, trials()[*i].name)).collect::<Vec<_>>();
    let before = names(&[PLAYER_OTHER, PLAYER_FIFO, PLAYER_ALONE]);
    let after = names(&[FIRST_TEST + 4, FIRST_TEST + 3, FIRST_TEST]);
    findings.figures.push(figure(
        "frames-by-priority.svg",
        "Fig. 11",
        "with and without packets, by priorities",
        outcomes,
        &before,
    ));
    findings.figures.push(figure(
        "frames-in-reservations.svg",
        "Fig. 12",
        "in reservations, with packets",
        outcomes,
        &after,
    ));
    let shown: Vec<_> = trials().iter().zip(outcomes).map(|(trial, one)| (trial.name, &one.played.shown)).collect();
    players::write(context, findings, &shown)?;
    claims(findings, outcomes);
    Ok(())
}

/// Measures the CPU time that a packet costs the thread.
///
/// At a low rate each packet wakes the thread, so it costs more than one of many. So a second
/// measurement uses the rate that the first one allows.
fn cost(cpu: u32, others: &[u32]) -> Result<Span, Failure> {
    let first = cost_at(PROBE_RATE, cpu, others)?;
    cost_at(rate_at(first, DRIVER_SHARE), cpu, others)
}

/// The packet rate per second that takes this share of a CPU.
fn rate_at(cost: Span, share: f64) -> f64 {
    (share / (cost.as_ns().max(1) as f64 / 1e9)).min(RATE_MAX)
}

fn cost_at(rate: f64, cpu: u32, others: &[u32]) -> Result<Span, Failure> {
    let cable = Cable::lay(true).map_err(|error| refused(&error))?;
    let class = Class::Fifo { priority: DRIVER_PRIORITY };
    cable.right().schedule_driver(&class, &[cpu]).map_err(Failure::cannot)?;
    let traffic = Traffic::start(cable, rate, others)?;
    traffic.wait_for_packet()?;
    pause(Span::from_ms(200));
    let before = (traffic.received(), traffic.driver_cpu());
    pause(Span::from_ms(500));
    // Beside busy CPUs the sender may get no CPU time for a while.
    traffic.wait_for_packet()?;
    let packets = (traffic.received() - before.0) / PAYLOAD as u64;
    let Some((after, before)) = traffic.driver_cpu().zip(before.1) else {
        return Err(Failure::trouble("the kernel does not tell the CPU time of its threads"));
    };
    Ok(Span::from_ns(after.saturating_sub(before).as_ns() / packets.max(1)))
}

/// Tries again after a refusal: another program's short reservation may be its cause.
fn admitted(mut attempt: impl FnMut() -> Result<Result<Outcome, RunError>, Failure>) -> Result<Outcome, Failure> {
    const TRIES_MAX: u32 = 4;
    let mut tries = 1;
    loop {
        match attempt()? {
            Err(RunError::Refused { cause: SchedError::Admission { .. }, .. }) if tries < TRIES_MAX => tries += 1,
            ended => return ended.map_err(|error| Failure::of_run(&error)),
        }
        pause(Span::from_ms(500));
    }
}

/// Runs one trial: as long as the film, or longer if the player is late.
fn perform(
    context: &Context,
    trial: Trial,
    place: &Place,
    others: &[u32],
    rate: f64,
    film: &FrameSequence,
    length: Span,
) -> Result<Result<Outcome, RunError>, Failure> {
    let guest = |partitions: Option<&Partitions>| -> Result<Option<Traffic>, Failure> {
        let Some(class) = trial.driver else { return Ok(None) };
        let cable = Cable::lay(true).map_err(|error| refused(&error))?;
        let Place::Cpu(cpu) = *place else { return Ok(None) };
        // In a domain of one CPU the thread runs on that CPU. SCHED_DEADLINE would refuse an
        // affinity.
        let cpus = match (partitions, cable.right().driver()) {
            (Some(partitions), Some(driver)) => {
                partitions.admit(0, driver.cast_signed()).map_err(Failure::cannot)?;
                Vec::new()
            }
            _ => vec![cpu],
        };
        // The kernel checks the domain of the CPU on which the thread ran last. Packets wake it in
        // its own domain.
        let traffic = Traffic::start(cable, rate, others)?;
        traffic.schedule_driver(&class, &cpus)?;
        traffic.wait_for_packet()?;
        Ok(Some(traffic))
    };
    // Bytes, the thread's CPU time, and the time: at the player's begin and at its end.
    let mut window: [Option<(u64, Option<Span>, Time)>; 2] = [None, None];
    let members =
        trial.player.map(|class| Member::new("takt player", class, |context: &mut LoadContext| player(context, film)));
    // Without a player, the thread has the CPU to itself for the same time.
    let idle = || {
        Member::new("takt idle", Class::Other, |context: &mut LoadContext| {
            let _ = context.sleep_until(context.end());
            ShowTimes::new()
        })
    };
    let members = vec![members.unwrap_or_else(idle)];
    let most = if trial.player.is_some() { Span::from_ns(length.as_ns().saturating_mul(3)) } else { length };
    let ended =
        loads::beside(context, trial.name, members, place, most, guest, &mut |now, traffic: &Option<Traffic>| {
            if let Some(traffic) = traffic {
                let seen = (traffic.received(), traffic.driver_cpu(), now);
                window[0].get_or_insert(seen);
                window[1] = Some(seen);
            }
        })?;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Ok(Err(error)),
    };
    let shown: ShowTimes = ended.values.into_iter().next().unwrap_or_default();
    let mut outcome = Outcome { played: Played::new(shown), ..Outcome::default() };
    if let [Some((first, cpu_first, from)), Some((last, cpu_last, to))] = window
        && to > from
    {
        let time = to.saturating_since(from).as_ns() as f64;
        outcome.throughput = Some((last - first) as f64 * 8e9 / time);
        outcome.used = cpu_last.zip(cpu_first).map(|(last, first)| last.saturating_sub(first).as_ns() as f64 / time);
    }
    Ok(Ok(outcome))
}

fn share(outcomes: &[Outcome], trial: usize) -> Option<f64> {
    Some(outcomes.get(trial)?.throughput? / outcomes.get(PACKETS_ALONE)?.throughput?)
}

fn throughputs(outcomes: &[Outcome]) -> Comparison {
    let row = |trial: usize, paper: Option<f64>| {
        let measured = outcomes.get(trial).and_then(|one| one.throughput).map(|bits| bits / 1e6);
        let of_most = share(outcomes, trial).map(|share| share * 100.0);
        let used = outcomes.get(trial).and_then(|one| one.used).map(|share| share * 100.0);
        let of_papers = paper.map(|paper| (paper / PAPER_MBITS_MAX * 1000.0).round() / 10.0);
        Row {
            name: trials()[trial].name.to_owned(),
            values: vec![vec![paper, of_papers, None], vec![measured, of_most, used]],
        }
    };
    let mut rows = vec![row(PACKETS_ALONE, Some(PAPER_MBITS_MAX)), row(PLAYER_FIFO, Some(PAPER_MBITS_FIFO))];
    rows.extend((0..TABLE_VIII.len()).map(|test| row(FIRST_TEST + test, Some(TABLE_VIII[test]))));
    Comparison::new(
        "Throughput of packets beside the player",
        "Table VIII and Section IV-C",
        "Mbit/s, percent of the most, and the share of the CPU that the thread used",
        1,
    )
    .with("trial", ["Mbit/s", "%", "thread's CPU %"], [PAPER, MEASURED], rows)
}

fn inter_frame_times(outcomes: &[Outcome]) -> Comparison {
    let row = |trial: usize| {
        let measured = players::numbers(outcomes.get(trial).and_then(|one| one.played.times.as_ref()));
        Row { name: trials()[trial].name.to_owned(), values: vec![vec![None; measured.len()], measured] }
    };
    Comparison::new(
        "Inter-frame times of the player",
        "Figs. 11 and 12 (of which it gives no numbers)",
        "times in us",
        0,
    )
    .with("trial", players::NUMBERS, [PAPER, MEASURED], (PLAYER_ALONE..FIRST_TEST + RESERVED.len()).map(row))
}

fn figure(file: &str, number: &str, how: &str, outcomes: &[Outcome], trials: &[(usize, &str)]) -> Drawn {
    let lines = trials.iter().enumerate();
    let lines = lines.filter_map(|(colour, (trial, name))| Some(outcomes.get(*trial)?.played.line(name, colour)));
    let figure = players::figure(format!("Inter-frame times {how}"), lines.collect(), None);
    let caption = format!("The dotted line is at 40 ms. A frame takes {} to {} ms to decode.", FRAME_MS.0, FRAME_MS.1);
    Drawn::of(file, &figure, format!("{number}: inter-frame times {how}"), caption)
}

fn claims(findings: &mut Findings, outcomes: &[Outcome]) {
    let times = |trial: usize| outcomes.get(trial).and_then(|one| one.played.times.as_ref());
    let sample = (PLAYER_ALONE..outcomes.len()).filter_map(times).map(|times| times.count).min().unwrap_or(0);
    let (mean, p90) = (|trial| times(trial).map(|s| periods(s.mean)), |trial| times(trial).map(|s| periods(s.p90)));
    let p99 = |trial| times(trial).map(|s| periods(s.p99));
    let text = |value: Option<f64>| decimal(value, 2);
    findings
        .claim(
            "other-suffers",
            "packets that a more important thread receives delay the frames of an ordinary player: its mean \
             inter-frame time grows by a tenth or more",
            format!("{} times 40 ms without them, {} with them", text(mean(PLAYER_ALONE)), text(mean(PLAYER_OTHER))),
            mean(PLAYER_OTHER).zip(mean(PLAYER_ALONE)).map(|(with, without)| with >= 1.1 * without),
        )
        .needs(sample, FRAMES_MIN, "inter-frame times of a player");
    let fifo = share(outcomes, PLAYER_FIFO);
    findings
        .claim(
            "fifo-costs",
            "a player that is more important than the thread plays in time (nine inter-frame times of ten within 10 \
         % of 40 ms or less), and costs throughput (66 % of the most in the paper; here: at most 90 %)",
            format!(
                "the ninth tenth ends at {} times 40 ms; throughput is {} of the most",
                text(p90(PLAYER_FIFO)),
                text(fifo)
            ),
            all([within(p90(PLAYER_FIFO), 1.0, 0.0, 1.1), fifo.map(|share| share <= 0.9)]),
        )
        .needs(sample, FRAMES_MIN, "inter-frame times of a player");
    let shares: Vec<Option<f64>> = (0..RESERVED.len()).map(|test| share(outcomes, FIRST_TEST + test)).collect();
    let rises = shares.windows(2).map(|pair| pair[0].zip(pair[1]).map(|(before, after)| after >= 0.95 * before));
    let gain = shares[0].zip(shares[RESERVED.len() - 1]).map(|(first, last)| last / first);
    findings
        .claim(
            "trade-off",
            "from Test1 to Test5 throughput rises with the thread's reservation; the last is at least 1.3 times the \
         first (1.48 in the paper)",
            format!(
                "of the most: {}; the last is {} times the first",
                shares.iter().map(|share| text(*share)).collect::<Vec<_>>().join(", "),
                text(gain)
            ),
            all(rises.chain([gain.map(|gain| gain >= 1.3)])),
        )
        .needs(sample, FRAMES_MIN, "inter-frame times of a player");
    let last = FIRST_TEST + RESERVED.len() - 1;
    findings
        .claim(
            "latency",
            "the player is slower for it: in Test1 nine inter-frame times of ten are within 10 % of 40 ms or \
             less; in Test5 they are longer on average than in Test1, and 99 % still within twice 40 ms",
            format!(
                "the ninth tenth of Test1 ends at {} times 40 ms; the means are {} and {}; 99 % of Test5 end at {}",
                text(p90(FIRST_TEST)),
                text(mean(FIRST_TEST)),
                text(mean(last)),
                text(p99(last))
            ),
            all([
                within(p90(FIRST_TEST), 1.0, 0.0, 1.1),
                mean(last).zip(mean(FIRST_TEST)).map(|(last, first)| last > first),
                within(p99(last), 1.0, 0.0, 2.05),
            ]),
        )
        .needs(sample, FRAMES_MIN, "inter-frame times of a player");
}

fn differences(findings: &mut Findings) {
    findings.differ([
        "The paper reserves for the interrupt thread of a network card; its softirq thread has no reservation, \
         and does most of the work. Here one kernel thread (threaded NAPI) does all of the work. So its \
         reservations are larger: as large as SCHED_DEADLINE admits on one CPU beside the player's.",
    ]);
    findings.differences.push(format!(
        "No wire limits the packets. They are datagrams at the rate at which the thread needs {:.0} % of the \
         CPU, instead of netperf's packets over 100 Mbit/s. Each passes a filter of 3000 divisions, which makes \
         it as costly as on a slow computer. Packets beyond the device's queue of 256 are lost.",
        DRIVER_SHARE * 100.0
    ));
    findings.differences.push(format!(
        "The player is takt's own: frames of {} to {} ms of work each, drawn by the seed. It leaves no late \
         frame out.",
        FRAME_MS.0, FRAME_MS.1
    ));
    findings.differ([
        "Kernels without HRTICK enforce budgets at ticks: a reservation gets up to a tick more than its budget at \
         once, and less after that.",
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_within_what_one_cpu_admits() {
        for [player, driver] in RESERVED {
            let share = |(q, t): (u64, u64)| q as f64 / t as f64;
            assert!(share(player) + share(driver) < 0.9, "{player:?} {driver:?}");
        }
        assert!(RESERVED.windows(2).all(|pair| pair[0][0].0 > pair[1][0].0 && pair[0][1].0 < pair[1][1].0));
    }

    #[test]
    fn trials_stand_where_they_are_looked_for() {
        let all = trials();
        assert_eq!(all[PLAYER_FIFO].name, "player SCHED_FIFO");
        assert_eq!((all[FIRST_TEST].name, all.len()), ("Test1", FIRST_TEST + RESERVED.len()));
        assert!(all[PLAYER_ALONE].driver.is_none() && all[PACKETS_ALONE].player.is_none());
    }
}
