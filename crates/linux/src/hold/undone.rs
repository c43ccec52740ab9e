//! The results of undoing changes.

use crate::process::Identity;

/// The result of undoing a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Undone {
    /// The thread's former setting is restored.
    Restored,
    /// The thread has ended.
    Gone,
    /// The setting has changed since; it was left as it is.
    Changed {
        /// The present setting.
        now: String,
    },
    /// The kernel refused.
    Failed(String),
}

/// The result of undoing one change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndoResult {
    /// The thread.
    pub thread: Identity,
    /// The result.
    pub undone: Undone,
}
