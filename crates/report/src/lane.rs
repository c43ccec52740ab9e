//! The lane of a server: its budget over time, and when it pays.

use takt_log::Event;
use takt_model::{Span, Time};

use crate::scene::Scene;

/// A server's row of a chart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Index into [`Scene::servers`].
    pub server: usize,
    /// The budget that fills the height of the row.
    pub full: Span,
    /// The budget is a line from each point to the next. Two points of one instant are a step.
    pub levels: Vec<Level>,
}

/// A point of a [`Lane`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// When.
    pub at: Time,
    /// The budget left.
    pub left: Span,
    /// From here to the next point.
    pub then: Charging,
}

/// Whether a server pays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Charging {
    /// It does not.
    Not,
    /// For a job of its own.
    Job,
    /// Though none of its jobs runs: it is idle, or lends the CPU.
    Idle,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LaneKeeper {
    levels: Vec<Level>,
    left: Span,
    largest: Span,
    /// Whether any event told of it.
    seen: bool,
}

impl LaneKeeper {
    pub(crate) fn event(&mut self, scene: &Scene, server: usize, now: Time, event: &Event) -> usize {
        let Some(def) = scene.servers.get(server) else { return 0 };
        let before = self.levels.len();
        if !std::mem::replace(&mut self.seen, true) && def.rule == "sporadic" {
            // It begins with a full budget.
            self.left = def.budget.unwrap_or_default();
            self.put(Time::ZERO, self.left, Charging::Not);
        }
        match *event {
            Event::Replenish { budget, .. } => self.step(now, budget),
            Event::ServerIdle { .. } if def.rule == "polling" => self.step(now, Span::ZERO),
            Event::Charge { since, amount, idle, .. } => {
                self.put(since, self.left, if idle { Charging::Idle } else { Charging::Job });
                self.left = self.left.saturating_sub(amount);
                self.put(now, self.left, Charging::Not);
            }
            _ => {}
        }
        self.levels.len().saturating_sub(before)
    }

    fn step(&mut self, now: Time, left: Span) {
        if self.left != left {
            self.put(now, self.left, Charging::Not);
            self.left = left;
            self.put(now, left, Charging::Not);
        }
    }

    fn put(&mut self, at: Time, left: Span, then: Charging) {
        self.largest = self.largest.max(left);
        let at = self.levels.last().map_or(at, |last| at.max(last.at));
        match self.levels.last_mut() {
            Some(last) if (last.at, last.left) == (at, left) => last.then = then,
            _ => self.levels.push(Level { at, left, then }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.levels.len()
    }

    pub(crate) fn forget_before(&mut self, since: Time) {
        let past = self.levels.partition_point(|level| level.at < since);
        self.levels.drain(..past.saturating_sub(1));
    }

    /// The lane from `from` to `to`. `None` without an event.
    pub(crate) fn lane(self, scene: &Scene, server: usize, from: Time, to: Time) -> Option<Lane> {
        let def = scene.servers.get(server).filter(|_| self.seen)?;
        let full = def.budget.unwrap_or_default().max(self.largest);
        let first = self.levels.partition_point(|level| level.at < from);
        let end = self.levels.partition_point(|level| level.at <= to);
        let mut levels = Vec::with_capacity(end.saturating_sub(first) + 2);
        if self.levels.get(first).is_none_or(|level| level.at > from) {
            levels.push(self.at(first, from));
        }
        levels.extend_from_slice(self.levels.get(first..end).unwrap_or_default());
        if levels.last().is_some_and(|last| last.at < to) {
            levels.push(Level { then: Charging::Not, ..self.at(end, to) });
        }
        Some(Lane { server, full, levels })
    }

    /// The point at an instant between the points `next - 1` and `next`.
    fn at(&self, next: usize, at: Time) -> Level {
        let before = next.checked_sub(1).and_then(|before| self.levels.get(before));
        let (left, then) = match (before, self.levels.get(next)) {
            (Some(a), Some(b)) => {
                let (all, part) = (b.at.saturating_since(a.at), at.saturating_since(a.at));
                let fall = u128::from(a.left.saturating_sub(b.left).as_ns()) * u128::from(part.as_ns());
                let fall = fall / u128::from(all.as_ns().max(1));
                let fall = Span::from_ns(u64::try_from(fall).unwrap_or(u64::MAX));
                (a.left.saturating_sub(fall), a.then)
            }
            (Some(a), None) => (a.left, Charging::Not),
            (None, _) => (Span::ZERO, Charging::Not),
        };
        Level { at, left, then }
    }
}
