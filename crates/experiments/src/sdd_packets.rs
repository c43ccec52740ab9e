//! [SDD] Tables II to V: periodic packets, seen by the sender, by the receiver, and by the kernel
//! thread or softirq that receives them.
//!
//! The paper's packets cross a wire to an interrupt thread of PREEMPT_RT. Here they cross a cable
//! between two network namespaces, to the kernel thread of a device with threaded NAPI. A second
//! series goes to the softirq NET_RX of a device without such a thread.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::clock;
use takt_linux::net::Cable;
use takt_linux::sched::{Class, ClassGuard};
use takt_log::stats::{Histogram, Summary};
use takt_model::Span;
use takt_report::{Figure, Form, Series};

use super::context::Context;
use super::findings::{Comparison, Drawn, Findings, PAPER, Row, all, decimal, distribution, in_us, us, within};
use super::recording::Recording;
use super::traffic::refused;
use super::{Experiment, SDD};
use crate::failure::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sdd-packets",
    paper: &SDD,
    shows: "Tables II to V",
    what: "distances of periodic packets at the sender, at the receiver, and of the kernel thread that takes them in",
    needs: "root (tracefs, network namespaces, SCHED_FIFO) and threaded NAPI (Linux 5.12)",
    takes: (Span::from_s(60), Span::from_s(11)),
    longest: Span::MAX,
    repeats: false,
    simulated: false,
    live: None,
    lab: None,
    run: reproduce,
};

/// The pauses between two packets in ms. The tests have their names from these.
const PAUSES: [u64; 5] = [1, 5, 10, 50, 100];
type Table = [[f64; 4]; 5];
/// Average, standard deviation, maximum and minimum in us, by test.
const TABLE_II: Table = [
    [1190., 29., 1569., 1040.],
    [5198., 22., 5278., 5058.],
    [10195., 22., 10277., 10062.],
    [50207., 27., 50298., 50081.],
    [100207., 25., 100290., 100093.],
];
const TABLE_III: Table = [
    [1207., 1011., 14336., 0.],
    [5212., 1019., 6144., 4096.],
    [10210., 271., 12288., 8192.],
    [50229., 1023., 51200., 49152.],
    [100204., 530., 100352., 98304.],
];
const TABLE_IV: Table = [
    [1210., 32., 1424., 59.],
    [5222., 117., 5385., 63.],
    [10264., 60., 10353., 10093.],
    [50832., 627., 50353., 50082.],
    [100424., 9342., 100313., 76.],
];
const TABLE_V: Table =
    [[15., 5., 63., 9.], [19., 1., 68., 18.], [14., 1., 29., 13.], [16., 2., 28., 15.], [21., 3., 23., 12.]];

const PORT: u16 = 7000;
/// The fewest packets of a test.
const COUNT_MIN: u64 = 10;
/// A median of fewer distances decides nothing.
const DISTANCES_MIN: u64 = 50;
/// Size of the payload: packets are as small as a control message.
const PAYLOAD: usize = 64;
/// The priority that takt gives to its most important tasks.
const PRIORITY: u8 = 48;
/// The priority that PREEMPT_RT gives to interrupt threads.
const INTERRUPT_PRIORITY: u8 = 50;
/// The longest time that a receiver waits for the next packet.
const RECEIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

#[derive(Default)]
struct Measured {
    sender: Histogram,
    receiver: Histogram,
    /// The receiving thread's times between activations, and the execution times.
    arrivals: Histogram,
    executions: Histogram,
}

type Source<'a> = (&'a [Measured], fn(&Measured) -> &Histogram);

fn reproduce(context: &Context) -> Result<Findings, Failure> {
    // Ten tests: with a thread and with the softirq.
    let duration = context.duration(Span::from_s(6), Span::from_s(1));
    let mut findings = Findings::default();
    let (mut threads, mut softirqs) = (Vec::new(), Vec::new());
    let bar = (context.host.bar)("tests", 2 * PAUSES.len() as u64);
    for pause in PAUSES {
        for (threaded, into) in [(true, &mut threads), (false, &mut softirqs)] {
            let count = (duration.as_ns() / Span::from_ms(pause).as_ns()).max(COUNT_MIN);
            if context.stopped() {
                into.push(Measured::default());
                continue;
            }
            into.push(measure(context, &mut findings, pause, count, threaded)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows = |paper: &Table, sources: &[Source<'_>]| {
        let row = |test: usize| {
            let measured = sources.iter().map(|(all, which)| values(all.get(test).map(which)));
            let values = std::iter::once(paper[test].map(Some).to_vec()).chain(measured).collect();
            Row { name: format!("T{}", PAUSES[test]), values }
        };
        (0..PAUSES.len()).map(row).collect::<Vec<_>>()
    };
    let table = |title: &str, cite, sources: &[&'static str], rows: Vec<Row>| {
        Comparison::new(title, cite, "times in us", 0).with(
            "test",
            ["avg", "dev", "max", "min"],
            [&[PAPER][..], sources].concat(),
            rows,
        )
    };
    let to: [&'static str; 2] = ["to a thread", "to the softirq"];
    let by: [&'static str; 2] = ["thread", "softirq"];
    findings.tables = vec![
        table(
            "Distances of packets at the sender",
            "Table II",
            &to,
            rows(&TABLE_II, &[(&threads, |m| &m.sender), (&softirqs, |m| &m.sender)]),
        ),
        table(
            "Distances of packets at the receiver",
            "Table III",
            &to,
            rows(&TABLE_III, &[(&threads, |m| &m.receiver), (&softirqs, |m| &m.receiver)]),
        ),
        table(
            "Distances of activations of what takes packets in",
            "Table IV",
            &by,
            rows(&TABLE_IV, &[(&threads, |m| &m.arrivals), (&softirqs, |m| &m.arrivals)]),
        ),
        table(
            "Executions of what takes packets in",
            "Table V",
            &by,
            rows(&TABLE_V, &[(&threads, |m| &m.executions), (&softirqs, |m| &m.executions)]),
        ),
    ];
    findings.figures.push(figure(&threads[0], &softirqs[0]));
    claims(&mut findings, &threads, &softirqs);
    differences(&mut findings, &threads);
    Ok(findings)
}

/// Runs one test: `count` packets, with a pause of `pause` ms after each.
fn measure(
    context: &Context,
    findings: &mut Findings,
    pause: u64,
    count: u64,
    threaded: bool,
) -> Result<Measured, Failure> {
    let cable = Cable::lay(threaded).map_err(|error| refused(&error))?;
    let driver = cable.right().driver();
    if driver.is_some() {
        // The first CPU, as for a device's interrupts. Some virtual machines do not report switches
        // from the idle threads of other CPUs.
        let cpus: Vec<u32> = context.machine.cpus.first().copied().into_iter().collect();
        cable.right().schedule_driver(&Class::Fifo { priority: INTERRUPT_PRIORITY }, &cpus).map_err(Failure::cannot)?;
    }
    let file = format!("packets-every-{pause}ms-{}.takt", if threaded { "thread" } else { "softirq" });
    let recording = Recording::with(context, &file, driver)?;
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let receiver = named(scope, "takt receiver", || receive(&cable));
        let sender = named(scope, "takt sender", || send(&over, &cable, Span::from_ms(pause), count));
        while sender.as_ref().is_ok_and(|sender| !sender.is_finished()) {
            over.store(context.stopped(), Ordering::Relaxed);
            clock::pause(Span::from_ms(20));
        }
        let sent = join(sender);
        Ok::<_, Failure>((sent?, join(receiver)?))
    });
    let recorded = recording.finish()?;
    let (sender, receiver) = sent?;
    findings.notes.extend(recorded.defects.iter().map(|defect| format!("{file}: {defect}")));
    findings.files.push(file);
    let mut measured = Measured { sender, receiver, ..Measured::default() };
    match driver {
        Some(id) => {
            let of_it = format!("-{id}");
            if let Some(task) = recorded.stats.tasks.into_iter().find(|task| task.task.ends_with(&of_it)) {
                (measured.arrivals, measured.executions) = (task.inter_arrivals, task.net_executions);
            }
        }
        None => {
            if let Some(found) = recorded.stats.interrupts.into_iter().flatten().find(|one| one.interrupt == "NET_RX") {
                (measured.arrivals, measured.executions) = (found.inter_arrivals, found.executions);
            }
        }
    }
    Ok(measured)
}

type Worker<'scope> = io::Result<std::thread::ScopedJoinHandle<'scope, Result<Histogram, Failure>>>;

fn named<'scope, 'env>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    name: &str,
    work: impl FnOnce() -> Result<Histogram, Failure> + Send + 'scope,
) -> Worker<'scope> {
    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work)
}

fn join(worker: Worker<'_>) -> Result<Histogram, Failure> {
    let worker = worker.map_err(|error| Failure::trouble(format_args!("cannot start a thread: {error}")))?;
    worker.join().unwrap_or_else(|_| Err(Failure::trouble("a thread ended by a panic; this is a bug of takt")))
}

/// Sends packets, and an empty one last. Returns the distances between packets. It pauses after
/// each packet: the paper's averages exceed the pause by 0.2 ms, so its sender pauses too.
fn send(over: &AtomicBool, cable: &Cable, pause: Span, count: u64) -> Result<Histogram, Failure> {
    cable.left().enter().map_err(|error| refused(&error))?;
    let trouble = |error: io::Error| Failure::trouble(format_args!("packets cannot be sent: {error}"));
    let socket = UdpSocket::bind((cable.left().address(), 0)).map_err(trouble)?;
    socket.connect((cable.right().address(), PORT)).map_err(trouble)?;
    let _class = raise_priority()?;
    // In this time the receiver opens its socket, and the kernel learns the addresses.
    clock::pause(Span::from_ms(200));
    let epoch = clock::Epoch::now_is_zero();
    let (mut distances, mut last) = (Histogram::default(), None);
    for _ in 0..count {
        let now = epoch.now();
        // The kernel refuses a packet if the receiver's socket is not open. The receiver counts
        // what it gets.
        let _ = socket.send(&[0; PAYLOAD]);
        if let Some(last) = last.replace(now) {
            distances.record(now.saturating_since(last).as_ns());
        }
        if over.load(Ordering::Relaxed) {
            break;
        }
        clock::pause(pause);
    }
    let _ = socket.send(&[]);
    Ok(distances)
}

/// Receives packets until the empty one. Returns the distances between packets.
fn receive(cable: &Cable) -> Result<Histogram, Failure> {
    cable.right().enter().map_err(|error| refused(&error))?;
    let trouble = |error: io::Error| Failure::trouble(format_args!("packets cannot be received: {error}"));
    let socket = UdpSocket::bind((cable.right().address(), PORT)).map_err(trouble)?;
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).map_err(trouble)?;
    let _class = raise_priority()?;
    let epoch = clock::Epoch::now_is_zero();
    let (mut distances, mut last) = (Histogram::default(), None);
    let mut bytes = [0; 2 * PAYLOAD];
    while let Ok(1..) = socket.recv(&mut bytes) {
        let now = epoch.now();
        if let Some(last) = last.replace(now) {
            distances.record(now.saturating_since(last).as_ns());
        }
    }
    Ok(distances)
}

fn raise_priority() -> Result<ClassGuard, Failure> {
    ClassGuard::enter(&Class::Fifo { priority: PRIORITY }).map_err(Failure::cannot)
}

fn values(measured: Option<&Histogram>) -> Vec<Option<f64>> {
    let of = |s: Summary<u64>| in_us([s.mean, s.deviation, s.max, s.min]);
    measured.and_then(Histogram::summary).map_or(vec![None; 4], of)
}

fn figure(threads: &Measured, softirqs: &Measured) -> Drawn {
    let all = [
        ("sender", &threads.sender, Form::Dashed),
        ("receiver", &threads.receiver, Form::Steps),
        ("thread", &threads.arrivals, Form::Steps),
        ("softirq", &softirqs.arrivals, Form::Steps),
    ];
    let end = all.iter().filter_map(|(_, all, _)| all.percentile(99)).max().unwrap_or(1);
    let series = all.iter().enumerate().map(|(colour, (name, all, form))| {
        let points = distribution(all, false).into_iter().filter(|point| point.0 <= us(end) / 1e3 * 1.1).collect();
        Series { name: (*name).to_owned(), points, form: *form, colour }
    });
    let figure = Figure {
        y_max: Some(100.0),
        x_from_zero: false,
        ..Figure::new("T1: the share of distances that are no longer", "distance in ms", "share in %", series.collect())
    };
    Drawn::of(
        "packet-distances.svg",
        &figure,
        "Distances of packets, and of what takes them in",
        "Not in the paper: whole distributions of test T1, up to a tenth beyond the largest 99th percentile.",
    )
}

fn median(all: &Histogram) -> Option<f64> {
    all.percentile(50).map(us)
}

fn claims(findings: &mut Findings, threads: &[Measured], softirqs: &[Measured]) {
    // The ratio of medians. One pause of the machine changes an average.
    let ratio = |of: &Histogram, by: &Histogram| Some(median(of)? / median(by)?);
    let sample = threads.iter().chain(softirqs).map(|m| m.sender.count()).min().unwrap_or(0);
    let mut claim = |name, claim: &str, ratios: Vec<Option<f64>>| {
        let shown = ratios.iter().map(|ratio| decimal(*ratio, 3));
        let found = format!("relative to the sender: {}", shown.collect::<Vec<_>>().join(", "));
        let holds = all(ratios.iter().map(|ratio| within(*ratio, 1.0, 0.98, 1.02)));
        findings.claim(name, claim, found, holds).needs(sample, DISTANCES_MIN, "distances in a test");
    };
    claim(
        "receiver",
        "the receiver sees the sender's distances: medians of T1 to T100 within 2 % (averages in the paper: within \
         1.5 %)",
        threads.iter().map(|m| ratio(&m.receiver, &m.sender)).collect(),
    );
    claim(
        "thread",
        "the kernel thread that takes packets in is activated at the sender's distances: medians within 2 % \
         (averages in the paper: within 1.7 %)",
        threads.iter().map(|m| ratio(&m.arrivals, &m.sender)).collect(),
    );
    claim(
        "softirq",
        "so is the softirq, where there is no thread",
        softirqs.iter().map(|m| ratio(&m.arrivals, &m.sender)).collect(),
    );
}

fn differences(findings: &mut Findings, threads: &[Measured]) {
    findings.differ([
        "The paper's packets cross a wire between two computers, and an interrupt thread of PREEMPT_RT takes \
         them in. This kernel's network interrupts have no threads. The packets cross a pair of veth devices \
         between two network namespaces, and the receiving device has a kernel thread (threaded NAPI). This \
         thread does the work of the paper's interrupt and softirq threads together, at the priority that \
         PREEMPT_RT gives them (SCHED_FIFO 50).",
        "The softirq runs in the sender's context, within the call that sends: without a wire nothing lies \
         between them. Its executions contain the whole way to the receiver's socket.",
        "Sender and receiver read the same clock, of nanoseconds. The paper's receiver reads a clock of 1.024 \
         ms, so its extremes are multiples of this.",
    ]);
    let early = |m: &&Measured| m.arrivals.at_rank(1).zip(m.sender.at_rank(1)).is_some_and(|(a, s)| a < s / 2);
    let count = threads.iter().filter(early).count();
    if count > 0 {
        findings.differences.push(format!(
            "In {count} tests the thread was also activated by packets that the sender did not send (neighbour \
             discovery, ARP): its least distances are short, as in the paper, which says the same of ARP and \
             ICMP."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_tables_agree_with_each_other_as_it_says() {
        for (sender, thread) in TABLE_II.iter().zip(&TABLE_IV) {
            assert!((thread[0] / sender[0] - 1.0).abs() < 0.017, "{sender:?} {thread:?}");
        }
        for (sender, receiver) in TABLE_II.iter().zip(&TABLE_III) {
            assert!((receiver[0] / sender[0] - 1.0).abs() < 0.015, "{sender:?} {receiver:?}");
        }
        for (test, row) in TABLE_II.iter().enumerate() {
            assert!(row[3] >= PAUSES[test] as f64 * 1e3 && row[3] <= row[0] && row[0] <= row[2]);
        }
    }
}
