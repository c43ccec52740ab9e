//! A component of existing threads, run by the library: a greedy process gets its budget and no more.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use takt_linux::{clock, tracing};
use takt_model::{Auto, Builtin, Component, ComponentId, NodeId, ServerRule, Span, System, Task, Threads};
use takt_run::{RunError, RunOptions, RunSummary, ServerBackEnd, run};

/// A process that spins, and another one that it starts. Both end by themselves.
const GREEDY: &str =
    "timeout --foreground 20 sh -c 'while :; do :; done' & timeout --foreground 20 sh -c 'while :; do :; done'; wait";

/// Ended with this, with all that it started.
struct Guest(Child);

impl Guest {
    fn start() -> Guest {
        let mut command = Command::new("sh");
        command.args(["-c", GREEDY]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own, to be ended as a whole.
        command.process_group(0);
        Guest(command.spawn().expect("a shell"))
    }

    /// Itself, and the processes that it has started.
    fn processes(&self) -> Vec<u32> {
        let all = tracing::threads();
        let parent = |id: u32| -> Option<u32> {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
        };
        let mut found = vec![self.0.id()];
        for _ in 0..3 {
            for thread in &all {
                if !found.contains(&thread.process) && parent(thread.process).is_some_and(|id| found.contains(&id)) {
                    found.push(thread.process);
                }
            }
        }
        found
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Its leader has not been waited for, so the number of the group is still its own.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// 6 of each 20 ms for the guest, and a task beside it.
fn system(guest: &Guest, rule: ServerRule) -> System {
    let mut system = System::local(1, Builtin::Rm, Vec::new());
    for (name, server, period, budget) in [("guest", rule, 20, 6), ("own", ServerRule::Deferrable, 40, 10)] {
        let mut component = Component::new(name, NodeId(0), server);
        (component.period, component.budget) = (Auto::Value(ms(period)), Auto::Value(ms(budget)));
        system.components.push(component);
    }
    system.components[0].threads = Some(Threads::Pid(guest.0.id()));
    system.tasks.push(Task { component: Some(ComponentId(1)), ..Task::periodic("control", ms(40), ms(5)) });
    system
}

/// The CPU time of the guest, and the most that is allowed.
fn used(summary: &RunSummary, duration: Span) -> (Span, Span) {
    let (guest, manager) = (&summary.foreign[0], &summary.managers[0]);
    let most = |of: &Option<takt_log::stats::Summary<u64>>| of.as_ref().map_or(0, |of| of.max);
    let late = most(&manager.late) + most(&manager.cost);
    // Instants that are closer together than 50 us are carried out together.
    let late = Span::from_ns(late).max(summary.steal.unwrap_or(Span::ZERO)).saturating_add(Span::from_us(50));
    let budgets = ms(6 * (duration.as_ns() / ms(20).as_ns() + 1));
    let lateness = Span::from_ns(late.as_ns() * manager.preemptions);
    (guest.used, budgets.saturating_add(guest.owed_max).saturating_add(lateness))
}

#[test]
fn a_greedy_process_gets_its_budget_and_no_more() {
    let guest = Guest::start();
    clock::pause(ms(50));
    let duration = ms(600);
    let mut was_greedy = false;
    for _ in 0..5 {
        let options = RunOptions { back_end: Some(ServerBackEnd::Manager), ..RunOptions::new(duration) };
        let mut events: Vec<(u32, takt_model::Time, takt_log::Event)> = Vec::new();
        let summary = match run(&system(&guest, ServerRule::Deferrable), &options, &mut events) {
            Ok(summary) => summary,
            Err(error) if error.exit_code() == 3 || matches!(error, RunError::Privilege { .. }) => {
                return println!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let (used, most) = used(&summary, duration);
        assert!(used <= most, "{used} of {most}: {summary:#?}");
        let processes = guest.processes();
        for thread in tracing::threads().into_iter().filter(|thread| processes.contains(&thread.process)) {
            assert_eq!((thread.policy, thread.affinity), (0, takt_linux::sched::affinity()), "{}", thread.name);
        }
        let control = summary.tasks.iter().find(|task| task.name == "control").expect("it");
        println!("{:?} {used} of {most}, control {}", summary.foreign, control.completed);
        was_greedy = used >= ms(100) && control.completed >= 14;
        if was_greedy {
            break;
        }
        println!("disturbed: {summary:#?}");
    }
    assert!(was_greedy, "in five runs the guest did not get its budget, or the task missed");
}
