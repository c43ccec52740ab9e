//! A difference as text for a terminal.

use std::fmt;

use takt_model::Span;

use super::{Counts, Diff, Difference, MessageDiff, ServerDiff};

/// A few lines: the sums, the tasks that differ, the first differences.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tolerance = Span::from_ns(self.tolerance_ns);
        if self.same {
            writeln!(f, "the logs agree: {} jobs in both, within {tolerance}", self.total.matched)?;
        } else {
            writeln!(f, "the logs differ (tolerance {tolerance}): {}", Sums(&self.total))?;
        }
        if self.left_end_ns != self.right_end_ns {
            let (left, right) = (Span::from_ns(self.left_end_ns), Span::from_ns(self.right_end_ns));
            writeln!(f, "the first log ends at {left}, the second at {right}")?;
        }
        if !self.not_compared.is_empty() {
            writeln!(f, "not recorded in both, so not compared: {}", self.not_compared.join(", "))?;
        }
        for task in self.tasks.iter().filter(|task| !task.counts.is_same()) {
            writeln!(f, "  {}: {}", task.task, Sums(&task.counts))?;
        }
        for server in self.servers.iter().filter(|server| !server.is_same()) {
            writeln!(f, "  {server}")?;
        }
        for messages in self.messages.iter().filter(|messages| !messages.is_same()) {
            writeln!(f, "  {messages}")?;
        }
        if !self.first.is_empty() {
            writeln!(f, "first differences:")?;
        }
        self.first.iter().try_for_each(|difference| writeln!(f, "  {difference}"))
    }
}

impl fmt::Display for ServerDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}: {} budget events in both", self.server, self.matched)?;
        let parts = [
            (self.replenish, "replenishments differ"),
            (self.exhaust, "exhaustions differ"),
            (self.idle, "idle times differ"),
            (self.charge, "payments differ"),
            (self.only_left, "only in the first"),
            (self.only_right, "only in the second"),
        ];
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))
    }
}

impl fmt::Display for MessageDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "messages of {}: {} events in both", self.task, self.matched)?;
        let parts = [
            (self.send, "sent at other times"),
            (self.arrive, "arrived at other times"),
            (self.receive, "received at other times"),
            (self.drop, "dropped at other times or for other reasons"),
            (self.only_left, "only in the first"),
            (self.only_right, "only in the second"),
        ];
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} job {}: {}", self.task, self.job, self.what)?;
        let value = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| Span::from_ns(ns).to_string());
        match (self.what, self.left, self.right) {
            ("outcome", Some(left), Some(right)) => write!(f, " {left} / {right}"),
            (_, Some(left), None) => write!(f, ", released at {}, {left}", value(self.left_ns)),
            (_, None, Some(right)) => write!(f, ", released at {}, {right}", value(self.right_ns)),
            _ => write!(f, " {} / {}", value(self.left_ns), value(self.right_ns)),
        }
    }
}

impl Counts {
    fn is_same(&self) -> bool {
        self.only_left + self.only_right + self.differing + self.unknown == 0
    }
}

/// The counts that are not zero.
struct Sums<'a>(&'a Counts);

impl fmt::Display for Sums<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0;
        write!(f, "{} jobs in both", counts.matched)?;
        let parts = [
            (counts.differing, "of them differ"),
            (counts.release, "in release"),
            (counts.start, "in start"),
            (counts.completion, "in completion"),
            (counts.response, "in response"),
            (counts.outcome, "in outcome"),
            (counts.unknown, "of unknown fate"),
            (counts.only_left, "only in the first"),
            (counts.only_right, "only in the second"),
        ];
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))?;
        match counts.response_difference_max_ns {
            0 => Ok(()),
            ns => write!(f, "; responses differ by up to {}", Span::from_ns(ns)),
        }
    }
}
