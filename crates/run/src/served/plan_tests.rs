//! Refusals of the scheduler. Its servers in C against those of takt-policy.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use takt_linux::sched_ext::Unavailable;
use takt_model::{Auto, Builtin, file};
use takt_policy::{Decision, Event, Hierarchy, Job, ServerChange};

use super::*;
use crate::served::contract;
use crate::{Contract, RunOptions};

const SERVERS_C: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/servers_test.c");

fn parsed(text: &str) -> System {
    file::parse(text, "test.toml").unwrap()
}

fn refusals(text: &str) -> String {
    let options = RunOptions::new(Span::from_ms(100));
    let Contract { cannot, .. } = contract(&parsed(text), NodeId(0), &options, (&[], &[])).unwrap();
    cannot.iter().map(|obstacle| format!("{obstacle}\n")).collect()
}

const TWO: &str = "takt = 1
[[node]]
name = \"n\"
strategy = \"rm\"
[[component]]
name = \"H\"
server = \"ptps\"
period = \"10ms\"
budget = \"4ms\"
strategy = \"edf\"
[[task]]
name = \"late\"
component = \"H\"
period = \"20ms\"
deadline = \"15ms\"
wcet = \"1ms\"
[[task]]
name = \"early\"
component = \"H\"
period = \"10ms\"
wcet = \"1ms\"
[[task]]
name = \"beside\"
period = \"5ms\"
wcet = \"1ms\"
";

#[test]
fn tasks_beside_the_components_come_first_and_ties_go_to_the_earlier_arrival() {
    let (plan, cannot) = plan(&parsed(TWO), NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    let entries: Vec<_> = plan.cpus[0].entries.iter().map(|terms| (terms.rule, terms.level)).collect();
    assert_eq!(entries, [(Rule::Task, LEVEL_GAP), (Rule::Ptps, 2 * LEVEL_GAP)]);
    let members: Vec<_> = plan.members.iter().map(|member| (member.server, member.order, member.tie)).collect();
    assert_eq!(members, [(1, Order::Deadline, 0), (1, Order::Deadline, 1), (0, Order::Fifo, 0)]);
}

/// A component with components in it is a scope: its own tasks are entries of their own.
#[test]
fn a_component_in_a_component_is_an_entry_of_it() {
    let text = TWO.replacen(
        "[[task]]\nname = \"late\"",
        "[[component]]\nname = \"I\"\nserver = \"deferrable\"\nparent = \"H\"\nperiod = \"10ms\"\nbudget = \"1ms\"\n\
         [[task]]\nname = \"inner\"\ncomponent = \"I\"\nperiod = \"30ms\"\nwcet = \"1ms\"\n\
         [[task]]\nname = \"late\"",
        1,
    );
    let (plan, cannot) = plan(&parsed(&text), NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    let entries: Vec<_> = plan.cpus[0].entries.iter().map(|terms| (terms.rule, terms.outer())).collect();
    let (task, inside) = (Rule::Task, Some(1));
    let wanted = [(task, None), (Rule::Ptps, None), (task, inside), (task, inside), (Rule::Deferrable, inside)];
    assert_eq!(entries, wanted);
    assert_eq!(plan.cpus[0].components, [None, Some(ComponentId(0)), None, None, Some(ComponentId(1))]);
    assert_eq!(plan.members.iter().map(|member| member.server).collect::<Vec<_>>(), [4, 2, 3, 0]);
}

/// A change of the component at each of these instants in ms, before all other components.
fn modes(at: [u64; 4]) -> String {
    let modes = at.map(|at| format!("[[mode]]\nat = \"{at}ms\"\ncomponent = \"H\"\nbudget = \"3ms\"\n"));
    format!("{}[[component]]", modes.concat())
}

/// Three changes of a server wait in the scheduler from the start. Those of a control group never do.
#[test]
fn the_first_changes_of_a_server_are_given_at_the_start() {
    let (plan, _) = plan(&parsed(&TWO.replacen("[[component]]", &modes([10, 50, 90, 130]), 1)), NodeId(0)).unwrap();
    let at = |changes: &[Change]| changes.iter().map(|change| change.at.as_ns() / 1_000_000).collect::<Vec<_>>();
    let (first, later) = given_first(plan.changes.clone(), |_| false);
    assert_eq!((at(&first), at(&later)), (vec![10, 50, 90], vec![130]));
    let (first, later) = given_first(plan.changes, |change| change.server == 1);
    assert_eq!((at(&first), at(&later)), (vec![], vec![10, 50, 90, 130]));
}

/// Each obstacle names its part, and the node runs without it.
#[test]
fn components_that_the_scheduler_cannot_enforce_are_refused() {
    assert_eq!(refusals(TWO), "");
    for (from, to, wanted) in [
        ("\"ptps\"", "\"sporadic\"", "component \"H\": the scheduler has no rule \"sporadic\""),
        ("\"ptps\"", "\"grub\"", "the scheduler has no rule \"grub\""),
        ("budget = \"4ms\"", "budget = \"4ms\"\nquantum = \"1ms\"", "at multiples of a quantum"),
        ("budget = \"4ms\"", "budget = \"4ms\"\nthreads = \"pid:7\"", "it holds \"pid:7\""),
        ("strategy = \"edf\"", "strategy = \"mlf\"", "do not go by laxity"),
        ("wcet = \"1ms\"", "wcet = \"1ms\"\ncriticality = \"low\"\ncancel = true", "the kernel cancels no job"),
        ("wcet = \"1ms\"", "wcet = \"1ms\"\nlate = \"drop\"", "neither drops nor demotes"),
        ("[[component]]", "cpus = 2\nplacement = \"global\"\n[[component]]", "CPUs 0-1 share tasks or components"),
        ("period = \"10ms\"\nbudget = \"4ms\"", "period = \"5s\"\nbudget = \"4ms\"", ""),
        ("budget = \"4ms\"", "budget = \"900us\"", "component \"H\": a budget of 900us is below 1ms"),
        ("[[component]]", &modes([10, 20, 30, 41]), ""),
        ("[[component]]", &modes([10, 20, 30, 40]), "4 of its changes ([[mode]]) come within 30ms, from 10ms to 40ms"),
    ] {
        let refused = refusals(&TWO.replacen(from, to, 1));
        assert!(refused.contains(wanted) && refused.is_empty() == wanted.is_empty(), "{to}: {refused}");
    }
    let long = TWO.replacen("\"ptps\"\nperiod = \"10ms\"", "\"cbs-hard\"\nperiod = \"5s\"", 1);
    assert!(refusals(&long).contains("a period of at most 4.29"), "{}", refusals(&long));
}

/// A component on CPUs 2 and 0, a server beside it on CPU 2, and a task on CPU 1.
const WIDE: &str = "takt = 1
[[node]]
name = \"n\"
cpus = 3
placement = \"partitioned\"
strategy = \"rm\"
[[component]]
name = \"W\"
server = \"ptps\"
cpus = 2
server-cpus = [2, 0]
period = \"10ms\"
budget = \"5ms\"
strategy = \"edf\"
[[component]]
name = \"N\"
server = \"deferrable\"
server-cpus = [2]
period = \"5ms\"
budget = \"1ms\"
[[task]]
name = \"a\"
component = \"W\"
period = \"20ms\"
wcet = \"1ms\"
[[task]]
name = \"c\"
component = \"N\"
period = \"20ms\"
wcet = \"1ms\"
[[task]]
name = \"b\"
component = \"W\"
period = \"10ms\"
wcet = \"1ms\"
[[task]]
name = \"beside\"
cpus = [1]
period = \"5ms\"
wcet = \"1ms\"
";

/// Each CPU of a component has a server of its own with a share of the budget. The threads have one place in all.
#[test]
fn a_component_on_several_cpus_has_a_server_on_each_and_one_pool_of_threads() {
    let (plan, cannot) = plan(&parsed(WIDE), NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    let (wide, narrow) = (Some(ComponentId(0)), Some(ComponentId(1)));
    let cpus: Vec<_> = plan.cpus.iter().map(|cpu| (cpu.cpu, cpu.components.clone())).collect();
    assert_eq!(cpus, [(0, vec![wide]), (2, vec![wide, narrow]), (1, vec![None])]);
    let terms = |level| Terms::new(Rule::Ptps, (2_500_000, 10_000_000), (level, Order::Fifo, 0)).pooled(Some(0));
    assert_eq!(plan.cpus[0].entries, [terms(LEVEL_GAP)]);
    // On this CPU the other server has the shorter period.
    assert_eq!(plan.cpus[1].entries[0], terms(2 * LEVEL_GAP));
    let alone = |terms: Terms| terms == terms.pooled(None);
    assert!(alone(plan.cpus[1].entries[1]) && alone(plan.cpus[2].entries[0]));
    assert_eq!(plan.pools, [[(0, 0), (2, 0)]]);
    let members: Vec<_> = plan.members.iter().map(|member| (member.cpu, member.server, member.pool)).collect();
    assert_eq!(members, [(0, 0, 1), (2, 1, 0), (0, 0, 1), (1, 0, 0)]);
    let cpus: Vec<Vec<u32>> = plan.members.iter().map(|member| plan.cpus_of(member).iter().collect()).collect();
    assert_eq!(cpus, [vec![0, 2], vec![2], vec![0, 2], vec![1]]);
}

/// A change of the component is a change of each of its servers, of which none loses time to rounding.
#[test]
fn servers_of_a_component_share_each_budget() {
    let mode = "[[mode]]\nat = \"50ms\"\ncomponent = \"W\"\nbudget = \"7ms\"\n[[component]]";
    let (plan, cannot) = plan(&parsed(&WIDE.replacen("[[component]]", mode, 1)), NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    let changes: Vec<_> = plan.changes.iter().map(|change| (change.cpu, change.server, change.terms.budget)).collect();
    assert_eq!(changes, [(0, 0, 3_500_000), (2, 0, 3_500_000)]);
    assert!(plan.changes.iter().all(|change| change.terms == change.terms.pooled(Some(0))));
}

/// Each CPU must be able to decide alone. The refusal has the remedy.
#[test]
fn components_on_several_cpus_that_no_cpu_keeps_alone_are_refused() {
    assert_eq!(refusals(WIDE), "");
    let inner = "[[component]]\nname = \"I\"\nserver = \"ptps\"\nparent = \"W\"\nperiod = \"10ms\"\n\
                 budget = \"1ms\"\n[[task]]\nname = \"i\"\ncomponent = \"I\"\nperiod = \"30ms\"\nwcet = \"1ms\"\n\
                 [[task]]\nname = \"a\"";
    for ((from, to), wanted, remedy) in [
        (("\"ptps\"", "\"polling\""), "no CPU knows alone whether a polling server has work", "ptps, wcps, crps"),
        (("[2, 0]", "[2, 2]"), "two of its servers are on CPU 2", "another CPU in server-cpus"),
        (("[[task]]\nname = \"a\"", inner), "component \"W\": it has servers on 2 CPUs, and is nested", "cpus = 1"),
        (("budget = \"5ms\"", "budget = \"1500us\""), "a budget of 750us is below 1ms", "--backend manager"),
    ] {
        let refused = refusals(&WIDE.replacen(from, to, 1));
        assert!(refused.contains(wanted) && refused.contains(remedy), "{to}: {refused}");
    }
    let bound = ["placement = \"partitioned\"\n", "server-cpus = [2, 0]\n", "server-cpus = [2]\n", "cpus = [1]\n"];
    let refused = refusals(&bound.iter().fold(WIDE.to_owned(), |text, line| text.replace(line, "")));
    let wanted = "component \"W\": it has servers on 2 CPUs, and each server has a CPU of its own here; use --backend \
                  manager, or place them: placement = \"partitioned\"";
    assert!(refused.contains(wanted), "{refused}");
}

/// Nobody tells of the jobs of existing threads, so they take turns.
#[test]
fn existing_threads_of_a_group_have_one_place() {
    let text = TWO.replacen("budget = \"4ms\"", "budget = \"4ms\"\nthreads = \"cgroup:/g\"", 1);
    let system = crate::foreign::lowered(&parsed(&text), NodeId(0)).ok().unwrap().into_owned();
    let (plan, cannot) = plan(&system, NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    let members: Vec<_> = plan.members.iter().map(|member| (member.server, member.order, member.tells)).collect();
    assert_eq!(members, [(0, Order::Fifo, 1), (1, Order::Shared, 0)]);
    assert_eq!(plan.place_of(ComponentId(0)), Some((0, 1)));
}

#[test]
fn missing_support_for_sched_ext_is_named_with_a_remedy() {
    let options = RunOptions::new(Span::from_ms(100));
    let lacks = [
        Unavailable::Feature,
        Unavailable::Kernel,
        Unavailable::Busy("scx_simple".to_owned()),
        Unavailable::Privilege("no".to_owned()),
        Unavailable::Groups,
    ];
    let refused = contract(&parsed(TWO), NodeId(0), &options, (&lacks, &[])).unwrap().cannot;
    let text: Vec<String> = refused.iter().map(ToString::to_string).collect();
    for (text, wanted) in text.iter().zip([
        "cargo build --features bpf",
        "CONFIG_SCHED_CLASS_EXT",
        "\"scx_simple\" is at work",
        "this user: no",
        "CONFIG_EXT_GROUP_SCHED",
    ]) {
        assert!(text.contains(wanted) && text.contains("--backend manager"), "{text}");
    }
    assert_eq!(text.len(), 5);
}

/// A source of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const RULES: [ServerRule; 7] = [
    ServerRule::Ptps,
    ServerRule::Wcps,
    ServerRule::Crps,
    ServerRule::Polling,
    ServerRule::Deferrable,
    ServerRule::Cbs,
    ServerRule::CbsHard,
];

fn some_strategy(numbers: &mut Numbers) -> Builtin {
    [Builtin::Rm, Builtin::Edf, Builtin::Fp, Builtin::Dm][numbers.below(4) as usize]
}

fn random_system(numbers: &mut Numbers) -> System {
    let strategy = some_strategy(numbers);
    let mut system = System::local(1, strategy, Vec::new());
    let rule = |numbers: &mut Numbers| RULES[numbers.below(RULES.len() as u64) as usize];
    for at in 0..1 + numbers.below(5) {
        let id = ComponentId(at as u32);
        let mut component = Component::new(&format!("c{at}"), NodeId(0), rule(numbers));
        let period = 2 + numbers.below(20);
        component.period = Auto::Value(Span::from_ms(period));
        component.budget = Auto::Value(Span::from_ms(1 + numbers.below(period)));
        component.strategy = StrategyRef::Builtin(some_strategy(numbers));
        component.priority = Some(1 + numbers.below(4) as u32);
        component.parent = (at > 0 && numbers.below(2) > 0).then(|| ComponentId(numbers.below(at) as u32));
        system.components.push(component);
        for task in 0..1 + numbers.below(2) {
            let period = Span::from_ms(5 + numbers.below(20));
            let task = Task::periodic(&format!("t{at}{task}"), period, Span::from_ms(1));
            let priority = Some(1 + numbers.below(4) as u32);
            system.tasks.push(Task { component: Some(id), priority, ..task });
        }
        for _ in 0..numbers.below(3) {
            let period = 2 + numbers.below(20);
            system.switches.push(ServerSwitch {
                component: id,
                at: Time::from_ns(numbers.below(200_000_000)),
                server: (numbers.below(2) > 0).then(|| rule(numbers)),
                period: Some(Span::from_ms(period)),
                budget: Some(Span::from_ms(1 + numbers.below(period))),
            });
        }
    }
    for at in 0..numbers.below(3) {
        let task = Task::periodic(&format!("o{at}"), Span::from_ms(5 + numbers.below(20)), Span::from_ms(1));
        system.tasks.push(Task { priority: Some(1 + numbers.below(4) as u32), ..task });
    }
    system
}

/// A decision: the changes of servers by entry, and the entry whose job gets the CPU.
#[derive(PartialEq, Eq, Debug, Default)]
struct Decided {
    now: u64,
    changes: Vec<(u32, u32, u64, u64, u64, u32)>,
    runs: u32,
}

/// The command that gives an entry its terms.
fn given(at: u32, terms: &Terms) -> String {
    let Terms { budget, period, shift, at: from, rule, level, order, .. } = *terms;
    let outer = terms.outer().map_or(0, |outer| outer + 1);
    format!("t {at} {budget} {period} {shift} {from} {} {level} {} {outer}\n", rule as u32, order as u32)
}

/// Drives the machine of takt-policy at random, and notes the commands for the other one.
fn drive(system: &System, plan: &ServedPlan, numbers: &mut Numbers, script: &mut String) -> Vec<(Decided, bool)> {
    use std::fmt::Write as _;
    let cpu = &plan.cpus[0];
    script.push_str("s 0\n");
    (0..).zip(&cpu.entries).for_each(|(at, entry)| script.push_str(&given(at, entry)));
    let mut changes = plan.changes.iter().peekable();
    let mut hierarchy = Hierarchy::new(system, NodeId(0)).unwrap();
    let mut jobs = vec![false; plan.members.len()];
    let (mut all, mut decisions, mut runs, mut now) = (Vec::new(), Vec::new(), None::<u32>, 0u64);
    let (mut next_event, ahead) = (0, numbers.below(AHEAD.as_ns()));
    for _ in 0..300 {
        let mut is_event = now >= next_event;
        if is_event {
            let at = Time::from_ns(now);
            if let Some(slot) = runs.filter(|_| numbers.below(2) > 0) {
                hierarchy.on_event(at, &Event::Complete { slot }, &mut decisions);
                (runs, jobs[slot as usize]) = (None, false);
                writeln!(script, "c {}", plan.members[slot as usize].server).unwrap();
            }
            let slot = numbers.below(jobs.len() as u64) as usize;
            if !std::mem::replace(&mut jobs[slot], true) {
                let member = &plan.members[slot];
                let deadline = at.saturating_add(Span::from_ns(member.relative));
                let job = Job { slot: slot as u32, release: at, arrival: at, deadline };
                hierarchy.on_event(at, &Event::Ready(job), &mut decisions);
                writeln!(script, "r {} {now} {}", member.server, deadline.as_ns()).unwrap();
            }
            next_event = now + 1 + numbers.below(6_000_000);
        }
        // The machine in C may know of changes before. It takes them when they are due.
        while let Some(change) = changes.next_if(|change| change.at.as_ns() <= now + ahead) {
            script.push_str(&given(change.server, &change.terms.from(change.at.as_ns())));
            is_event |= change.at.as_ns() <= now;
        }
        hierarchy.dispatch(Time::from_ns(now), &mut decisions);
        for decision in decisions.drain(..) {
            match decision {
                Decision::Run { slot, .. } => runs = Some(slot),
                Decision::Preempt { slot, .. } => runs = runs.filter(|runs| *runs != slot),
                other => panic!("{other:?}"),
            }
        }
        let entry_of = |id: ComponentId| cpu.components.iter().position(|of| *of == Some(id)).unwrap() as u32;
        let mut decided = Decided { now, changes: Vec::new(), runs: u32::MAX };
        for event in hierarchy.take_events() {
            let (kind, a, b) = match event.change {
                ServerChange::Replenished(budget) => (0, budget.as_ns(), 0),
                ServerChange::Exhausted => (1, 0, 0),
                ServerChange::Idle => (2, 0, 0),
                ServerChange::Paid { since, amount, idle } => {
                    (3, since.as_ns(), amount.as_ns() | u64::from(idle) << 63)
                }
                ServerChange::Switched { budget, period, .. } => (4, budget.as_ns(), period.as_ns()),
            };
            let rule =
                if let ServerChange::Switched { rule, .. } = event.change { rule_of(rule).unwrap() as u32 } else { 0 };
            decided.changes.push((entry_of(event.component), kind, now, a, b, rule));
        }
        decided.runs = runs.map_or(u32::MAX, |slot| plan.members[slot as usize].server);
        decided.changes.sort_by_key(|change| change.0);
        writeln!(script, "d {now}").unwrap();
        all.push((decided, is_event));
        now = hierarchy.next_wakeup(Time::from_ns(now)).map_or(next_event, |at| at.as_ns().min(next_event));
    }
    all
}

/// The machine in C as a program, in a folder of its own.
fn compiled(name: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("takt-servers-{}-{name}", std::process::id()));
    let program = folder.join("servers");
    std::fs::create_dir_all(&folder).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"])
        .args([SERVERS_C, "-o"])
        .arg(&program)
        .output()
        .expect("cc, which links Rust programs, too");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    (folder, program)
}

fn cases() -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

/// Every change of every server and every decision of the machine in C is that of takt-policy.
#[test]
fn the_servers_in_c_are_those_of_the_policy() {
    let (folder, program) = compiled("equal");
    let mut seen = [0u64; 5];
    for seed in 0..cases() {
        let mut numbers = Numbers(seed);
        let system = random_system(&mut numbers);
        let (plan, _) = plan(&system, NodeId(0)).unwrap();
        let mut script = String::new();
        let policy = drive(&system, &plan, &mut numbers, &mut script);
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It answers as it reads, so it is fed from beside.
        let mut stdin = child.stdin.take().unwrap();
        let feed = std::thread::spawn(move || stdin.write_all(script.as_bytes()).map(|()| script));
        let output = child.wait_with_output().unwrap();
        let script = feed.join().unwrap().unwrap();
        assert!(output.status.success(), "seed {seed}");
        let mut policy = policy.into_iter();
        let (mut changes, mut former, mut before) = (Vec::new(), u64::MAX, u32::MAX);
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let numbers: Vec<u64> = line[2..].split(' ').map(|number| number.parse().unwrap()).collect();
            if line.starts_with('e') {
                let (kind, rule) = (numbers[1] as u32, if numbers[1] == 4 { numbers[5] as u32 } else { 0 });
                seen[kind as usize] += 1;
                changes.push((numbers[0] as u32, kind, numbers[2], numbers[3], numbers[4], rule));
                continue;
            }
            let (wanted, is_event) = policy.next().unwrap();
            changes.sort_by_key(|change| change.0);
            let decided = Decided { now: numbers[0], changes: std::mem::take(&mut changes), runs: numbers[1] as u32 };
            assert_eq!(decided, wanted, "seed {seed}\n{script}");
            // It said before that it must decide then.
            let is_new = !decided.changes.is_empty() || decided.runs != before;
            assert!(is_event || !is_new || former <= decided.now, "seed {seed}: {decided:?}, next was {former}");
            (former, before) = (numbers[2], decided.runs);
        }
        assert!(policy.next().is_none(), "seed {seed}");
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    let _ = std::fs::remove_dir_all(folder);
}

/// The machine in C, command by command, and the account of each server.
struct Machine {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The budget of each server, and what is left of it. Below zero is a debt.
    accounts: Vec<(i64, i64)>,
    debts: u64,
}

/// The longest lateness of a decision, ns. It is below each budget.
const LATE: u64 = 900_000;

impl Machine {
    fn start(program: &Path, plan: &ServedPlan) -> Machine {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let entries = &plan.cpus[0].entries;
        let accounts = entries.iter().map(|terms| (terms.budget.cast_signed(), 0)).collect();
        let mut machine = Machine { child, input, output, accounts, debts: 0 };
        (0..).zip(entries).for_each(|(at, terms)| machine.command(&given(at, terms)));
        machine.command("s 0\n");
        for change in &plan.changes {
            machine.command(&given(change.server, &change.terms.from(change.at.as_ns())));
        }
        machine
    }

    fn command(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).unwrap();
    }

    /// Decides, and returns the entry that runs and the next instant. No server owes more than the lateness.
    fn decide(&mut self, now: u64) -> (u32, u64) {
        self.command(&format!("d {now}\n"));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the machine has ended");
            let numbers: Vec<u64> = line[2..].trim_end().split(' ').map(|number| number.parse().unwrap()).collect();
            if line.starts_with('d') {
                return (numbers[1] as u32, numbers[2]);
            }
            let (budget, left) = &mut self.accounts[numbers[0] as usize];
            let amount = (numbers[3] & !(1 << 63)).cast_signed();
            match numbers[1] {
                // A debt is missing from the next budget.
                0 => {
                    self.debts += u64::from(*left < 0);
                    assert!(amount <= *budget + (*left).min(0), "{line}: of {budget}, with {left} left");
                    *left = amount;
                }
                3 => *left -= (numbers[4] & !(1 << 63)).cast_signed(),
                4 => *budget = amount,
                _ => {}
            }
            assert!(*left >= -LATE.cast_signed(), "{line}: {left} left");
        }
    }
}

/// Decisions come late at random, and real-time threads take the CPU for long. A server pays at most its budget and
/// the lateness. It pays the excess from its next budget. Real-time threads make no debts, also if threads of servers
/// wake up meanwhile.
#[test]
fn late_decisions_and_real_time_threads_make_bounded_debts() {
    let (folder, program) = compiled("late");
    let mut debts = 0;
    for seed in 0..cases() {
        let mut numbers = Numbers(seed);
        let system = random_system(&mut numbers);
        let (plan, _) = plan(&system, NodeId(0)).unwrap();
        let mut machine = Machine::start(&program, &plan);
        let mut jobs = vec![false; plan.members.len()];
        let (mut now, mut runs, mut next) = (0, u32::MAX, 0);
        let wake = |machine: &mut Machine, jobs: &mut [bool], slot: usize, now: u64| {
            let member = &plan.members[slot];
            if !std::mem::replace(&mut jobs[slot], true) {
                machine.command(&format!("r {} {now} {}\n", member.server, now + member.relative));
            }
        };
        for _ in 0..100 {
            let event = now + 1 + numbers.below(6_000_000);
            now = event.min(next).max(now) + numbers.below(LATE);
            if event <= now {
                let done = (0..jobs.len()).find(|slot| jobs[*slot] && plan.members[*slot].server == runs);
                if let Some(slot) = done.filter(|_| numbers.below(2) > 0) {
                    jobs[slot] = false;
                    machine.command(&format!("c {runs}\n"));
                }
                let slot = numbers.below(jobs.len() as u64) as usize;
                wake(&mut machine, &mut jobs, slot, event);
            }
            (runs, next) = machine.decide(now);
            if numbers.below(4) == 0 {
                machine.command(&format!("k {now} 1\n"));
                for _ in 0..1 + numbers.below(3) {
                    now += numbers.below(20_000_000);
                    let slot = numbers.below(jobs.len() as u64) as usize;
                    wake(&mut machine, &mut jobs, slot, now);
                    (runs, next) = machine.decide(now);
                }
                machine.command(&format!("k {now} 0\n"));
            }
        }
        debts += machine.debts;
        drop(machine.input);
        assert!(machine.child.wait().unwrap().success(), "seed {seed}");
    }
    assert!(debts > 0);
    let _ = std::fs::remove_dir_all(folder);
}

/// A node of one CPU has all its CPU for its components.
#[test]
fn cpus_have_their_own_servers() {
    let text = TWO
        .replacen("strategy", "cpus = 2\nplacement = \"partitioned\"\nstrategy", 1)
        .replacen("name = \"H\"", "name = \"H\"\nserver-cpus = [1]", 1)
        .replacen("name = \"beside\"", "name = \"beside\"\ncpus = [0]", 1);
    let system = parsed(&text);
    let (plan, cannot) = plan(&system, NodeId(0)).unwrap();
    assert!(cannot.is_empty(), "{cannot:?}");
    let cpus: Vec<_> = plan.cpus.iter().map(|cpu| (cpu.cpu, cpu.entries.len())).collect();
    assert_eq!(cpus, [(0, 1), (1, 1)]);
    assert_eq!(
        plan.members.iter().map(|member| (member.cpu, member.server)).collect::<Vec<_>>(),
        [(1, 0), (1, 0), (0, 0)]
    );
}
