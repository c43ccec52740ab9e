//! A `[[mode]]` that changes a server loses no budget and gives none twice.

mod common;

use common::random::{Dice, seeds};
use takt_log::Event;
use takt_model::*;
use takt_sim::{SimOptions, simulate};

/// Rules that give a server with work its budget in each period, and no more.
const HARD: [ServerRule; 7] = [
    ServerRule::Ptps,
    ServerRule::Wcps,
    ServerRule::Crps,
    ServerRule::Polling,
    ServerRule::Deferrable,
    ServerRule::Sporadic,
    ServerRule::CbsHard,
];

#[derive(Clone, Copy, Debug)]
struct Terms {
    rule: ServerRule,
    period: u64,
    budget: u64,
}

fn terms(dice: &mut Dice, cpus: u64) -> Terms {
    let period = dice.roll(2, 9);
    Terms { rule: dice.pick(&HARD), period, budget: dice.roll(cpus, period * cpus) }
}

/// A server on its own CPUs with more work than it can do, and changes of its terms.
fn backlogged(first: Terms, changes: &[(u64, Terms)], cpus: u32, node_cpus: u32) -> System {
    let mut system = System::local(node_cpus, Builtin::Edf, Vec::new());
    let component = Component::new("S", NodeId(0), first.rule);
    let (period, budget) = (Auto::Value(Span::from_ns(first.period)), Auto::Value(Span::from_ns(first.budget)));
    system.components.push(Component { period, budget, cpus, ..component });
    for i in 0..cpus {
        let task = Task::periodic(&format!("x{i}"), Span::from_ms(1), Span::from_ms(1));
        system.tasks.push(Task { component: Some(ComponentId(0)), ..task });
    }
    for (at, terms) in changes {
        system.switches.push(ServerSwitch {
            component: ComponentId(0),
            at: Time::from_ns(*at),
            server: Some(terms.rule),
            period: Some(Span::from_ns(terms.period)),
            budget: Some(Span::from_ns(terms.budget)),
        });
    }
    system
}

/// The payments of the first component in each unit, and the instants of its new terms.
fn paid(system: &System, duration: u64) -> (Vec<u64>, Vec<u64>) {
    struct Log(Vec<u64>, Vec<u64>);
    impl takt_log::Sink for Log {
        fn event(&mut self, _: u32, now: Time, event: &Event) {
            if let Event::Charge { server: 0, since, amount, .. } = *event {
                let units = since.as_ns()..now.as_ns();
                let count = amount.as_ns() / (units.end - units.start);
                units.for_each(|unit| self.0[unit as usize] += count);
            }
        }
        fn define(&mut self, _: u32, now: Time, definition: &takt_log::Definition) {
            if let takt_log::Definition::Server(0, _) = definition {
                self.1.push(now.as_ns());
            }
        }
    }
    let mut log = Log(vec![0; duration as usize], Vec::new());
    let options = SimOptions { duration: Span::from_ns(duration), seed: 0, node: None };
    simulate(system, &options, &mut log).unwrap_or_else(|error| panic!("{error}\n{}", file::write(system)));
    (log.0, log.1)
}

/// Each period has exactly its budget, and the first one under new terms begins where the last one ends.
#[test]
fn a_server_with_work_has_its_budget_in_each_period_across_changes() {
    for seed in seeds(3_000) {
        let mut dice = Dice::new(seed);
        let node_cpus = dice.roll(1, 3);
        let cpus = dice.roll(1, node_cpus);
        let mut now = terms(&mut dice, cpus);
        let mut changes: Vec<(u64, Terms)> = Vec::new();
        for _ in 0..dice.roll(1, 4) {
            let at = changes.last().map_or(0, |(at, _)| at + 1) + dice.roll(0, 25);
            changes.push((at, terms(&mut dice, cpus)));
        }
        let system = backlogged(now, &changes, cpus as u32, node_cpus as u32);
        let duration = 150;
        let (paid, switched) = paid(&system, duration);
        let context = || {
            let replay = format!("TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test switches a_server_with");
            format!("{replay}\n{}\n{paid:?}\nswitched at {switched:?}", file::write(&system))
        };
        let (mut start, mut next, mut expected) = (0, 0, Vec::new());
        while start < duration {
            // The last terms asked for by the end of a period hold from then on.
            let asked = changes[next..].iter().take_while(|(at, _)| *at <= start).count();
            if asked > 0 {
                next += asked;
                now = changes[next - 1].1;
                expected.push(start);
            }
            let end = start + now.period;
            if end <= duration {
                let sum: u64 = paid[start as usize..end as usize].iter().sum();
                assert_eq!(sum, now.budget, "from {start} to {end} under {now:?}\n{}", context());
            }
            start = end;
        }
        assert_eq!(switched, expected, "{}", context());
    }
}

/// A server beside other work never pays more than its terms allow. No old budget is left beside a new one.
#[test]
fn no_change_gives_a_server_two_budgets() {
    for seed in seeds(3_000) {
        let mut dice = Dice::new(seed);
        let node_cpus = dice.roll(1, 2);
        let mut now = terms(&mut dice, 1);
        let changes: Vec<(u64, Terms)> = vec![(dice.roll(0, 30), terms(&mut dice, 1))];
        let mut system = backlogged(now, &changes, 1, node_cpus as u32);
        for i in 0..dice.roll(1, 4) {
            let period = dice.roll(3, 12);
            let task = Task::periodic(&format!("t{i}"), Span::from_ns(period), dice.ns(1, period.div_ceil(2)));
            system.tasks.push(Task { offset: dice.ns(0, 9), ..task });
        }
        // It has work now and then only.
        if dice.chance(50) {
            let period = dice.roll(5, 20);
            system.tasks[0] = Task {
                component: Some(ComponentId(0)),
                offset: dice.ns(0, 9),
                ..Task::periodic("x0", Span::from_ns(period), dice.ns(1, period.div_ceil(2)))
            };
        }
        let (paid, switched) = paid(&system, 120);
        let (mut from, mut left) = (0, switched.into_iter());
        loop {
            let until = left.next().unwrap_or(120);
            let most = |length: u64| (length / now.period + 2) * now.budget;
            // On an overloaded node a hard CBS may run after its deadline. It then uses budgets of earlier
            // deadlines, so it keeps its terms only in intervals from their begin.
            let starts = if now.rule == ServerRule::CbsHard { from..until.min(from + 1) } else { from..until };
            for start in starts {
                let mut sum = 0;
                for end in start..until {
                    sum += paid[end as usize];
                    assert!(
                        sum <= most(end + 1 - start),
                        "TAKT_SEED={seed} TAKT_CASES=1 cargo test -p takt-sim --test switches no_change\n{}\n\
                         {sum} from {start} to {end} under {now:?}: {paid:?}",
                        file::write(&system)
                    );
                }
            }
            // From its change on a server begins anew: the first period has at most its budget.
            if until == 120 {
                break;
            }
            (from, now) = (until, changes[0].1);
            let begins = !matches!(now.rule, ServerRule::Sporadic | ServerRule::CbsHard);
            let first: u64 = paid[from as usize..(from + now.period).min(120) as usize].iter().sum();
            assert!(!begins || first <= now.budget, "{first} from {from} under {now:?}\n{}", file::write(&system));
        }
    }
}
