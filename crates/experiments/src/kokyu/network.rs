//! [KOKYU VII] asks how network latency changes the result. Another node needs the result of each
//! operation by its deadline, and the way there takes time.
//!
//! The dispatcher knows the latency: the deadlines that it gets are earlier by the latency. In
//! simulation a result arrives at its completion plus the latency. Live, the end of each job is an
//! event for another node. It leaves with the time that is left until the deadline. The link
//! between two network namespaces has the latency.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use takt_dispatch::event::{Channel, Connected, Delivery, Level, Node, Options, Pattern};
use takt_dispatch::{Dispatcher, Dispatching, Job, Limits, Operation, Operations, Plan};
use takt_linux::clock;
use takt_log::stats::Histogram;
use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Builtin, Criticality, Span, TaskId, Time};
use takt_report::{Figure, Form, Series};
use takt_sim::{SimOptions, simulate};

use super::delay::Link;
use super::interruptible::interruptible;
use super::live::{undecided, uninterrupted};
use super::pauses::{Pause, paused};
use super::window::{
    After, BACKLOG as WINDOW_BACKLOG, FRAME, LEAST, SHRINK, Subscriptions, Window, WindowRun, cpus, refused, rest,
    shrink, window,
};
use super::{Comparison, Context, Drawn, Failure, Findings, Row, Variant, figure, plan_of, processing, seed_of};
use crate::failure::Status;

/// Latencies in ms of the application.
const LATENCIES: [u64; 5] = [0, 1, 5, 10, 20];
/// Latencies of the live windows with `--short`.
const SHORT: [u64; 2] = [0, 10];
/// In the first region rm meets all deadlines. In the second it misses some.
const REGIONS: [usize; 2] = [6, 10];
const VARIANTS: [Variant; 5] = [
    Variant { strategy: Some(Builtin::Rm), cancel: false },
    Variant { strategy: Some(Builtin::Muf), cancel: false },
    Variant { strategy: Some(Builtin::Muf), cancel: true },
    Variant { strategy: Some(Builtin::RmsMlf), cancel: false },
    Variant { strategy: Some(Builtin::RmsMlf), cancel: true },
];
/// The nodes must know each other by then.
const LATER: Span = Span::from_ms(50);
/// The wait for the last events after a window.
const AFTER: Span = Span::from_ms(50);
const PORT: u16 = 7000;
/// The type of the events for completed jobs.
const END: u32 = 1;
/// The most events that wait for the other node's consumer.
const BACKLOG: u32 = 56;
/// The most attempts at a window, if the nodes knew each other too late.
const TRIES: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct DeadlineCounts {
    due: u64,
    met: u64,
    /// Deadlines that are not counted, because a pause of the machine may have influenced them.
    left_out: u64,
}

/// Outcomes by criticality. The critical jobs come first.
type RatePair = [DeadlineCounts; 2];

/// Arrivals and completions of jobs, from the events of a run.
#[derive(Default)]
struct Ends(BTreeMap<JobKey, (Time, Option<Time>)>);

impl Sink for Ends {
    fn event(&mut self, _: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, .. } => drop(self.0.insert(job, (arrival, None))),
            Event::Complete { job, .. } => {
                if let Some(row) = self.0.get_mut(&job) {
                    row.1 = Some(now);
                }
            }
            // A shed job was never requested.
            Event::Cancel { job, cause: CancelCause::Shed } => drop(self.0.remove(&job)),
            _ => {}
        }
    }
}

impl Ends {
    /// Counts the jobs whose deadline is at or before `end`. Leaves out jobs that existed during a
    /// pause. `came` says whether a job's result arrived in time.
    fn count(
        &self,
        plan: &Remote,
        end: Time,
        pauses: &[Pause],
        came: impl Fn(JobKey, Time, Option<Time>) -> bool,
    ) -> RatePair {
        let mut both = RatePair::default();
        for (job, (arrival, completed)) in &self.0 {
            let Some(deadline) = plan.deadline(job.task) else { continue };
            let deadline = arrival.saturating_add(deadline);
            if deadline > end {
                continue;
            }
            let low = plan.plan.system.tasks.get(job.task.index()).map(|task| task.criticality);
            let [critical, noncritical] = &mut both;
            let class = if low == Some(Criticality::Low) { noncritical } else { critical };
            if paused(pauses, Time::from_ns(arrival.as_ns().saturating_sub(FRAME.as_ns())), deadline) {
                class.left_out += 1;
                continue;
            }
            class.due += 1;
            class.met += u64::from(came(*job, deadline, *completed));
        }
        both
    }
}

/// A plan, and the deadlines of its tasks on the other node. A proxy has no such deadline, since
/// its readings are processed on its own node.
struct Remote {
    plan: Plan,
    deadlines: Vec<Option<Span>>,
}

impl Remote {
    fn deadline(&self, task: TaskId) -> Option<Span> {
        self.deadlines.get(task.index()).copied().flatten()
    }
}

/// The application of a region. If `told`, the dispatcher knows the latency. If `here`, times are
/// those of a window on this kernel.
fn remote(region: usize, variant: Variant, latency: Span, told: bool, here: bool) -> Result<Remote, Failure> {
    let mut deadlines = Vec::new();
    let change = |system: &mut takt_model::System| {
        if here {
            shrink(system, Span::from_ns(LATER.as_ns() / SHRINK));
        }
        for task in &mut system.tasks {
            let is_proxy = processing(&task.name).is_some();
            deadlines.push(Some(task.deadline).filter(|_| !is_proxy));
            if told && !is_proxy {
                // The least deadline is a nanosecond, for a latency above the deadline. If jobs are
                // cancelled, such a job is omitted.
                task.deadline = task.deadline.saturating_sub(latency).max(Span::from_ns(1));
            }
        }
    };
    let plan = plan_of(region, variant, change)?.with_backlog(WINDOW_BACKLOG);
    Ok(Remote { plan, deadlines })
}

fn simulated(
    remote: &Remote,
    latency: Span,
    duration: Span,
    seed: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<RatePair, Failure> {
    let mut ends = Ends::default();
    let options = SimOptions { duration, seed, node: None };
    interruptible(stopped, &mut ends, |ends| simulate(&remote.plan.system, &options, ends).map_err(Failure::trouble))?;
    let in_time =
        |_, deadline, completed: Option<Time>| completed.is_some_and(|at| at.saturating_add(latency) <= deadline);
    Ok(ends.count(remote, Time::ZERO.saturating_add(duration), &[], in_time))
}

/// The jobs whose end arrived in time by the clock of the handler, and the durations of the ways.
#[derive(Default)]
struct Arrived {
    jobs: BTreeSet<JobKey>,
    ways: Histogram,
    /// Ends that the other node got too late.
    late: u64,
}

impl Arrived {
    fn take(&mut self, end: &Sent, now_ns: u64) {
        self.ways.record(now_ns.saturating_sub(end.sent_ns));
        if now_ns <= end.deadline_ns {
            self.jobs.insert(end.job);
        } else {
            self.late += 1;
        }
    }
}

/// The content of an event: the end of a job. Both nodes read this machine's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    job: JobKey,
    sent_ns: u64,
    /// When the event is due.
    deadline_ns: u64,
}

impl Sent {
    fn payload(self) -> [u8; 28] {
        let Sent { job, sent_ns, deadline_ns } = self;
        let mut bytes = [0; 28];
        let times = [job.number, sent_ns, deadline_ns].map(u64::to_be_bytes);
        let fields = job.task.0.to_be_bytes().into_iter().chain(times.into_iter().flatten());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    fn parsed(payload: &[u8]) -> Option<Sent> {
        let (task, rest) = payload.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (sent, rest) = rest.split_first_chunk::<8>()?;
        let deadline = rest.first_chunk::<8>()?;
        let job = JobKey { task: TaskId(u32::from_be_bytes(*task)), number: u64::from_be_bytes(*number) };
        Some(Sent { job, sent_ns: u64::from_be_bytes(*sent), deadline_ns: u64::from_be_bytes(*deadline) })
    }
}

/// The other node: an operation on the second CPU takes the end of each job.
struct Terminal {
    arrived: Arc<Mutex<Arrived>>,
    connected: Connected,
    dispatching: Dispatching,
}

impl Terminal {
    fn start(link: &Link) -> Result<Terminal, Failure> {
        let take = Operation::sporadic("take", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1));
        let operations = Operations::new("terminal").cpus(2).with(take.backlog(BACKLOG).on_cpu(1));
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let plan = operations.compute(&Builtin::Muf.strategy(), &limits).map_err(Failure::trouble)?;
        let channel = Channel::new(Options::default());
        let taken = channel.subscribe(&plan, "take", Pattern::kind(END)).map_err(Failure::trouble)?;
        let arrived: Arc<Mutex<Arrived>> = Arc::default();
        let into = Arc::clone(&arrived);
        let handler = taken.handler(move |delivery: &Delivery<'_>, _: &Job<'_>| {
            let now = clock::monotonic_ns();
            if let Some(end) = Sent::parsed(delivery.first().payload) {
                into.lock().unwrap_or_else(PoisonError::into_inner).take(&end, now);
            }
        });
        let dispatching = Dispatcher::new(plan).on("take", handler).map_err(refused)?.start().map_err(refused)?;
        let (end, here, from) = link.receiver();
        let node = Node::new(2).with(Level::new("ends", here).peer(from).on_cpu(1));
        let connected = connect(end, &channel, &node, &dispatching)?;
        Ok(Terminal { arrived, connected, dispatching })
    }

    fn stop(self) -> Result<Arrived, Failure> {
        drop(self.connected);
        self.dispatching.stop(&mut takt_log::NullSink).map_err(Failure::trouble)?;
        Ok(std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn connect(
    end: &takt_linux::net::End,
    channel: &Channel,
    node: &Node,
    dispatching: &Dispatching,
) -> Result<Connected, Failure> {
    end.run(|| channel.connect_as(node, dispatching).map_err(Failure::cannot)).map_err(Failure::cannot)?
}

struct Measured {
    met: RatePair,
    ways: Histogram,
    /// Ends that came too late.
    late: u64,
    /// Log entries of the sending node that found no room.
    lost: u64,
}

/// Runs a window of the application on one node, and sends the ends of its jobs to another node.
/// Repeats it if the nodes knew each other too late.
fn live(
    link: &Link,
    remote: &Remote,
    latency: Span,
    cpus: [u32; 2],
    duration: Span,
    seed: u64,
) -> Result<Measured, Failure> {
    for _ in 0..TRIES {
        if let Some(measured) = try_live(link, remote, latency, cpus, duration, seed)? {
            return Ok(measured);
        }
        rest(duration);
    }
    Err(Failure::cannot(format_args!(
        "two nodes did not know each other in time in {TRIES} windows: the machine is too busy"
    )))
}

fn try_live(
    link: &Link,
    remote: &Remote,
    latency: Span,
    cpus: [u32; 2],
    duration: Span,
    seed: u64,
) -> Result<Option<Measured>, Failure> {
    let _delay = link.delay(latency, cpus[1])?;
    let terminal = Terminal::start(link)?;
    let channel = Channel::new(Options::default());
    let after = |task: TaskId| -> After {
        let supplier = channel.supplier(task.0);
        let Some(deadline) = remote.deadline(task) else { return Box::new(|_| ()) };
        Box::new(move |job| {
            let sent_ns = clock::monotonic_ns();
            let left = job.arrival().saturating_add(deadline).saturating_since(job.now());
            if !left.is_zero() {
                let job = JobKey { task, number: job.number() };
                let end = Sent { job, sent_ns, deadline_ns: sent_ns.saturating_add(left.as_ns()) };
                // An event without room never arrives. It counts as missed.
                let _ = supplier.push_for(END, &end.payload(), left);
            }
        })
    };
    let late = Cell::new(false);
    let began = |dispatching: &Dispatching| {
        let (end, here, to) = link.sender();
        let node = Node::new(1).with(Level::new("ends", here).peer(to).sends(Pattern::kind(END)).on_cpu(0));
        let connected = connect(end, &channel, &node, dispatching);
        late.set(dispatching.now() > Time::ZERO.saturating_add(Span::from_ns(LATER.as_ns() / SHRINK)));
        connected
    };
    let mut ends = Ends::default();
    // The other node and the link may pause too, so both CPUs are watched. Here ends of jobs
    // release the operations that process readings, since the channel's events are for the other
    // node.
    let given = Subscriptions::new();
    let window =
        Window { plan: &remote.plan, law: None, duration, seed, recorded: false, given: &given, watched: &cpus };
    let WindowRun { pauses, lost, .. } = window.run(&mut ends, after, began)?;
    clock::pause(latency.saturating_add(AFTER));
    let arrived = terminal.stop()?;
    let end = Time::ZERO.saturating_add(duration);
    let met = ends.count(remote, end, &pauses, |job, _, _| arrived.jobs.contains(&job));
    Ok((!late.get()).then_some(Measured { met, ways: arrived.ways, late: arrived.late, lost }))
}

/// From this latency on, in ms, a dispatcher that knows the latency must do better.
const TELLING: u64 = 5;
/// The share of the critical deadlines that must be met live, in percent. It leaves room for pauses
/// of the machine.
const KEPT: u64 = 95;
const LIVE: (&str, &str) = (
    "live_network",
    "between two nodes on this kernel rms+mlf meets 95 % or more of the critical deadlines, over all latencies, \
     and in overload rm meets a smaller share at each latency (by the clock of the receiving handler, without \
     jobs during a pause of a node's CPU or in the frame after it)",
);

fn position(wanted: Variant) -> usize {
    VARIANTS.iter().position(|variant| *variant == wanted).unwrap_or(VARIANTS.len())
}

/// By region, by latency, by variant.
type PointGrid<T> = Vec<Vec<Vec<T>>>;

struct Network {
    /// Long simulations, of a dispatcher that knows the latency and of one that does not.
    length: [PointGrid<RatePair>; 2],
    each: Span,
    /// The windows of this kernel, simulated and live. `window` is their length here.
    simulated: PointGrid<RatePair>,
    live: PointGrid<Option<RatePair>>,
    /// The durations of ways, by latency.
    ways: Vec<Histogram>,
    /// Totals of all windows: ends that came too late, and log entries that found no room.
    late: u64,
    lost: u64,
    window: Span,
}

fn each<T>(mut value: impl FnMut(usize, usize, Variant) -> Result<T, Failure>) -> Result<PointGrid<T>, Failure> {
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
    let at_length = |told| {
        each(|region, latency, variant| {
            uninterrupted(context)?;
            let latency = Span::from_ms(LATENCIES[latency]);
            let remote = remote(region, variant, latency, told, false)?;
            simulated(&remote, latency, duration, seed_of(context.seed, region), &|| context.stopped())
        })
    };
    let window = window(context);
    let here = |latency: usize| Span::from_ns(Span::from_ms(LATENCIES[latency]).as_ns() / SHRINK);
    let in_windows = each(|region, latency, variant| {
        let remote = remote(region, variant, here(latency), true, true)?;
        simulated(&remote, here(latency), window, seed_of(context.seed, region), &|| false)
    })?;
    let length = match at_length(true).and_then(|told| Ok([told, at_length(false)?])) {
        Err(failure) if context.stopped() => {
            undecided(findings, &[LIVE], &failure);
            return Ok(());
        }
        length => length?,
    };
    let mut network = Network {
        length,
        each: duration,
        simulated: in_windows,
        live: each(|_, _, _| Ok(None))?,
        ways: vec![Histogram::default(); LATENCIES.len()],
        late: 0,
        lost: 0,
        window,
    };
    let refused = match network.measure(context, window, here) {
        Err(failure) if failure.status != Status::Cannot => return Err(failure),
        measured => measured.err(),
    };
    if let Err(interrupted) = uninterrupted(context) {
        undecided(findings, &[LIVE], &interrupted);
        return Ok(());
    }
    network.tables(findings, refused.is_none());
    network.figures(findings, refused.is_none());
    network.claims(findings);
    match refused {
        Some(failure) => undecided(findings, &[LIVE], &failure),
        None => network.claim_live(findings),
    }
    network.notes(findings);
    Ok(())
}

impl Network {
    fn measure(&mut self, context: &Context, window: Span, here: impl Fn(usize) -> Span) -> Result<(), Failure> {
        let cpus = cpus(context)?;
        let link = Link::lay(PORT)?;
        let bar = (context.host.bar)("windows", (REGIONS.len() * LATENCIES.len() * VARIANTS.len()) as u64);
        let regions = REGIONS.iter().zip(&mut self.live).skip(usize::from(context.short));
        for (region, latencies) in regions {
            for (latency, of) in latencies.iter_mut().enumerate() {
                if context.short && !SHORT.contains(&LATENCIES[latency]) {
                    continue;
                }
                for (variant, into) in VARIANTS.iter().zip(of) {
                    if context.stopped() {
                        return Ok(());
                    }
                    let remote = remote(*region, *variant, here(latency), true, true)?;
                    let seed = seed_of(context.seed, *region);
                    let measured = live(&link, &remote, here(latency), cpus, window, seed)?;
                    *into = Some(measured.met);
                    self.ways[latency].merge(&measured.ways);
                    (self.late, self.lost) = (self.late + measured.late, self.lost + measured.lost);
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
        self.each.as_ns() as f64 / 1e9
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
            let [told, untold] = &self.length;
            findings.tables.push(table(
                format!("{title}, simulated: told of the latency, and not"),
                vec!["told", "untold"],
                &|at| vec![of(told, at, self.seconds()), of(untold, at, self.seconds())],
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
        let where_from = if live {
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
                     latency. {where_from}"
                ),
            ));
        }
    }

    /// Returns `None` if the simulation is too short.
    fn decide(&self, holds: bool) -> Option<bool> {
        (self.each >= super::LEAST).then_some(holds)
    }

    fn claims(&self, findings: &mut Findings) {
        let [told, untold] = &self.length;
        let (feasible, overload) = (0, REGIONS.len() - 1);
        let losing = |variant: Variant| {
            let at = position(variant);
            told.iter().flatten().filter(|of| of.get(at).is_some_and(|both| both[0].met < both[0].due)).count()
        };
        let both = |strategy| [false, true].map(|cancel| Variant { strategy: Some(strategy), cancel });
        let hybrids = both(Builtin::RmsMlf);
        let lost: usize = hybrids.iter().map(|variant| losing(*variant)).sum();
        let cases = hybrids.len() * REGIONS.len() * LATENCIES.len();
        let least = both(Builtin::Muf).map(|muf| {
            let farthest = |region: &Vec<Vec<RatePair>>| Some(percent((*region.last()?.get(position(muf))?)[0]));
            told.iter().filter_map(farthest).fold(f64::INFINITY, f64::min)
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
        let rm: Vec<u64> = (0..LATENCIES.len()).map(|latency| met(told, feasible, latency, 0)).collect();
        let best = |latency: usize| (0..VARIANTS.len()).all(|at| met(told, feasible, latency, at) <= rm[latency]);
        let share = |at: usize| {
            100.0 * met(told, feasible, LATENCIES.len() - 1, at) as f64 / met(told, feasible, 0, at).max(1) as f64
        };
        findings.claim(
            "network_rm_is_best_while_feasible",
            "the paper's question of network latency: while the load is feasible, no strategy meets more \
             noncritical deadlines on another node than rm, at any latency",
            format!(
                "from the shortest to the longest latency rm keeps {:.1} % of them, rms+mlf {:.1} %",
                share(0),
                share(position(hybrids[0]))
            ),
            self.decide(rm.iter().all(|met| *met > 0) && (0..LATENCIES.len()).all(best)),
        );
        let cancelling: Vec<usize> = (0..VARIANTS.len()).filter(|at| VARIANTS[*at].cancel).collect();
        let mut gains = Vec::new();
        for latency in (0..LATENCIES.len()).filter(|latency| LATENCIES[*latency] >= TELLING) {
            for at in &cancelling {
                let (with, without) = (met(told, overload, latency, *at), met(untold, overload, latency, *at));
                gains.push(with as f64 / without.max(1) as f64);
            }
        }
        let (least, most) =
            gains.iter().fold((f64::INFINITY, 0.0), |(a, b), gain| (f64::min(a, *gain), f64::max(b, *gain)));
        findings.claim(
            "network_telling_pays",
            format!(
                "the paper's question of network latency: in overload with cancellation, from {TELLING} ms of \
                 latency on, a dispatcher that knows the latency meets more noncritical deadlines on another \
                 node than a dispatcher that does not"
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
            LIVE.0,
            LIVE.1,
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
            (all.due > all.left_out && !pairs.is_empty() && self.lost == 0 && self.window >= LEAST)
                .then_some(all.met * 100 >= all.due * KEPT && fewer == pairs.len()),
        );
    }

    fn notes(&self, findings: &mut Findings) {
        findings.differ([
            "The paper has no network latency. Its values are flushed to other processors at their deadlines. \
             Here each value leaves when its job is complete, and the latency takes from the time that is left \
             until the deadline. Live, a thread between two cables holds each datagram for the latency, since \
             many kernels lack a queueing discipline for this (netem).",
        ]);
        let way = |(latency, ways): (&u64, &Histogram)| {
            let us = ways.percentile(50)? as f64 / 1e3;
            Some(format!("{us:.0} us where {} us are added", latency * 1000 / SHRINK))
        };
        let ways: Vec<String> = LATENCIES.iter().zip(&self.ways).filter_map(way).collect();
        if !ways.is_empty() {
            findings
                .notes
                .push(format!("The end of a job reaches the other node after (medians) {}.", ways.join("; ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_whose_end_it_is() {
        let job = JobKey { task: TaskId(7), number: 1 << 40 };
        let end = Sent { job, sent_ns: 12_345, deadline_ns: 23_456 };
        let bytes = end.payload();
        assert_eq!(Sent::parsed(&bytes), Some(end));
        assert!((0..bytes.len()).all(|length| Sent::parsed(&bytes[..length]).is_none()));
        let mut arrived = Arrived::default();
        arrived.take(&end, 23_457);
        assert_eq!((arrived.jobs.len(), arrived.late, arrived.ways.count()), (0, 1, 1), "too late, though it came");
        arrived.take(&end, 23_456);
        assert_eq!((arrived.jobs.len(), arrived.late, arrived.ways.count()), (1, 1, 2));
    }

    #[test]
    fn latency_is_taken_from_deadlines_where_the_dispatcher_is_told_of_it() {
        let variant = VARIANTS[2];
        let ms = Span::from_ms;
        let told = remote(10, variant, ms(20), true, false).unwrap();
        let untold = remote(10, variant, ms(20), false, false).unwrap();
        assert_eq!(told.deadlines, untold.deadlines);
        for (task, (deadline, plain)) in
            told.plan.system.tasks.iter().zip(told.deadlines.iter().zip(&untold.plan.system.tasks))
        {
            let there = deadline.map(|deadline| deadline.saturating_sub(ms(20)).max(Span::from_ns(1)));
            assert_eq!(task.deadline, there.unwrap_or(plain.deadline), "{}", task.name);
            assert_eq!(deadline.unwrap_or(plain.deadline), plain.deadline);
        }
        let local = told.deadlines.iter().zip(&told.plan.system.tasks).filter(|(deadline, _)| deadline.is_none());
        let local: Vec<&str> = local.map(|(_, task)| task.name.as_str()).collect();
        assert_eq!(local, ["air-data", "inertial", "radar"]);
    }

    #[test]
    fn a_deadline_is_met_on_the_other_node_when_the_way_is_over_by_then() {
        let remote = remote(0, VARIANTS[0], Span::ZERO, true, false).unwrap();
        let job = |number| JobKey { task: remote.plan.system.task_by_name("attitude").unwrap(), number };
        let (at, ms) = (|ms: u64| Time::ZERO.saturating_add(Span::from_ms(ms)), Span::from_ms);
        let mut ends = Ends::default();
        // The jobs: in time, too late for the way, never complete, not due yet, and never
        // requested.
        for (number, complete) in [(0, Some(20)), (1, Some(46)), (2, None), (4, Some(101)), (3, None)] {
            let arrival = at(25 * number);
            ends.event(0, arrival, &Event::Release { job: job(number), arrival, parent: None });
            if let Some(complete) = complete {
                ends.event(0, at(complete), &Event::Complete { job: job(number), cpu: 0 });
            }
        }
        ends.event(0, at(75), &Event::Cancel { job: job(3), cause: CancelCause::Shed });
        let in_time =
            |_, deadline, completed: Option<Time>| completed.is_some_and(|at| at.saturating_add(ms(5)) <= deadline);
        assert_eq!(
            ends.count(&remote, at(110), &[], in_time),
            [DeadlineCounts { due: 3, met: 1, left_out: 0 }, DeadlineCounts::default()]
        );
        let paused = ends.count(&remote, at(110), &[(at(60), at(61))], in_time);
        assert_eq!(paused, [DeadlineCounts { due: 2, met: 1, left_out: 1 }, DeadlineCounts::default()]);
        assert_eq!(
            [percent(DeadlineCounts { due: 4, met: 1, left_out: 0 }), percent(DeadlineCounts::default())],
            [25.0, 100.0]
        );
    }

    /// rms+mlf keeps all deadlines. muf loses some at the longest latency. Knowing the latency
    /// helps.
    fn usual() -> Network {
        let met = |met| DeadlineCounts { due: 100, met, left_out: 0 };
        let of = |told: bool| {
            let one = |_, latency, variant: Variant| {
                let last = latency + 1 == LATENCIES.len();
                let critical = if variant.strategy == Some(Builtin::Muf) && last { 99 } else { 100 };
                let telling = u64::from(told && variant.cancel);
                let noncritical = if variant.strategy == Some(Builtin::Rm) { 80 } else { 50 };
                Ok([met(critical), met(noncritical + 10 * telling)])
            };
            each(one).unwrap()
        };
        let live = |_, _, variant: Variant| {
            Ok(Some([met(if variant.strategy == Some(Builtin::Rm) { 50 } else { 96 }), met(10)]))
        };
        Network {
            length: [of(true), of(false)],
            each: super::super::LEAST,
            simulated: of(true),
            live: each(live).unwrap(),
            ways: vec![Histogram::default(); LATENCIES.len()],
            late: 0,
            lost: 0,
            window: LEAST,
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
    fn each_claim_can_fail() {
        assert_eq!(verdicts(|_| ()), [Some(true); 4]);
        let (rms_mlf, last) = (3, LATENCIES.len() - 1);
        assert_eq!(verdicts(|network| network.length[0][1][2][rms_mlf][0].met = 99)[0], Some(false));
        let kept = |network: &mut Network| {
            network.length[0].iter_mut().for_each(|region| region[last][1][0].met = 100);
        };
        assert_eq!(verdicts(kept)[0], Some(false), "muf without cancellation keeps all");
        assert_eq!(verdicts(|network| network.length[0][0][2][rms_mlf][1].met = 81)[1], Some(false));
        assert_eq!(verdicts(|network| network.length[1][1][2][4][1].met = 60)[2], Some(false));
        assert_eq!(verdicts(|network| network.live[1][0][0] = network.live[1][0][rms_mlf])[3], Some(false));
        let missing = |network: &mut Network| {
            let all = network.live.iter_mut().flatten().flatten().flatten();
            all.for_each(|both| both[0].met = both[0].met.min(90));
        };
        assert_eq!(verdicts(missing)[3], Some(false));
        assert_eq!(verdicts(|network| network.lost = 1)[3], None);
        let short = |network: &mut Network| (network.each, network.window) = (Span::from_ms(100), Span::from_ms(50));
        assert_eq!(verdicts(short), [None; 4], "too short");
    }
}
