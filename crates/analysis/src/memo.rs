//! Answers about parts of a system. After a change, only the parts that changed are tested again.
//!
//! The key of an answer is everything that its test looks at ([`UnitKey`], [`NodeKey`]). So an
//! answer is used again only for the same question. Only [`crate::Admission`] remembers answers.

use std::collections::{BTreeMap, BTreeSet};

use crate::distributed::below::{EdfBelowTable, Job, Supply, TableJob};
use crate::question::{Question, UnitKey};
use crate::verdict::Answer;

/// The tests' answer about a unit.
#[derive(Clone, Copy, Debug)]
struct CachedAnswer {
    answer: Answer,
    /// The latest completion of the unit's server, if the answer depends on it.
    server_end: Option<Option<u64>>,
}

/// All that the demand of a node with a table or flows depends on.
#[derive(Clone, PartialEq, Debug)]
struct NodeKey {
    jobs: Vec<Job>,
    table: Vec<TableJob>,
    preemptive: bool,
    extra_blocking: u64,
    omitted_demand: u64,
}

/// Answers by name, each with its question. Answers about a change that is not made yet are kept apart, in `fresh`.
#[derive(Clone, Debug)]
struct AnswerCache<K, V> {
    known: BTreeMap<String, (K, V)>,
    fresh: BTreeMap<String, (K, V)>,
    seen: BTreeSet<String>,
}

impl<K, V> Default for AnswerCache<K, V> {
    fn default() -> Self {
        AnswerCache { known: BTreeMap::new(), fresh: BTreeMap::new(), seen: BTreeSet::new() }
    }
}

impl<K: PartialEq, V: Clone> AnswerCache<K, V> {
    /// The answer, and whether it was known.
    fn recall(&mut self, name: &str, key: K, holds: impl Fn(&V) -> bool, find: impl FnOnce() -> V) -> (V, bool) {
        self.seen.insert(name.to_owned());
        if let Some((_, answer)) = self.known.get(name).filter(|(known, said)| *known == key && holds(said)) {
            return (answer.clone(), true);
        }
        let answer = find();
        self.fresh.insert(name.to_owned(), (key, answer.clone()));
        (answer, false)
    }

    /// Keeps the new answers and forgets answers that were not used.
    fn keep(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.known.retain(|name, _| seen.contains(name));
        self.known.append(&mut self.fresh);
    }

    fn forget(&mut self) {
        self.fresh.clear();
        self.seen.clear();
    }
}

/// The remembered answers about one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memo {
    answers: AnswerCache<UnitKey, CachedAnswer>,
    ends: AnswerCache<UnitKey, Vec<Option<u64>>>,
    demand: AnswerCache<NodeKey, Supply>,
    /// How many answers about units and nodes were known.
    pub(crate) hits: u64,
}

impl Memo {
    /// The tests' answer about a unit. `find` also returns whether the answer depends on the latest
    /// completion of the unit's server.
    pub(crate) fn answer(&mut self, question: Question, find: impl FnOnce() -> (Answer, bool)) -> Answer {
        let Question { name, key, server_end } = question;
        let holds = |said: &CachedAnswer| said.server_end.is_none_or(|before| before == server_end);
        let (said, known) = self.answers.recall(&name, key, holds, || {
            let (answer, rests) = find();
            CachedAnswer { answer, server_end: rests.then_some(server_end) }
        });
        self.hits += u64::from(known);
        said.answer
    }

    /// The latest completions of a unit's tasks.
    pub(crate) fn ends(
        &mut self,
        scope: &str,
        key: UnitKey,
        find: impl FnOnce() -> Vec<Option<u64>>,
    ) -> Vec<Option<u64>> {
        self.ends.recall(scope, key, |_| true, find).0
    }

    /// The supply of a node with a table or flows.
    pub(crate) fn demand(&mut self, below: &EdfBelowTable) -> Supply {
        let EdfBelowTable { jobs, table, preemptive, extra_blocking, omitted_demand } = *below;
        let key = NodeKey { jobs: jobs.to_vec(), table: table.to_vec(), preemptive, extra_blocking, omitted_demand };
        let (supply, known) = self.demand.recall("", key, |_| true, || below.analyse());
        self.hits += u64::from(known && !jobs.is_empty());
        supply
    }

    /// The change is made: keeps the new answers.
    pub(crate) fn keep(&mut self) {
        self.answers.keep();
        self.ends.keep();
        self.demand.keep();
        self.hits = 0;
    }

    /// The change is not made: drops the new answers.
    pub(crate) fn forget(&mut self) {
        self.answers.forget();
        self.ends.forget();
        self.demand.forget();
        self.hits = 0;
    }
}
