//! Which gateways are there, by their liveliness tokens. Pure: it is told what Zenoh says of them.

use std::collections::{BTreeMap, BTreeSet};

use takt_run::event::peer::Turn;

/// Runs of one node that are kept apart.
const RUNS_MAX: usize = 8;

/// The gateways whose tokens are there.
#[derive(Debug)]
pub(crate) struct Peers {
    runs: BTreeMap<u64, BTreeSet<u64>>,
    most: usize,
}

impl Peers {
    /// So many at most.
    pub(crate) fn new(most: usize) -> Peers {
        Peers { runs: BTreeMap::new(), most }
    }

    /// The token of a node's run is there: what that changes. A new run in the place of one that was there is both. `None`: there is no room for it.
    pub(crate) fn come(&mut self, node: u64, run: u64) -> Option<&'static [Turn]> {
        let room = self.runs.len() < self.most;
        if !room && !self.runs.contains_key(&node) {
            return None;
        }
        let runs = self.runs.entry(node).or_default();
        if runs.len() >= RUNS_MAX && !runs.contains(&run) {
            return None;
        }
        let first = runs.is_empty();
        Some(match (runs.insert(run), first) {
            (false, _) => &[],
            (true, true) => &[Turn::Found],
            (true, false) => &[Turn::Lost, Turn::Found],
        })
    }

    /// The token of a node's run is gone. Whether the node is.
    pub(crate) fn go(&mut self, node: u64, run: u64) -> bool {
        let Some(runs) = self.runs.get_mut(&node) else { return false };
        runs.remove(&run);
        let gone = runs.is_empty();
        if gone {
            self.runs.remove(&node);
        }
        gone
    }

    /// The nodes that are there.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        self.runs.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_there_while_any_of_its_runs_is_and_a_new_run_is_told() {
        let mut peers = Peers::new(2);
        assert_eq!(peers.come(1, 10), Some(&[Turn::Found][..]));
        assert_eq!(peers.come(1, 10), Some(&[][..]), "told again");
        assert_eq!(peers.come(1, 9), Some(&[Turn::Lost, Turn::Found][..]), "a new run, whose clock was set back");
        assert!(!peers.go(1, 10), "the former run's token ends late");
        assert!(peers.go(1, 9) && !peers.go(1, 9));
        assert_eq!(peers.come(1, 9), Some(&[Turn::Found][..]));
        assert_eq!(peers.come(2, 1), Some(&[Turn::Found][..]));
        assert_eq!(peers.come(3, 1), None, "no room");
        assert_eq!(peers.nodes(), [1, 2]);
        assert!(!peers.go(3, 1), "it was never told");
        for run in 0..10 {
            assert_eq!(peers.come(2, run).is_some(), run < RUNS_MAX as u64, "{run}");
        }
    }
}
