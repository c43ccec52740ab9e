//! The cycle of a thread: pieces of work and the distances between their releases.

use super::workload::{Action, Class, Phase, Thread};

/// One release: its work, and the time until the next release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Execution in nanoseconds.
    pub(super) work: u64,
    /// To the next release, in nanoseconds.
    pub(super) distance: u64,
    /// How often the piece stands here in a row.
    pub(super) count: u64,
}

/// A thread's steady behaviour.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Cycle {
    /// The pieces of one round, each with work.
    pub(super) pieces: Vec<Piece>,
    /// From the thread's start to the first release.
    pub(super) first: u64,
    /// Whether a relative sleep separates pieces, so that distances are least ones.
    pub(super) sleeps: bool,
    /// Whether a job sleeps between two parts of its work.
    pub(super) suspends: bool,
    /// Whether the thread works without ever waiting; the one piece is then that work.
    pub(super) never_waits: bool,
    /// Whether it waits for other threads.
    pub(super) blocks: bool,
    /// Index of the phase that never ends, where others stand after it.
    pub(super) endless: Option<usize>,
}

/// How a phase ends its pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// At timers; sleeps suspend a job.
    Timers,
    /// At yields of a DEADLINE thread, with its period.
    Yields(u64),
    /// At sleeps.
    Sleeps,
}

/// The state of a walk over phases.
#[derive(Default)]
struct Walk {
    pieces: Vec<Piece>,
    /// Work since the last piece.
    carry: u64,
    sleeps: bool,
    suspends: bool,
}

pub(super) fn of(thread: &Thread) -> Cycle {
    let endless = thread.phases.iter().position(|phase| phase.loops.is_none());
    let reached = &thread.phases[..endless.map_or(thread.phases.len(), |last| last + 1)];
    let phases = match endless {
        // The phases before an endless phase happen once.
        Some(last) => &thread.phases[last..=last],
        None => reached,
    };
    let mut first_round = Walk::default();
    reached.iter().for_each(|phase| first_round.phase(phase, thread));
    let mut round = Walk::default();
    phases.iter().for_each(|phase| round.phase(phase, thread));
    let total_work = round.carry;
    if !round.pieces.is_empty() && (thread.loops != Some(1) || endless.is_some()) {
        // From the second round on, the work after the last wait belongs to the first piece.
        round = Walk { carry: round.carry, ..Walk::default() };
        phases.iter().for_each(|phase| round.phase(phase, thread));
    } else if let (Some(_), true) = (round.pieces.last(), round.carry > 0) {
        let last = Piece { work: round.carry, distance: longest(&round.pieces), count: 1 };
        round.pieces.push(last);
    }
    let idle_first = first_round.pieces.iter().take_while(|piece| piece.work == 0);
    let first = idle_first.map(|piece| piece.distance.saturating_mul(piece.count)).fold(0u64, u64::saturating_add);
    let never_waits = round.pieces.is_empty() && total_work > 0;
    let pieces = if never_waits {
        vec![Piece { work: total_work, distance: total_work, count: 1 }]
    } else {
        merge_idle(&round.pieces)
    };
    Cycle {
        pieces,
        first: if never_waits { 0 } else { first },
        sleeps: round.sleeps,
        suspends: round.suspends,
        never_waits,
        blocks: reached.iter().any(|phase| phase.events.iter().any(|event| event.action == Action::Block)),
        endless: endless.filter(|last| last + 1 < thread.phases.len() || *last > 0),
    }
}

fn longest(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.distance).max().unwrap_or(0)
}

impl Walk {
    fn phase(&mut self, phase: &Phase, thread: &Thread) {
        let has = |wanted: fn(&Action) -> bool| phase.events.iter().any(|event| wanted(&event.action));
        let reservation = thread.sched.reservation.filter(|_| thread.sched.class == Class::Deadline);
        let ends = match reservation {
            _ if has(|action| matches!(action, Action::Timer { .. })) => Ends::Timers,
            Some((_, _, period)) if has(|action| *action == Action::Yield) => Ends::Yields(period),
            _ => Ends::Sleeps,
        };
        let times = phase.loops.unwrap_or(1);
        let before = self.pieces.len();
        self.once(phase, ends);
        if times == 1 {
            return;
        }
        if self.pieces.len() == before {
            // Nothing ended: the work of all loops runs on.
            let work: u64 = phase.events.iter().fold(0, |sum, event| match event.action {
                Action::Run(work) => sum.saturating_add(work),
                _ => sum,
            });
            self.carry = self.carry.saturating_add(work.saturating_mul(times - 1));
            return;
        }
        let second = self.pieces.len();
        self.once(phase, ends);
        // Loops after the second do what the second does.
        self.pieces[second..].iter_mut().for_each(|piece| piece.count = piece.count.saturating_mul(times - 1));
    }

    fn once(&mut self, phase: &Phase, ends: Ends) {
        let mut worked = false;
        let mut slept = false;
        for event in &phase.events {
            match (&event.action, ends) {
                (Action::Run(work), _) => {
                    self.carry = self.carry.saturating_add(*work);
                    self.suspends |= worked && slept && *work > 0;
                    worked |= *work > 0;
                    slept = false;
                }
                (Action::Timer { period_ns, .. }, Ends::Timers) => {
                    self.end(*period_ns);
                    (worked, slept) = (false, false);
                }
                (Action::Yield, Ends::Yields(period)) => {
                    self.end(period);
                    (worked, slept) = (false, false);
                }
                (Action::Sleep(time), Ends::Sleeps) => {
                    self.sleeps = true;
                    self.end(self.carry.saturating_add(*time));
                }
                (Action::Sleep(time), _) => slept |= *time > 0,
                _ => {}
            }
        }
    }

    fn end(&mut self, distance: u64) {
        let piece = Piece { work: self.carry, distance, count: 1 };
        self.carry = 0;
        self.pieces.push(piece);
    }
}

/// Adds the distances of pieces without work to the one before them, around the round.
fn merge_idle(pieces: &[Piece]) -> Vec<Piece> {
    let mut merged: Vec<Piece> = Vec::new();
    let mut idle_at_start = 0u64;
    for piece in pieces {
        let time = piece.distance.saturating_mul(piece.count);
        if piece.work > 0 {
            merged.push(*piece);
        } else if merged.is_empty() {
            idle_at_start = idle_at_start.saturating_add(time);
        } else {
            lengthen_last(&mut merged, time);
        }
    }
    if idle_at_start > 0 {
        lengthen_last(&mut merged, idle_at_start);
    }
    merged.retain(|piece| piece.distance > 0);
    merged
}

/// Adds to the distance of the last of the pieces.
fn lengthen_last(pieces: &mut Vec<Piece>, time: u64) {
    let Some(last) = pieces.last_mut() else { return };
    let longer = Piece { distance: last.distance.saturating_add(time), count: 1, ..*last };
    if last.count == 1 {
        *last = longer;
    } else {
        last.count -= 1;
        pieces.push(longer);
    }
}
