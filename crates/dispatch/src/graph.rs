//! The order of predecessors and followers, and circles in it. Computations over all predecessors
//! follow this order once, because the number of paths may be exponential.

use std::collections::BTreeSet;
use std::rc::Rc;

use takt_model::System;

/// A sorted graph of predecessors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sorted {
    /// Nodes that are neither in a circle nor after one, each after its predecessors.
    pub(super) order: Vec<usize>,
    /// Circles without common nodes. Each node stands before the node that waits for it, the least
    /// number first.
    pub(super) cycles: Vec<Vec<usize>>,
}

pub(super) fn predecessors(system: &System) -> Vec<Vec<usize>> {
    system.tasks.iter().map(|task| task.after.iter().map(|id| id.index()).collect()).collect()
}

/// A value for each node, computed from the values of its predecessors in `order`. Nodes outside
/// the order get `other`.
pub(super) fn along<V: Clone>(
    before: &[Vec<usize>],
    order: &[usize],
    other: &V,
    make: impl Fn(usize, &[&V]) -> V,
) -> Vec<V> {
    let mut values = vec![other.clone(); before.len()];
    for at in order {
        let sources = before.get(*at).map(Vec::as_slice).unwrap_or_default();
        let theirs: Vec<&V> = sources.iter().filter_map(|source| values.get(*source)).collect();
        let made = make(*at, &theirs);
        if let Some(slot) = values.get_mut(*at) {
            *slot = made;
        }
    }
    values
}

/// For each node, the sources of the paths to it; empty for a node in or after a circle.
pub(super) fn sources(before: &[Vec<usize>], order: &[usize]) -> Vec<Rc<BTreeSet<usize>>> {
    along(before, order, &Rc::default(), |at, theirs| match theirs {
        [] => Rc::new(BTreeSet::from([at])),
        // Long chains share one set.
        [one] => Rc::clone(one),
        several => Rc::new(several.iter().flat_map(|of| of.iter().copied()).collect()),
    })
}

/// Sorts nodes by their predecessors, in linear time. Invalid numbers are ignored.
pub(super) fn sorted(before: &[Vec<usize>]) -> Sorted {
    let mut waiting: Vec<usize> = vec![0; before.len()];
    let mut successors: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (node, list) in before.iter().enumerate() {
        for earlier in list {
            if let (Some(after), Some(count)) = (successors.get_mut(*earlier), waiting.get_mut(node)) {
                after.push(node);
                *count += 1;
            }
        }
    }
    let mut order: Vec<usize> = (0..before.len()).filter(|node| waiting.get(*node) == Some(&0)).collect();
    let mut next = 0;
    while let Some(node) = order.get(next).copied() {
        next += 1;
        for successor in successors.get_mut(node).map(std::mem::take).unwrap_or_default() {
            if let Some(count) = waiting.get_mut(successor) {
                *count -= 1;
                if *count == 0 {
                    order.push(successor);
                }
            }
        }
    }
    Sorted { order, cycles: cycles(before, &waiting) }
}

/// Circles among the nodes that still wait. Each of them has a waiting predecessor, so going back
/// ends in a circle.
fn cycles(before: &[Vec<usize>], waiting: &[usize]) -> Vec<Vec<usize>> {
    let waits = |node: usize| waiting.get(node).is_some_and(|count| *count > 0);
    let back = |node: usize| before.get(node)?.iter().copied().find(|earlier| waits(*earlier));
    // The start from which a node was first reached.
    let mut reached: Vec<Option<usize>> = vec![None; before.len()];
    let mut found = Vec::new();
    for start in (0..before.len()).filter(|node| waits(*node)) {
        let mut trail = Vec::new();
        let mut at = Some(start);
        while let Some(node) = at {
            match reached.get_mut(node) {
                Some(seen @ None) => *seen = Some(start),
                Some(Some(first)) if *first == start => {
                    let circle = trail.iter().skip_while(|on| **on != node).copied();
                    found.push(turned(circle.collect()));
                    break;
                }
                _ => break,
            }
            trail.push(node);
            at = back(node);
        }
    }
    found
}

/// Reverses a circle given from node to predecessor, and starts it at its least number.
fn turned(mut circle: Vec<usize>) -> Vec<usize> {
    circle.reverse();
    let least = circle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
    circle.rotate_left(least);
    circle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predecessors_come_first_and_circles_are_told_once() {
        let chain = sorted(&[vec![1], vec![2], vec![], vec![0, 2]]);
        assert_eq!(chain, Sorted { order: vec![2, 1, 0, 3], cycles: vec![] });
        // 0 after 2, 1 after 0, 2 after 1; 3 hangs on it, 4 stands alone, 5 waits for itself.
        let circles = sorted(&[vec![2], vec![0], vec![1], vec![0], vec![], vec![4, 5]]);
        assert_eq!(circles, Sorted { order: vec![4], cycles: vec![vec![0, 1, 2], vec![5]] });
    }

    #[test]
    fn the_ways_to_each_begin_with_its_sources() {
        // 0 and 1 begin, 2 joins them, 3 and 4 come after it. 5 comes after both and after 6, which
        // begins. 7 waits for itself, and 8 waits for 7.
        let before = [vec![], vec![], vec![0, 1], vec![2], vec![2], vec![3, 4, 6], vec![], vec![7], vec![7]];
        let of = sources(&before, &sorted(&before).order);
        let of: Vec<Vec<usize>> = of.iter().map(|of| of.iter().copied().collect()).collect();
        let two = vec![0, 1];
        assert_eq!(of, [vec![0], vec![1], two.clone(), two.clone(), two, vec![0, 1, 6], vec![6], vec![], vec![]]);
    }

    /// Against the closure of the relation, on all graphs of four nodes.
    #[test]
    fn nodes_missing_from_the_order_are_on_or_behind_a_cycle() {
        for edges in 0..1u32 << 16 {
            let edge = |node: usize, earlier: usize| edges >> (4 * node + earlier) & 1 == 1;
            let before: Vec<Vec<usize>> =
                (0..4).map(|node| (0..4).filter(|earlier| edge(node, *earlier)).collect()).collect();
            let mut waits = [[false; 4]; 4];
            for (a, row) in waits.iter_mut().enumerate() {
                (0..4).for_each(|b| row[b] = edge(a, b));
            }
            for k in 0..4 {
                for a in 0..4 {
                    for b in 0..4 {
                        waits[a][b] |= waits[a][k] && waits[k][b];
                    }
                }
            }
            let stuck = |node: usize| (0..4).any(|on| waits[on][on] && (on == node || waits[node][on]));
            let Sorted { order, cycles } = sorted(&before);
            for node in 0..4 {
                assert_eq!(order.contains(&node), !stuck(node), "{before:?}");
            }
            for (at, node) in order.iter().enumerate() {
                assert!(before[*node].iter().all(|earlier| order[..at].contains(earlier)), "{before:?}");
            }
            assert_eq!(cycles.is_empty(), order.len() == 4, "{before:?}");
            for cycle in cycles {
                let next = cycle.iter().cycle().skip(1);
                assert!(cycle.iter().zip(next).all(|(earlier, node)| edge(*node, *earlier)), "{before:?} {cycle:?}");
            }
        }
    }
}
