//! Inferred parameters of simulated logs against the simulated systems: random systems with
//! preemption, drawn by the generators.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use takt_analysis::{CheckOptions, Verdict, check};
use takt_log::{BackEnd, Definitions, Header, TaskDef, Writer};
use takt_model::draw::Draw;
use takt_model::generate::{Generator, Periods, Random, Spec};
use takt_model::*;
use takt_sim::{SimOptions, simulate};
use takt_trace::infer::{
    Grid, Inferred, InferredTask, Kind, MessageSampler, Sample, Sampler, ServerSampler, SystemOptions, TASKS_MAX,
    Written,
};

/// How many random systems; TAKT_CASES overrides.
fn cases(default: u64) -> u64 {
    std::env::var("TAKT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let first: u64 = std::env::var("TAKT_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    first..first + cases(default)
}

/// At most one in so many tasks that are not periodic is called so, of logs as long as these.
const WALKS_PER_MISTAKE: usize = 100_000;

/// Jobs of the task with the longest period.
const JOBS: u64 = 320;

fn below(random: &mut Random, most: u64) -> u64 {
    ((u128::from(random.bits()) * u128::from(most)) >> 64) as u64
}

fn span(random: &mut Random, most: Span) -> Span {
    Span::from_ns(below(random, most.as_ns() + 1))
}

/// Periodic, jittery, sporadic tasks and chains, whose execution varies.
fn mix(seed: u64) -> System {
    let mut random = Random::new(seed ^ 0x5EED);
    let cpus = 1 + below(&mut random, 2);
    let tasks = 3 + below(&mut random, 6);
    let utilization = (0.2 + 0.6 * random.unit()) * cpus.min(tasks / 2) as f64;
    let mut spec = Spec::new(tasks as usize, utilization);
    spec.periods = Periods::LogUniform { min: Span::from_ms(2), max: Span::from_ms(60) };
    let mut tasks = Generator::new(&spec).expect("a spec").tasks(seed, 0).expect("tasks");
    let half = Probability::from_billionths(500_000_000).expect("a half");
    for task in &mut tasks {
        let period = task.period;
        let part = |n: u64| Span::from_ns(period.as_ns() / n);
        task.deadline = period;
        task.offset = span(&mut random, period);
        task.exec = match below(&mut random, 3) {
            0 => Exec::Wcet,
            1 => Exec::Uniform { min: Span::from_ns(task.wcet.as_ns().div_ceil(2)), max: task.wcet },
            _ => Exec::Pmf(vec![(Span::from_ns(task.wcet.as_ns().div_ceil(3)), half), (task.wcet, half)]),
        };
        match below(&mut random, 10) {
            0..4 => {}
            4 => task.jitter = part(1000),
            5 => task.jitter = part(10),
            6 => task.jitter = part(2),
            7 => task.arrival = Arrival::Sporadic,
            8 => task.arrival = Arrival::Pmf(vec![(period, half), (period.saturating_add(part(2)), half)]),
            _ => task.arrival = Arrival::Pmf(vec![(period, half), (period.saturating_add(period), half)]),
        }
    }
    // The last task follows the first, or the first two if they have one period.
    if below(&mut random, 2) == 0 {
        let last = tasks.len() - 1;
        let mut after = vec![TaskId(0)];
        if last > 1 && below(&mut random, 2) == 0 {
            (tasks[1].period, tasks[1].deadline) = (tasks[0].period, tasks[0].period);
            tasks[1].wcet = tasks[1].wcet.min(Span::from_ns(tasks[1].period.as_ns() / 4));
            (tasks[1].exec, tasks[1].arrival) = (Exec::Wcet, Arrival::Periodic);
            (tasks[0].arrival, tasks[0].jitter, tasks[1].jitter) = (Arrival::Periodic, Span::ZERO, Span::ZERO);
            after.push(TaskId(1));
        }
        let period = tasks[0].period;
        let task = &mut tasks[last];
        (task.after, task.period, task.deadline) = (after, period, period);
        (task.offset, task.jitter, task.arrival) = (Span::ZERO, Span::ZERO, Arrival::Periodic);
        task.wcet = task.wcet.min(Span::from_ns(period.as_ns() / 4)).max(Span::from_ns(2));
        task.exec = Exec::Uniform { min: Span::from_ns(task.wcet.as_ns().div_ceil(2)), max: task.wcet };
    }
    let strategy = if below(&mut random, 2) == 0 { Builtin::Edf } else { Builtin::Rm };
    let system = System::local(cpus as u32, strategy, tasks);
    file::validate(&system).unwrap_or_else(|errors| panic!("{seed}: {errors}"));
    system
}

fn inferred(system: &System, seed: u64, duration: Span, nominal: bool) -> (Vec<Sample>, Inferred) {
    let header = Header::new(file::write(system), Some(seed), BackEnd::Sim, takt_sim::KINDS);
    let mut sampler = Sampler::new(&header, nominal);
    let options = SimOptions { duration, seed, node: None };
    simulate(system, &options, &mut sampler).unwrap_or_else(|error| panic!("{seed}: {error}"));
    let definitions = Definitions::of(system);
    let samples = sampler.finish(&definitions);
    let inferred = Inferred::of_log(&samples, &header, &definitions);
    (samples, inferred)
}

fn holds(truth: &Task, found: &InferredTask, nominal: bool) -> Result<(), String> {
    let arrivals = &found.arrivals;
    let wrong = |what: &str| {
        Err(format!(
            "{what}: {truth:?}\n{:?} {} {:?} jitter {}",
            arrivals.kind, arrivals.why, arrivals.grid, found.jitter
        ))
    };
    if truth.arrival != Arrival::Periodic {
        let least = found.period().unwrap_or_default();
        return match arrivals.kind {
            // A wrong decision, counted.
            Kind::Periodic => Ok(()),
            Kind::Sporadic if nominal && (least < truth.period || least.as_ns() > truth.period.as_ns() * 11 / 10) => {
                wrong("its least distance")
            }
            // Some that walk little are left open; how many, the test counts.
            Kind::Sporadic | Kind::Unknown => Ok(()),
            Kind::Aperiodic => wrong("its kind"),
        };
    }
    let Some(grid) = arrivals.grid else { return wrong("a periodic task is not recognised") };
    let (period, jitter) = (truth.period.as_ns(), truth.jitter.as_ns());
    if grid.period.as_ns().abs_diff(period) * 1000 > period {
        return wrong("the period");
    }
    if period < grid.period_min.as_ns() || grid.period_max.as_ns() < period {
        return wrong("the bounds of the period");
    }
    if truth.jitter.is_zero()
        && (grid.period != truth.period || !found.jitter.is_zero() || found.offset().as_ns() != truth.offset.as_ns())
    {
        return wrong("without jitter all is exact");
    }
    if nominal && (grid.period != truth.period || found.offset().as_ns() != truth.offset.as_ns()) {
        return wrong("told arrivals are exact");
    }
    if found.jitter.as_ns() > jitter + jitter / 8 + 2 || found.jitter.as_ns() * 10 < jitter * 8 {
        return wrong("the jitter");
    }
    // Let the start be off by x, in jitters. All arrivals lie in a strip that is wider than theirs
    // by 3/32 at most (for a simple period and a simple start). Then the arrivals below a corner of
    // the strip are missing, a share of about (x - 3/32) / 2. For 320 arrivals and a quarter, 25
    // are missing.
    if found.offset().as_ns().abs_diff(truth.offset.as_ns()) > jitter / 4 + 2 {
        return wrong("the offset");
    }
    Ok(())
}

/// Each arrival lies where the grid says, but for half a nanosecond of the period's rounding each.
fn all_lie_on_the_grid(sample: &Sample, grid: &Grid) -> Result<(), String> {
    for job in &sample.jobs {
        let nominal = grid.first.as_ns() + job.number * grid.period.as_ns();
        let (from, to) =
            (nominal - (job.number / 2 + 1).min(nominal), nominal + grid.jitter.as_ns() + job.number / 2 + 1);
        let arrival = job.arrival.as_ns();
        if !(from..=to).contains(&arrival) {
            return Err(format!("job {} arrives at {arrival}, not in [{from}, {to}]: {grid:?}", job.number));
        }
    }
    Ok(())
}

/// Execution against what was drawn.
fn execution_is_what_was_drawn(system: &System, seed: u64, samples: &[Sample], found: &Inferred) {
    for (i, task) in found.tasks.iter().enumerate() {
        let truth = &system.tasks[i];
        let draw = Draw::new(seed, &truth.name);
        let done = samples[i].jobs.iter().filter(|job| job.exec.is_some());
        let mut drawn: Vec<u64> = done.map(|job| draw.exec(truth, job.number).as_ns()).collect();
        drawn.sort_unstable();
        let exec = task.exec.as_ref().unwrap_or_else(|| panic!("{seed}: \"{}\" never completed", truth.name));
        assert_eq!(exec.jobs, drawn.len() as u64);
        assert_eq!(Some(exec.max.as_ns()), drawn.last().copied(), "{seed}: {}", truth.name);
        assert_eq!(exec.mean.as_ns(), drawn.iter().sum::<u64>() / drawn.len() as u64, "{seed}: {}", truth.name);
        assert!(exec.max <= truth.wcet && exec.pmf.len() <= 16);
        // Every value stands for times that it is not below: at least as many drawn ones are at most as large.
        let mut share = 0u64;
        for (value, probability) in &exec.pmf {
            share += u64::from(probability.billionths());
            let up_to = drawn.partition_point(|drawn| *drawn <= value.as_ns()) as u64;
            assert!(up_to * 1_000_000_000 >= share * drawn.len() as u64, "{seed}: {}: {:?}", truth.name, exec.pmf);
        }
        assert_eq!(share, 1_000_000_000);
    }
}

#[test]
fn mixes_are_inferred_as_they_were_drawn() {
    let (mut periodic, mut others, mut open, mut chains, mut possible) = (0, 0usize, 0usize, 0, 0);
    let mut mistaken: Vec<String> = Vec::new();
    // Here a job works for more than half of its period. So half the period is a grid, too, and the
    // empty places have a reason.
    const HALVED: u64 = 4487;
    // Here the period is rounded, and the start is off by more than an eighth of the jitter for it.
    const ROUNDED: u64 = 9327;
    // Here a simpler period would start before time zero.
    const EARLY: u64 = 109;
    for seed in seeds(100).chain([HALVED, ROUNDED, EARLY]) {
        let system = mix(seed);
        let longest = system.tasks.iter().map(|task| task.period).max().expect("tasks");
        let duration = longest.checked_mul(JOBS).expect("no overflow");
        for nominal in [true, false] {
            let (samples, found) = inferred(&system, seed, duration, nominal);
            assert_eq!(found.tasks.len(), system.tasks.len(), "all release");
            for ((truth, task), sample) in system.tasks.iter().zip(&found.tasks).zip(&samples) {
                let replay =
                    format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt --test infer mixes (nominal: {nominal})");
                let after: Vec<TaskId> = task.links.after.iter().map(|link| link.task).collect();
                if truth.after.is_empty() {
                    let on_grid = task.arrivals.grid.map_or(Ok(()), |grid| all_lie_on_the_grid(sample, &grid));
                    if let Err(what) = holds(truth, task, nominal).and(on_grid) {
                        panic!("{what}\n{replay}");
                    }
                    assert!(after.is_empty(), "\"{}\" follows nothing, not {after:?}\n{replay}", truth.name);
                    open += usize::from(task.arrivals.kind == Kind::Unknown);
                    if truth.arrival != Arrival::Periodic && task.arrivals.kind == Kind::Periodic {
                        mistaken.push(format!("{}: {}\n{replay}", truth.name, task.arrivals.why));
                    }
                    *if truth.arrival == Arrival::Periodic { &mut periodic } else { &mut others } += 1;
                } else if after.is_empty() {
                    possible += 1;
                } else {
                    // One that is never the last to complete leaves no trace.
                    assert!(after.iter().all(|id| truth.after.contains(id)), "{after:?}\n{replay}");
                    chains += 1;
                }
            }
            execution_is_what_was_drawn(&system, seed, &samples, &found);
            let written = found.system(&SystemOptions::default());
            assert!(written.left_out.is_empty(), "{seed}: {:?}", written.left_out);
            assert_eq!(file::parse(&written.text, "inferred.toml").as_ref(), Ok(&written.system), "{seed}");
            let report = check(&written.system, &CheckOptions::default());
            assert!(!report.tests.is_empty(), "{seed}: check says something");
        }
    }
    println!(
        "{periodic} periodic tasks, {others} others ({open} left open, {} called periodic), {chains} chains \
         found, {possible} that could be offsets",
        mistaken.len()
    );
    assert!(periodic > 0 && others > 0 || cases(100) < 10);
    assert!(open * 10 <= others || cases(100) < 10, "few are left open: {open} of {others}");
    // A walk can keep to a grid by chance.
    assert!(
        mistaken.len() * WALKS_PER_MISTAKE <= others,
        "of {others} that are not periodic, these are called so: {}",
        mistaken.join("\n")
    );
    assert!(chains * 4 >= possible, "chains are found where completions vary");
}

/// More jobs of one task bound its period tighter, and say more of its execution.
#[test]
fn longer_logs_say_more() {
    let mut task = Task::periodic("a", Span::from_ms(10), Span::from_ms(2));
    task.jitter = Span::from_ms(1);
    task.exec = Exec::Uniform { min: Span::from_ms(1), max: Span::from_ms(2) };
    let system = System::local(1, Builtin::Edf, vec![task]);
    let mut before: Option<(u64, f64, f64)> = None;
    for seconds in [2, 8, 32, 128] {
        let (_, found) = inferred(&system, 5, Span::from_s(seconds), false);
        let (task, grid) = (&found.tasks[0], found.tasks[0].arrivals.grid.expect("periodic"));
        let width = grid.period_max.as_ns() - grid.period_min.as_ns();
        let exec = task.exec.as_ref().expect("jobs complete").confidence;
        if let Some((width_before, sure, exec_before)) = before {
            assert!(width * 3 < width_before && task.arrivals.confidence > sure && exec > exec_before);
        }
        before = Some((width, task.arrivals.confidence, exec));
    }
}

/// The parameters in a log's head and definitions change nothing; a recorder's deadlines do.
#[test]
fn infer_ignores_the_parameters_in_a_logs_definitions() {
    let system = mix(3);
    let (samples, found) = inferred(&system, 3, Span::from_s(5), true);
    let mut definitions = Definitions::of(&system);
    for def in &mut definitions.tasks {
        (def.period, def.deadline, def.wcet) = (Some(Span::from_ns(7)), Some(Span::from_ns(8)), Some(Span::from_ns(9)));
    }
    let header = Header::new(String::new(), None, BackEnd::Sim, takt_sim::KINDS);
    assert_eq!(Inferred::of_log(&samples, &header, &definitions), found);
    let header = Header::new(String::new(), None, BackEnd::Observe, takt_sim::KINDS);
    let observed = Inferred::of_log(&samples, &header, &definitions);
    assert!(observed.tasks.iter().all(|task| task.deadline.map(|(deadline, _)| deadline.as_ns()) == Some(8)));
}

fn takt(folder: &Path, arguments: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("takt starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("takt ends");
    let _ = writer.join().expect("a writer");
    // Notes tell of the machine, not of the command.
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.lines().filter(|line| !line.starts_with("takt: note:")).collect::<Vec<_>>().join("\n");
    (output.status.code().unwrap_or(-1), output.stdout, errors)
}

/// The loop closes: what is inferred of a simulation is a system that checks, simulates and is
/// inferred again as the same.
#[test]
fn the_loop_closes_through_pipes() {
    let folder = tempfile::tempdir().expect("a folder");
    let system = "takt = 1\n[[task]]\nname = \"a\"\nperiod = \"7ms\"\noffset = \"3ms\"\nwcet = \"2ms\"\n\
                  exec = { uniform = [\"1ms\", \"2ms\"] }\n[[task]]\nname = \"b\"\nafter = [\"a\"]\nwcet = \"1ms\"\n\
                  [[task]]\nname = \"c\"\nperiod = \"20ms\"\narrival = \"sporadic\"\nwcet = \"3ms\"\n";
    std::fs::write(folder.path().join("s.toml"), system).expect("a file");
    let run = |arguments: &[&str], input: &[u8]| {
        let (status, output, errors) = takt(folder.path(), arguments, input);
        assert_eq!((status, errors.as_str()), (0, ""), "{arguments:?}");
        output
    };
    let log = run(&["sim", "s.toml", "--for", "60s", "-o", "-"], b"");
    let inferred = run(&["infer", "-", "-o", "-"], &log);
    let text = String::from_utf8(inferred.clone()).expect("text");
    assert!(text.contains("after = [\"a\"]") && text.contains("period = \"7ms\"\noffset = \"3ms\"\n"), "{text}");
    run(&["check", "-"], &inferred);
    std::fs::write(folder.path().join("inferred.toml"), &inferred).expect("a file");
    run(&["size", "inferred.toml", "--reserve", "c", "--period", "5ms", "--probability", "0.9"], b"");
    let again = run(&["sim", "inferred.toml", "--for", "10s", "-o", "-"], b"");
    let again = String::from_utf8(run(&["infer", "-", "-o", "-"], &again)).expect("text");
    let periods = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("period = ") || line.starts_with("after = "));
        lines.take(2).map(str::to_owned).collect()
    };
    assert_eq!(periods(&text), periods(&again));
    let (status, output, errors) = takt(folder.path(), &["infer", "-", "--period-of", "c"], &log);
    assert!(status == 1 && output.is_empty() && errors.contains("\"c\" is sporadic: "), "{errors}");
    // A log that was cut still tells.
    let (status, output, errors) = takt(folder.path(), &["infer", "-", "--period-of", "a"], &log[..log.len() * 9 / 10]);
    assert_eq!((status, String::from_utf8_lossy(&output).as_ref()), (0, "7ms\n"), "{errors}");
    assert!(errors.contains("warning"), "{errors}");
}

#[test]
fn tasks_that_are_not_looked_at_are_told() {
    let system = System::local(1, Builtin::Edf, mix(0).tasks);
    let header = Header::new(file::write(&system), None, BackEnd::Sim, takt_sim::KINDS);
    let own = Definitions::of(&system);
    for (count, told) in [(TASKS_MAX, false), (TASKS_MAX + 7, true)] {
        let task = TaskDef { name: "t".to_owned(), ..own.tasks[0].clone() };
        let definitions = Definitions { tasks: vec![task; count], chains: Vec::new(), ..own.clone() };
        let mut log = tempfile::NamedTempFile::new().unwrap();
        Writer::new(&mut log, &header, &definitions).unwrap().finish(Time::ZERO).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_takt")).arg("infer").arg(log.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let sentence = format!("only the first {TASKS_MAX} of its {count} tasks are looked at");
        assert_eq!(said.contains(&sentence), told, "{said}");
    }
}

/// The scheduling of observed threads is named again with the proof of their System.
#[test]
fn a_verdict_repeats_what_observed_threads_ran_under() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let takt = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).output().unwrap();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data/made/cfsquota.txt");
    assert!(takt(&["observe", trace, "-o", &path("seen.takt")]).status.success());
    assert!(takt(&["infer", &path("seen.takt"), "-o", &path("inferred.toml")]).status.success());
    let checked = takt(&["check", &path("inferred.toml")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    let warning = "warning: 1 of 1 tasks were seen under SCHED_OTHER (\"w-77\"): a verdict holds once they run \
         under the strategy that this file states\n";
    assert!(text.ends_with(warning), "{text}");
}

/// A test proves the file that is written of jobs in groups.
#[test]
fn the_file_inferred_from_job_groups_is_schedulable() {
    let frame = |k: u64, place: u64| Time::from_ns(k * 16_666_667 + place * 166_667 + k * 7919 % 100_000);
    for places in [&[0, 40][..], &[0, 20, 40, 60], &[0, 2, 4]] {
        let releases = (0..200).flat_map(|k| places.iter().map(move |place| (frame(k, *place), Span::ZERO))).collect();
        let inferred = Inferred::of_releases(vec![("frame".to_owned(), releases)]);
        assert_eq!(inferred.tasks[0].arrivals.bursts.map(|bursts| bursts.jobs), Some(places.len() as u64));
        let options = SystemOptions { wcet: Some(Span::from_us(100)), ..SystemOptions::default() };
        let written = inferred.system(&options);
        assert_eq!(file::parse(&written.text, "inferred.toml").as_ref(), Ok(&written.system));
        let report = check(&written.system, &CheckOptions::default());
        let proven = report.tests.iter().any(|test| matches!(test.verdict, Verdict::Schedulable { .. }));
        assert!(proven, "{:?}\n{}", report.tests, written.text);
    }
}

/// A system of an example without drift, and what 10 s of it tell.
fn example_and_inferred(name: &str) -> (System, Written) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name));
    let mut system = takt_model::file::parse(&text.expect("the example"), name).expect("a system");
    system.clock.drift_ppm = 0;
    let definitions = Definitions::of(&system);
    let header = Header::new(String::new(), Some(0), BackEnd::Sim, takt_sim::kinds(&system));
    let mut sinks = (Sampler::new(&header, true), MessageSampler::default());
    let options = SimOptions { duration: Span::from_s(10), ..SimOptions::default() };
    simulate(&system, &options, &mut sinks).expect("it can be simulated");
    let inferred = Inferred::of_log(&sinks.0.finish(&definitions), &header, &definitions);
    let written = inferred.with_messages(&sinks.1, &definitions).system(&SystemOptions::default());
    (system, written)
}

/// What leaves on links tells the sizes of messages.
#[test]
fn messages_on_links_have_their_size() {
    let (system, written) = example_and_inferred("switched.toml");
    let sizes = |system: &System| system.flows.iter().map(|flow| (flow.name.clone(), flow.size)).collect::<Vec<_>>();
    assert_eq!(sizes(&written.system), sizes(&system));
}

/// A store over three nodes becomes flows again, with its table tasks and networks.
#[test]
fn messages_make_flows_and_networks_of_their_tasks() {
    let (system, written) = example_and_inferred("store.toml");
    assert!(written.left_out.is_empty(), "{:?}", written.left_out);
    let found = &written.system;
    assert_eq!(found.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(), ["log"]);
    for (flow, seen) in system.flows.iter().zip(&found.flows) {
        let mine = (&seen.name, seen.period, seen.wcet, seen.hop_wcet, seen.hops().collect::<Vec<_>>());
        assert_eq!(mine, (&flow.name, flow.period, flow.wcet, flow.hop_wcet, flow.hops().collect::<Vec<_>>()));
        assert!(seen.send_gap <= seen.period && seen.send_gap >= flow.send_gap, "{seen:?}");
    }
    for (node, seen) in system.nodes.iter().zip(&found.nodes) {
        for (table, seen) in [(node.receive, seen.receive), (node.send, seen.send)] {
            let (table, seen) = (table.expect("a table task"), seen.expect("an inferred table task"));
            assert!(seen.period == table.period && seen.wcet <= table.wcet, "{}: {seen:?}", node.name);
        }
    }
    assert_eq!(found.clock.sync.map(|sync| sync.period), system.clock.sync.map(|sync| sync.period));
    let Auto::Value((least, most)) = system.networks[0].delay else { panic!("an interval") };
    let within = |network: &Network| matches!(network.delay, Auto::Value((a, b)) if least <= a && a <= b && b <= most);
    assert!(found.networks.len() == 6 && found.networks.iter().all(within), "{:?}", found.networks);
    assert!(written.text.contains("# Tasks put/0, put/1, put/2, put/3 of the log: messages go over n0, n1, n2, n0."));
    takt_model::file::parse(&written.text, "store.toml").expect("what is written can be read");
}

/// The system that 10 s of a simulation of this one tell, with its components.
fn components_of(system: &System) -> System {
    file::validate(system).unwrap_or_else(|errors| panic!("{errors}"));
    let definitions = Definitions::of(system);
    let header = Header::new(String::new(), Some(0), BackEnd::Sim, takt_sim::kinds(system));
    let mut sinks = (Sampler::new(&header, true), ServerSampler::new(&definitions));
    let options = SimOptions { duration: Span::from_s(10), ..SimOptions::default() };
    simulate(system, &options, &mut sinks).expect("it can be simulated");
    let inferred = Inferred::of_log(&sinks.0.finish(&definitions), &header, &definitions);
    let written = inferred.with_servers(&sinks.1).system(&SystemOptions::default());
    assert!(written.left_out.is_empty() && written.components_left_out.is_empty(), "{}", written.text);
    assert_eq!(file::parse(&written.text, "inferred.toml").as_ref(), Ok(&written.system));
    written.system
}

/// Two components and a task beside them.
fn two_components(rule: ServerRule) -> System {
    let mut system = System::local(1, Builtin::Edf, Vec::new());
    for (name, period, budget) in [("video", 10, 4), ("control", 25, 8)] {
        let mut component = Component::new(name, NodeId(0), rule);
        component.period = Auto::Value(Span::from_ms(period));
        component.budget = Auto::Value(Span::from_ms(budget));
        system.components.push(component);
    }
    for (name, home, period, wcet) in
        [("decode", Some(0), 20, 3), ("show", Some(0), 40, 6), ("steer", Some(1), 50, 7), ("log", None, 50, 2)]
    {
        let mut task = Task::periodic(name, Span::from_ms(period), Span::from_ms(wcet));
        task.component = home.map(ComponentId);
        system.tasks.push(task);
    }
    system
}

/// Two components come back from a log with rule, budget, period and their tasks.
#[test]
fn components_come_back_from_their_budgets_and_payments() {
    use ServerRule::{Crps, Deferrable, Polling, Ptps, Wcps};
    for rule in [Ptps, Wcps, Crps, Polling, Deferrable] {
        let system = two_components(rule);
        let found = components_of(&system);
        assert_eq!(found.components, system.components, "{rule:?}");
        let homes = |system: &System| -> Vec<(String, Option<ComponentId>)> {
            system.tasks.iter().map(|task| (task.name.clone(), task.component)).collect()
        };
        assert_eq!(homes(&found), homes(&system), "{rule:?}");
    }
    // The others have the budget again. The period is one that allows what was seen.
    for rule in [ServerRule::Sporadic, ServerRule::Cbs, ServerRule::CbsHard, ServerRule::Grub] {
        let system = two_components(rule);
        let found = components_of(&system);
        for (one, truth) in found.components.iter().zip(&system.components) {
            assert_eq!((&one.name, one.server), (&truth.name, rule));
            let (Auto::Value(budget), Auto::Value(most)) = (one.budget, truth.budget) else { panic!("{one:?}") };
            assert!(if rule == ServerRule::Sporadic { budget <= most } else { budget == most }, "{one:?}");
            if let Auto::Value(period) = one.period {
                assert!(budget <= period, "{one:?}");
            }
        }
        assert!(found.tasks.iter().zip(&system.tasks).all(|(a, b)| a.component == b.component), "{rule:?}");
    }
}

/// Components within others come back, too.
#[test]
fn components_within_others_come_back() {
    let text = include_str!("golden/nested.toml");
    let system = file::parse(text, "nested.toml").expect("a system");
    let found = components_of(&system);
    let terms = |system: &System| -> Vec<(String, Option<ComponentId>, Auto<Span>)> {
        let all = system.components.iter();
        all.map(|component| (component.name.clone(), component.parent, component.budget)).collect()
    };
    assert_eq!(terms(&found), terms(&system));
    let outer = |system: &System| system.components[..3].iter().map(|one| one.period).collect::<Vec<_>>();
    assert_eq!(outer(&found), outer(&system));
    assert!(found.tasks.iter().zip(&system.tasks).all(|(a, b)| (&a.name, a.component) == (&b.name, b.component)));
}

/// The command writes components, and the file is one that `check` and `sim` take.
#[test]
fn the_command_writes_components() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = file::write(&two_components(ServerRule::Deferrable));
    std::fs::write(folder.path().join("s.toml"), text).expect("a file");
    let run = |arguments: &[&str], input: &[u8]| {
        let (status, output, errors) = takt(folder.path(), arguments, input);
        assert!(errors.is_empty() && (0..=1).contains(&status), "{arguments:?}: {status} {errors}");
        output
    };
    let log = run(&["sim", "s.toml", "--for", "10s", "-o", "-"], b"");
    let inferred = run(&["infer", "-", "-o", "-"], &log);
    let text = String::from_utf8(inferred.clone()).expect("text");
    for line in [
        "# deferrable, 100",
        "[[component]]\nname = \"video\"\nserver = \"deferrable\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n",
        "name = \"steer\"\ncomponent = \"control\"\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    run(&["check", "-"], &inferred);
    std::fs::write(folder.path().join("inferred.toml"), &inferred).expect("a file");
    run(&["sim", "inferred.toml", "--for", "1s"], b"");
    let table = String::from_utf8(run(&["infer", "-"], &log)).expect("text");
    assert!(table.lines().any(|line| line.starts_with("COMPONENT ")) && table.contains("decode, show"), "{table}");
    let answer = run(&["infer", "-", "--task", "steer", "--json"], &log);
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    let (tasks, components) = (&answer["tasks"], &answer["components"]);
    assert!(tasks[0]["component"] == "control" && components.as_array().is_some_and(|all| all.len() == 1), "{answer}");
    assert!(components[0]["budget_ns"] == 8_000_000 && components[0]["period_from"] == "grid", "{answer}");
}
