use takt_model::generate::Random;
use takt_model::{Builtin, Span, System, Task};

use super::*;
use crate::brute::cases;

fn task(name: &str, t: u64, c: u64) -> Task {
    Task::periodic(name, Span::from_ns(t), Span::from_ns(c))
}

#[test]
fn the_numbers_are_those_of_theory() {
    let unsaid = &GivenDeadlines::default();
    let found =
        sensitivity(&System::local(1, Builtin::Edf, vec![task("a", 10, 4), task("b", 20, 8)]), unsaid, |_, _| {});
    assert!(found.schedulable && found.load.sustainable && !found.limit_reached);
    // U = 0.8: 5 of 10 and 10 of 20 is the last that fits; one ppm more makes 6.
    assert_eq!(
        (found.load.until, found.wcets[0].limit.until, found.wcets[1].limit.until),
        (Some(1_250_000), Some(6), Some(12))
    );
    // 4 / 0.6 and 8 / 0.6, rounded up: deadlines shrink with them.
    assert_eq!((found.periods[0].limit.until, found.periods[1].limit.until), (Some(7), Some(14)));
    let full =
        sensitivity(&System::local(1, Builtin::Edf, vec![task("a", 10, 5), task("b", 20, 10)]), unsaid, |_, _| {});
    assert_eq!(
        (full.load.until, full.wcets[0].limit.until, full.periods[1].limit.until),
        (Some(1_000_000), Some(5), Some(20))
    );
}

#[test]
fn it_says_how_far_a_bad_system_must_go_back() {
    let mut seen = 0;
    let over = System::local(1, Builtin::Edf, vec![task("a", 10, 8), task("b", 20, 8)]);
    let found = sensitivity(&over, &GivenDeadlines::default(), |done, of| seen = done.max(seen).min(of));
    assert_eq!(seen, 5);
    // U = 1.2: 5/6 of the load, but times are whole: 6 + 7 of 20.
    assert_eq!((found.schedulable, found.wcets[0].limit.until, found.wcets[1].limit.until), (false, Some(6), Some(4)));
    assert_eq!((found.periods[0].limit.until, found.periods[1].limit.until), (Some(14), Some(40)));
    let factor = found.load.until.unwrap();
    let mut scaled = over.clone();
    scale(&mut scaled, factor);
    assert_eq!(decide(&scaled), Answer::Yes);
    let mut more = over;
    scale(&mut more, factor + 1);
    assert_ne!(decide(&more), Answer::Yes);
}

/// Sets of two or three tasks with times up to 24 ns.
fn random_set(random: &mut Random, builtin: Builtin, cpus: u32) -> System {
    let count = random.between(2, 3);
    let one = |i| {
        let t = random.between(4, 24);
        let c = random.between(1, (t / 2).max(1));
        let deadline = Span::from_ns(random.between(c, t));
        Task { deadline, priority: Some(i as u32 + 1), ..task(&format!("t{i}"), t, c) }
    };
    System::local(cpus, builtin, (0..count).map(one).collect())
}

#[test]
fn exact_tests_prove_every_value_up_to_the_limit_and_none_beyond() {
    let mut random = Random::new(91);
    let mut seen = 0;
    for round in 0..cases(40) {
        let builtin = [Builtin::Fp, Builtin::Rm, Builtin::Dm, Builtin::Edf][(round % 4) as usize];
        let system = random_set(&mut random, builtin, 1);
        let found = sensitivity(&system, &GivenDeadlines::default(), |_, _| {});
        assert!(!found.limit_reached);
        // Tasks may share a level.
        if !found.load.sustainable {
            continue;
        }
        for (i, of) in found.wcets.iter().enumerate() {
            for wcet in 1..=system.tasks[i].deadline.as_ns() {
                let mut changed = system.clone();
                changed.tasks[i].wcet = Span::from_ns(wcet);
                let proven = of.limit.until.is_some_and(|until| wcet <= until);
                assert_eq!(decide(&changed) == Answer::Yes, proven, "round {round}, {wcet}: {system:?}");
            }
            seen += u32::from(of.limit.until.is_some());
        }
        for (i, of) in found.periods.iter().enumerate().filter(|(_, of)| of.limit.sustainable) {
            for period in 1..=of.limit.now * 2 {
                let mut changed = system.clone();
                let stays = system.tasks[i].deadline != system.tasks[i].period;
                set_period(&mut changed.tasks[i], period, stays);
                let proven = of.limit.until.is_some_and(|until| period >= until);
                assert_eq!(decide(&changed) == Answer::Yes, proven, "round {round}, period {period}: {system:?}");
            }
        }
        for factor in (0..30).map(|k| 100_000 + 97_000 * k) {
            let mut changed = system.clone();
            scale(&mut changed, factor);
            let proven = found.load.until.is_some_and(|until| factor <= until);
            assert_eq!(decide(&changed) == Answer::Yes, proven, "round {round}, factor {factor}: {system:?}");
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn elsewhere_the_end_is_proven_and_its_neighbour_is_not() {
    let mut random = Random::new(92);
    for round in 0..cases(40) {
        let builtin = [Builtin::Edf, Builtin::Rm, Builtin::Mlf, Builtin::Fifo][(round % 4) as usize];
        let system = random_set(&mut random, builtin, 1 + (round % 3) as u32);
        let found = sensitivity(&system, &GivenDeadlines::default(), |_, _| {});
        for (i, of) in found.wcets.iter().enumerate() {
            let Some(until) = of.limit.until else { continue };
            let with = |wcet| {
                let mut changed = system.clone();
                changed.tasks[i].wcet = Span::from_ns(wcet);
                decide(&changed) == Answer::Yes
            };
            assert!(with(until), "round {round}: {system:?}");
            assert!(until >= system.tasks[i].deadline.as_ns() || !with(until + 1), "round {round}: {system:?}");
        }
    }
}

/// `check` proves the system with the period changed in the file, and nothing else.
#[test]
fn a_deadline_in_the_file_stays_and_another_follows_its_period() {
    let text = |t1: u64, deadline: &str| {
        let task = |name: &str, period: u64, deadline: &str, wcet: u64, jitter: u64, priority: u64| {
            format!(
                "[[task]]\nname = \"{name}\"\nperiod = \"{period}ns\"\n{deadline}wcet = \"{wcet}ns\"\njitter \
                 = \"{jitter}ns\"\narrival = \"sporadic\"\npriority = {priority}\n"
            )
        };
        format!(
            "takt = 1\n[[node]]\nname = \"n1\"\ncpus = 2\nstrategy = \"dm\"\n{}{}{}{}",
            task("t0", 19, "deadline = \"14ns\"\n", 6, 0, 1),
            task("t1", t1, deadline, 5, 1, 2),
            task("t2", 14, "deadline = \"9ns\"\n", 4, 0, 3),
            task("t3", 16, "deadline = \"11ns\"\n", 3, 1, 4),
        )
    };
    let proven = |text: &str| decide(&takt_model::file::parse(text, "x.toml").expect("a file")) == Answer::Yes;
    for deadline in ["deadline = \"19ns\"\n", ""] {
        let found = of_text(&text(19, deadline));
        let until = found.periods[1].limit.until.expect("an end");
        assert!(proven(&text(until, deadline)) && !proven(&text(until - 1, deadline)), "{until}");
    }
    // With C = 5ns and T = 7ns a single job is due by 20ns. If deadlines follow the period, two
    // jobs of 5ns are due by the period.
    for (deadline, until) in [("deadline = \"20ns\"\n", 7), ("", 10)] {
        let found = of_text(&format!(
            "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"edf\"\n[[task]]\nname = \"a\"\nperiod = \"20ns\"\n\
             {deadline}wcet = \"5ns\"\n\
             [[task]]\nname = \"b\"\nperiod = \"20ns\"\ndeadline = \"5ns\"\nwcet = \"5ns\"\n"
        ));
        assert_eq!(found.periods[0].limit.until, Some(until));
    }
    let given = GivenDeadlines::of(&text(19, "deadline = \"19ns\"\n"));
    assert_ne!(given, GivenDeadlines::of(&text(19, "")));
}

#[test]
fn chains_change_together() {
    let mut system = System::local(1, Builtin::Rm, vec![task("a", 100, 10), task("b", 100, 10), task("c", 50, 5)]);
    system.tasks[1].after = vec![TaskId(0)];
    let found = sensitivity(&system, &GivenDeadlines::default(), |_, _| {});
    let names: Vec<&str> = found.periods.iter().map(|of| of.task.as_str()).collect();
    assert_eq!((names, found.wcets.len()), (vec!["a", "c"], 3));
    assert!(found.schedulable && !found.load.sustainable);
}

fn of_text(text: &str) -> Sensitivity {
    let system = takt_model::file::parse(text, "limits.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let found = sensitivity(&system, &GivenDeadlines::of(text), |_, _| {});
    // Each end is proven, and the next value is not.
    for (i, of) in found.budgets.iter().enumerate() {
        let with = |budget| {
            let mut changed = system.clone();
            changed.components[i].budget = Auto::Value(Span::from_ns(budget));
            decide(&changed) == Answer::Yes
        };
        let until = of.limit.until.expect("an end");
        assert!(with(until) && !with(until - 1), "{}: {until}", of.task);
    }
    found
}

#[test]
fn budgets_may_shrink() {
    let found = of_text(
        r#"
takt = 1
[[node]]
name = "n"
strategy = "rm"
[[component]]
name = "s"
node = "n"
strategy = "rm"
server = "ptps"
period = "10ns"
budget = "8ns"
[[task]]
name = "a"
component = "s"
period = "30ns"
wcet = "3ns"
arrival = "sporadic"
"#,
    );
    // Alone on its CPU each budget of 1 comes at once: the first after 9, the third 20 later, done by 30.
    assert_eq!((found.budgets.len(), found.budgets[0].limit.until), (1, Some(1)));
    assert!(found.left_out.is_empty());
}

#[test]
fn flows_have_numbers_of_their_own() {
    let text = r#"
takt = 1
[[node]]
name = "a"
receive = { period = "5ms", wcet = "1ms" }
send = { period = "5ms", wcet = "1ms" }
[[node]]
name = "b"
receive = { period = "5ms", wcet = "1ms" }
send = { period = "5ms", wcet = "1ms" }
[[flow]]
name = "put"
path = ["a", "b"]
period = "10ms"
send-gap = "5ms"
wcet = "1ms"
deadline = "40ms"
size = "400B"
[[network]]
delay = ["1ms", "2ms"]
"#;
    let found = of_text(text);
    assert!(found.schedulable);
    let names: Vec<&str> = found.wcets.iter().map(|of| of.task.as_str()).collect();
    assert_eq!(names, ["put", "put (further hops)", "a (receiving)", "a (sending)", "b (receiving)", "b (sending)"]);
    let until = |i: usize| found.wcets[i].limit.until.expect("an end");
    // On b 4ms are left from the release to the deadline, in which the table takes 2.
    assert_eq!(until(1), 2_000_000);
    assert!(until(0) > 1_000_000 && found.load.until > Some(PPM));
    assert_eq!((found.periods.len(), found.periods[0].task.as_str()), (1, "put"));
    let auto = text.replace(
        "[[flow]]",
        "[[component]]\nname = \"s\"\nnode = \"a\"\nserver = \"ptps\"\nperiod = \"auto\"\nbudget = \"auto\"\n[[flow]]",
    );
    assert_eq!(of_text(&auto).left_out.len(), 1);
}
