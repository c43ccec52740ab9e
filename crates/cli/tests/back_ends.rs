//! The back ends of components on this kernel: golden systems run under each of them in the order of the simulation,
//! and in its times within the costs that the run measured. What a back end cannot enforce, it refuses.
//!
//! A run of which the machine took a millisecond or more proves nothing, and is repeated.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use takt_linux::machine;
use takt_linux::process::KillOnDrop;
use takt_log::{Event, JobKey, Reader};
use takt_model::{Costs, Span, System, Time, file};
use takt_sim::{SimOptions, simulate};

use crate::command::{
    TAKT, alone, each_miss_has_a_cause, eventually_or, read_by_every_verb, succeeds, takt, unless_refused,
};
use crate::instants::{Instants, kills};

mod command;
#[path = "command/instants.rs"]
mod instants;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
/// Golden systems for each back end.
const ANYWHERE: [&str; 3] = ["throttled", "preempted", "renewed"];
/// Golden systems with rules, nested servers, changes or several CPUs, which SCHED_DEADLINE refuses.
const MANAGED: [&str; 4] = ["lent", "changed", "nested", "wide"];
const DURATION: Span = Span::from_ms(470);
/// A run is not compared if the machine took this much of it.
const DISTURBED: Span = Span::from_ms(1);
const ATTEMPTS: usize = 24;
/// So many runs may differ that the machine did not visibly disturb.
const DIFFERENCES_MAX: usize = 2;
/// A golden system has decisions at no more than this many instants in a row without an idle machine between them.
const DECISIONS: u64 = 11;

/// A schedule: who had each CPU when, and what happened to each server.
#[derive(PartialEq, Eq, Debug, Default)]
struct Schedule {
    /// By CPU. A system of one CPU may run on any.
    cpus: BTreeMap<u32, Vec<(Time, &'static str, JobKey)>>,
    servers: BTreeMap<u32, Vec<(Time, &'static str)>>,
    /// The longest time from an arrival to the release.
    late: Span,
}

/// A schedule without times: the events of jobs by CPU, and the events of servers.
type Order = (Vec<(u32, &'static str, JobKey)>, Vec<(u32, Vec<&'static str>)>);

impl Schedule {
    fn simulated(system: &System) -> Schedule {
        let (mut events, mut schedule) = (Vec::new(), Schedule::default());
        let options = SimOptions { duration: DURATION, ..SimOptions::default() };
        simulate(system, &options, &mut events).expect("it can be simulated");
        events.iter().for_each(|(_, at, event)| schedule.take(*at, event, system.nodes[0].cpus > 1));
        schedule
    }

    fn read(log: &Path, several_cpus: bool) -> Schedule {
        let bytes = fs::read(log).expect("a log");
        let mut schedule = Schedule::default();
        for record in Reader::new(&bytes[..]).expect("a log") {
            let record = record.expect("a record");
            schedule.take(record.time, &record.event, several_cpus);
        }
        schedule
    }

    fn take(&mut self, at: Time, event: &Event, several_cpus: bool) {
        let cpus = &mut self.cpus;
        let cpu_of = |cpu: u32| if several_cpus { cpu } else { 0 };
        let mut add = |cpu: u32, what, job| cpus.entry(cpu_of(cpu)).or_default().push((at, what, job));
        let mut server = |server: u32, what| self.servers.entry(server).or_default().push((at, what));
        match *event {
            Event::Release { arrival, .. } => self.late = self.late.max(at.saturating_since(arrival)),
            Event::Start { job, cpu } => add(cpu, "start", job),
            // The kernel blocks a thread whose budget is used up.
            Event::Preempt { job, cpu } | Event::Block { job, cpu } => add(cpu, "leave", job),
            Event::Resume { job, cpu } => {
                let told = cpus.entry(cpu_of(cpu)).or_default();
                match told.last() {
                    // A thread of the kernel's own ran in between.
                    Some((left, "leave", last)) if *last == job && at.saturating_since(*left) < DISTURBED => {
                        told.pop();
                    }
                    _ => told.push((at, "resume", job)),
                }
            }
            Event::Complete { job, cpu } => add(cpu, "complete", job),
            Event::Replenish { server: of, .. } => server(of, "replenish"),
            Event::Exhaust { server: of } => server(of, "exhaust"),
            Event::ServerIdle { server: of } => server(of, "idle"),
            _ => {}
        }
    }

    /// The most instants of decisions without an idle machine between them.
    fn decisions(&self) -> u64 {
        let begins = |what: &str| matches!(what, "start" | "resume");
        let jobs = self.cpus.values().flatten().map(|(at, what, _)| (*at, if begins(what) { 1 } else { -1 }));
        let mut all: Vec<(Time, i32)> = jobs.chain(self.servers.values().flatten().map(|(at, _)| (*at, 0))).collect();
        all.sort_unstable();
        let (mut most, mut here, mut running) = (0, 0, 0);
        for instant in all.chunk_by(|one, next| one.0 == next.0) {
            here += 1;
            most = most.max(here);
            running += instant.iter().map(|(_, change)| change).sum::<i32>();
            if running == 0 {
                here = 0;
            }
        }
        most
    }

    fn order(&self) -> Order {
        let of_cpu = |(cpu, told): (&u32, &Vec<(Time, &'static str, JobKey)>)| {
            let cpu = *cpu;
            told.iter().map(|(_, what, job)| (cpu, *what, *job)).collect::<Vec<_>>()
        };
        let of_server = |(server, told): (&u32, &Vec<(Time, &'static str)>)| {
            (*server, told.iter().map(|(_, what)| *what).collect())
        };
        (self.cpus.iter().flat_map(of_cpu).collect(), self.servers.iter().map(of_server).collect())
    }

    /// How it differs from a simulated one, beyond the tolerance.
    fn differs(&self, simulated: &Schedule, tolerance: Span) -> Option<String> {
        if self.order() != simulated.order() {
            return Some(format!("live: {self:#?}\nsimulated: {simulated:#?}"));
        }
        let late = |live: Time, plan: Time| live.saturating_since(plan).max(plan.saturating_since(live)) > tolerance;
        let (live, plan) = (self.cpus.values().flatten(), simulated.cpus.values().flatten());
        let job = live.zip(plan).find(|((live, ..), (plan, ..))| late(*live, *plan));
        let job = job.map(|((live, what, job), (plan, ..))| (*live, format!("{what} of {job:?}"), *plan));
        let (live, plan) = (self.servers.values().flatten(), simulated.servers.values().flatten());
        let server = live.zip(plan).find(|((live, _), (plan, _))| late(*live, *plan));
        let server = server.map(|((live, what), (plan, _))| (*live, (*what).to_owned(), *plan));
        let found = job.or(server);
        found.map(|(live, what, plan)| format!("{what} at {live}, simulated at {plan}, tolerance {tolerance}"))
    }
}

fn longest<'a>(values: impl Iterator<Item = &'a Value>) -> u64 {
    values.filter_map(Value::as_u64).max().unwrap_or(0)
}

/// Records of the kernel that a run lacks.
fn unrecorded(answer: &Value) -> u64 {
    let count = |key: &str| answer["recorded"][key].as_u64().unwrap_or(0);
    count("missing") + count("lost")
}

/// The time that the machine took of a run, and the tolerance by the costs of its back end.
fn measured(answer: &Value, back_end: &str, live: &Schedule) -> (Span, Span) {
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let (threads, managers) = (list("threads"), list("managers"));
    let late = live.late.as_ns().max(longest(managers.iter().map(|manager| &manager["late_ns"]["max"])));
    let each = longest(managers.iter().map(|manager| &manager["cost_ns"]["max"]))
        + longest(threads.iter().map(|thread| &thread["overhead_ns"]));
    // The kernel ends a budget at a tick.
    let ends = live.servers.values().flatten().any(|(_, what)| *what == "exhaust");
    let grain = match back_end {
        "deadline" if ends => takt_linux::machine().tick.unwrap_or(Span::from_ms(10)),
        _ => Span::ZERO,
    };
    let taken = answer["steal_ns"].as_u64().unwrap_or(0).max(late).max(each);
    let taken = if unrecorded(answer) > 0 { DISTURBED } else { Span::from_ns(taken) };
    (taken, grain.saturating_add(Span::from_ns(2 * late + DECISIONS * each)))
}

fn golden(name: &str) -> System {
    let text = fs::read_to_string(format!("{GOLDEN}/{name}.toml")).expect("a file");
    file::parse(&text, name).expect("a system")
}

/// The costs of a live run do not change the order, and DECISIONS bounds how they add up.
#[test]
fn golden_systems_keep_their_order_if_decisions_cost_time() {
    for name in ANYWHERE.into_iter().chain(MANAGED) {
        let mut system = golden(name);
        let simulated = Schedule::simulated(&system);
        assert!(simulated.decisions() <= DECISIONS, "{name}: {}", simulated.decisions());
        for us in (20..=300).step_by(20) {
            let cost = Span::from_us(us);
            system.nodes[0].costs = Some(Costs { release: cost, switch: cost, ..Costs::NONE });
            assert_eq!(Schedule::simulated(&system).order(), simulated.order(), "{name}: {cost}");
        }
    }
}

/// Runs a golden system under a back end until a run agrees with the simulation. `false`: it may not run here.
fn agrees(folder: &Path, name: &str, back_end: &str) -> bool {
    let (file, duration) = (format!("{GOLDEN}/{name}.toml"), DURATION.to_string());
    succeeds(folder, &["sim", &file, "--for", &duration, "-o", "sim.takt"]);
    let system = golden(name);
    let simulated = Schedule::simulated(&system);
    assert!(!simulated.cpus.is_empty() && !simulated.servers.is_empty());
    let (mut differences, mut gaps, mut longest) = (Vec::new(), 0, Span::ZERO);
    for _ in 0..ATTEMPTS {
        let run = ["run", &file, "--for", &duration, "--backend", back_end, "-o", "live.takt", "--json"];
        let Some((out, _)) = unless_refused(folder, &run) else { return false };
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(answer["back_end"], back_end);
        if back_end == "deadline" && answer["recorded"].is_null() {
            println!("skipped: {name} under {back_end}: the kernel is not recorded, so nothing is known of servers");
            return true;
        }
        let live = Schedule::read(&folder.join("live.takt"), system.nodes[0].cpus > 1);
        let (taken, tolerance) = measured(&answer, back_end, &live);
        if taken >= DISTURBED {
            println!("{name} under {back_end}: not compared, the machine took {taken}");
            gaps += usize::from(unrecorded(&answer) > 0);
            longest = longest.max(taken);
            continue;
        }
        let difference = live.differs(&simulated, tolerance);
        let tolerance = format!("{}ns", tolerance.as_ns());
        let (status, out, _) = takt(folder, &["diff", "sim.takt", "live.takt", "--tolerance", &tolerance]);
        match difference {
            None if status == 0 => {
                println!("{name} under {back_end}: as simulated, within {tolerance}");
                return true;
            }
            None => differences.push(out),
            Some(difference) => differences.push(difference),
        }
    }
    // Noise explains a run or two, not more.
    assert!(differences.len() <= DIFFERENCES_MAX, "{name} under {back_end}: {}", differences.join("\n"));
    println!(
        "skipped: {name} under {back_end}: no run of {ATTEMPTS} agrees. {} differ, and the machine disturbed the rest. \
         It took up to {longest} of a run, and {gaps} lack records of the kernel",
        differences.len()
    );
    true
}

#[test]
fn golden_systems_run_under_each_back_end_as_simulated() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let anywhere = ANYWHERE.into_iter().flat_map(|name| [(name, "manager"), (name, "deadline")]);
    for (name, back_end) in anywhere.chain(MANAGED.map(|name| (name, "manager"))) {
        if !agrees(folder.path(), name, back_end) {
            return;
        }
    }
}

/// Every consumer reads the log of servers under SCHED_DEADLINE, and says what it rests on.
#[test]
fn the_log_of_the_deadline_back_end_is_read_by_every_verb() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = format!("{GOLDEN}/throttled.toml");
    let run = ["run", &file, "--for", "200ms", "--backend", "deadline", "-o", "live.takt"];
    let Some((out, error)) = unless_refused(folder, &run) else { return };
    assert!(out.contains("SCHED_DEADLINE runtime 12ms, deadline 40ms, period 40ms"), "{out}{error}");
    assert!(error.contains("gives component \"long\" 12ms in each 40ms"), "{error}");
    assert!(error.contains("replenishments are computed") || error.contains("so is all that servers do"), "{error}");
    read_by_every_verb(folder);
}

/// The least budget for the tasks holds nothing of what the kernel charges.
#[test]
fn a_budget_that_holds_no_costs_is_warned_of() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let text = "takt = 1\n[[node]]\nname = \"n1\"\n[[component]]\nname = \"lean\"\nserver = \"cbs-hard\"\nperiod = \
                \"40ms\"\n[[task]]\nname = \"t\"\ncomponent = \"lean\"\nperiod = \"40ms\"\nwcet = \"12ms\"\n";
    let warned = |text: &str, back_end: &str| {
        fs::write(folder.path().join("lean.toml"), text).expect("a file");
        let run = ["run", "lean.toml", "--for", "50ms", "--backend", back_end];
        let warning = "the \"auto\" budget of component \"lean\" is the least for its tasks alone";
        unless_refused(folder.path(), &run).map(|(_, error)| error.contains(warning))
    };
    assert!(warned(text, "deadline").is_none_or(|warned| warned));
    assert!(warned(text, "manager").is_none_or(|warned| !warned), "its costs are printed after the run");
    let charged = text.replace("name = \"n1\"", "name = \"n1\"\ncosts = { switch = \"50us\" }");
    assert!(warned(&charged, "deadline").is_none_or(|warned| !warned));
}

/// A refusal has exit status 3, names the obstacle and the remedy, and nothing runs.
#[test]
fn a_back_end_that_cannot_enforce_all_of_a_node_refuses() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let system = fs::read_to_string(format!("{GOLDEN}/throttled.toml")).expect("a file");
    fs::write(folder.join("wcps.toml"), system.replace("cbs-hard", "wcps")).expect("a file");
    let refused = |arguments: &[&str]| {
        let (status, out, error) = takt(folder, &[&["run", "--for", "50ms", "-o", "refused.takt"], arguments].concat());
        assert!(out.is_empty() && !folder.join("refused.takt").exists(), "{out}");
        (status, error)
    };
    let (status, error) = refused(&["wcps.toml", "--backend", "deadline"]);
    assert!(status == 3 && error.contains("lends nothing") && error.contains("use --backend manager"), "{error}");
    let file = format!("{GOLDEN}/throttled.toml");
    let (status, error) = refused(&[&file, "--backend", "sched-ext"]);
    assert!(status == 3 && error.contains("sched-ext: this "), "{error}");
    assert_eq!(error.contains("it was built without the feature \"bpf\""), cfg!(not(feature = "bpf")), "{error}");
    let has_sched_ext = Path::new("/sys/kernel/sched_ext").exists();
    assert_eq!(error.contains("CONFIG_SCHED_CLASS_EXT"), !has_sched_ext, "{error}");
    // Without components there is no budget to keep.
    let plain = "takt = 1\n[[task]]\nname = \"t\"\nperiod = \"10ms\"\nwcet = \"1ms\"\n";
    fs::write(folder.join("plain.toml"), plain).expect("a file");
    let (status, error) = refused(&["plain.toml", "--backend", "manager"]);
    assert!(status == 2 && error.contains("leave out --backend"), "{error}");
    // Without a choice the first that can is taken, and takt says which and why.
    let own = "period = \"80ms\"\noffset = \"22ms\"\n";
    let apart = system
        .replace("name = \"n1\"", "name = \"n1\"\ncpus = 2\nplacement = \"partitioned\"")
        .replace("budget = \"12ms\"", "budget = \"12ms\"\nserver-cpus = [0]")
        .replace("budget = \"20ms\"", "budget = \"20ms\"\nserver-cpus = [1]")
        .replace(own, "after = [\"job\"]\n");
    fs::write(folder.join("across.toml"), apart.replace("cbs-hard", "wcps")).expect("a file");
    let (status, error) = refused(&["across.toml"]);
    assert!(status == 3, "{error}");
    if takt_linux::sched::affinity().len() > 1 {
        let all = ["no back end can run", "manager: task \"other\"", "deadline: component", "sched-ext: "];
        assert!(all.iter().all(|part| error.contains(part)), "{error}");
        // Each CPU has its manager, and SCHED_DEADLINE has all CPUs.
        fs::write(folder.join("chain.toml"), apart).expect("a file");
        let run = ["run", "chain.toml", "--for", "50ms", "--json"];
        let Some((out, error)) = unless_refused(folder, &run) else { return };
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(answer["back_end"], "deadline", "{out}{error}");
        assert!(
            error.contains("back end \"deadline\" was chosen: manager cannot run it (task \"other\": it follows"),
            "{error}"
        );
        // One manager decides for CPUs that share components. SCHED_DEADLINE has one server for a component, and
        // sched_ext has a CPU for each server.
        let wide = format!("{GOLDEN}/wide.toml");
        for (back_end, why) in
            [("deadline", "component \"wide\": "), ("sched-ext", "component \"wide\": it has servers on 2 CPUs")]
        {
            let (status, error) = refused(&[&wide, "--backend", back_end]);
            assert!(status == 3 && error.contains(why) && error.contains("use --backend manager"), "{error}");
        }
    }
}

/// A component with a thread that always wants the CPU, in front of, between and behind others. A tick may be late.
#[test]
fn a_greedy_thread_of_the_deadline_back_end_takes_no_more_than_its_budget_and_a_tick() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let grain = takt_linux::machine().tick.unwrap_or(Span::from_ms(10));
    // Name, period and budget in ms.
    let servers = [("a", 40, 10), ("b", 50, 12), ("c", 60, 14)];
    for (greedy, ..) in servers {
        let mut text = "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"edf\"\n".to_owned();
        for (name, period, budget) in servers {
            let task = if name == greedy { (4000, 2000) } else { (period, 6) };
            text += &format!(
                "[[component]]\nname = \"{name}\"\nserver = \"cbs-hard\"\nperiod = \"{period}ms\"\nbudget = \
                 \"{budget}ms\"\n[[task]]\nname = \"t{name}\"\ncomponent = \"{name}\"\nperiod = \"{}ms\"\n\
                 wcet = \"{}ms\"\n",
                task.0, task.1
            );
        }
        fs::write(folder.join("greedy.toml"), text).expect("a file");
        let run = ["run", "greedy.toml", "--for", "300ms", "--backend", "deadline", "-o", "greedy.takt", "--json"];
        let Some((out, _)) = unless_refused(folder, &run) else { return };
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        if answer["recorded"].is_null() {
            return println!("skipped: the kernel is not recorded, so nothing is known of servers");
        }
        let live = Schedule::read(&folder.join("greedy.takt"), false);
        let (taken, _) = measured(&answer, "deadline", &live);
        let of = |list: &str, key: &str, name: &str| -> Value {
            let found = answer[list].as_array().and_then(|all| all.iter().find(|one| one[key] == name));
            found.cloned().unwrap_or_default()
        };
        for (name, period, budget) in servers {
            let supply = of("servers", "server", name)["supply_ns"].as_u64().expect("a supply");
            // The first period may have begun before the run.
            let budgets = Span::from_ms(budget * (300u64.div_ceil(period) + 1)).saturating_add(grain);
            let most = budgets.as_ns() + answer["steal_ns"].as_u64().unwrap_or(0);
            assert!(supply <= most, "{greedy} is greedy, {name} had {supply} of {most}: {out}");
            let completed = of("tasks", "task", &format!("t{name}"))["completed"].as_u64();
            let wanted = if name == greedy || taken >= DISTURBED { 0 } else { 300 / period - 1 };
            assert!(completed >= Some(wanted), "{greedy} is greedy, {name}: {out}");
        }
        let supply = of("servers", "server", greedy)["supply_ns"].as_u64();
        assert!(taken >= DISTURBED || supply >= Some(30_000_000), "{greedy} was not greedy: {out}");
    }
}

/// A run tells its costs. A file with them is sized, checked and run again. No job is then late by load: each late
/// one has a cause with a name.
#[test]
fn components_that_pass_check_with_the_costs_of_the_deadline_back_end_are_not_late_by_their_load() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = |name: &str, costs: &str, budget: &str| {
        let mut text = format!("takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"edf\"\n{costs}");
        // Name and period of the server in ms. A job comes in each second period.
        for (name, period) in [("a", 60), ("b", 80)] {
            text += &format!(
                "[[component]]\nname = \"{name}\"\nserver = \"cbs-hard\"\nperiod = \"{period}ms\"\nbudget = \
                 \"{budget}\"\n[[task]]\nname = \"t{name}\"\ncomponent = \"{name}\"\nperiod = \"{}ms\"\n\
                 wcet = \"24ms\"\n",
                2 * period
            );
        }
        fs::write(folder.join(name), text).expect("a file");
    };
    // Two budgets have room for a job and its costs.
    file("free.toml", "", "14ms");
    let run = |name: &str, time: &str| {
        let run = ["run", name, "--for", time, "--backend", "deadline", "-o", "live.takt", "--json"];
        let (out, _) = unless_refused(folder, &run)?;
        let answer: Value = serde_json::from_str(&out).expect("JSON");
        if answer["recorded"].is_null() {
            println!("skipped: the kernel is not recorded, so the causes of late jobs are unknown");
            return None;
        }
        Some((answer, out))
    };
    for _ in 0..10 {
        let Some((answer, _)) = run("free.toml", "500ms") else { return };
        let threads = answer["threads"].as_array().cloned().unwrap_or_default();
        assert_eq!(threads.len(), 2, "{answer}");
        let twice = 2 * longest(threads.iter().map(|thread| &thread["overhead_ns"]));
        let late = Schedule::read(&folder.join("live.takt"), false).late.as_ns();
        let costs = format!("costs = {{ release = \"{twice}ns\", switch = \"{twice}ns\", latency = \"{late}ns\" }}\n");
        file("charged.toml", &costs, "auto");
        let (status, sized, error) = takt(folder, &["size", "charged.toml", "-o", "sized.toml"]);
        if status == 1 {
            println!("jobs cost too much on this machine now: {costs}{sized}");
            continue;
        }
        assert_eq!(status, 0, "{costs}{sized}{error}");
        let (status, checked, error) = takt(folder, &["check", "sized.toml"]);
        assert_eq!(status, 0, "{costs}{sized}{checked}{error}");
        let Some((answer, out)) = run("sized.toml", "1s") else { continue };
        let tasks = answer["tasks"].as_array().expect("tasks");
        assert!(tasks.len() == 2 && tasks.iter().all(|task| task["completed"].as_u64() > Some(0)), "{out}");
        return each_miss_has_a_cause(&answer, &format!("{costs}{sized}{out}"));
    }
    println!("skipped: jobs cost too much on this machine now");
}

/// The kernel has no reservation of a killed run, and the next start unites the CPUs.
#[test]
fn a_killed_run_of_the_deadline_back_end_leaves_no_reservation() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let file = format!("{GOLDEN}/throttled.toml");
    let short = ["run", &file, "--backend", "deadline", "--for", "50ms"];
    if unless_refused(folder, &short).is_none() {
        return;
    }
    // The kernel may still have to take back the bandwidth of the run above.
    let before = loop {
        let look = || (machine::booked(), machine::one_domain());
        let first = look();
        takt_linux::clock::pause(Span::from_ms(200));
        if look() == first {
            break first;
        }
    };
    let mut instants = Instants::new();
    // Then SIGTERM, SIGINT and SIGHUP.
    for signal in kills(6).chain([15, 2, 1]) {
        let mut command = Command::new(TAKT);
        command.args(["run", &file, "--backend", "deadline", "--for", "5s"]).current_dir(folder);
        let mut run = KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("takt starts"));
        takt_linux::clock::pause(instants.below_ms(400));
        takt_linux::process::signal(&mut run.0, signal);
        let _ = run.0.wait();
        println!("after signal {signal}");
        succeeds(folder, &short);
    }
    eventually_or(
        || machine::booked() <= before.0 && machine::one_domain() == before.1,
        || format!("{before:?} before, now {:?}", (machine::booked(), machine::one_domain())),
    );
}
