//! What `check` shows of what binds a verdict.

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
    assert_eq!(
        qpa.binding().as_deref(),
        Some("what is due within 10ns of a common arrival: 9ns of 10ns, 1ns to spare")
    );
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
                Answer::No | Answer::Unknown if unit == "ns" && test.test != TestId::Bak => {
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
