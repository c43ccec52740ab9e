//! The binding constraint of a verdict in `check`.

use serde_json::Value;
use takt_analysis::{Answer, CheckOptions, CheckReport, TestId, check};
use takt_model::generate::Random;
use takt_model::{Builtin, Costs, Span, System, Task};

fn task(name: &str, t: u64, c: u64) -> Task {
    Task::periodic(name, Span::from_ns(t), Span::from_ns(c))
}

fn explained(system: &System) -> CheckReport {
    check(system, &CheckOptions { all: true, explain: true, ..CheckOptions::default() })
}

fn binding(report: &CheckReport, test: TestId) -> &Value {
    let test = report.tests.iter().find(|report| report.test == test).expect("the test ran");
    test.figures.get("binding").unwrap_or_else(|| panic!("{} binds nothing", test.test.name()))
}

fn sum(binding: &Value, key: &str) -> u64 {
    binding["terms"].as_array().expect("terms").iter().map(|term| term[key].as_u64().expect("a number")).sum()
}

#[test]
fn the_window_and_the_point_are_those_of_the_books() {
    // Audsley's window: 3 + 2 ceil(10 / 5)... w = 3 + 1 * 3 + 2 * 2 = 10.
    let rm = System::local(1, Builtin::Rm, vec![task("a", 4, 1), task("b", 5, 2), task("c", 20, 3)]);
    let report = explained(&rm);
    let rta = binding(&report, TestId::Rta);
    assert_eq!((&rta["task"], &rta["within_ns"], &rta["need_ns"]), (&"b".into(), &3.into(), &3.into()));
    assert_eq!(rta["spare_ns"], 2);
    // Due within 10: 2 of 5 and 1 of 6; within 5: 3 of 5.
    let mut tight = vec![task("a", 10, 3), task("b", 12, 6)];
    tight[0].deadline = Span::from_ns(5);
    tight[1].deadline = Span::from_ns(10);
    let report = explained(&System::local(1, Builtin::Edf, tight));
    let qpa = binding(&report, TestId::Qpa);
    assert_eq!((&qpa["within_ns"], &qpa["need_ns"], &qpa["spare_ns"]), (&10.into(), &9.into(), &1.into()));
    assert_eq!(sum(qpa, "need_ns"), 9);
    let qpa = report.tests.iter().find(|report| report.test == TestId::Qpa).unwrap();
    assert_eq!(qpa.binding().as_deref(), Some("demand due within 10ns of a common arrival: 9ns of 10ns, 1ns to spare"));
}

#[test]
fn terms_add_up_and_agree_with_the_verdict() {
    let mut random = Random::new(77);
    let mut seen = 0;
    let rounds = std::env::var("TAKT_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(100u64);
    for round in 0..rounds {
        let count = random.between(2, 6);
        let cpus = [1, 1, 2][(round % 3) as usize];
        let builtin = Builtin::ALL[(random.between(0, Builtin::ALL.len() as u64 - 1)) as usize];
        let one = |i| {
            let t = random.between(10, 1000);
            let c = random.between(1, t * u64::from(cpus) * 11 / 10 / count);
            let c = c.min(t);
            let deadline = Span::from_ns(random.between(c.max(t / 2), t));
            Task { deadline, priority: Some(i as u32), ..task(&format!("t{i}"), t, c) }
        };
        let mut system = System::local(cpus, builtin, (0..count).map(one).collect());
        if random.between(0, 3) == 0 {
            let ns = Span::from_ns;
            let (switch, tick, tick_period) = (ns(1), ns(1), ns(50));
            let (migrate, release) = (ns(1), ns(1));
            system.nodes[0].costs = Some(Costs { switch, migrate, release, tick, tick_period, ..Costs::NONE });
        }
        let report = explained(&system);
        for test in &report.tests {
            let Some(binding) = test.figures.get("binding") else { continue };
            let name = test.test.name();
            let unit = if binding.get("need_ns").is_some() { "ns" } else { "ppm" };
            let value = |key: &str| binding[format!("{key}_{unit}").as_str()].as_i64().expect("a number");
            assert_eq!(value("spare"), value("room") - value("need"), "{name}: {binding}");
            assert!(test.binding().is_some(), "{name}: {binding}");
            let work = sum(binding, &format!("need_{unit}"));
            match test.test {
                TestId::Rta | TestId::EdfWcrt if unit == "ns" => {
                    let within = binding["within_ns"].as_u64().expect("a window");
                    assert!(work > 0 && work <= within, "round {round}, {name}: {binding}, {system:?}");
                }
                TestId::Offsets | TestId::Bar | TestId::FfDbf | TestId::TardinessDa | TestId::TardinessCva => {}
                // Their terms, where they have any, are of one window of several.
                TestId::Exact | TestId::Opa if work == 0 => {}
                TestId::Hyperbolic | TestId::LlBound | TestId::Density | TestId::Gfb | TestId::Necessary => {}
                _ => assert!(
                    i128::from(work).abs_diff(i128::from(value("need"))) <= 8,
                    "round {round}, {name}: {binding}"
                ),
            }
            // Shown in ppm, rounded, a sum may look like its limit.
            let inclusive = binding["inclusive"] == true;
            let holds = value("spare") >= i64::from(!inclusive);
            match test.verdict.answer() {
                Answer::Yes if unit == "ns" => assert!(holds, "round {round}, {name}: {binding}, {system:?}"),
                // Other priorities may do where the given ones do not.
                Answer::No | Answer::Unknown if unit == "ns" && !matches!(test.test, TestId::Bak | TestId::Opa) => {
                    assert!(
                        !holds || test.test == TestId::Necessary || test.test == TestId::TardinessDa,
                        "round {round}, {name}: {:?} {binding}, {system:?}",
                        test.verdict
                    );
                }
                _ => {}
            }
            seen += 1;
        }
    }
    assert!(seen as u64 > rounds, "{seen}");
}

fn of_text(text: &str, all: bool) -> CheckReport {
    let system = takt_model::file::parse(text, "explain.toml").unwrap_or_else(|errors| panic!("{errors}"));
    check(&system, &CheckOptions { explain: true, all, ..CheckOptions::default() })
}

const FLOW: &str = include_str!("systems/put.toml");

#[test]
fn flows_show_node_and_hop() {
    let report = of_text(FLOW, false);
    assert_eq!(report.schedulable, Answer::Yes);
    let of = |scope: &str| {
        let test = report.tests.iter().find(|test| test.scope == scope).unwrap_or_else(|| panic!("no {scope}"));
        test.figures.get("binding").unwrap_or_else(|| panic!("{scope} binds nothing")).clone()
    };
    // Hop 1: 20ms after that of hop 0, less 5 + 2 of sending, 2 of delay, 5 + 2 of receiving: 4ms for 1ms.
    let flow = of("flow/put");
    let what = flow["what"].as_str().expect("words");
    assert!(what.contains("\"put\" on \"b\" (hop 1)"), "{what}");
    assert_eq!((flow["need_ns"].as_u64(), flow["room_ns"].as_u64()), (Some(1_000_000), Some(4_000_000)));
    // The hop's job is due within 4ms on b, after one job of each table task.
    let node = of("b");
    assert_eq!((node["need_ns"].as_u64(), node["room_ns"].as_u64()), (Some(3_000_000), Some(4_000_000)));
    assert_eq!(sum(&node, "need_ns"), 3_000_000);
    let plain = takt_model::file::parse(FLOW, "explain.toml").expect("it is one");
    let plain = check(&plain, &CheckOptions::default());
    assert!(plain.tests.iter().all(|test| !test.figures.contains_key("binding")));
}

#[test]
fn placement_priorities_and_states_are_shown() {
    let tasks = vec![task("a", 10, 6), task("b", 10, 6), task("c", 10, 5)];
    let mut system = System::local(2, Builtin::Edf, tasks);
    system.nodes[0].placement = takt_model::Placement::Partitioned;
    let report = explained(&system);
    let found = binding(&report, TestId::Partition);
    // 6 and 6, and 5 fits nowhere.
    assert_eq!((found["task"].as_str(), found["need_ppm"].as_u64()), (Some("c"), Some(1_100_000)));
    system.tasks[2].wcet = Span::from_ns(4);
    assert_eq!(binding(&explained(&system), TestId::Partition)["need_ppm"].as_u64(), Some(1_000_000));

    // Rates the wrong way round: a misses, and found priorities leave b 1 of 11.
    let prioritised = |name: &str, t, c, priority| Task { priority: Some(priority), ..task(name, t, c) };
    let system = System::local(1, Builtin::Fp, vec![prioritised("a", 5, 2, 2), prioritised("b", 11, 4, 1)]);
    let report = explained(&system);
    let found = binding(&report, TestId::Opa);
    assert_eq!((found["task"].as_str(), found["need_ns"].as_u64(), sum(found, "need_ns")), (Some("b"), Some(8), 8));
    let states = binding(&report, TestId::Exact);
    assert_eq!(
        (states["task"].as_str(), states["need_ns"].as_u64(), states["room_ns"].as_u64()),
        (Some("a"), Some(2), Some(1))
    );
    let system = System::local(1, Builtin::Fp, vec![prioritised("a", 5, 2, 1), prioritised("b", 11, 4, 2)]);
    assert_eq!(binding(&explained(&system), TestId::Exact)["need_ns"].as_u64(), Some(8));
    let mut sporadic = system;
    sporadic.tasks.iter_mut().for_each(|task| task.arrival = takt_model::Arrival::Sporadic);
    assert_eq!(binding(&explained(&sporadic), TestId::Exact)["need_ns"].as_u64(), Some(8));
}

#[test]
fn a_task_alone_in_a_server_waits_for_its_budget() {
    let text = r#"
takt = 1
[[node]]
name = "n"
strategy = "edf"
[[component]]
name = "irq"
server = "cbs"
strategy = "edf"
period = "10ms"
budget = "5ms"
[[task]]
name = "handler"
component = "irq"
arrival = "sporadic"
period = "6ms"
deadline = "10ms"
wcet = "3ms"
"#;
    let report = of_text(text, false);
    let found = binding(&report, TestId::Cbs);
    assert_eq!((found["need_ns"].as_u64(), sum(found, "need_ns")), (Some(10_000_000), 10_000_000));
    assert_eq!(found["terms"][0]["need_ns"].as_u64(), Some(3_000_000));
}
