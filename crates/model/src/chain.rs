//! Names of chains.

use std::fmt::Write;

use crate::system::{System, TaskId};

/// How many links a chain's name spells out; a larger one is shortened to `... -> sink`.
const NAME_LINKS_MAX: usize = 64;

/// `a -> b -> c`; `a + b -> c` where links join; `(a -> b) + c -> d` where one of the joining is itself a chain.
#[must_use]
pub fn chain_name(system: &System, sink: TaskId) -> String {
    let (mut name, mut left) = (String::new(), NAME_LINKS_MAX);
    if spell(system, sink, &mut left, &mut name) {
        name
    } else {
        format!("... -> {}", system.tasks.get(sink.index()).map_or("?", |task| &task.name))
    }
}

/// Appends the name of everything up to `task`; false when that takes more than `left` links.
fn spell(system: &System, task: TaskId, left: &mut usize, name: &mut String) -> bool {
    let Some(spec) = system.tasks.get(task.index()) else { return false };
    if *left == 0 {
        return false;
    }
    *left -= 1;
    let several = spec.after.len() > 1;
    for (i, before) in spec.after.iter().enumerate() {
        if i > 0 {
            name.push_str(" + ");
        }
        let nested = several && system.tasks.get(before.index()).is_some_and(|task| !task.after.is_empty());
        if nested {
            name.push('(');
        }
        if !spell(system, *before, left, name) {
            return false;
        }
        if nested {
            name.push(')');
        }
    }
    let arrow = if spec.after.is_empty() { "" } else { " -> " };
    let _ = write!(name, "{arrow}{}", spec.name);
    true
}
