//! From JSON to threads, phases and events, with rt-app's rules for keys (src/rt-app_parse_config.c).

use std::collections::{BTreeMap, BTreeSet};

use super::Notes;
use super::workload::{Action, Class, EVENTS, Event, POLICIES, Phase, SHARED, THREAD_ONLY, Thread, Workload, event_of};
use crate::cpus::CpuSet;
use crate::file::{hint, nearest};
use crate::import::json::{Member, Node, Value, twice};

/// So ends the warning of a thread that is left out.
pub(super) const NO_TASK: &str = "so that no task comes of it";

/// How many tasks an import may make; `instance` multiplies.
const TASKS_MAX: u64 = 100_000;

pub(super) fn read(root: &Node, notes: &mut Notes) -> Workload {
    let mut reader = Reader { notes, default_policy: "SCHED_OTHER".to_owned(), tasks: 0 };
    let mut workload = Workload { threads: Vec::new() };
    let Value::Object(members) = &root.value else {
        reader.notes.error(
            root.at,
            "the file",
            format_args!("is {}; it takes an object with \"tasks\"", root.value.noun()),
        );
        return workload;
    };
    reader.once(members, "the file");
    for member in members {
        match member.key.as_str() {
            "global" => reader.global(&member.node),
            "resources" => reader.resources(&member.node),
            "tasks" => {}
            key => {
                reader.unknown(member.at, key, key, ["global", "resources", "tasks"]);
            }
        }
    }
    match members.iter().find(|member| member.key == "tasks") {
        None => {
            reader.notes.error(root.at, "the file", "has no \"tasks\"; rt-app and takt need at least one thread in it")
        }
        Some(tasks) => {
            if let Some(threads) = reader.object(&tasks.node, "tasks") {
                if threads.is_empty() {
                    reader.notes.error(tasks.node.at, "tasks", "is empty; give at least one thread");
                }
                let names = reader.named_apart(threads, "tasks");
                workload.threads =
                    threads.iter().zip(names).filter_map(|(thread, name)| reader.thread(thread, name)).collect();
            }
        }
    }
    workload
}

pub(super) struct Reader<'a> {
    pub(super) notes: &'a mut Notes,
    pub(super) default_policy: String,
    tasks: u64,
}

impl Reader<'_> {
    pub(super) fn wrong_type<T>(&mut self, node: &Node, path: &str, wanted: &str) -> Option<T> {
        self.notes.error(node.at, path, format_args!("is {}; it takes {wanted}", node.value.noun()));
        None
    }

    pub(super) fn object<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [Member]> {
        match &node.value {
            Value::Object(members) => Some(members),
            _ => self.wrong_type(node, path, "an object"),
        }
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n str> {
        match &node.value {
            Value::Text(text) => Some(text),
            _ => self.wrong_type(node, path, "a string"),
        }
    }

    /// Reports a key that rt-app does not know. It is an error if it looks misspelt. Otherwise it
    /// is a warning, because rt-app ignores it too.
    pub(super) fn unknown<'k>(&mut self, at: usize, path: &str, key: &str, known: impl IntoIterator<Item = &'k str>) {
        match nearest(key, known) {
            Some(near) => self.notes.error(at, path, format_args!("unknown key; did you mean \"{near}\"?")),
            None => self.notes.warn(at, path, "unknown key, which rt-app ignores, and takt too"),
        }
    }

    /// An integer that rt-app keeps unharmed in 32 bits.
    pub(super) fn int(&mut self, node: &Node, path: &str, least: i32, most: i32, what: &str) -> Option<i64> {
        match node.value {
            Value::Int(int) if (i64::from(least)..=i64::from(most)).contains(&int) => Some(int),
            Value::Int(int) => {
                self.notes.error(node.at, path, format_args!("{int} is out of range; it takes {what}"));
                None
            }
            _ => self.wrong_type(node, path, what),
        }
    }

    /// Microseconds as nanoseconds.
    pub(super) fn time(&mut self, node: &Node, path: &str) -> Option<u64> {
        self.int(node, path, 0, i32::MAX, "microseconds, an integer from 0 to 2147483647").map(|us| us as u64 * 1000)
    }

    /// Keys that are no events must not stand twice: of two equal keys rt-app keeps the last.
    pub(super) fn once(&mut self, members: &[Member], path: &str) {
        for (key, at) in twice(members) {
            if event_of(key).is_none() {
                self.notes.error(
                    at,
                    path,
                    format_args!("\"{key}\" occurs twice, and rt-app drops the first; keep one"),
                );
            }
        }
    }

    /// Names of threads or phases, each once: one that stands again gets a number.
    fn named_apart(&mut self, members: &[Member], path: &str) -> Vec<String> {
        let all: BTreeSet<&str> = members.iter().map(|member| member.key.as_str()).collect();
        let mut given: BTreeSet<String> = BTreeSet::new();
        let mut last: BTreeMap<&str, u32> = BTreeMap::new();
        let mut names = Vec::new();
        for member in members {
            let key = member.key.as_str();
            let number = last.entry(key).or_insert(0);
            *number += 1;
            if *number == 1 {
                names.push(key.to_owned());
                continue;
            }
            let mut name = format!("{key}_{number}");
            while all.contains(name.as_str()) || given.contains(&name) {
                *number += 1;
                name = format!("{key}_{number}");
            }
            let message = format_args!(
                "\"{key}\" occurs twice, and rt-app itself keeps one (its workgen numbers them); both are \
                 imported, this one as \"{name}\""
            );
            self.notes.warn(member.at, path, message);
            given.insert(name.clone());
            names.push(name);
        }
        names
    }

    pub(super) fn policy(&mut self, policy: &str, at: usize, path: &str) -> Option<Class> {
        match POLICIES.iter().find(|(name, _)| *name == policy) {
            Some((_, class)) => Some(*class),
            None => {
                let names = POLICIES.map(|(name, _)| name);
                let hint = hint(policy, names, || format!("it takes {}", names.join(", ")));
                self.notes.error(at, path, format_args!("\"{policy}\" is no policy{hint}"));
                None
            }
        }
    }

    fn thread(&mut self, member: &Member, name: String) -> Option<Thread> {
        let path = format!("tasks.{name}");
        if name.is_empty() || name.chars().any(char::is_control) {
            self.notes.error(member.at, "tasks", format_args!("{name:?} is no name; give one line of plain text"));
            return None;
        }
        let members = self.object(&member.node, &path)?;
        self.once(members, &path);
        let find = |key: &str| members.iter().find(|member| member.key == key);
        let has_phases = find("phases").is_some();
        for inner in members {
            self.thread_key(inner, &path, has_phases);
        }
        // Everything is read before the first fault ends it, so that all are told at once.
        let sched = self.sched(members, &path, has_phases);
        let instances = find("instance").map_or(Some(1), |m| {
            self.int(&m.node, &format!("{path}.instance"), 0, i32::MAX, "a number of threads from 0 on")
        });
        self.tasks = self.tasks.saturating_add(instances.unwrap_or(0) as u64);
        if self.tasks > TASKS_MAX {
            self.notes.error(
                member.at,
                &path,
                format_args!("more than {TASKS_MAX} threads in all; lower \"instance\""),
            );
            return None;
        }
        if instances == Some(0) {
            let at = find("instance").map_or(member.at, |m| m.at);
            self.notes.warn(at, &path, format_args!("instance 0 makes no thread at the start, {}", NO_TASK));
        }
        let delay_ns = find("delay").map_or(Some(0), |m| self.time(&m.node, &format!("{path}.delay")));
        let cpus = find("cpus").and_then(|m| self.cpus(&m.node, &format!("{path}.cpus")));
        let (phases, loops) = match find("phases") {
            Some(phases) => {
                let inner_path = format!("{path}.phases");
                let inner = self.object(&phases.node, &inner_path)?;
                let names = self.named_apart(inner, &inner_path);
                if inner.is_empty() {
                    self.notes.error(phases.node.at, &inner_path, "is empty; give at least one phase");
                }
                let inner = inner.iter().zip(&names);
                let phases: Vec<Phase> =
                    inner.filter_map(|(phase, name)| self.phase(phase, &format!("{inner_path}.{name}"))).collect();
                (phases, find("loop").map_or(Some(None), |m| self.loops(m, &path)))
            }
            None => {
                let events = self.events(members, &path);
                if !members.iter().any(|member| event_of(&member.key).is_some()) {
                    self.notes.error(member.at, &path, "has no event; rt-app refuses a thread that does nothing");
                }
                let loops = find("loop").map_or(Some(None), |m| self.loops(m, &path));
                // Without phases rt-app takes the loop as that of the only phase, and ends the thread after it.
                let phase = Phase { path: path.clone(), loops: Some(1), events };
                (vec![phase], loops)
            }
        };
        Some(Thread {
            name,
            path,
            at: member.at,
            instances: instances? as u32,
            delay_ns: delay_ns?,
            sched: sched?,
            cpus,
            phases,
            loops: loops?,
        })
    }

    /// Unknown and misplaced keys of a thread, and keys without a counterpart.
    fn thread_key(&mut self, member: &Member, path: &str, has_phases: bool) {
        let key = member.key.as_str();
        let inner = format!("{path}.{key}");
        if let Some(event) = event_of(key) {
            // "runtime" beside phases is an old name of dl-runtime.
            if has_phases && key != "runtime" {
                let message = format_args!(
                    "the event \"{event}\" stands beside phases, where rt-app ignores it; move it into a phase"
                );
                self.notes.error(member.at, &inner, message);
            }
        } else if SHARED.contains(&key) {
            self.shared_key(member, &inner);
        } else if !THREAD_ONLY.contains(&key) {
            let known = SHARED.iter().chain(&THREAD_ONLY).chain(&EVENTS).copied();
            self.unknown(member.at, &inner, key, known);
        }
    }

    /// Keys of threads and phases that have no counterpart.
    fn shared_key(&mut self, member: &Member, path: &str) {
        match member.key.as_str() {
            "nodes_membind" => self.notes.warn(member.at, path, "memory nodes have no counterpart"),
            key @ ("util_min" | "util_max")
                if self.int(&member.node, path, -1, 1024, "an integer from 0 to 1024").is_some() =>
            {
                self.notes.warn(member.at, path, format_args!("the utilization clamp {key} has no counterpart"));
            }
            "taskgroup" => match self.text(&member.node, path) {
                Some("") | None => {}
                Some(group) if !group.starts_with('/') => {
                    self.notes.error(
                        member.node.at,
                        path,
                        format_args!("\"{group}\" does not start with /, and rt-app refuses it"),
                    );
                }
                Some(_) => {
                    self.notes.warn(member.at, path, "control groups have no counterpart (a [[component]] is a server)")
                }
            },
            _ => {}
        }
    }

    fn loops(&mut self, member: &Member, path: &str) -> Option<Option<u64>> {
        let path = format!("{path}.loop");
        match self.int(&member.node, &path, -1, i32::MAX, "a number of times from 1 on, or -1 for ever")? {
            -1 => Some(None),
            0 => {
                self.notes.error(
                    member.node.at,
                    &path,
                    "0 is out of range; it takes a number of times from 1 on, or -1 for ever",
                );
                None
            }
            times => Some(Some(times as u64)),
        }
    }

    fn cpus(&mut self, node: &Node, path: &str) -> Option<CpuSet> {
        let Value::Array(values) = &node.value else { return self.wrong_type(node, path, "an array of CPU numbers") };
        let most = CpuSet::CPUS_MAX as i32 - 1;
        let mut cpus = CpuSet::EMPTY;
        for value in values {
            let cpu = self.int(value, path, 0, most, &format!("CPU numbers from 0 to {most}"))?;
            cpus.insert(cpu as u32);
        }
        if cpus.is_empty() {
            self.notes.error(node.at, path, "is empty; name at least one CPU, or leave it out");
            return None;
        }
        Some(cpus)
    }

    fn phase(&mut self, member: &Member, path: &str) -> Option<Phase> {
        let path = path.to_owned();
        let Value::Object(members) = &member.node.value else {
            if event_of(&member.key).is_some() || SHARED.contains(&member.key.as_str()) {
                let message = format_args!(
                    "\"{}\" stands where a phase should; put it beside \"phases\" or into a phase",
                    member.key
                );
                self.notes.error(member.at, &path, message);
                return None;
            }
            return self.wrong_type(&member.node, &path, "an object, the phase's events");
        };
        self.once(members, &path);
        let mut loops = Some(1);
        for inner in members {
            let key = inner.key.as_str();
            let inner_path = format!("{path}.{key}");
            match key {
                "loop" => loops = self.loops(inner, &path).unwrap_or(Some(1)),
                "policy" | "priority" | "dl-runtime" | "dl-period" | "dl-deadline" | "cpus" => {
                    let message =
                        format_args!("a task of takt keeps one {key} for all its phases; that of the thread counts");
                    self.notes.warn(inner.at, &inner_path, message);
                }
                key if SHARED.contains(&key) => self.shared_key(inner, &inner_path),
                key if event_of(key).is_some() => {}
                key if THREAD_ONLY.contains(&key) => {
                    let message =
                        format_args!("\"{key}\" belongs to the thread, not to a phase, where rt-app ignores it");
                    self.notes.error(inner.at, &inner_path, message);
                }
                key => {
                    let known = SHARED.iter().chain(&EVENTS).copied();
                    self.unknown(inner.at, &inner_path, key, known);
                }
            }
        }
        let events = self.events(members, &path);
        if !members.iter().any(|member| event_of(&member.key).is_some()) {
            self.notes.error(member.at, &path, "has no event; rt-app refuses a phase that does nothing");
        }
        Some(Phase { path, loops, events })
    }

    fn events(&mut self, members: &[Member], path: &str) -> Vec<Event> {
        for (key, at) in twice(members) {
            if event_of(key).is_some() {
                let message = format_args!(
                    "occurs twice, and rt-app itself performs one (its workgen numbers them: {key}0, {key}1); \
                     both are imported"
                );
                self.notes.warn(at, &format!("{path}.{key}"), message);
            }
        }
        let mut events = Vec::new();
        for member in members {
            let Some(event) = event_of(&member.key) else { continue };
            let path = format!("{path}.{}", member.key);
            if let Some(action) = self.event(event, member, &path) {
                events.push(Event { at: member.at, path, action });
            }
        }
        events
    }

    fn event(&mut self, event: &str, member: &Member, path: &str) -> Option<Action> {
        let node = &member.node;
        match event {
            "run" | "runtime" => self.time(node, path).map(Action::Run),
            "sleep" => self.time(node, path).map(Action::Sleep),
            "timer" => self.timer(node, path),
            "mem" | "iorun" => {
                let bytes = self.int(node, path, 0, i32::MAX, "bytes, an integer from 0 to 2147483647")?;
                if event == "mem" {
                    let what =
                        "the bytes become the task's wss; the time to write them is not known and not in its wcet";
                    self.notes.warn(member.at, path, what);
                    return Some(Action::Mem(bytes as u64));
                }
                self.notes.warn(member.at, path, "input and output have no counterpart; their time is not in the wcet");
                Some(Action::Other)
            }
            "memrun" => {
                self.object(node, path)?;
                self.notes.warn(
                    member.at,
                    path,
                    "memory access patterns have no counterpart; their time is not in the wcet",
                );
                Some(Action::Other)
            }
            "yield" => Some(Action::Yield),
            "wait" | "sync" => {
                self.object(node, path)?;
                self.notes.warn(
                    member.at,
                    path,
                    "waiting for another thread has no counterpart (tasks that follow others: after)",
                );
                Some(Action::Block)
            }
            "suspend" => {
                self.notes.warn(
                    member.at,
                    path,
                    "waiting to be resumed has no counterpart (tasks that follow others: after)",
                );
                Some(Action::Block)
            }
            "barrier" | "sem_wait" => {
                self.text(node, path)?;
                self.notes.warn(
                    member.at,
                    path,
                    "waiting for other threads has no counterpart (tasks that follow others: after)",
                );
                Some(Action::Block)
            }
            "lock" | "unlock" => {
                let mutex = self.text(node, path)?;
                self.notes.warn(
                    member.at,
                    path,
                    format_args!(
                        "the mutex \"{mutex}\" has no counterpart; state the longest section in the \
                         blocking of the tasks that it delays"
                    ),
                );
                Some(Action::Other)
            }
            "fork" => {
                let name = self.text(node, path)?;
                self.notes.warn(
                    member.at,
                    path,
                    format_args!("forking \"{name}\" has no counterpart; its own \"instance\" counts"),
                );
                Some(Action::Other)
            }
            _ => {
                self.text(node, path)?;
                self.notes.warn(member.at, path, format_args!("waking other threads (\"{event}\") has no counterpart"));
                Some(Action::Other)
            }
        }
    }

    fn timer(&mut self, node: &Node, path: &str) -> Option<Action> {
        let members = self.object(node, path)?;
        self.once(members, path);
        let (mut period, mut name, mut absolute) = (None, "unknown".to_owned(), false);
        for member in members {
            let inner = format!("{path}.{}", member.key);
            match member.key.as_str() {
                "ref" => name = self.text(&member.node, &inner)?.to_owned(),
                "period" => period = Some((self.time(&member.node, &inner)?, member.node.at)),
                "mode" => match self.text(&member.node, &inner)? {
                    "absolute" => absolute = true,
                    "relative" => {}
                    mode => {
                        let hint = hint(mode, ["absolute", "relative"], || "it takes absolute or relative".to_owned());
                        self.notes.error(
                            member.node.at,
                            &inner,
                            format_args!("\"{mode}\" is no mode of a timer{hint}"),
                        );
                    }
                },
                key => {
                    self.unknown(member.at, &inner, key, ["ref", "period", "mode"]);
                }
            }
        }
        match period {
            Some((0, at)) => {
                self.notes.error(at, path, "period 0 never waits; give microseconds from 1 on");
                None
            }
            Some((period_ns, _)) => Some(Action::Timer { period_ns, name, absolute }),
            None => {
                self.notes.error(node.at, path, "has no period; give it in microseconds");
                None
            }
        }
    }
}
