//! The budgets of components in the hands of a manager: its decisions, and what it shares with the threads of its
//! tasks. [`manager`](crate::manager) has the threads.
//!
//! | file | holds |
//! |---|---|
//! | `core.rs` | releases, backlogs and late rules around the machine of servers; pure |
//! | `board.rs` | which thread runs on which CPU; pure |
//! | `seat.rs` | what a manager and the thread of a task share |
//! | `turn.rs` | the turns of existing threads in a component, and what they owe; pure |
//! | `foreign.rs` | these threads in the hands of their manager |

pub(crate) mod board;
pub(crate) mod core;
pub(crate) mod foreign;
pub(crate) mod seat;
pub(crate) mod turn;
