//! The dispatcher's threads under a model checker, which chooses the next thread at each lock,
//! wake-up and atomic. It checks three properties while plans are switched. No wake-up is lost:
//! timeouts never come here, so a lost wake-up is a deadlock. Each job is handled once and in turn.
//! Every start follows the policy's order within its level. `TAKT_MODEL_RUNS` sets the number of
//! schedules of each kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, Runner, thread};
use takt_linux::{Class, Epoch, sched};
use takt_log::{CancelCause, Event};
use takt_model::plan::Order;
use takt_model::{Builtin, Late, Span, TaskId, Time};

use super::build::{Built, Places, build, places};
use super::fact_log::Merger;
use super::live::Handler;
use super::{Counts, Handle, Limits, OperatingMode, Operation, Operations, Options, Plan, PushError, Row};
use crate::gate::GO_RUN;

/// A dispatcher with one operation and no threads yet, for other models.
pub(crate) struct Bench {
    built: Built,
    pub(crate) handle: Handle,
}

impl Bench {
    pub(crate) fn of(operation: Operation, handler: Handler) -> Bench {
        let set = Operations::new("bench").with(operation);
        let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
        let plan = set.compute(&Builtin::Muf.strategy(), &limits).unwrap_or_else(|wrong| panic!("{wrong}"));
        let places = places(&plan);
        let task = plan.rows[0].task;
        let options = Options { best_effort: true, records: 1024, ..Options::default() };
        let built = build(&plan, &places, &mut BTreeMap::from([(task, handler)]), &options, None).unwrap();
        built.shared.epoch.set(Epoch::now_is_zero()).unwrap();
        built.shared.go.store(GO_RUN, Ordering::Release);
        let handle = Handle::of(built.shared.clone(), places[&task]).unwrap();
        Bench { built, handle }
    }

    /// A thread that runs its jobs.
    pub(crate) fn serve(&self) -> thread::JoinHandle<()> {
        let (shared, kernel_cpu) = (self.built.shared.clone(), sched::affinity()[0]);
        thread::spawn(move || shared.serve(0, 0, kernel_cpu, Class::Other, |ready| ready.unwrap()))
    }

    pub(crate) fn now(&self) -> Time {
        self.built.shared.epoch().now()
    }

    pub(crate) fn stop(&self) {
        self.built.shared.stop();
    }
}

type Events = Vec<(u32, Time, Event)>;

fn plan(preemptive: bool) -> (Operations, Plan) {
    let deadline = |operation: Operation, s| operation.wcet(Span::from_us(1)).deadline(Span::from_s(s));
    let sporadic = |name, s| deadline(Operation::sporadic(name, Span::from_ns(1)), s).backlog(4);
    let late = |name, rule| sporadic(name, 1).deadline(Span::from_us(1)).late(rule).noncritical();
    let set = Operations::new("model")
        .cpus(2)
        .with(sporadic("a", 100))
        .with(sporadic("b", 50).backlog(1).noncritical())
        .with(deadline(Operation::after("c", ["a"]), 100).on_cpu(1))
        .with(deadline(Operation::after("d", ["c"]), 20).noncritical())
        .with(sporadic("e", 30).on_cpu(1).backlog(1).noncritical())
        // Late at once, as seen by the filling of slots, a switch, and a timer woken for another
        // reason. No timer wakes by itself here.
        .with(late("f", Late::Drop))
        .with(late("g", Late::Demote).on_cpu(1))
        .mode(OperatingMode::new("one level", Builtin::Edf.strategy()))
        .mode(OperatingMode::new("without e", Builtin::Mlf.strategy()).without("e"));
    let limits = Limits { critical_utilization_ppm: u32::MAX, preemptive, ..Limits::default() };
    let mut plan = set.compute(&Builtin::Muf.strategy(), &limits).unwrap_or_else(|wrong| panic!("{wrong}"));
    // Followers are rejected too when their own backlog is full. No set would get so small a
    // backlog.
    plan.each_rows_mut().flatten().for_each(|row| row.backlog = row.backlog.min(4));
    (set, plan)
}

/// The operation that drops late jobs.
const DROPS: u32 = 5;

/// Numbers of jobs, by operation.
type Numbers = Arc<StdMutex<BTreeMap<u32, Vec<u64>>>>;
/// By CPU and level of the first plan (demoted jobs apart): the handlers running now, and the most
/// at once.
type Inside = Arc<StdMutex<BTreeMap<(u32, u32), (u32, u32)>>>;
/// The number of handlers that ended without being told to stop, by operation.
type Whole = Arc<StdMutex<BTreeMap<u32, u64>>>;

pub(super) struct Model {
    set: Operations,
    plan: Plan,
    places: Places,
    pub(super) built: Built,
    handled: Numbers,
    whole: Whole,
    inside: Inside,
    /// The number of calls of handlers, with a condition to wait for.
    calls: Arc<(Mutex<usize>, Condvar)>,
}

pub(super) fn model() -> Model {
    pools(1)
}

/// With this many threads for each level, under each plan.
fn pools(threads: u32) -> Model {
    made(threads, false)
}

fn made(threads: u32, preemptive: bool) -> Model {
    let (set, mut plan) = plan(preemptive);
    for at in 0..=plan.modes.len() {
        for level in 0..plan.rows.len() {
            plan = plan.with_threads(at, level, threads);
        }
    }
    let places = places(&plan);
    let (handled, whole, inside) = (Numbers::default(), Whole::default(), Inside::default());
    let calls = Arc::new((Mutex::new(0), Condvar::new()));
    let handler = |task: TaskId| -> Handler {
        let (handled, whole, calls) = (handled.clone(), whole.clone(), calls.clone());
        let row = &plan.rows[task.index()];
        // Demoted jobs have a thread of their own.
        let level = if row.late == Late::Demote { u32::MAX } else { row.level };
        let (inside, at) = (inside.clone(), (row.cpu, level));
        Box::new(move |job| {
            handled.lock().unwrap().entry(task.0).or_default().push(job.number());
            {
                let mut inside = inside.lock().unwrap();
                let (now, most) = inside.entry(at).or_default();
                *now += 1;
                *most = (*most).max(*now);
            }
            thread::yield_now();
            inside.lock().unwrap().get_mut(&at).unwrap().0 -= 1;
            if !job.must_stop() {
                *whole.lock().unwrap().entry(task.0).or_default() += 1;
            }
            *calls.0.lock().unwrap() += 1;
            calls.1.notify_all();
        })
    };
    let mut handlers = plan.rows.iter().map(|row| (row.task, handler(row.task))).collect();
    let options = Options { best_effort: true, records: 1024, ..Options::default() };
    let built = build(&plan, &places, &mut handlers, &options, None).unwrap();
    built.shared.epoch.set(Epoch::now_is_zero()).unwrap();
    built.shared.go.store(GO_RUN, Ordering::Release);
    Model { set, plan, places, built, handled, whole, inside, calls }
}

impl Model {
    fn serve(&self) -> Vec<thread::JoinHandle<()>> {
        let kernel_cpu = sched::affinity()[0];
        let workers = (0..2).flat_map(|cpu| (0..self.built.workers).map(move |worker| (cpu, worker)));
        let serve = |(cpu, worker)| {
            let shared = self.built.shared.clone();
            thread::spawn(move || shared.serve(cpu, worker, kernel_cpu, Class::Other, |ready| ready.unwrap()))
        };
        let keep_time = |cpu| {
            let shared = self.built.shared.clone();
            thread::spawn(move || shared.keep_time(cpu, kernel_cpu, Class::Other, |ready| ready.unwrap()))
        };
        workers.map(serve).chain((0..2).map(keep_time)).collect()
    }

    /// Pushes `count` jobs of an operation. Returns the numbers of the accepted ones.
    fn pusher(&self, name: &str, count: usize) -> thread::JoinHandle<Vec<u64>> {
        let task = self.plan.rows.iter().find(|row| row.name == name).unwrap().task;
        let (shared, place) = (self.built.shared.clone(), self.places[&task]);
        let push = move |_| match shared.push(place, |_, _| ()) {
            Ok(number) => Some(number),
            Err(PushError::Full | PushError::TooEarly { .. } | PushError::Absent | PushError::Stopped) => None,
            Err(error) => panic!("{error}"),
        };
        thread::spawn(move || (0..count).filter_map(push).collect())
    }

    /// The outcomes of an operation's jobs so far.
    fn counts(&self, task: u32) -> Counts {
        let place = self.places[&TaskId(task)];
        self.built.shared.cpu_states[place.cpu as usize].held.lock().core.counts(place.slot, Time::ZERO).unwrap()
    }

    fn switcher(&self, plans: &'static [usize]) -> thread::JoinHandle<()> {
        let shared = self.built.shared.clone();
        thread::spawn(move || {
            plans.iter().for_each(|plan| {
                let _ = shared.switch(*plan);
            })
        })
    }
}

fn rows(plan: &Plan, holds: usize) -> &[Row] {
    holds.checked_sub(1).map_or(&plan.rows, |mode| &plan.modes[mode].rows)
}

/// Within its level no job starts before a waiting job that goes first by the current plan. Jobs
/// that may have been demoted are left out, because no event says so.
fn starts_in_order(set: &Operations, plan: &Plan, events: &Events) {
    let mut holds = 0;
    let mut waiting: BTreeMap<u32, Vec<(u64, Time, Time)>> = BTreeMap::new();
    let mut running: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, at, event) in events {
        match *event {
            Event::ModeChange { mode } => holds = mode as usize,
            Event::Release { job, arrival, .. } => {
                waiting.entry(job.task.0).or_default().push((job.number, arrival, *at))
            }
            Event::Cancel { job, cause } => {
                waiting.entry(job.task.0).or_default().retain(|one| one.0 != job.number);
                if cause == CancelCause::Late && running.get(&job.task.0) == Some(&job.number) {
                    running.remove(&job.task.0);
                }
            }
            Event::Complete { job, .. } => assert_eq!(running.remove(&job.task.0), Some(job.number)),
            Event::Start { job, .. } => {
                let place = |task: u32| (rows(plan, holds)[task as usize].level, set.operations[task as usize].cpu);
                let rank = |task: u32, one: &(u64, Time, Time)| {
                    let (row, operation) = (&rows(plan, holds)[task as usize], &set.operations[task as usize]);
                    let deadline = (one.1 + operation.deadline.unwrap()).as_ns();
                    let key = match row.order {
                        Order::Fifo => one.2.as_ns(),
                        Order::Deadline => deadline,
                        Order::Laxity => deadline - operation.wcet.as_ns(),
                    };
                    (key, one.1, task)
                };
                let first = waiting[&job.task.0][0];
                assert_eq!(first.0, job.number, "jobs of an operation start in turn");
                for (task, others) in &waiting {
                    let demotes = |task: u32| rows(plan, holds)[task as usize].late == Late::Demote;
                    let beside = *task != job.task.0
                        && place(*task) == place(job.task.0)
                        && !running.contains_key(task)
                        && !demotes(*task)
                        && !demotes(job.task.0);
                    if let Some(other) = others.first().filter(|_| beside) {
                        assert!(
                            rank(*task, other) > rank(job.task.0, &first),
                            "{job:?} before {task} under plan {holds}"
                        );
                    }
                }
                waiting.get_mut(&job.task.0).unwrap().remove(0);
                running.insert(job.task.0, job.number);
            }
            _ => {}
        }
    }
}

/// Every job is handled or dropped once and in turn, under every schedule. Returns the most
/// handlers that ran at once in a level of one CPU.
fn all_is_handled(plans: &'static [usize], model: Model) -> u32 {
    let threads = model.serve();
    let pushers = [("a", 3), ("b", 2), ("e", 2), ("f", 3), ("g", 2)].map(|(name, count)| model.pusher(name, count));
    let switcher = model.switcher(plans);
    let [a, b, e, f, g] = pushers.map(|pusher| pusher.join().unwrap());
    switcher.join().unwrap();
    let wanted = [3 * a.len(), b.len(), e.len(), g.len()].iter().sum::<usize>();
    let (calls, called) = (&model.calls.0, &model.calls.1);
    let handled = || {
        model.handled.lock().unwrap().iter().filter(|(task, _)| **task != DROPS).map(|(_, of)| of.len()).sum::<usize>()
    };
    let mut count = calls.lock().unwrap();
    while handled() < wanted {
        count = called.wait(count).unwrap();
    }
    drop(count);
    // No wake-up announces a drop. If a job waits for ever, this loop never ends, and the model
    // checker reports that.
    let drops = loop {
        let counts = model.counts(DROPS);
        if counts.unfinished() == counts.dropped {
            break counts;
        }
        thread::yield_now();
    };
    let end = model.built.shared.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let handled = model.handled.lock().unwrap();
    let of = |task| handled.get(&task).cloned().unwrap_or_default();
    // There is room for all followers.
    assert_eq!([of(0), of(1), of(2), of(3), of(4), of(6)], [a.clone(), b, a.clone(), a, e, g]);
    let begun = of(DROPS);
    assert!(
        begun.is_sorted_by(|one, next| one < next) && begun.iter().all(|one| f.contains(one)),
        "{begun:?} of {f:?}"
    );
    assert_eq!(drops.completed + drops.dropped, f.len() as u64, "{drops:?} of {f:?}");
    assert!(drops.completed <= begun.len() as u64, "{drops:?}, {begun:?}");
    let mut events = Events::new();
    let (lost, _) = Merger::new(0, model.built.fact_logs).finish(end, &mut events);
    assert_eq!(lost, 0);
    starts_in_order(&model.set, &model.plan, &events);
    let inside = model.inside.lock().unwrap();
    assert!(inside.values().all(|(now, _)| *now == 0));
    inside.iter().filter(|((_, level), _)| *level < u32::MAX).map(|(_, (_, most))| *most).max().unwrap_or(0)
}

/// All threads end, whatever they are doing.
fn a_stop_ends_all(model: Model) {
    let threads = model.serve();
    let pushers = [("a", 2), ("b", 2), ("f", 2), ("g", 2)].map(|(name, count)| model.pusher(name, count));
    let switcher = model.switcher(&[1, 2]);
    model.built.shared.stop();
    for pusher in pushers {
        pusher.join().unwrap();
    }
    switcher.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let handled = model.handled.lock().unwrap();
    assert!(handled.values().all(|numbers| numbers.is_sorted_by(|one, next| one < next)), "{handled:?}");
    // No handler panicked. Jobs ended by a stop are neither complete nor failed.
    for task in model.places.keys() {
        let counts = model.counts(task.0);
        assert_eq!(counts.failed, 0, "{task:?}");
        let whole = model.whole.lock().unwrap().get(&task.0).copied().unwrap_or(0);
        assert!(counts.completed <= whole, "{task:?}: {counts:?}, and {whole} handlers came to their end");
    }
}

/// The number of schedules of each kind.
pub(crate) fn runs() -> usize {
    std::env::var("TAKT_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(150)
}

pub(crate) fn explore<S: Scheduler + 'static>(scheduler: S, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // Threads touch their stacks before they begin.
    config.stack_size = 1 << 20;
    let before = sched::affinity();
    Runner::new(scheduler, config).run(body);
    sched::set_affinity(&before).unwrap();
}

/// With one thread, a level runs one handler at a time.
fn one_by_one(plans: &'static [usize]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let most = all_is_handled(plans, model());
        // A switch moves started jobs to levels other than those counted here.
        assert!(most == 1 || !plans.is_empty(), "{most} handlers of one level at once");
    }
}

#[test]
fn shuttle_no_wake_up_is_lost_and_jobs_go_in_order() {
    explore(RandomScheduler::new(runs()), one_by_one(&[]));
    explore(PctScheduler::new(3, runs()), one_by_one(&[]));
}

#[test]
fn shuttle_switches_lose_and_double_and_reorder_nothing() {
    explore(RandomScheduler::new(runs()), one_by_one(&[1, 2, 0]));
    explore(PctScheduler::new(3, runs()), one_by_one(&[2, 1]));
}

#[test]
fn shuttle_a_pool_loses_and_doubles_and_reorders_nothing() {
    let most = Arc::new(AtomicU32::new(0));
    let two_at_once = |plans: &'static [usize]| {
        let most = most.clone();
        move || {
            let inside = all_is_handled(plans, pools(2));
            assert!(inside <= 2 || !plans.is_empty(), "{inside} handlers of one level at once");
            most.fetch_max(inside, Ordering::Relaxed);
        }
    };
    // Under some schedule two threads of a level run two handlers at once. The number of schedules
    // until then is random.
    let mut explored = 0;
    while most.load(Ordering::Relaxed) < 2 {
        assert!(explored < 10_000, "one handler at a time in {explored} orders");
        explore(RandomScheduler::new(runs()), two_at_once(&[]));
        explored += runs();
    }
    explore(PctScheduler::new(3, runs()), two_at_once(&[]));
    explore(RandomScheduler::new(runs()), two_at_once(&[1, 0]));
}

/// No kernel holds back threads of less important seats here. So jobs end in any order, and other
/// jobs change their seats.
#[test]
fn shuttle_jobs_that_preempt_each_other_are_not_lost_and_not_doubled() {
    let nested = |plans: &'static [usize]| {
        move || {
            let _ = all_is_handled(plans, made(1, true));
        }
    };
    explore(RandomScheduler::new(runs()), nested(&[]));
    explore(PctScheduler::new(3, runs()), nested(&[]));
    explore(RandomScheduler::new(runs()), nested(&[1, 2, 0]));
    explore(PctScheduler::new(3, runs()), nested(&[2, 1]));
}

#[test]
fn shuttle_a_stop_ends_all() {
    explore(RandomScheduler::new(runs()), || a_stop_ends_all(model()));
    explore(PctScheduler::new(3, runs()), || a_stop_ends_all(model()));
    explore(RandomScheduler::new(runs()), || a_stop_ends_all(made(1, true)));
}
