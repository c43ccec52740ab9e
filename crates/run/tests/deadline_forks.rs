//! Components under SCHED_DEADLINE. One spins and forks, and takes nothing from the others.
//!
//! Each thread wants the CPU all the time, and counts the CPU time that the kernel gave it. A run
//! takes 2.5 s. Nothing here asserts a wall-clock time.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use takt_linux::clock;
use takt_linux::cpuset::{Recovery, recover};
use takt_linux::process::KillOnDrop;
use takt_linux::sched::policy_of;
use takt_log::Event;
use takt_model::{Auto, Builtin, Component, ComponentId, NodeId, ServerRule, Span, System, Task, Time};
use takt_run::handlers::{Handlers, LiveJob};
use takt_run::{RunOptions, ServerBackEnd, Trace, prepare};

/// Name, period and budget in ms. They use 81 % of a CPU.
const SERVERS: [(&str, u64, u64); 3] = [("a", 40, 12), ("b", 50, 13), ("c", 60, 15)];
const CHILDREN: usize = 6;
/// A child ends by itself, even if this process is killed: a run lasts less than this CPU time.
const SPIN: &str = "ulimit -t 5; while :; do :; done";
const DURATION: Span = Span::from_ms(2500);
/// The threads count until here.
const END: Time = Time::from_ns(2_450_000_000);
/// A shorter account proves nothing.
const ACCOUNT_LEAST: Span = Span::from_ms(800);
/// A thread that spins reads its clock more often. Longer steps are the machine's.
const STEP: Span = Span::from_us(200);
/// The machine may disturb a run.
const ATTEMPTS: usize = 10;

/// CPU time of a thread.
#[derive(Clone, Copy, Debug)]
struct Account {
    lasted: Span,
    used: Span,
    /// CPU time that passed without the thread, for example while a hypervisor had the CPU.
    held: Span,
}

/// State that the threads of a run share.
#[derive(Default)]
struct Forks {
    children: Mutex<Vec<KillOnDrop>>,
    policies: Mutex<BTreeSet<Option<u32>>>,
    are_there: AtomicBool,
    accounts: Mutex<BTreeMap<&'static str, Account>>,
}

impl Forks {
    /// The only job of a task: the whole run.
    fn job(&self, name: &'static str, is_forking: bool, job: &LiveJob<'_>) {
        if job.number > 0 {
            return;
        }
        if !is_forking {
            while !self.are_there.load(Ordering::Acquire) && job.now() < END {
                std::hint::spin_loop();
            }
        }
        let (from, first) = (job.now(), clock::thread_cpu());
        if is_forking {
            self.fork();
        }
        let (mut to, mut last, mut held) = (job.now(), clock::thread_cpu(), Span::ZERO);
        while to < END {
            let now = clock::thread_cpu();
            let step = now.saturating_sub(last);
            if step > STEP {
                held = held.saturating_add(step);
            }
            (to, last) = (job.now(), now);
        }
        let account = Account { lasted: to.saturating_since(from), used: last.saturating_sub(first), held };
        self.accounts.lock().unwrap().insert(name, account);
    }

    fn fork(&self) {
        for _ in 0..CHILDREN {
            let mut command = Command::new("/bin/sh");
            let child = command.args(["-c", SPIN]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            match child {
                Ok(child) => {
                    self.policies.lock().unwrap().insert(policy_of(child.id()));
                    self.children.lock().unwrap().push(KillOnDrop(child));
                }
                Err(error) => println!("no child: {error}"),
            }
        }
        self.are_there.store(true, Ordering::Release);
    }

    /// Whether each component but the forking one got its budgets: one in each whole period of its
    /// account, but for the first and the last. `None`: an account is too short.
    fn others_got_theirs(&self, forking: usize) -> Option<bool> {
        let accounts = self.accounts.lock().unwrap();
        let mut got_theirs = true;
        for (_, (name, period, budget)) in SERVERS.into_iter().enumerate().filter(|(at, _)| *at != forking) {
            let account = accounts.get(name).filter(|account| account.lasted >= ACCOUNT_LEAST)?;
            let periods = account.lasted.as_ns() / ms(period).as_ns();
            got_theirs &= account.used >= ms(budget * (periods - 2));
        }
        Some(got_theirs)
    }
}

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// A task for each server; without components if nothing `is_reserved`.
fn system(is_reserved: bool) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    for (id, (name, period, budget)) in (0..).map(ComponentId).zip(SERVERS) {
        let mut task = Task::periodic(name, ms(period), ms(6));
        if is_reserved {
            let mut component = Component::new(name, NodeId(0), ServerRule::CbsHard);
            (component.period, component.budget) = (Auto::Value(ms(period)), Auto::Value(ms(budget)));
            system.components.push(component);
            task.component = Some(id);
        }
        system.tasks.push(task);
    }
    system
}

/// A run in which the task at `forking` has children, and what the hypervisor took. `None`: this
/// machine or user cannot.
fn try_run(forking: usize, is_reserved: bool) -> Option<(Arc<Forks>, Span)> {
    let options = RunOptions {
        back_end: is_reserved.then_some(ServerBackEnd::Deadline),
        best_effort: !is_reserved,
        trace: Trace::Never,
        ..RunOptions::new(DURATION)
    };
    let forks = Arc::new(Forks::default());
    let mut handlers = Handlers::new();
    for (at, (name, ..)) in SERVERS.into_iter().enumerate() {
        let forks = forks.clone();
        handlers = handlers.on(name, move |job| forks.job(name, at == forking, job));
    }
    let mut events: Vec<(u32, Time, Event)> = Vec::new();
    let ready = prepare(&system(is_reserved), &options).and_then(|prepared| prepared.open());
    let summary = match ready.and_then(|ready| ready.run_handled(&mut events, &mut |_| {}, handlers)) {
        Ok(summary) => summary,
        Err(error) if error.exit_code() == 3 => {
            println!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    // The children still live, and hold up nothing.
    assert_eq!(recover().unwrap(), Recovery::Nothing);
    let mut children = std::mem::take(&mut *forks.children.lock().unwrap());
    assert_eq!(children.len(), CHILDREN);
    assert!(children.iter_mut().all(|child| child.0.try_wait().unwrap().is_none()), "a child ended early");
    let policies = forks.policies.lock().unwrap().clone();
    assert_eq!(policies, BTreeSet::from([Some(0)]), "children have SCHED_OTHER");
    println!("{:?}, {policies:?}", forks.accounts.lock().unwrap());
    Some((forks, summary.steal.unwrap_or(Span::ZERO)))
}

#[test]
fn a_component_that_spins_and_forks_takes_nothing_from_others_under_sched_deadline() {
    let grain = takt_linux::machine().tick.unwrap_or(ms(10));
    for forking in 0..SERVERS.len() {
        let mut verdict = None;
        for _ in 0..ATTEMPTS {
            let Some((forks, steal)) = try_run(forking, true) else { return };
            // No thread gets more than its budgets, and up to a tick until the last one ends.
            for (name, period, budget) in SERVERS {
                let Some(account) = forks.accounts.lock().unwrap().get(name).copied() else { continue };
                let budgets = ms(budget * (account.lasted.as_ns() / ms(period).as_ns() + 2));
                let most = budgets.saturating_add(grain).saturating_add(account.held).saturating_add(steal);
                assert!(account.used <= most, "{forking} forks, {name} had {account:?} of {most}");
            }
            verdict = forks.others_got_theirs(forking).or(verdict);
            if verdict == Some(true) {
                break;
            }
        }
        let Some(got_theirs) = verdict else { return println!("skipped: this machine forks too slowly") };
        assert!(got_theirs, "{forking} forks, and in no run the others got their budgets");
    }
    // Without reservations the same children take from others.
    let mut accounts = (0..ATTEMPTS).filter_map(|_| try_run(0, false)?.0.others_got_theirs(0)).peekable();
    if accounts.peek().is_none() {
        return println!("skipped: this machine forks too slowly");
    }
    assert!(accounts.any(|got_theirs| !got_theirs), "the children take nothing, so these runs show nothing");
}
