//! Links of chains against an obvious reference: a table of all instances.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use takt_model::Time;
use takt_policy::Link;

/// A predecessor: jobs that wait, in order, and the number of the next one.
#[derive(Clone, Default)]
struct Predecessor {
    waiting: VecDeque<u64>,
    next: u64,
}

/// The reports about one instance.
#[derive(Clone, Copy, Default)]
struct Reports {
    times: u32,
    shed: bool,
    origin: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A job arrives: it waits, or is rejected where as many as may wait already.
    Arrive(usize),
    /// The first that waits ends, complete or not.
    End(usize, bool),
}

fn steps() -> impl Strategy<Value = (usize, usize, Vec<Step>)> {
    (1usize..4, 1usize..6).prop_flat_map(|(predecessors, backlog)| {
        let step = prop_oneof![
            3 => (0..predecessors).prop_map(Step::Arrive),
            2 => (0..predecessors, prop::bool::weighted(0.8)).prop_map(|(which, done)| Step::End(which, done)),
        ];
        (Just(predecessors), Just(backlog), prop::collection::vec(step, 0..400))
    })
}

/// Goes through the steps with a link of room for `live_max`, and checks all that becomes due;
/// how many are given up.
fn run(predecessors: usize, backlog: usize, live_max: Option<usize>, steps: &[Step]) -> usize {
    let count = predecessors as u32;
    let mut link = live_max.map_or_else(|| Link::new(count), |max| Link::bounded(count, max));
    let mut all = vec![Predecessor::default(); predecessors];
    let mut told: BTreeMap<u64, Reports> = BTreeMap::new();
    let (mut next, mut given_up, mut shed_for_nothing) = (0, 0, 0);
    for (at, step) in steps.iter().enumerate() {
        let now = Time::from_ns(at as u64);
        let ended = match *step {
            Step::Arrive(which) => {
                let predecessor = &mut all[which];
                let number = predecessor.next;
                predecessor.next += 1;
                if predecessor.waiting.len() < backlog {
                    predecessor.waiting.push_back(number);
                    continue;
                }
                (number, false)
            }
            Step::End(which, completed) => {
                let Some(number) = all[which].waiting.pop_front() else { continue };
                (number, completed)
            }
        };
        let (number, completed) = ended;
        let instance = told.entry(number).or_default();
        instance.times += 1;
        instance.shed |= !completed;
        instance.origin = Some(instance.origin.map_or(now, |origin| origin.min(now)));
        link.ended(number, completed, now);
        while let Some(due) = link.take_due() {
            assert_eq!(due.number, next, "each once, in order");
            next += 1;
            let reference = told.get(&due.number).copied().unwrap_or_default();
            given_up += usize::from(due.given_up);
            shed_for_nothing += usize::from(due.shed && !reference.shed);
            assert!(due.shed || (reference.times == count && !reference.shed), "released too early: {due:?}");
            assert!(due.origin == Time::MAX || Some(due.origin) == reference.origin, "{due:?}");
            assert!(due.shed || Some(due.origin) == reference.origin, "{due:?}");
            if live_max.is_none() || predecessors == 1 {
                assert_eq!(reference.times, count, "{due:?} before all have ended");
            }
        }
        // An instance is due when all predecessors have reported it, unless an earlier instance is
        // still open.
        assert!(told.get(&next).is_none_or(|instance| instance.times < count), "{next} is due");
        assert!(link.open() >= told.range(next..).count() as u64);
    }
    // In a merged run, the test knows only the number of given-up instances. The number includes every
    // instance that was shed too early, and some that were shed later.
    assert!(given_up >= shed_for_nothing, "{given_up} told, {shed_for_nothing} seen");
    given_up
}

proptest! {
    #[test]
    fn instances_are_due_as_a_table_of_all_says((predecessors, backlog, steps) in steps()) {
        prop_assert_eq!(run(predecessors, backlog, None, &steps), 0);
        // A single predecessor with room for its backlog loses nothing. Several predecessors that
        // run apart may lose some.
        let given_up = run(predecessors, backlog, Some(backlog), &steps);
        prop_assert!(predecessors > 1 || given_up == 0);
        // With room for all that there are, none is.
        prop_assert_eq!(run(predecessors, backlog, Some(steps.len() + 1), &steps), 0);
    }
}
