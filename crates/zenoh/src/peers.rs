//! Tracks the present gateways by their liveliness tokens, and what consumers know about them.
//! Pure: the caller passes on Zenoh's reports.
//!
//! Tokens may come or go while no consumer can be told. Then only the final state is kept, and the
//! set of known nodes that went meanwhile. So there is no queue that could be full.

use std::collections::{BTreeMap, BTreeSet};

use takt_dispatch::event::peer::PresenceChange;

/// Runs of one node that are kept apart.
const RUNS_MAX: usize = 8;

/// The gateways whose tokens are there.
#[derive(Debug)]
pub(crate) struct Peers {
    runs: BTreeMap<u64, BTreeSet<u64>>,
    most: usize,
    /// On which connection of the channel consumers were told last, if on any, and of which nodes they know.
    connection: Option<u64>,
    known: BTreeSet<u64>,
    /// Known nodes that have gone since, even if they have come back.
    went: BTreeSet<u64>,
}

impl Peers {
    /// So many at most.
    pub(crate) fn new(most: usize) -> Peers {
        Peers { runs: BTreeMap::new(), most, connection: None, known: BTreeSet::new(), went: BTreeSet::new() }
    }

    /// The token of a node's run is there: what that changes. A new run in the place of one that
    /// was there is both. `None`: there is no room for it.
    pub(crate) fn come(&mut self, node: u64, run: u64) -> Option<&'static [PresenceChange]> {
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
            (true, true) => &[PresenceChange::Found],
            (true, false) => {
                self.goes(node);
                &[PresenceChange::Lost, PresenceChange::Found]
            }
        })
    }

    /// The token of a node's run is gone. Whether the node is.
    pub(crate) fn go(&mut self, node: u64, run: u64) -> bool {
        let Some(runs) = self.runs.get_mut(&node) else { return false };
        runs.remove(&run);
        let gone = runs.is_empty();
        if gone {
            self.runs.remove(&node);
            self.goes(node);
        }
        gone
    }

    fn goes(&mut self, node: u64) {
        if self.known.contains(&node) {
            self.went.insert(node);
        }
    }

    /// The nodes that are there.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        self.runs.keys().copied().collect()
    }

    /// The changes to report to consumers on this connection: known nodes that have gone, and
    /// present nodes. A new connection gets all present nodes.
    pub(crate) fn turns(&mut self, connection: u64) -> Vec<(PresenceChange, u64)> {
        if self.connection.replace(connection) != Some(connection) {
            // Until they are told: they may have no room.
            self.known.retain(|node| !self.runs.contains_key(node));
        }
        let is_lost = |node: &&u64| !self.runs.contains_key(node) || self.went.contains(node);
        let lost: BTreeSet<u64> = self.known.iter().filter(is_lost).copied().collect();
        let is_found = |node: &&u64| !self.known.contains(node) || lost.contains(node);
        let found = self.runs.keys().filter(is_found).map(|node| (PresenceChange::Found, *node));
        lost.iter().map(|node| (PresenceChange::Lost, *node)).chain(found).collect()
    }

    /// That was told.
    pub(crate) fn mark_reported(&mut self, turn: PresenceChange, node: u64) {
        self.went.remove(&node);
        match turn {
            PresenceChange::Found => self.known.insert(node),
            PresenceChange::Lost => self.known.remove(&node),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(peers: &mut Peers, connection: u64) -> Vec<(PresenceChange, u64)> {
        let turns = peers.turns(connection);
        turns.iter().for_each(|(turn, node)| peers.mark_reported(*turn, *node));
        turns
    }

    #[test]
    fn each_connection_is_told_who_is_there_and_who_has_gone() {
        use PresenceChange::{Found, Lost};
        let mut peers = Peers::new(8);
        let come = |peers: &mut Peers, node| assert!(peers.come(node, 1).is_some());
        (1..=2).for_each(|node| come(&mut peers, node));
        assert_eq!(report(&mut peers, 0), [(Found, 1), (Found, 2)], "there before");
        assert_eq!(report(&mut peers, 0), []);
        peers.go(1, 1);
        come(&mut peers, 3);
        assert_eq!(report(&mut peers, 0), [(Lost, 1), (Found, 3)]);
        peers.go(2, 1);
        assert_eq!(peers.turns(0), [(Lost, 2)], "which nobody subscribes to: the channel is connected no more");
        assert_eq!(report(&mut peers, 1), [(Lost, 2), (Found, 3)], "another connection");
        peers.go(3, 1);
        assert_eq!(report(&mut peers, 1), [(Lost, 3)]);
        peers.come(4, 1);
        assert_eq!(report(&mut peers, 1), [(Found, 4)]);
        assert_eq!(peers.turns(2), [(Found, 4)], "another connection, which has no room for it");
        assert_eq!(report(&mut peers, 2), [(Found, 4)]);
        assert_eq!(report(&mut peers, 2), []);
    }

    #[test]
    fn a_known_node_that_goes_and_comes_between_two_looks_is_told_as_both() {
        use PresenceChange::{Found, Lost};
        let mut peers = Peers::new(8);
        assert!(peers.come(1, 1).is_some());
        assert_eq!(report(&mut peers, 0), [(Found, 1)]);
        assert!(peers.go(1, 1) && peers.come(1, 2).is_some());
        assert!(peers.come(2, 1).is_some() && peers.go(2, 1), "nobody knew of this one");
        assert_eq!(report(&mut peers, 0), [(Lost, 1), (Found, 1)]);
        assert_eq!(report(&mut peers, 0), []);
        assert_eq!(peers.come(1, 3), Some(&[Lost, Found][..]), "its new run, before the token of the former is gone");
        assert!(!peers.go(1, 2));
        assert_eq!(report(&mut peers, 0), [(Lost, 1), (Found, 1)]);
    }

    #[test]
    fn a_node_is_there_while_any_of_its_runs_is_and_a_new_run_is_told() {
        let mut peers = Peers::new(2);
        assert_eq!(peers.come(1, 10), Some(&[PresenceChange::Found][..]));
        assert_eq!(peers.come(1, 10), Some(&[][..]), "told again");
        assert_eq!(
            peers.come(1, 9),
            Some(&[PresenceChange::Lost, PresenceChange::Found][..]),
            "a new run, whose clock was set back"
        );
        assert!(!peers.go(1, 10), "the former run's token ends late");
        assert!(peers.go(1, 9) && !peers.go(1, 9));
        assert_eq!(peers.come(1, 9), Some(&[PresenceChange::Found][..]));
        assert_eq!(peers.come(2, 1), Some(&[PresenceChange::Found][..]));
        assert_eq!(peers.come(3, 1), None, "no room");
        assert_eq!(peers.nodes(), [1, 2]);
        assert!(!peers.go(3, 1), "it was never told");
        for run in 0..10 {
            assert_eq!(peers.come(2, run).is_some(), run < RUNS_MAX as u64, "{run}");
        }
    }

    proptest! {
        /// Consumers that are told in turn know the present nodes. They hear of each node in
        /// alternation, and of each node that went since the last report.
        #[test]
        fn reported_peers_are_the_present_peers(steps in prop::collection::vec((0..4_u8, 0..5_u64, 0..3_u64), 1..60)) {
            let mut peers = Peers::new(4);
            let mut known = BTreeSet::new();
            let mut went = BTreeSet::new();
            for (what, node, run) in steps {
                match what {
                    0 | 1 => {
                        if peers.come(node, run).is_some_and(|turns| turns.len() > 1) {
                            went.insert(node);
                        }
                    }
                    2 => {
                        if peers.go(node, run) {
                            went.insert(node);
                        }
                    }
                    _ => {
                        let before = known.clone();
                        let turns = report(&mut peers, 0);
                        for (turn, node) in &turns {
                            match turn {
                                PresenceChange::Found => prop_assert!(known.insert(*node), "twice"),
                                PresenceChange::Lost => prop_assert!(known.remove(node), "never found"),
                            }
                        }
                        prop_assert_eq!(known.iter().copied().collect::<Vec<_>>(), peers.nodes());
                        let lost = turns.iter().filter(|row| row.0 == PresenceChange::Lost);
                        let lost: BTreeSet<u64> = lost.map(|row| row.1).collect();
                        prop_assert_eq!(lost, before.intersection(&went).copied().collect());
                        went.clear();
                    }
                }
                prop_assert!(peers.went.len() <= 4 && peers.known.len() <= 5);
            }
        }
    }
}
