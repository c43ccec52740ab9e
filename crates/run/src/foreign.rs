//! Components of existing threads: the System as it runs.
//!
//! Nobody tells of the jobs of such threads. So a run has one task for all threads of a component. Each time in which
//! they want the CPU is a job. `check` and `sim` go by the tasks of the file.

use std::borrow::Cow;

use takt_model::{
    Auto, Builtin, Component, ComponentId, Filter, NodeId, Span, StrategyRef, System, Task, TaskId, Threads,
};

/// Whether the node has components of existing threads.
pub(crate) fn is_in(system: &System, node: NodeId) -> bool {
    components(system, node).next().is_some()
}

/// The node's components of existing threads.
pub(crate) fn components(system: &System, node: NodeId) -> impl Iterator<Item = (ComponentId, &Component)> {
    let all = (0..).map(ComponentId).zip(&system.components);
    all.filter(move |(_, component)| component.node == node && component.threads.is_some())
}

/// A task of a component of existing threads in a relation that a run cannot keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnsupportedRelation {
    pub(crate) task: String,
    pub(crate) why: &'static str,
    pub(crate) remedy: &'static str,
}

/// The System with one task for each component of existing threads of the node, instead of its tasks.
pub(crate) fn lowered(system: &System, node: NodeId) -> Result<Cow<'_, System>, UnsupportedRelation> {
    if !is_in(system, node) {
        return Ok(Cow::Borrowed(system));
    }
    let is_foreign = |task: &Task| task.node == node && system.threads_of(task).is_some();
    let mut kept: Vec<Option<TaskId>> = Vec::new();
    let mut tasks: Vec<Task> = Vec::new();
    for task in &system.tasks {
        kept.push((!is_foreign(task)).then_some(TaskId(tasks.len() as u32)));
        if !is_foreign(task) {
            tasks.push(task.clone());
        }
    }
    let of = |id: &TaskId| kept.get(id.index()).copied().flatten();
    for task in &mut tasks {
        let after: Option<Vec<TaskId>> = task.after.iter().map(of).collect();
        let (why, remedy) = ("it follows existing threads, whose jobs nobody tells", "remove after");
        task.after = after.ok_or_else(|| UnsupportedRelation { task: task.name.clone(), why, remedy })?;
    }
    let mut lowered = system.clone();
    for (id, component) in components(system, node) {
        let mut name = component.name.clone();
        while system.tasks.iter().any(|task| task.name == name) || tasks.iter().any(|task| task.name == name) {
            name.push_str(" threads");
        }
        let value = |of: Auto<Span>| of.given().unwrap_or(Span::from_ms(1));
        let mut task = Task::periodic(&name, value(component.period), value(component.budget));
        (task.node, task.component, task.deadline) = (node, Some(id), Span::FILE_MAX);
        tasks.push(task);
        if let Some(component) = lowered.components.get_mut(id.index()) {
            component.strategy = StrategyRef::Builtin(Builtin::Fifo);
        }
    }
    let gone = |name: &String| !tasks.iter().any(|task| task.name == *name);
    for level in system.strategies.iter().flat_map(|strategy| &strategy.levels) {
        let Filter::Named(names) = &level.filter else { continue };
        if let Some(name) = names.iter().find(|name| gone(name)) {
            let why = "a strategy names it, and a run knows only all existing threads of its component together";
            return Err(UnsupportedRelation { task: name.clone(), why, remedy: "let the strategy name no such task" });
        }
    }
    lowered.tasks = tasks;
    Ok(Cow::Owned(lowered))
}

/// Which existing threads each component has, for the notes of a run.
pub(crate) fn notes(system: &System, node: NodeId) -> Vec<String> {
    notes_of(system, node, |component, threads| {
        format!(
            "component \"{component}\" holds the threads of \"{threads}\"; a job of \"{component}\" is a time in which \
             one of them wants the CPU, noticed at most about a millisecond late"
        )
    })
}

/// The same under sched_ext.
pub(crate) fn served_notes(system: &System, node: NodeId) -> Vec<String> {
    notes_of(system, node, |component, threads| {
        format!(
            "component \"{component}\" holds the threads of \"{threads}\", also those that come later; nobody tells of \
             their jobs; cpu.max of the group changes its server"
        )
    })
}

fn notes_of(system: &System, node: NodeId, note: impl Fn(&str, &Threads) -> String) -> Vec<String> {
    let all = components(system, node);
    all.filter_map(|(_, component)| Some(note(&component.name, component.threads.as_ref()?))).collect()
}

#[cfg(test)]
mod tests {
    use takt_model::ServerRule;

    use super::*;

    fn system() -> System {
        let ms = Span::from_ms;
        let mut system = System::local(1, Builtin::Rm, Vec::new());
        let mut guest = Component::new("guest", NodeId(0), ServerRule::Deferrable);
        (guest.period, guest.budget) = (Auto::Value(ms(10)), Auto::Value(ms(3)));
        guest.threads = Some(Threads::Pid(7));
        system.components.push(guest);
        for (name, component) in [("a", Some(ComponentId(0))), ("own", None), ("guest", None)] {
            system.tasks.push(Task { component, ..Task::periodic(name, ms(20), ms(1)) });
        }
        system.tasks[2].after = vec![TaskId(1)];
        system
    }

    #[test]
    fn the_tasks_of_existing_threads_become_one() {
        let system = system();
        let lowered = lowered(&system, NodeId(0)).unwrap();
        let names: Vec<&str> = lowered.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["own", "guest", "guest threads"]);
        assert_eq!(lowered.tasks[1].after, [TaskId(0)]);
        assert_eq!((lowered.tasks[2].wcet, lowered.tasks[2].period), (Span::from_ms(3), Span::from_ms(10)));
        let text = takt_model::file::write(&lowered);
        assert_eq!(takt_model::file::parse(&text, "lowered.toml").as_ref(), Ok(&*lowered), "{text}");
        let mut plain = system.clone();
        plain.components[0].threads = None;
        assert_eq!(super::lowered(&plain, NodeId(0)).as_deref(), Ok(&plain));
    }

    #[test]
    fn relations_that_nobody_can_keep_are_named() {
        let mut system = system();
        system.tasks[2].after = vec![TaskId(0)];
        assert_eq!(lowered(&system, NodeId(0)).unwrap_err().task, "guest");
    }
}
