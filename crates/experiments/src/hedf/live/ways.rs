//! How long messages of live nodes were under way, by the logs of the nodes.

use std::collections::BTreeMap;

use takt_log::{Clocks, Event, Joined, Sink};
use takt_model::{NodeId, Span, TaskId, Time};

use crate::failure::Failure;
use crate::recording;

/// Messages by the task whose jobs left them.
#[derive(Default)]
pub(super) struct Ways {
    /// Their numbers and when they were sent, in this order.
    sent: BTreeMap<TaskId, Vec<(u64, Time)>>,
    arrived: BTreeMap<(TaskId, u64), Time>,
    clocks: Clocks,
}

/// The delays of a task's messages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Delays {
    /// By message, in the order of sending: the difference of two clocks' readings in ns. `None`: it did not arrive.
    read: Vec<Option<i64>>,
    /// By how much the receiver's clock is ahead, in ns, at least and at most.
    ahead: (i64, i64),
}

impl Sink for Ways {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Send { job, message } => self.sent.entry(job.task).or_default().push((message, now)),
            Event::Arrive { job, message } => {
                self.arrived.insert((job.task, message), now);
            }
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

impl Ways {
    /// Reads the logs of the nodes of one run.
    pub(super) fn read(paths: &[String]) -> Result<Ways, Failure> {
        let mut logs = paths.iter().map(|path| recording::open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut ways = Ways::default();
        let mut joined = Joined::new(logs.iter_mut().collect()).map_err(Failure::trouble)?;
        let unreadable = |(log, error): (usize, takt_log::ReadError)| {
            let path = paths.get(log).map_or("a log", String::as_str);
            Failure::trouble(format_args!("{path}: {error}"))
        };
        joined.copy_to(&mut ways).map_err(unreadable)?;
        ways.clocks = joined.clocks();
        Ok(ways)
    }

    /// The delays of the messages that a task of node `from` sent to node `to`. `None`: the clocks are not known.
    pub(super) fn delays(&self, task: TaskId, (from, to): (NodeId, NodeId)) -> Option<Delays> {
        let (least, most) = self.clocks.difference(from, to)?;
        let delay = |(message, sent): &(u64, Time)| {
            self.arrived.get(&(task, *message)).map(|arrived| arrived.lateness_to(*sent).as_ns())
        };
        let read = self.sent.get(&task)?.iter().map(delay).collect();
        Some(Delays { read, ahead: (least.as_ns(), most.as_ns()) })
    }
}

impl Delays {
    /// The shortest and the longest delay; `None` if no message arrived.
    pub(super) fn range(&self) -> Option<(Span, Span)> {
        let (least, most) = self.ends(|_| Span::ZERO)?;
        Some((span(least.saturating_sub(self.ahead.1)), span(most.saturating_sub(self.ahead.0))))
    }

    /// How much delays vary beside those for which a relay is meant to hold messages, by number.
    pub(super) fn varied(&self, held: impl Fn(u64) -> Span) -> Option<Span> {
        let (least, most) = self.ends(held)?;
        let unknown = self.ahead.1.saturating_sub(self.ahead.0);
        Some(span(most.saturating_sub(least).saturating_add(unknown)))
    }

    fn ends(&self, held: impl Fn(u64) -> Span) -> Option<(i64, i64)> {
        let beside = |(number, read): (u64, &Option<i64>)| {
            let held = i64::try_from(held(number).as_ns()).unwrap_or(i64::MAX);
            Some((*read)?.saturating_sub(held))
        };
        let all = (0..).zip(&self.read).filter_map(beside);
        all.fold(None, |known: Option<(i64, i64)>, value| {
            let (least, most) = known.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        })
    }
}

/// Clocks that are not known exactly may make a time negative.
fn span(ns: i64) -> Span {
    Span::from_ns(u64::try_from(ns).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use takt_log::JobKey;

    use super::*;

    #[test]
    fn messages_are_followed_from_node_to_node() {
        let (task, mut ways) = (TaskId(1), Ways::default());
        let job = JobKey { task, number: 0 };
        for (message, at) in [(0, 100), (1, 200), (2, 300)] {
            ways.event(0, Time::from_ns(at), &Event::Send { job, message });
        }
        // The second is lost.
        for (message, at) in [(0, 110), (2, 325)] {
            ways.event(1, Time::from_ns(at), &Event::Arrive { job, message });
        }
        assert_eq!(ways.delays(task, (NodeId(0), NodeId(1))), None, "clocks that are not known");
        assert_eq!(ways.sent[&task].len(), 3);
        assert_eq!(ways.arrived.len(), 2);
    }

    #[test]
    fn delays_vary_beside_what_a_relay_adds() {
        let ns = Span::from_ns;
        let delays = Delays { read: vec![Some(10), None, Some(32), Some(43)], ahead: (3, 3) };
        assert_eq!(delays.range(), Some((ns(7), ns(40))));
        // 10, 12 and 13 beside a shift by 10 a message.
        assert_eq!(delays.varied(|number| ns(10 * number)), Some(ns(3)));
        assert_eq!(Delays { ahead: (1, 4), ..delays.clone() }.range(), Some((ns(6), ns(42))));
        assert_eq!(Delays { ahead: (1, 4), ..delays }.varied(|number| ns(10 * number)), Some(ns(6)));
        assert_eq!(Delays::default().range(), None);
    }
}
