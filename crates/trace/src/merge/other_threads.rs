//! Threads and interrupts that are not a run's, as its log knows them.

use std::collections::BTreeMap;

use takt_log::{Definition, Event, InterruptDef, InterruptKind, Sink, ThreadDef, ThreadKind};
use takt_model::{NodeId, Time};

use crate::event::{Comm, Pid, Thread};

/// The number of threads with definitions of their own. All later ones share one definition.
const OTHER_THREADS_MAX: usize = 1 << 12;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    Event(Event),
    Define(Box<Definition>),
}

impl Line {
    pub(crate) fn write_to(&self, stream: u32, at: Time, sink: &mut (impl Sink + ?Sized)) {
        match self {
            Line::Event(event) => sink.event(stream, at, event),
            Line::Define(definition) => sink.define(stream, at, definition),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ThreadKey {
    Pid(Pid),
    Takt,
    TooMany,
}

#[derive(Clone, Debug)]
pub(crate) struct OtherThreads {
    node: NodeId,
    threads: BTreeMap<ThreadKey, (u32, Comm, ThreadKind)>,
    interrupts: BTreeMap<(InterruptKind, u32), u32>,
    /// By CPU: the last thread in the log. `None` for a thread of the run.
    holders: BTreeMap<u32, Option<Pid>>,
}

impl OtherThreads {
    /// For the log of a node.
    pub(crate) fn new(node: u32) -> OtherThreads {
        OtherThreads {
            node: NodeId(node),
            threads: BTreeMap::new(),
            interrupts: BTreeMap::new(),
            holders: BTreeMap::new(),
        }
    }

    /// The CPU goes to a thread that is not the run's, or to nobody.
    pub(crate) fn switched_in(&mut self, cpu: u32, thread: &Thread) -> Vec<Line> {
        self.holders.insert(cpu, Some(thread.pid));
        self.occupy(cpu, thread)
    }

    /// The CPU goes from a thread that is not the run's. If the log has the thread on this CPU
    /// already, only its definition is logged, if exec has changed it.
    pub(crate) fn switched_out(&mut self, cpu: u32, thread: &Thread) -> Vec<Line> {
        let mut lines = self.occupy(cpu, thread);
        if self.holders.insert(cpu, None) == Some(Some(thread.pid)) {
            lines.retain(|line| matches!(line, Line::Define(_)));
        }
        lines
    }

    /// A thread has another name: its new definition, if it had one.
    pub(crate) fn renamed(&mut self, pid: Pid, comm: Comm) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some((_, _, kind)) = self.threads.get(&ThreadKey::Pid(pid)).copied() {
            self.number(ThreadKey::Pid(pid), comm, kind, &mut lines);
        }
        lines
    }

    /// The CPU goes to a thread of takt without a job.
    pub(crate) fn takt_switched_in(&mut self, cpu: u32) -> Vec<Line> {
        self.holders.insert(cpu, None);
        let mut lines = Vec::new();
        let thread = Some(self.number(ThreadKey::Takt, Comm::new(b"takt"), ThreadKind::Takt, &mut lines));
        lines.push(Line::Event(Event::Occupy { cpu, thread }));
        lines
    }

    fn occupy(&mut self, cpu: u32, thread: &Thread) -> Vec<Line> {
        let mut lines = Vec::new();
        let number = (thread.pid != 0).then(|| {
            let kind = match thread.prio {
                None => ThreadKind::Unknown,
                Some(_) if thread.is_ordinary() => ThreadKind::Ordinary,
                Some(_) => ThreadKind::RealTime,
            };
            self.number(ThreadKey::Pid(thread.pid), thread.comm, kind, &mut lines)
        });
        lines.push(Line::Event(Event::Occupy { cpu, thread: number }));
        lines
    }

    /// A thread's number in the log. A new thread, name or kind is defined in `lines`.
    fn number(&mut self, who: ThreadKey, comm: Comm, kind: ThreadKind, lines: &mut Vec<Line>) -> u32 {
        let next = self.threads.len();
        let (who, comm, kind) = match who {
            ThreadKey::Pid(_) if next >= OTHER_THREADS_MAX && !self.threads.contains_key(&who) => {
                (ThreadKey::TooMany, Comm::new(b"(others)"), ThreadKind::Unknown)
            }
            known => (known, comm, kind),
        };
        let (number, known) = match self.threads.get(&who) {
            Some((number, name, of)) => (*number, (*name, *of) == (comm, kind)),
            None => (u32::try_from(next).unwrap_or(u32::MAX), false),
        };
        if !known {
            self.threads.insert(who, (number, comm, kind));
            let def = ThreadDef { name: comm.to_string(), node: self.node, kind };
            lines.push(Line::Define(Box::new(Definition::Thread(number, def))));
        }
        number
    }

    pub(crate) fn interrupt(
        &mut self,
        cpu: u32,
        kind: InterruptKind,
        number: u32,
        name: &Comm,
        begins: bool,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        let next = u32::try_from(self.interrupts.len()).unwrap_or(u32::MAX);
        let irq = match self.interrupts.get(&(kind, number)) {
            Some(irq) => *irq,
            None if !begins => return lines,
            None => {
                let def = InterruptDef { name: interrupt_name(kind, number, name), node: self.node, kind };
                lines.push(Line::Define(Box::new(Definition::Interrupt(next, def))));
                self.interrupts.insert((kind, number), next);
                next
            }
        };
        let event = if begins { Event::IrqEnter { irq, cpu } } else { Event::IrqExit { irq, cpu } };
        lines.push(Line::Event(event));
        lines
    }

    /// Events were lost: the holders of CPUs are unknown.
    pub(crate) fn forget(&mut self) {
        self.holders.clear();
    }
}

/// An interrupt as logs name it.
pub(crate) fn interrupt_name(kind: InterruptKind, number: u32, name: &Comm) -> String {
    const SOFT: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    match (kind, SOFT.get(number as usize)) {
        (InterruptKind::Soft, Some(name)) => (*name).to_owned(),
        (InterruptKind::Soft, None) => format!("softirq {number}"),
        (InterruptKind::Hard, _) => format!("{number} {name}").trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use takt_model::Span;

    use super::*;
    use crate::event::{EventKind, KernelEvent, SwitchOutState};
    use crate::jobs::{Options, Rebuilder, ReservationParams};

    fn thread(pid: Pid, comm: &str, prio: i32) -> Thread {
        Thread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(prio) }
    }

    fn shown(lines: &[Line]) -> Vec<String> {
        let one = |line: &Line| match line {
            Line::Event(Event::Occupy { cpu, thread }) => format!("cpu {cpu}: {thread:?}"),
            Line::Event(event) => format!("{event:?}"),
            Line::Define(definition) => match &**definition {
                Definition::Thread(id, def) => format!("{id} is {} {:?}", def.name, def.kind),
                other => format!("{other:?}"),
            },
        };
        lines.iter().map(one).collect()
    }

    #[test]
    fn a_thread_is_defined_once_and_again_when_its_name_or_kind_changes() {
        let mut other_threads = OtherThreads::new(0);
        let hog = thread(7, "hog", 39);
        // A new thread still has the name of its parent.
        assert_eq!(shown(&other_threads.switched_in(0, &thread(7, "sh", 120))), ["0 is sh Ordinary", "cpu 0: Some(0)"]);
        assert_eq!(shown(&other_threads.switched_in(0, &hog)), ["0 is hog RealTime", "cpu 0: Some(0)"]);
        assert_eq!(shown(&other_threads.switched_out(0, &hog)), Vec::<String>::new(), "the log says so already");
        assert_eq!(shown(&other_threads.switched_out(0, &hog)), ["cpu 0: Some(0)"]);
        assert_eq!(shown(&other_threads.switched_in(1, &thread(0, "swapper/1", 120))), ["cpu 1: None"]);
        assert_eq!(shown(&other_threads.takt_switched_in(1)), ["1 is takt Takt", "cpu 1: Some(1)"]);
        for pid in 100..100 + OTHER_THREADS_MAX as u32 {
            other_threads.switched_in(2, &thread(pid, "one", 120));
        }
        assert_eq!(shown(&other_threads.switched_in(2, &thread(9, "late", 120))), ["cpu 2: Some(4096)"]);
        assert_eq!(other_threads.threads.len(), OTHER_THREADS_MAX + 1);
    }

    #[test]
    fn a_thread_that_renames_itself_while_it_has_the_cpu_is_defined_again() {
        let mut other_threads = OtherThreads::new(0);
        other_threads.switched_in(0, &thread(7, "sh", 120));
        assert_eq!(shown(&other_threads.switched_out(0, &thread(7, "hog", 39))), ["0 is hog RealTime"]);
        other_threads.switched_in(0, &thread(0, "swapper/0", 120));
        assert_eq!(shown(&other_threads.switched_out(0, &thread(0, "swapper/0", 120))), Vec::<String>::new());
    }

    #[test]
    fn an_interrupt_whose_beginning_was_not_seen_does_not_end() {
        let mut other_threads = OtherThreads::new(0);
        let mut irq = |begins| other_threads.interrupt(1, InterruptKind::Hard, 24, &Comm::new(b"eth0"), begins).len();
        assert_eq!([irq(false), irq(true), irq(false)], [0, 2, 1]);
    }

    /// The log of two switches of thread 7 with this deadline.
    fn rebuilt(deadline: Option<Span>) -> Vec<(u32, Time, Event)> {
        let known = ReservationParams { deadline, ..ReservationParams::default() };
        let mut rebuilder = Rebuilder::new(Options { reservations: [(7, known)].into(), ..Options::default() });
        let mut log: Vec<(u32, Time, Event)> = Vec::new();
        let (worker, make, idle) = (thread(7, "worker", -1), thread(9, "make", 120), thread(0, "swapper/0", 120));
        for (at, prev, left, next) in [
            (1, worker, SwitchOutState::Blocked, make),
            (2, make, SwitchOutState::Preempted, worker),
            (3, worker, SwitchOutState::Blocked, idle),
        ] {
            let what = EventKind::Switch { prev, left, next };
            let time = Time::from_ns(at);
            rebuilder.event(&KernelEvent { time, pid: prev.pid, what, ..KernelEvent::NONE }, &mut log);
        }
        log.retain(|(_, _, event)| matches!(event, Event::Occupy { .. }));
        log
    }

    struct Names(Vec<String>);

    impl Sink for Names {
        fn event(&mut self, _: u32, _: Time, _: &Event) {}
        fn define(&mut self, _: u32, _: Time, definition: &Definition) {
            if let Definition::Thread(_, def) = definition {
                self.0.push(def.name.clone());
            }
        }
    }

    #[test]
    fn a_thread_that_renames_itself_is_defined_again_on_an_observed_machine() {
        let known = ReservationParams { deadline: Some(Span::from_ms(1)), ..ReservationParams::default() };
        let mut rebuilder = Rebuilder::new(Options { reservations: [(7, known)].into(), ..Options::default() });
        let mut names = Names(Vec::new());
        let next = thread(9, "sh", 120);
        let switch = EventKind::Switch { prev: thread(7, "worker", -1), left: SwitchOutState::Blocked, next };
        for (at, what) in [switch, EventKind::Rename { pid: 9, comm: Comm::new(b"hog") }].into_iter().enumerate() {
            let event = KernelEvent { time: Time::from_ns(at as u64 + 1), what, ..KernelEvent::NONE };
            rebuilder.event(&event, &mut names);
        }
        assert_eq!(names.0, ["sh", "hog"]);
    }

    #[test]
    fn other_holders_are_logged_if_jobs_have_deadlines() {
        let of = |thread| Event::Occupy { cpu: 0, thread };
        let told: Vec<Event> = rebuilt(Some(Span::from_ms(1))).into_iter().map(|(_, _, event)| event).collect();
        assert_eq!(told, [of(Some(0)), of(None)]);
        assert_eq!(rebuilt(None), []);
    }
}
