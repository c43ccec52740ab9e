//! `linux`: what the kernel's admission control would say to these tasks.
//!
//! A pure function of a [`LinuxMachine`]. It covers the limits of `__checkparam_dl`, the affinity
//! rule of `__sched_setscheduler` and the 99 priorities of SCHED_FIFO. The bandwidth sum of
//! `__dl_overflow` per root domain uses the kernel's own 20-bit fixed point. Symbols of the kernel
//! source:
//!
//! | kernel | here |
//! |---|---|
//! | `BW_SHIFT`, `to_ratio(period, runtime)` | [`BW_SHIFT`], [`to_ratio`] |
//! | `dl_b->bw` | `to_ratio(rt_period, rt_runtime)` |
//! | `dl_b->total_bw` | the fair servers, then the tasks in file order |
//!
//! # What the kernel takes for ordinary threads
//! `charge` adds it to the costs of a node, unless its file states it (`costs.ordinary`). R is the
//! period of ticks, by which alone (without HRTICK) the kernel sees that a budget is used up: by
//! then up to R more has gone.
//!
//! **Fair server** (kernel/sched/deadline.c, since 6.12), on each CPU: a constant-bandwidth server
//! (Q, P) of SCHED_DEADLINE, in which ordinary threads run before SCHED_FIFO. It gets r at an
//! instant t, with a deadline d, in three cases. At the begin of a period r = Q and d = t + P
//! (`replenish_dl_new_period`; also at d - r by the timer of a starved server,
//! `replenish_dl_entity`). At a wake-up before d, r is up to (d - t) Q / P (`dl_entity_overflow`,
//! `update_dl_revised_wakeup`). After use of the whole budget the server gets Q more at d, up to d +
//! P. At most Q + R goes between two beginnings.
//! - *SCHED_FIFO*: (Q + R) in each P, anywhere in it: `Ordinary::Above`. This bounds shorter
//!   periods too. If the timer begins a period r before the end of the last, the last had no more
//!   than Q - r in P - r. A window meets the end of a period (Q), n such periods (in all n Q - q in
//!   n P - q), and the beginning of a period (Q). Its length is 2 Q + n P - q. For Q <= P, (n + 2)
//!   Q - q is no more than Q ceil((2 Q + n P - q + P - Q) / P) = (n + 1) Q + Q ceil((Q - q) / P).
//! - *SCHED_DEADLINE, on one CPU*: in any interval [s, d] no more than (d - s) Q / P has its
//!   beginning and its deadline inside. Each of the rules above keeps this bound (the
//!   constant-bandwidth server's lemma, L. Abeni, G. Buttazzo: Integrating Multimedia Applications
//!   in Hard Real-Time Systems, RTSS 1998). Each deadline inside adds R, and there are up to (d -
//!   s) / P + 1 deadlines. So demand h(t) is met if h(t) + R + t (Q + R) / P <= t:
//!   `Ordinary::Share`. On several CPUs it is charged as to SCHED_FIFO.
//!
//! **When it acts** does not follow from the time that real-time work leaves. So every enabled fair
//! server is charged. Kernels differ:
//!
//! - With the revised wake-up rule for it (commit 14a857056466, April 2026, and in stable series:
//!   6.12.y, 6.18.y, ...) the server runs at once, with (d - t) Q / P, if it starts at t < d with
//!   more budget left than (d - t) Q / P: `update_dl_entity` then returns before `dl_defer_armed`
//!   is set. A report of up to 50 ms, without starvation: linux-kernel, 8 May 2026, "Re:
//!   sched/deadline: Use revised wakeup rule for dl_server". The number of a release does not tell
//!   whether a distribution took it in.
//! - Without, it waits for d - r with r left (`dl_defer_armed`), and ordinary and idle time until
//!   then counts against r. But idle time stops this at r = 0 (`dl_server_update_idle_time` of
//!   6.12, `update_curr_dl_se` since 6.18), and d stays. Let ordinary threads wake up just before
//!   d, while real-time work runs. They wait until d only: the timer then gives the server Q until
//!   d + P, to run at once. So it needs no starvation for P - Q: any real-time work at d is enough.
//!   It is rare, and not seen in most measurements.
//!
//! [`LinuxMachine::starved_only`] states the opposite: the server never acts if real-time work
//! leaves Q of any P - Q. No kernel from 6.12 to 7.0 is known to guarantee this. A verdict that
//! rests on the statement carries a warning.
//!
//! **Reservations** that a file describes as components, `cbs` and `cbs-hard`, are enforced at
//! ticks too: [`crate::reservation::level`] charges R for each reservation that may use a budget
//! up. Tasks without a component get a runtime of their own: the wcet and a margin. A job within
//! its wcet does not use up the runtime. If the file's costs may use it up, a warning is given
//! (`stopped`).
//!
//! **R** is the machine's ([`LinuxMachine::tick`]): the resolution of CLOCK_MONOTONIC_COARSE, which
//! is 1 / CONFIG_HZ. With HRTICK_DL among the scheduler's features tasks are stopped in time, and R
//! is more than needed; the fair server's budget is looked at by ticks all the same. On CPUs
//! without ticks (nohz_full) R may be 1 s.
//!
//! **Throttling** (kernel/sched/rt.c; before 6.12, and later with CONFIG_RT_GROUP_SCHED): when
//! SCHED_FIFO and SCHED_RR have had the runtime of a period on a CPU, seen at a tick, they wait for
//! the end of the period. The wait is at most period - runtime + R, if the runtime carries R of the
//! period before. Throttling never happens if real-time work takes no more than the runtime in any
//! period. SCHED_DEADLINE is not throttled.

use serde_json::json;
use takt_model::plan::Order;
use takt_model::{Builtin, Component, Costs, NodeId, Plan, ServerRule, Span, StrategyRef, System, Task, TaskId};

use crate::catalogue::TestId;
use crate::components::Enforced;
use crate::report::{TaskReport, TestReport};
use crate::reservation::costs::{Charge, charge as charge_of};
use crate::scope::{Ordinary, cpus_name, free_of_costs, overheads};
use crate::verdict::{Answer, Verdict};

/// Fractional bits of the kernel's bandwidths.
pub const BW_SHIFT: u32 = 20;
/// The shortest runtime that SCHED_DEADLINE takes: it drops 10 bits (`DL_SCALE`).
pub const RUNTIME_MIN: Span = Span::from_ns(1 << 10);
/// SCHED_FIFO priorities that a program can use.
pub const FIFO_PRIORITIES_MAX: usize = 99;

/// A Linux machine as its admission control sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinuxMachine {
    /// CPUs that the process may use.
    pub cpus: u32,
    /// `sched_rt_runtime_us`; `None` is -1: no admission control.
    pub rt_runtime_us: Option<u64>,
    /// `sched_rt_period_us`, above zero.
    pub rt_period_us: u64,
    /// Runtime and period of each CPU's fair server (since 6.12), which counts against the same bandwidth.
    pub fair_server: Option<(Span, Span)>,
    /// Whether the fair server acts only where ordinary threads starve; otherwise also when they
    /// wake up, whatever real-time work leaves them.
    pub starved_only: bool,
    /// Whether SCHED_FIFO and SCHED_RR are stopped at `rt_runtime_us`: before 6.12, or where the
    /// kernel has groups of real-time threads.
    pub throttles: bool,
    /// `sched_deadline_period_min_us`.
    pub period_min_us: u64,
    /// `sched_deadline_period_max_us`.
    pub period_max_us: u64,
    /// The period of its ticks; `None`: that of the file's `costs`.
    pub tick: Option<Span>,
    /// Added to each wcet to make the runtime asked for, which never exceeds a deadline that the wcet keeps to.
    pub margin: Span,
    /// The margin as a share of the wcet, in percent; the larger of the two is added.
    pub margin_percent: u32,
    /// Whether cpusets can be made, which partitioned and clustered EDF needs; `None`: not known.
    pub cpusets: Option<bool>,
}

impl LinuxMachine {
    /// A stock kernel since 6.12 with its defaults: 95 % for real time, 5 % of each CPU for the fair server,
    /// periods of 100 us to 4.19 s.
    #[must_use]
    pub const fn stock(cpus: u32) -> Self {
        LinuxMachine {
            cpus,
            rt_runtime_us: Some(950_000),
            rt_period_us: 1_000_000,
            fair_server: Some((Span::from_ms(50), Span::from_ms(1000))),
            starved_only: false,
            throttles: false,
            period_min_us: 100,
            period_max_us: 1 << 22,
            tick: None,
            margin: Span::ZERO,
            margin_percent: 0,
            cpusets: None,
        }
    }

    /// The runtime asked for `task`.
    pub(crate) fn runtime(&self, task: &Task) -> Span {
        let share = u128::from(task.wcet.as_ns()) * u128::from(self.margin_percent) / 100;
        let share = Span::from_ns(u64::try_from(share).unwrap_or(u64::MAX));
        task.wcet.saturating_add(self.margin.max(share)).min(task.deadline.max(task.wcet))
    }
}

/// `to_ratio` of kernel/sched/core.c: runtime / period in 2^-20, rounded down; zero for a zero period.
#[must_use]
pub const fn to_ratio(period: u64, runtime: u64) -> u64 {
    if period == 0 { 0 } else { (((runtime as u128) << BW_SHIFT) / period as u128) as u64 }
}

/// Why the kernel would refuse one task.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Refusal {
    errno: &'static str,
    why: String,
}

/// The kernel's view of one node: one report per root domain, or one for SCHED_FIFO.
pub(crate) fn check_node(system: &System, node: NodeId, machine: &LinuxMachine) -> Vec<TestReport> {
    let spec = &system.nodes[node.index()];
    let scope = format!("{}/linux", spec.name);
    if spec.cpus > machine.cpus {
        let why = format!("the node has {} CPUs, the machine {}", spec.cpus, machine.cpus);
        return vec![report(scope, Verdict::Infeasible { witness: why }, Vec::new())];
    }
    let tick = tick_period(system, node, machine);
    let mut reports = match spec.strategy {
        StrategyRef::Builtin(Builtin::Edf) => deadline_domains(system, node, machine, &scope),
        StrategyRef::Builtin(Builtin::Fp | Builtin::Rm | Builtin::Dm | Builtin::Fifo) => {
            vec![report(scope, fifo_levels(system, node), Vec::new())]
        }
        reference => {
            let precondition = format!(
                "no kernel class obeys strategy \"{}\"; the kernel has SCHED_DEADLINE (edf) and SCHED_FIFO (fp, \
                 rm, dm, fifo)",
                system.strategy_name(reference)
            );
            return vec![report(scope, Verdict::NotApplicable { precondition }, Vec::new())];
        }
    };
    if let (Some(share), Some(first)) = (ordinary_share(system, node, machine), reports.first_mut()) {
        let (what, taken) =
            match (share_of_deadlines(system, node, spec.strategy, machine), taken(system, node, machine)) {
                _ if !stated(system, node).is_zero() => ("stated", None),
                (Some(Ordinary::Share { budget, period, .. }), _) => ("share", Some((budget, period))),
                (_, Some((amount, period))) => ("above", Some((amount, period))),
                _ => ("nothing", None),
            };
        let (amount, period) = taken.unzip();
        first.figures.insert(
            "ordinary".to_owned(),
            json!({
                "cpu": share.cpu, "window_ns": share.window, "real_time_ns": share.demand,
                "room_ns": share.room, "kept": share.kept(),
                "charged": what, "charged_ns": amount, "charged_period_ns": period,
                "tick_ns": tick, "starved_only": machine.starved_only,
            }),
        );
    }
    reports
}

/// The time of ordinary threads that the file states.
fn stated(system: &System, node: NodeId) -> Span {
    system.nodes[node.index()].costs.map_or(Span::ZERO, |costs| costs.ordinary)
}

/// The period of the ticks of a node's kernel, in ns: how much later than it is used up a budget may be found to be.
fn tick_period(system: &System, node: NodeId, machine: &LinuxMachine) -> u64 {
    let of_file = || system.nodes[node.index()].costs.map_or(Costs::TICK_PERIOD_DEFAULT, |costs| costs.tick_period);
    machine.tick.unwrap_or_else(of_file).as_ns()
}

/// How the kernel of a node keeps constant-bandwidth servers, its own for ordinary threads among them.
pub(crate) fn enforced(system: &System, node: NodeId, strategy: StrategyRef, machine: &LinuxMachine) -> Enforced {
    let overrun = if by_deadlines(strategy) { tick_period(system, node, machine) } else { 0 };
    Enforced { overrun, ordinary: share_of_deadlines(system, node, strategy, machine) }
}

/// The system with the kernel's time for ordinary threads in the costs of each node. Nodes that
/// state this time are left alone, and nodes covered by [`share_of_deadlines`] too.
pub(crate) fn charge(system: &System, machine: &LinuxMachine) -> System {
    let mut charged = system.clone();
    for index in 0..system.nodes.len() {
        let node = NodeId(index as u32);
        let spec = &system.nodes[index];
        let known =
            stated(system, node) > Span::ZERO || share_of_deadlines(system, node, spec.strategy, machine).is_some();
        let Some((amount, period)) = taken(system, node, machine).filter(|_| !known) else { continue };
        let costs = spec.costs.unwrap_or(Costs::NONE);
        let (ordinary, ordinary_period) = (Span::from_ns(amount), Span::from_ns(period));
        charged.nodes[index].costs = Some(Costs { ordinary, ordinary_period, ..costs });
    }
    charged
}

/// Warnings for tasks with a requested runtime below the need of a job with all costs. The kernel
/// stops such a job until its next period.
pub(crate) fn stopped(system: &System, node: NodeId, machine: &LinuxMachine) -> Vec<String> {
    let spec = &system.nodes[node.index()];
    if !by_deadlines(spec.strategy) || free_of_costs(spec.costs) {
        return Vec::new();
    }
    let plain = system.tasks_of(node).filter(|(_, task)| task.component.is_none());
    let needs = |id, task: &Task| {
        let Charge { job, budget } = charge_of(system, id, task.deadline).ok()?;
        task.wcet.checked_add(job.saturating_sub(task.blocking))?.checked_add(budget)
    };
    let said = plain.filter_map(|(id, task)| {
        let (runtime, needs) = (machine.runtime(task), needs(id, task));
        // A need beyond 64 bits is short, too.
        let short = runtime < task.deadline && needs.is_none_or(|needs| needs > runtime);
        let most = needs.map_or(String::new(), |needs| format!(", up to {needs}"));
        short.then(|| {
            format!(
                "task \"{}\": with its costs a job may need more than the runtime of {runtime} that \
                 the kernel is asked for{most}, and is stopped then until its next period; take a larger --margin",
                task.name
            )
        })
    });
    said.collect()
}

/// Whether the node's jobs run under SCHED_DEADLINE.
fn by_deadlines(strategy: StrategyRef) -> bool {
    strategy == StrategyRef::Builtin(Builtin::Edf)
}

/// Whether a component is one of the kernel's reservations: a constant-bandwidth server beside the tasks of its node.
fn reservation(component: &Component) -> bool {
    let rule = matches!(component.server, ServerRule::Cbs | ServerRule::CbsHard);
    rule && component.parent.is_none() && component.cpus == 1 && component.quantum.is_none()
}

/// The time that fair servers take from the tasks of a node under SCHED_DEADLINE. Each CPU has its
/// own tasks. There are no tables, flows or modes, and no components but reservations. `None` also
/// if fair servers take nothing.
pub(crate) fn share_of_deadlines(
    system: &System,
    node: NodeId,
    strategy: StrategyRef,
    machine: &LinuxMachine,
) -> Option<Ordinary> {
    let spec = &system.nodes[node.index()];
    let plain = spec.receive.is_none()
        && spec.send.is_none()
        && !system.modes.iter().any(|mode| mode.node == node)
        && system.components.iter().filter(|component| component.node == node).all(reservation)
        && !system.flows.iter().any(|flow| flow.hops().any(|hop| hop == node));
    let alone = spec.clusters().iter().all(|cluster| cluster.len() == 1);
    if !plain || !alone || !by_deadlines(strategy) || !stated(system, node).is_zero() {
        return None;
    }
    let (budget, period) = fair_server_acts(system, node, machine)?;
    let burst = tick_period(system, node, machine);
    Some(Ordinary::Share { budget: budget.saturating_add(burst), period, burst })
}

/// The fair server's runtime and period, where it may take time from real-time threads.
fn fair_server_acts(system: &System, node: NodeId, machine: &LinuxMachine) -> Option<(u64, u64)> {
    let (budget, period) = machine.fair_server.filter(|(budget, _)| !budget.is_zero())?;
    let kept = || fair_share(system, node, (budget, period)).kept();
    (!(machine.starved_only && kept())).then(|| (budget.as_ns(), period.as_ns().max(1)))
}

/// (amount, period) that the kernel may take from the real-time threads of a node on each CPU,
/// whatever their work. `None`: nothing.
fn taken(system: &System, node: NodeId, machine: &LinuxMachine) -> Option<(u64, u64)> {
    let tick = tick_period(system, node, machine);
    let fair = fair_server_acts(system, node, machine);
    let throttled = machine.rt_runtime_us.filter(|_| machine.throttles).and_then(|runtime| {
        let (runtime, period) = (us(runtime), us(machine.rt_period_us));
        // The threads of a strategy that is none of the kernel's run as SCHED_FIFO where they run.
        let concerned =
            !by_deadlines(system.nodes[node.index()].strategy) || system.modes.iter().any(|mode| mode.node == node);
        let kept = real_time_share(system, node, period, runtime).kept();
        (concerned && !kept).then(|| (period.saturating_sub(runtime), period))
    });
    [fair, throttled]
        .into_iter()
        .flatten()
        .map(|(amount, period)| (amount.saturating_add(tick), period))
        .reduce(|(a, p), (b, q)| (a.saturating_add(b), p.min(q)))
}

const fn us(us: u64) -> u64 {
    us.saturating_mul(1000)
}

/// The time that real-time work leaves to ordinary threads, on the CPU with the least.
struct Share {
    cpu: u32,
    /// The length of time looked at, in nanoseconds.
    window: u64,
    /// At most this much of it is taken by real-time work.
    demand: u64,
    /// Most real-time work that does not starve ordinary threads.
    room: u64,
}

impl Share {
    fn kept(&self) -> bool {
        self.demand <= self.room
    }
}

/// Whether ordinary threads get their share by themselves: of the fair server, or without one of
/// what `rt_runtime_us` leaves.
fn ordinary_share(system: &System, node: NodeId, machine: &LinuxMachine) -> Option<Share> {
    match (machine.fair_server, machine.rt_runtime_us) {
        (Some(server), _) => Some(fair_share(system, node, server)),
        (None, Some(runtime)) => Some(real_time_share(system, node, us(machine.rt_period_us), us(runtime))),
        (None, None) => None,
    }
}

/// Q of any P - Q.
fn fair_share(system: &System, node: NodeId, (budget, period): (Span, Span)) -> Share {
    let window = period.saturating_sub(budget);
    real_time_share(system, node, window.as_ns(), window.saturating_sub(budget).as_ns())
}

/// Most real-time work in any window of this length, compared with `room`.
///
/// If deadlines are met, only jobs run that arrived in the window or up to D before: at most
/// floor((L + D) / T) + 1 of each task. Ticks and interrupts count as often as they come.
fn real_time_share(system: &System, node: NodeId, window: u64, room: u64) -> Share {
    let spec = &system.nodes[node.index()];
    let costs = spec.costs.unwrap_or(Costs::NONE);
    let on_cpu = |cpu: u32| {
        let mut demand = 0u128;
        let mut add = |c: u64, t: u64, before: u64| {
            let times = (u128::from(window) + u128::from(before)) / u128::from(t.max(1)) + 1;
            demand = demand.checked_add(times.checked_mul(c.into())?)?;
            Some(())
        };
        for overhead in overheads(spec.costs) {
            add(overhead.c, overhead.t, 0)?;
        }
        for (_, task) in system.tasks_of(node) {
            if task.cpus.is_none_or(|cpus| cpus.contains(cpu)) {
                let switches = costs.switch.as_ns().checked_mul(2)?.checked_add(costs.migrate.as_ns())?;
                let c = task.wcet.as_ns().checked_add(costs.release.as_ns())?.checked_add(switches)?;
                add(c, task.period.as_ns(), task.deadline.as_ns())?;
            }
        }
        Some(demand)
    };
    // Tables, flows and tasks in reservations may be late and go on. They are not covered here.
    let other = spec.receive.is_some()
        || system.components.iter().any(|component| component.node == node)
        || spec.send.is_some()
        || system.flows.iter().any(|flow| flow.hops().any(|hop| hop == node));
    let taken = |cpu| {
        let demand = on_cpu(cpu).and_then(|demand| u64::try_from(demand).ok()).filter(|_| !other);
        demand.map_or(window, |demand| demand.min(window))
    };
    let shares = (0..spec.cpus).map(|cpu| Share { cpu, window, demand: taken(cpu), room });
    shares.max_by_key(|share| share.demand).unwrap_or(Share { cpu: 0, window, demand: window, room })
}

fn report(scope: String, verdict: Verdict, tasks: Vec<TaskReport>) -> TestReport {
    TestReport { test: TestId::Linux, scope, verdict, tasks, figures: serde_json::Map::new() }
}

fn fifo_levels(system: &System, node: NodeId) -> Verdict {
    let strategy = system.strategy(system.nodes[node.index()].strategy);
    match Plan::resolve(system, node, &strategy) {
        Ok(plan) if plan.levels.iter().all(|level| level.order == Order::Fifo) => {
            let levels = plan.levels.len();
            if levels > FIFO_PRIORITIES_MAX {
                let witness = format!("{levels} levels, and SCHED_FIFO has {FIFO_PRIORITIES_MAX} priorities (EINVAL)");
                Verdict::Infeasible { witness }
            } else {
                Verdict::Schedulable { bounds: Vec::new() }
            }
        }
        Ok(_) => Verdict::NotApplicable { precondition: "SCHED_FIFO needs fifo levels".to_owned() },
        Err(error) => Verdict::NotApplicable { precondition: error.to_string() },
    }
}

/// One report per root domain: the node, or each of its clusters.
fn deadline_domains(system: &System, node: NodeId, machine: &LinuxMachine, scope: &str) -> Vec<TestReport> {
    let spec = &system.nodes[node.index()];
    let domains = spec.clusters();
    let split = domains.len() > 1;
    let mut reports = Vec::new();
    if split && let Some(task) = unplaced(system, node) {
        let precondition = format!("task \"{task}\" is not bound to one cluster, and no place was found for it");
        return vec![report(scope.to_owned(), Verdict::NotApplicable { precondition }, Vec::new())];
    }
    for domain in &domains {
        let name = if split { format!("{scope}/{}", cpus_name(domain)) } else { scope.to_owned() };
        let mut total =
            machine.fair_server.map_or(0, |(q, p)| to_ratio(p.as_ns(), q.as_ns())) * u64::from(domain.len());
        // Each CPU of capacity 1024 adds the whole of dl_b->bw (cap_scale).
        let room = machine.rt_runtime_us.map(|us| to_ratio(machine.rt_period_us, us) * u64::from(domain.len()));
        let reserved = total;
        let mut tasks = Vec::new();
        let mut refused: Vec<String> = Vec::new();
        for (id, task) in system.tasks_of(node).filter(|(_, task)| task.component.is_none()) {
            if split && task.cpus.is_none_or(|cpus| !cpus.is_subset(domain)) {
                continue;
            }
            // In a partition the affinity is the partition's span; a narrower one is refused.
            let narrow = task.cpus.is_some_and(|cpus| !domain.is_subset(&cpus));
            let answer = match admit(task, machine, narrow, &mut total, room) {
                Ok(()) => Answer::Yes,
                Err(refusal) => {
                    refused.push(format!("{}: {} ({})", task.name, refusal.why, refusal.errno));
                    Answer::No
                }
            };
            tasks.push(task_report(id, task, answer));
        }
        let verdict = if !refused.is_empty() {
            Verdict::Infeasible { witness: refused.join("; ") }
        } else if split && machine.cpusets == Some(false) {
            Verdict::NotProven { why: "the machine cannot make the cpusets that this placement needs".to_owned() }
        } else {
            Verdict::Schedulable { bounds: Vec::new() }
        };
        let mut one = report(name, verdict, tasks);
        let ppm = |ratio: u64| ((u128::from(ratio) * 1_000_000) >> BW_SHIFT) as u64;
        one.figures.insert("bandwidth_ppm".to_owned(), json!(ppm(total - reserved)));
        one.figures.insert("available_ppm".to_owned(), json!(room.map(|room| ppm(room.saturating_sub(reserved)))));
        reports.push(one);
    }
    reports
}

fn unplaced(system: &System, node: NodeId) -> Option<&str> {
    let domains = system.nodes[node.index()].clusters();
    system
        .tasks_of(node)
        .filter(|(_, task)| task.component.is_none())
        .find(|(_, task)| task.cpus.is_none_or(|cpus| !domains.iter().any(|domain| cpus.is_subset(domain))))
        .map(|(_, task)| task.name.as_str())
}

fn task_report(id: TaskId, task: &Task, verdict: Answer) -> TaskReport {
    TaskReport { id, task: task.name.clone(), verdict, wcrt: None, deadline: task.deadline }
}

/// `sched_setattr` for one task on top of those admitted so far.
fn admit(task: &Task, machine: &LinuxMachine, narrow: bool, total: &mut u64, room: Option<u64>) -> Result<(), Refusal> {
    let refuse = |errno, why| Err(Refusal { errno, why });
    let (runtime, deadline, period) = (machine.runtime(task), task.deadline, task.period);
    if runtime < RUNTIME_MIN {
        return refuse("EINVAL", format!("runtime {runtime} is below {RUNTIME_MIN}"));
    }
    if deadline < runtime {
        return refuse("EINVAL", format!("runtime {runtime} exceeds the deadline {deadline}"));
    }
    if period < deadline {
        return refuse("EINVAL", format!("deadline {deadline} exceeds the period {period}"));
    }
    let (min, max) = (Span::from_ns(us(machine.period_min_us)), Span::from_ns(us(machine.period_max_us)));
    if period < min || period > max {
        return refuse("EINVAL", format!("period {period} lies outside {min} to {max}"));
    }
    if room.is_some() && narrow {
        return refuse("EPERM", "its affinity is smaller than the root domain; use partitioned placement".to_owned());
    }
    let bandwidth = to_ratio(period.as_ns(), runtime.as_ns());
    let wanted = total.saturating_add(bandwidth);
    if room.is_some_and(|room| room < wanted) {
        return refuse("EBUSY", "the root domain's bandwidth is used up".to_owned());
    }
    *total = wanted;
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
