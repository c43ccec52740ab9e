//! What the tests are asked about a unit.

use takt_model::{ComponentId, TaskId};

use crate::scope::Unit;

/// All that the tests look at in a unit, names and numbers of tasks apart.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct UnitKey {
    unit: Unit,
    strategy: String,
    /// By task: the latest release and completion.
    carried: Vec<(Option<u64>, Option<u64>)>,
    by_deadlines: bool,
}

impl UnitKey {
    /// `carried`: of each of its tasks the latest release and completion, as far as they are known.
    pub(crate) fn new(
        unit: &Unit,
        strategy: &str,
        carried: Vec<(Option<u64>, Option<u64>)>,
        by_deadlines: bool,
    ) -> UnitKey {
        let mut unit = unit.clone();
        unit.scope.clear();
        for (i, task) in unit.tasks.iter_mut().enumerate() {
            task.id = TaskId(i as u32);
            task.name.clear();
        }
        if let Some(served) = &mut unit.served {
            served.component = ComponentId(0);
            served.servers.fill(TaskId(u32::MAX));
        }
        UnitKey { unit, strategy: strategy.to_owned(), carried, by_deadlines }
    }
}

/// A question about a unit.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Question {
    /// The unit's scope. It is asked twice, with and without completions, and each question has its own name.
    pub(crate) name: String,
    pub(crate) key: UnitKey,
    /// The latest completion of its server, where it is known.
    pub(crate) server_end: Option<u64>,
}
