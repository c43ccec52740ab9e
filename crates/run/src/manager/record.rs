//! Facts on their way from a manager to the log: four words each, in a ring of its own.

use takt_log::{CancelCause, DropCause, Event, JobKey, Parent};
use takt_model::{ComponentId, ServerRule, Span, TaskId, Time};

use crate::budgets::core::Fact;

/// A record in a manager's ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ManagerRecord {
    Fact(Fact),
    /// The next release in a chain is of this job, which arrived before.
    Arrival {
        job: JobKey,
        arrival: Time,
    },
    /// All events before this time have been written.
    WrittenUntil,
    /// It has decided once.
    Pass {
        /// How long after the instant of the plan for which it woke; `None` if a thread woke it.
        late: Option<Span>,
        /// From its wake-up to the end of its decision, threads woken and frozen.
        cost: Span,
    },
}

/// The kinds of records, by their numbers.
mod kind {
    pub(super) const PASS: u64 = 0;
    pub(super) const SWITCHED: u64 = 1;
    pub(super) const RELEASE: u64 = 2;
    pub(super) const START: u64 = 3;
    pub(super) const PREEMPT: u64 = 4;
    pub(super) const RESUME: u64 = 5;
    pub(super) const COMPLETE: u64 = 6;
    pub(super) const CANCEL: u64 = 7;
    pub(super) const REPLENISH: u64 = 8;
    pub(super) const EXHAUST: u64 = 9;
    pub(super) const IDLE: u64 = 10;
    pub(super) const CHARGE: u64 = 11;
    pub(super) const MODE: u64 = 12;
    /// A release in a chain.
    pub(super) const FOLLOW: u64 = 13;
    pub(super) const ARRIVAL: u64 = 14;
    pub(super) const WRITTEN_UNTIL: u64 = 15;
    pub(super) const SEND: u64 = 16;
    pub(super) const ARRIVE: u64 = 17;
    pub(super) const RECEIVE: u64 = 18;
    pub(super) const DROP: u64 = 19;
    pub(super) const TRANSMIT: u64 = 20;
    pub(super) const MIGRATE: u64 = 21;
}

/// Kind, a number below 2^24, and a number below 2^32.
fn tag(kind: u64, extra: u64, index: u32) -> u64 {
    kind | (extra & 0xFF_FFFF) << 8 | u64::from(index) << 32
}

/// The words of a note. `None` for an event that no manager writes.
pub(crate) fn to_words(at: Time, note: &ManagerRecord) -> Option<[u64; 4]> {
    let at = at.as_ns();
    let of_job = |kind, job: JobKey, cpu: u32| [at, tag(kind, cpu.into(), job.task.0), job.number, 0];
    let of_message = |kind, job: JobKey, message, cause| [at, tag(kind, cause, job.task.0), job.number, message];
    let fact = match note {
        ManagerRecord::Pass { late, cost } => {
            return Some([at, tag(kind::PASS, 0, 0), late.map_or(u64::MAX, Span::as_ns), cost.as_ns()]);
        }
        ManagerRecord::Arrival { job, arrival } => {
            return Some([at, tag(kind::ARRIVAL, 0, job.task.0), job.number, arrival.as_ns()]);
        }
        ManagerRecord::WrittenUntil => return Some([at, tag(kind::WRITTEN_UNTIL, 0, 0), 0, 0]),
        ManagerRecord::Fact(fact) => fact,
    };
    let event = match *fact {
        Fact::Switched { component, rule, period, budget } => {
            let rule = ServerRule::ALL.iter().position(|other| *other == rule)? as u64;
            return Some([at, tag(kind::SWITCHED, rule, component.0), period.as_ns(), budget.as_ns()]);
        }
        Fact::Event(event) => event,
    };
    Some(match event {
        Event::Release { job, arrival, parent: None } => {
            [at, tag(kind::RELEASE, 0, job.task.0), job.number, arrival.as_ns()]
        }
        // It arrives when it is released, unless [`ManagerRecord::Arrival`] says otherwise.
        Event::Release { job, parent: Some(Parent { hop, origin }), .. } => {
            [at, tag(kind::FOLLOW, hop.into(), job.task.0), job.number, origin.as_ns()]
        }
        Event::Start { job, cpu } => of_job(kind::START, job, cpu),
        Event::Preempt { job, cpu } => of_job(kind::PREEMPT, job, cpu),
        Event::Resume { job, cpu } => of_job(kind::RESUME, job, cpu),
        Event::Complete { job, cpu } => of_job(kind::COMPLETE, job, cpu),
        Event::Migrate { job, from, to } => [at, tag(kind::MIGRATE, from.into(), job.task.0), job.number, to.into()],
        Event::Cancel { job, cause } => [at, tag(kind::CANCEL, cause as u64, job.task.0), job.number, 0],
        Event::Transmit { message, bytes } => [at, tag(kind::TRANSMIT, 0, bytes), message, 0],
        Event::Send { job, message } => of_message(kind::SEND, job, message, 0),
        Event::Arrive { job, message } => of_message(kind::ARRIVE, job, message, 0),
        Event::Receive { job, message } => of_message(kind::RECEIVE, job, message, 0),
        Event::Drop { job, message, cause } => of_message(kind::DROP, job, message, cause as u64),
        Event::Replenish { server, budget } => [at, tag(kind::REPLENISH, 0, server), budget.as_ns(), 0],
        Event::Exhaust { server } => [at, tag(kind::EXHAUST, 0, server), 0, 0],
        Event::ServerIdle { server } => [at, tag(kind::IDLE, 0, server), 0, 0],
        Event::Charge { server, since, amount, idle } => {
            [at, tag(kind::CHARGE, idle.into(), server), since.as_ns(), amount.as_ns()]
        }
        Event::ModeChange { mode } => [at, tag(kind::MODE, 0, mode), 0, 0],
        _ => return None,
    })
}

pub(crate) fn from_words([at, tag, first, second]: [u64; 4]) -> Option<(Time, ManagerRecord)> {
    let at = Time::from_ns(at);
    let (extra, index) = ((tag >> 8 & 0xFF_FFFF) as u32, (tag >> 32) as u32);
    let (span, job) = (Span::from_ns, JobKey { task: TaskId(index), number: first });
    let (server, cpu) = (index, extra);
    let event = match tag & 0xFF {
        kind::PASS => {
            let late = (first != u64::MAX).then_some(span(first));
            return Some((at, ManagerRecord::Pass { late, cost: span(second) }));
        }
        kind::SWITCHED => {
            let (component, rule) = (ComponentId(index), *ServerRule::ALL.get(extra as usize)?);
            let fact = Fact::Switched { component, rule, period: span(first), budget: span(second) };
            return Some((at, ManagerRecord::Fact(fact)));
        }
        kind::ARRIVAL => return Some((at, ManagerRecord::Arrival { job, arrival: Time::from_ns(second) })),
        kind::WRITTEN_UNTIL => return Some((at, ManagerRecord::WrittenUntil)),
        kind::TRANSMIT => Event::Transmit { message: first, bytes: index },
        kind::SEND => Event::Send { job, message: second },
        kind::ARRIVE => Event::Arrive { job, message: second },
        kind::RECEIVE => Event::Receive { job, message: second },
        kind::DROP => {
            let cause = *DropCause::ALL.iter().find(|cause| **cause as u32 == extra)?;
            Event::Drop { job, message: second, cause }
        }
        kind::RELEASE => Event::Release { job, arrival: Time::from_ns(second), parent: None },
        kind::FOLLOW => {
            let parent = Some(Parent { hop: extra, origin: Time::from_ns(second) });
            Event::Release { job, arrival: at, parent }
        }
        kind::START => Event::Start { job, cpu },
        kind::PREEMPT => Event::Preempt { job, cpu },
        kind::RESUME => Event::Resume { job, cpu },
        kind::COMPLETE => Event::Complete { job, cpu },
        kind::MIGRATE => Event::Migrate { job, from: extra, to: u32::try_from(second).ok()? },
        kind::CANCEL => Event::Cancel { job, cause: *CancelCause::ALL.get(extra as usize)? },
        kind::REPLENISH => Event::Replenish { server, budget: span(first) },
        kind::EXHAUST => Event::Exhaust { server },
        kind::IDLE => Event::ServerIdle { server },
        kind::CHARGE => Event::Charge { server, since: Time::from_ns(first), amount: span(second), idle: extra != 0 },
        kind::MODE => Event::ModeChange { mode: index },
        _ => return None,
    };
    Some((at, ManagerRecord::Fact(Fact::Event(event))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_from_their_words() {
        let (t, s) = (Time::from_ns, Span::from_ns);
        let job = JobKey { task: TaskId(7), number: 1 << 40 };
        let origin = t(3);
        let events = [
            Event::Release { job, arrival: t(5), parent: None },
            Event::Release { job, arrival: t(9), parent: Some(Parent { hop: 2, origin }) },
            Event::Start { job, cpu: 255 },
            Event::Preempt { job, cpu: 1 },
            Event::Resume { job, cpu: 0 },
            Event::Complete { job, cpu: 3 },
            Event::Migrate { job, from: 255, to: 2 },
            Event::Replenish { server: 4, budget: s(8) },
            Event::Exhaust { server: 4 },
            Event::ServerIdle { server: 5 },
            Event::Charge { server: 5, since: t(1), amount: s(2), idle: true },
            Event::ModeChange { mode: 2 },
            Event::Send { job, message: 1 << 50 },
            Event::Transmit { message: 3, bytes: 400 },
            Event::Arrive { job, message: 1 },
            Event::Receive { job, message: 0 },
        ];
        let drops = DropCause::ALL.map(|cause| Event::Drop { job, message: 6, cause });
        let cancels = CancelCause::ALL.map(|cause| Event::Cancel { job, cause });
        let facts = events.into_iter().chain(drops).chain(cancels).map(Fact::Event);
        let switched = ServerRule::ALL.map(|rule| {
            let component = ComponentId(1);
            Fact::Switched { component, rule, period: s(10), budget: s(3) }
        });
        let passes = [None, Some(s(4))].map(|late| ManagerRecord::Pass { late, cost: s(6) });
        let others = [ManagerRecord::Arrival { job, arrival: t(4) }, ManagerRecord::WrittenUntil];
        for note in facts.chain(switched).map(ManagerRecord::Fact).chain(passes).chain(others) {
            let words = to_words(t(9), &note).unwrap();
            assert_eq!(from_words(words), Some((t(9), note)));
        }
        assert_eq!(to_words(t(0), &ManagerRecord::Fact(Fact::Event(Event::Wake { job }))), None);
        assert_eq!(from_words([0, 200, 0, 0]), None);
    }
}
