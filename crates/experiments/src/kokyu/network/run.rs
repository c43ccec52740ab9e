//! One run of the application whose results another node needs: in virtual time, and between two
//! nodes on this kernel.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use takt_dispatch::event::{Channel, Connected, Delivery, Level, Node, Options, Pattern};
use takt_dispatch::{Dispatcher, Dispatching, Job, Limits, Operation, Operations, Plan};
use takt_linux::clock;
use takt_log::stats::Histogram;
use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Builtin, Criticality, Span, TaskId, Time};
use takt_sim::{SimOptions, simulate};

use super::super::delay::Link;
use super::super::interruptible::interruptible;
use super::super::pauses::{Pause, paused};
use super::super::window::{
    AfterJob, BACKLOG as WINDOW_BACKLOG, FRAME, SHRINK, Subscriptions, Window, WindowRun, refused, rest, shrink,
};
use super::super::{Failure, Variant, plan_of, processing};

/// The nodes must know each other by then.
const CONNECTED_BY: Span = Span::from_ms(50);
/// The wait for the last events after a window.
const DRAIN: Span = Span::from_ms(50);
/// The type of the events for completed jobs.
const COMPLETION: u32 = 1;
/// The most events that wait for the other node's consumer.
const BACKLOG: u32 = 56;
/// The most attempts at a window, if the nodes knew each other too late.
const ATTEMPTS_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct DeadlineCounts {
    pub(super) due: u64,
    pub(super) met: u64,
    /// Deadlines that are not counted, because a pause of the machine may have influenced them.
    pub(super) left_out: u64,
}

/// Outcomes by criticality. The critical jobs come first.
pub(super) type RatePair = [DeadlineCounts; 2];

/// Arrivals and completions of jobs, from the events of a run.
#[derive(Default)]
struct Completions(BTreeMap<JobKey, (Time, Option<Time>)>);

impl Sink for Completions {
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

impl Completions {
    /// Counts the jobs whose deadline is at or before `end`. Leaves out jobs that existed during a
    /// pause. `in_time` says whether a job's result arrived by its deadline.
    fn count(
        &self,
        remote: &RemotePlan,
        end: Time,
        pauses: &[Pause],
        in_time: impl Fn(JobKey, Time, Option<Time>) -> bool,
    ) -> RatePair {
        let mut both = RatePair::default();
        for (job, (arrival, completed)) in &self.0 {
            let Some(deadline) = remote.deadline(job.task) else { continue };
            let deadline = arrival.saturating_add(deadline);
            if deadline > end {
                continue;
            }
            let criticality = remote.plan.system.tasks.get(job.task.index()).map(|task| task.criticality);
            let [critical, noncritical] = &mut both;
            let class = if criticality == Some(Criticality::Low) { noncritical } else { critical };
            if paused(pauses, Time::from_ns(arrival.as_ns().saturating_sub(FRAME.as_ns())), deadline) {
                class.left_out += 1;
                continue;
            }
            class.due += 1;
            class.met += u64::from(in_time(*job, deadline, *completed));
        }
        both
    }
}

/// A plan, and the deadlines of its tasks on the other node. A proxy has no such deadline, since
/// its readings are processed on its own node.
pub(super) struct RemotePlan {
    plan: Plan,
    deadlines: Vec<Option<Span>>,
}

impl RemotePlan {
    fn deadline(&self, task: TaskId) -> Option<Span> {
        self.deadlines.get(task.index()).copied().flatten()
    }
}

/// The application of a region. If `latency_known`, the dispatcher knows the latency. If `in_window`,
/// times are those of a window on this kernel.
pub(super) fn remote_plan(
    region: usize,
    variant: Variant,
    latency: Span,
    latency_known: bool,
    in_window: bool,
) -> Result<RemotePlan, Failure> {
    let mut deadlines = Vec::new();
    let change = |system: &mut takt_model::System| {
        if in_window {
            shrink(system, Span::from_ns(CONNECTED_BY.as_ns() / SHRINK));
        }
        for task in &mut system.tasks {
            let is_proxy = processing(&task.name).is_some();
            deadlines.push(Some(task.deadline).filter(|_| !is_proxy));
            if latency_known && !is_proxy {
                // The least deadline is a nanosecond, for a latency above the deadline. If jobs are
                // cancelled, such a job is omitted.
                task.deadline = task.deadline.saturating_sub(latency).max(Span::from_ns(1));
            }
        }
    };
    let plan = plan_of(region, variant, change)?.with_backlog(WINDOW_BACKLOG);
    Ok(RemotePlan { plan, deadlines })
}

/// Simulates a plan, and counts the deadlines that results meet on the other node.
pub(super) fn run_simulated(
    remote: &RemotePlan,
    latency: Span,
    duration: Span,
    seed: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<RatePair, Failure> {
    let mut completions = Completions::default();
    let options = SimOptions { duration, seed, node: None };
    interruptible(stopped, &mut completions, |sink| {
        simulate(&remote.plan.system, &options, sink).map_err(Failure::trouble)
    })?;
    let in_time =
        |_, deadline, completed: Option<Time>| completed.is_some_and(|at| at.saturating_add(latency) <= deadline);
    Ok(completions.count(remote, Time::ZERO.saturating_add(duration), &[], in_time))
}

/// The results that the other node received, by the clock of its handler.
#[derive(Default)]
struct Received {
    in_time: BTreeSet<JobKey>,
    /// From send to receive.
    delays: Histogram,
    /// Results that came after their deadlines.
    late: u64,
}

impl Received {
    fn add(&mut self, result: &ResultMessage, now_ns: u64) {
        self.delays.record(now_ns.saturating_sub(result.sent_ns));
        if now_ns <= result.deadline_ns {
            self.in_time.insert(result.job);
        } else {
            self.late += 1;
        }
    }
}

/// The content of an event: the result of a job. Both nodes read this machine's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ResultMessage {
    job: JobKey,
    sent_ns: u64,
    /// When the event is due.
    deadline_ns: u64,
}

impl ResultMessage {
    fn to_bytes(self) -> [u8; 28] {
        let ResultMessage { job, sent_ns, deadline_ns } = self;
        let mut bytes = [0; 28];
        let times = [job.number, sent_ns, deadline_ns].map(u64::to_be_bytes);
        let fields = job.task.0.to_be_bytes().into_iter().chain(times.into_iter().flatten());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    fn parse(payload: &[u8]) -> Option<ResultMessage> {
        let (task, rest) = payload.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (sent, rest) = rest.split_first_chunk::<8>()?;
        let deadline = rest.first_chunk::<8>()?;
        let job = JobKey { task: TaskId(u32::from_be_bytes(*task)), number: u64::from_be_bytes(*number) };
        Some(ResultMessage { job, sent_ns: u64::from_be_bytes(*sent), deadline_ns: u64::from_be_bytes(*deadline) })
    }
}

/// The other node: an operation on the second CPU takes the result of each job.
struct Receiver {
    received: Arc<Mutex<Received>>,
    connected: Connected,
    dispatching: Dispatching,
}

impl Receiver {
    fn start(link: &Link) -> Result<Receiver, Failure> {
        let take = Operation::sporadic("take", Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1));
        let operations = Operations::new("terminal").cpus(2).with(take.backlog(BACKLOG).on_cpu(1));
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let plan = operations.compute(&Builtin::Muf.strategy(), &limits).map_err(Failure::trouble)?;
        let channel = Channel::new(Options::default());
        let taken = channel.subscribe(&plan, "take", Pattern::kind(COMPLETION)).map_err(Failure::trouble)?;
        let received: Arc<Mutex<Received>> = Arc::default();
        let into = Arc::clone(&received);
        let handler = taken.handler(move |delivery: &Delivery<'_>, _: &Job<'_>| {
            let now = clock::monotonic_ns();
            if let Some(result) = ResultMessage::parse(delivery.first().payload) {
                into.lock().unwrap_or_else(PoisonError::into_inner).add(&result, now);
            }
        });
        let dispatching = Dispatcher::new(plan).on("take", handler).map_err(refused)?.start().map_err(refused)?;
        let (end, here, from) = link.receiver();
        let node = Node::new(2).with(Level::new("ends", here).peer(from).on_cpu(1));
        let connected = connect(end, &channel, &node, &dispatching)?;
        Ok(Receiver { received, connected, dispatching })
    }

    fn stop(self) -> Result<Received, Failure> {
        drop(self.connected);
        self.dispatching.stop(&mut takt_log::NullSink).map_err(Failure::trouble)?;
        Ok(std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner)))
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

pub(super) struct LiveRun {
    pub(super) met: RatePair,
    /// From send to receive.
    pub(super) delays: Histogram,
    /// Results that came after their deadlines.
    pub(super) late: u64,
    /// Log entries of the sending node that found no room.
    pub(super) lost: u64,
}

/// A window of the application on one node, which sends the results of its jobs to another node.
pub(super) struct LiveWindow<'a> {
    pub(super) link: &'a Link,
    pub(super) remote: &'a RemotePlan,
    pub(super) latency: Span,
    pub(super) cpus: [u32; 2],
    pub(super) duration: Span,
    pub(super) seed: u64,
}

impl LiveWindow<'_> {
    /// Repeats it if the nodes knew each other too late.
    pub(super) fn run(&self) -> Result<LiveRun, Failure> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(run) = self.attempt()? {
                return Ok(run);
            }
            rest(self.duration);
        }
        Err(Failure::cannot(format_args!(
            "two nodes did not know each other in time in {ATTEMPTS_MAX} windows: the machine is too busy"
        )))
    }

    fn attempt(&self) -> Result<Option<LiveRun>, Failure> {
        let LiveWindow { link, remote, latency, cpus, duration, seed } = *self;
        let _delay = link.delay(latency, cpus[1])?;
        let receiver = Receiver::start(link)?;
        let channel = Channel::new(Options::default());
        let after = |task: TaskId| -> AfterJob {
            let supplier = channel.supplier(task.0);
            let Some(deadline) = remote.deadline(task) else { return Box::new(|_| ()) };
            Box::new(move |job| {
                let sent_ns = clock::monotonic_ns();
                let left = job.arrival().saturating_add(deadline).saturating_since(job.now());
                if !left.is_zero() {
                    let job = JobKey { task, number: job.number() };
                    let result = ResultMessage { job, sent_ns, deadline_ns: sent_ns.saturating_add(left.as_ns()) };
                    // An event without room never arrives. It counts as missed.
                    let _ = supplier.push_for(COMPLETION, &result.to_bytes(), left);
                }
            })
        };
        let late = Cell::new(false);
        let began = |dispatching: &Dispatching| {
            let (end, here, to) = link.sender();
            let node = Node::new(1).with(Level::new("ends", here).peer(to).sends(Pattern::kind(COMPLETION)).on_cpu(0));
            let connected = connect(end, &channel, &node, dispatching);
            late.set(dispatching.now() > Time::ZERO.saturating_add(Span::from_ns(CONNECTED_BY.as_ns() / SHRINK)));
            connected
        };
        let mut completions = Completions::default();
        // The other node and the link may pause too, so both CPUs are watched. Here completions of jobs
        // release the operations that process readings, since the channel's events are for the other
        // node.
        let subscriptions = Subscriptions::new();
        let window = Window {
            plan: &remote.plan,
            law: None,
            duration,
            seed,
            recorded: false,
            subscriptions: &subscriptions,
            watched: &cpus,
        };
        let WindowRun { pauses, lost, .. } = window.run(&mut completions, after, began)?;
        clock::pause(latency.saturating_add(DRAIN));
        let received = receiver.stop()?;
        let end = Time::ZERO.saturating_add(duration);
        let met = completions.count(remote, end, &pauses, |job, _, _| received.in_time.contains(&job));
        Ok((!late.get()).then_some(LiveRun { met, delays: received.delays, late: received.late, lost }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_whose_end_it_is() {
        let job = JobKey { task: TaskId(7), number: 1 << 40 };
        let result = ResultMessage { job, sent_ns: 12_345, deadline_ns: 23_456 };
        let bytes = result.to_bytes();
        assert_eq!(ResultMessage::parse(&bytes), Some(result));
        assert!((0..bytes.len()).all(|length| ResultMessage::parse(&bytes[..length]).is_none()));
        let mut received = Received::default();
        let counts = |all: &Received| (all.in_time.len(), all.late, all.delays.count());
        received.add(&result, 23_457);
        assert_eq!(counts(&received), (0, 1, 1), "too late, though it came");
        received.add(&result, 23_456);
        assert_eq!(counts(&received), (1, 1, 2));
    }

    #[test]
    fn latency_is_taken_from_deadlines_where_the_dispatcher_is_told_of_it() {
        let variant = Variant { strategy: Some(Builtin::Muf), cancel: true };
        let ms = Span::from_ms;
        let known = remote_plan(10, variant, ms(20), true, false).unwrap();
        let unknown = remote_plan(10, variant, ms(20), false, false).unwrap();
        assert_eq!(known.deadlines, unknown.deadlines);
        for (task, (deadline, plain)) in
            known.plan.system.tasks.iter().zip(known.deadlines.iter().zip(&unknown.plan.system.tasks))
        {
            let there = deadline.map(|deadline| deadline.saturating_sub(ms(20)).max(Span::from_ns(1)));
            assert_eq!(task.deadline, there.unwrap_or(plain.deadline), "{}", task.name);
            assert_eq!(deadline.unwrap_or(plain.deadline), plain.deadline);
        }
        let local = known.deadlines.iter().zip(&known.plan.system.tasks).filter(|(deadline, _)| deadline.is_none());
        let local: Vec<&str> = local.map(|(_, task)| task.name.as_str()).collect();
        assert_eq!(local, ["air-data", "inertial", "radar"]);
    }

    #[test]
    fn a_deadline_is_met_on_the_other_node_when_the_way_is_over_by_then() {
        let variant = Variant { strategy: Some(Builtin::Rm), cancel: false };
        let remote = remote_plan(0, variant, Span::ZERO, true, false).unwrap();
        let job = |number| JobKey { task: remote.plan.system.task_by_name("attitude").unwrap(), number };
        let (at, ms) = (|ms: u64| Time::ZERO.saturating_add(Span::from_ms(ms)), Span::from_ms);
        let mut completions = Completions::default();
        // The jobs: in time, too late for the way, never complete, not due yet, and never
        // requested.
        for (number, complete) in [(0, Some(20)), (1, Some(46)), (2, None), (4, Some(101)), (3, None)] {
            let arrival = at(25 * number);
            completions.event(0, arrival, &Event::Release { job: job(number), arrival, parent: None });
            if let Some(complete) = complete {
                completions.event(0, at(complete), &Event::Complete { job: job(number), cpu: 0 });
            }
        }
        completions.event(0, at(75), &Event::Cancel { job: job(3), cause: CancelCause::Shed });
        let in_time =
            |_, deadline, completed: Option<Time>| completed.is_some_and(|at| at.saturating_add(ms(5)) <= deadline);
        assert_eq!(
            completions.count(&remote, at(110), &[], in_time),
            [DeadlineCounts { due: 3, met: 1, left_out: 0 }, DeadlineCounts::default()]
        );
        let paused = completions.count(&remote, at(110), &[(at(60), at(61))], in_time);
        assert_eq!(paused, [DeadlineCounts { due: 2, met: 1, left_out: 1 }, DeadlineCounts::default()]);
    }
}
