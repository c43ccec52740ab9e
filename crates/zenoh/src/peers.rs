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

/// What consumers have been told of who is there.
#[derive(Default, Debug)]
pub(crate) struct Told {
    /// On which connection of the channel, if any.
    connection: Option<u64>,
    nodes: BTreeSet<u64>,
}

impl Told {
    /// What is to be told now that a connection has these peers: on a new one, who has gone since, and everybody who is there.
    pub(crate) fn turns(&mut self, connection: u64, there: &[u64]) -> Vec<(Turn, u64)> {
        let anew = self.connection.replace(connection) != Some(connection);
        let nodes: BTreeSet<u64> = there.iter().copied().collect();
        let lost = self.nodes.difference(&nodes).map(|node| (Turn::Lost, *node));
        let found = nodes.iter().filter(|node| anew || !self.nodes.contains(node)).map(|node| (Turn::Found, *node));
        lost.chain(found).collect()
    }

    /// That was told.
    pub(crate) fn told(&mut self, turn: Turn, node: u64) {
        match turn {
            Turn::Found => self.nodes.insert(node),
            Turn::Lost => self.nodes.remove(&node),
        };
    }

    /// A node that was told of begins anew: whether both are to be told.
    pub(crate) fn begins_anew(&self, connection: u64, node: u64) -> bool {
        self.connection == Some(connection) && self.nodes.contains(&node)
    }
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
    fn each_connection_is_told_who_is_there_and_who_has_gone() {
        use Turn::{Found, Lost};
        let mut told = Told::default();
        let tell = |told: &mut Told, connection, there: &[u64]| {
            let turns = told.turns(connection, there);
            turns.iter().for_each(|(turn, node)| told.told(*turn, *node));
            turns
        };
        assert_eq!(tell(&mut told, 0, &[1, 2]), [(Found, 1), (Found, 2)], "there before");
        assert!(told.begins_anew(0, 1) && !told.begins_anew(0, 3) && !told.begins_anew(1, 1));
        assert_eq!(tell(&mut told, 0, &[1, 2]), []);
        assert_eq!(tell(&mut told, 0, &[2, 3]), [(Lost, 1), (Found, 3)]);
        assert_eq!(told.turns(0, &[3]), [(Lost, 2)], "which nobody hears: the channel is connected no more");
        assert_eq!(tell(&mut told, 1, &[3]), [(Lost, 2), (Found, 3)], "another connection");
        assert_eq!(tell(&mut told, 1, &[]), [(Lost, 3)]);
    }

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
