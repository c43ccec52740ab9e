//! Why simulated jobs are late, and how many of them may wait.

use takt_log::causes::{Cause, Causes, Rules};
use takt_log::{BackEnd, Definitions, Header, NullSink};
use takt_model::generate::Random;
use takt_model::{Builtin, Exec, NodeId, Placement, Span, System, Task, TaskId, Time};
use takt_sim::{BACKLOG_MAX, SimError, SimOptions, kinds, simulate};

/// `TAKT_CASES`, or 2000.
fn cases() -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)
}

/// Tasks bound to one to three CPUs, many of them in chains over these, overloaded as often as not.
fn random_system(random: &mut Random) -> System {
    let cpus = random.between(1, 3) as u32;
    let mut tasks: Vec<Task> = Vec::new();
    for i in 0..random.between(2, 4) * u64::from(cpus) {
        let mut period = Span::from_ms([2, 3, 4, 5, 6, 8, 10, 12][random.between(0, 7) as usize]);
        let mut after = Vec::new();
        while i > 0 && after.len() < 2 && random.between(0, 1) == 0 {
            let before = TaskId(random.between(0, i - 1) as u32);
            let other = tasks[before.index()].period;
            if after.is_empty() || (other == period && !after.contains(&before)) {
                period = other;
                after.push(before);
            }
        }
        let wcet = Span::from_ns(random.between(100_000, period.as_ns() / 2));
        let mut task = Task {
            deadline: Span::from_ns(random.between(wcet.as_ns(), period.as_ns())),
            priority: Some(random.between(1, 6) as u32),
            cpus: Some([random.between(0, u64::from(cpus) - 1) as u32].into_iter().collect()),
            ..Task::periodic(&format!("t{i}"), period, wcet)
        };
        if after.is_empty() {
            task.jitter = Span::from_us(random.between(0, 700) * random.between(0, 1));
            task.offset = Span::from_us(random.between(0, 3000));
        }
        if random.between(0, 1) == 0 {
            task.exec = Exec::Uniform { min: Span::from_ns(1), max: wcet };
        }
        task.after = after;
        tasks.push(task);
    }
    let strategies = [Builtin::Fp, Builtin::Rm, Builtin::Dm, Builtin::Edf, Builtin::Fifo, Builtin::Muf, Builtin::Mlf];
    let strategy = strategies[random.between(0, strategies.len() as u64 - 1) as usize];
    let mut system = System::local(cpus, strategy, tasks);
    system.nodes[NodeId(0).index()].placement = Placement::Partitioned;
    system
}

/// A simulation disturbs nobody: whatever is late in it is late by load, also after a chain has come
/// from another CPU.
#[test]
fn simulated_jobs_are_late_by_load_alone() {
    let mut random = Random::new(79);
    let (mut late, mut followers) = (0, 0);
    for round in 0..cases() {
        let system = random_system(&mut random);
        let header = Header::new(String::new(), None, BackEnd::Sim, kinds(&system));
        let mut causes = Causes::new(Rules::of(&header, Some(&system)), &Definitions::of(&system));
        let options = SimOptions { duration: Span::from_ms(60), seed: round, node: None };
        simulate(&system, &options, &mut causes).unwrap();
        for (task, found) in causes.finish(Time::ZERO + options.duration).expect("what CPUs did is known") {
            let why = found.sentence();
            assert_eq!(
                found.by_load,
                found.jobs,
                "round {round}, {task:?}: {why}\n{}",
                takt_model::file::write(&system)
            );
            late += found.jobs;
            followers += if system.tasks[task.index()].after.is_empty() { 0 } else { found.jobs };
        }
    }
    assert!(late > cases() && followers > cases() / 4, "{late} late jobs, {followers} of followers");
}

/// Flows over nodes with too much work. Nobody disturbs them either, but messages come late.
fn random_flows(random: &mut Random) -> System {
    let mut text = "takt = 1\nname = \"t\"\n[[network]]\ndelay = [\"100us\", \"900us\"]\n".to_owned();
    let strategy = ["edf", "rm", "dm"][random.between(0, 2) as usize];
    for node in 0..3 {
        let [receive, send] = [(); 2].map(|()| random.between(2, 6));
        text += &format!(
            "[[node]]\nname = \"n{node}\"\nstrategy = \"{strategy}\"\n\
             receive = {{ period = \"{receive}ms\", wcet = \"200us\", cost = \"50us\" }}\n\
             send = {{ period = \"{send}ms\", wcet = \"200us\", cost = \"50us\" }}\n"
        );
    }
    for node in 0..3 {
        let (period, wcet) = (random.between(5, 15), random.between(500, 4_900));
        text += &format!(
            "[[task]]\nname = \"t{node}\"\nnode = \"n{node}\"\nperiod = \"{period}ms\"\nwcet = \"{wcet}us\"\n"
        );
    }
    for (flow, path) in ["\"n0\", \"n1\", \"n2\"", "\"n2\", \"n1\"", "\"n1\", \"n0\""].iter().enumerate() {
        let (period, wcet, deadline) = (random.between(7, 20), random.between(300, 3_000), random.between(12, 40));
        text += &format!(
            "[[flow]]\nname = \"f{flow}\"\npath = [{path}]\nperiod = \"{period}ms\"\nsend-gap = \"2ms\"\n\
             wcet = \"{wcet}us\"\ndeadline = \"{deadline}ms\"\nsize = \"200B\"\n"
        );
    }
    takt_model::file::parse(&text, "t").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn simulated_jobs_of_flows_are_late_by_load_or_for_late_messages() {
    let (mut random, cases) = (Random::new(80), cases() / 8);
    let (mut by_load, mut by_message) = (0, 0);
    for round in 0..cases {
        let system = random_flows(&mut random);
        let header = Header::new(String::new(), None, BackEnd::Sim, kinds(&system));
        let mut causes = Causes::new(Rules::of(&header, Some(&system)), &Definitions::of(&system));
        let options = SimOptions { duration: Span::from_ms(100), seed: round, node: None };
        simulate(&system, &options, &mut causes).unwrap();
        for (task, found) in causes.finish(Time::ZERO + options.duration).expect("what CPUs did is known") {
            let messages = found.mainly(Cause::LateMessage);
            assert_eq!(
                (found.by_load + messages, found.disturbance.total()),
                (found.jobs, found.disturbance.of(Cause::LateMessage)),
                "round {round}, {task:?}: {}\n{}",
                found.sentence(),
                takt_model::file::write(&system)
            );
            by_load += found.by_load;
            by_message += messages;
        }
    }
    assert!(by_load > cases && by_message > cases / 8, "{by_load} by load, {by_message} by messages");
}

/// A job every microsecond, and the first one never ends: one more waits than may.
#[test]
fn a_backlog_beyond_its_limit_ends_the_simulation_with_its_task() {
    let tasks = vec![Task::periodic("busy", Span::from_us(1), Span::from_s(10))];
    let options = SimOptions { duration: Span::from_s(2), ..SimOptions::default() };
    let error = simulate(&System::local(1, Builtin::Edf, tasks), &options, &mut NullSink).expect_err("a full queue");
    let at = Time::ZERO + Span::from_us(BACKLOG_MAX as u64 + 1);
    assert_eq!(error, SimError::Backlog { task: "busy".to_owned(), at });
    let text = format!("task \"busy\" has more than {BACKLOG_MAX} jobs waiting at {at}: the system is overloaded");
    assert!(error.to_string().starts_with(&text), "{error}");
}
