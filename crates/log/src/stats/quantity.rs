//! Whole distributions of the times of tasks and interrupts: what a CDF and a PMF are drawn from.

use serde::Serialize;
use takt_model::named;

use super::{Histogram, InterruptStats, TaskStats};

named! {
    /// A time that statistics tell of tasks; of interrupts some of them.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Quantity {
        /// [`TaskStats::response_ns`].
        Response => "response",
        /// [`TaskStats::laxity_ns`].
        Laxity => "laxity",
        /// [`TaskStats::execution_ns`], [`InterruptStats::execution_ns`].
        Execution => "execution",
        /// [`TaskStats::execution_without_interrupts_ns`].
        ExecutionWithoutInterrupts => "execution-without-interrupts",
        /// [`InterruptStats::execution_with_nested_ns`].
        ExecutionWithNested => "execution-with-nested",
        /// [`TaskStats::inter_arrival_ns`], [`InterruptStats::inter_arrival_ns`].
        InterArrival => "inter-arrival",
        /// [`TaskStats::start_latency_ns`].
        StartLatency => "start-latency",
        /// [`TaskStats::release_latency_ns`].
        ReleaseLatency => "release-latency",
    }
}

impl Quantity {
    /// Whether interrupts have it.
    #[must_use]
    pub const fn is_of_interrupts(self) -> bool {
        matches!(self, Quantity::Execution | Quantity::ExecutionWithNested | Quantity::InterArrival)
    }
}

/// How often each value occurred, to three significant digits. A value stands for its bucket by the
/// unfavourable end: the upper end, or for laxities the lower end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Distribution {
    /// Values in nanoseconds, ascending, and how many there are of each: none is zero.
    pub values: Vec<(i64, u64)>,
    /// How many there are of all.
    pub count: u64,
}

/// A line of a [`Distribution`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The value.
    pub value_ns: i64,
    /// How often it occurred.
    pub count: u64,
    /// In a PMF: its share of all values. In a CDF: the share of all values that are no larger.
    pub probability: f64,
}

impl Distribution {
    fn of(histogram: &Histogram) -> Self {
        let value = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let values = histogram.buckets().map(|bucket| (value(bucket.upper_ns), bucket.count)).collect();
        Distribution { values, count: histogram.count() }
    }

    fn less(self, deadline: u64) -> Self {
        let less = |value: i64| {
            let exact = i128::from(deadline) - i128::from(value);
            exact.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        let values = self.values.into_iter().rev().map(|(value, count)| (less(value), count)).collect();
        Distribution { values, count: self.count }
    }

    /// The probability mass function.
    pub fn pmf(&self) -> impl Iterator<Item = Point> + '_ {
        let count = self.count;
        self.values.iter().map(move |(value_ns, n)| Point {
            value_ns: *value_ns,
            count: *n,
            probability: *n as f64 / count as f64,
        })
    }

    /// The cumulative distribution function, a step at each value.
    pub fn cdf(&self) -> impl Iterator<Item = Point> + '_ {
        let mut seen = 0;
        self.values.iter().map(move |(value_ns, n)| {
            seen += n;
            Point { value_ns: *value_ns, count: *n, probability: seen as f64 / self.count as f64 }
        })
    }
}

impl TaskStats {
    /// How a quantity is distributed; empty where it is unknown.
    #[must_use]
    pub fn distribution(&self, quantity: Quantity) -> Distribution {
        match quantity {
            Quantity::Response => Distribution::of(&self.responses),
            Quantity::Laxity => {
                let less = |deadline| Distribution::of(&self.responses).less(deadline);
                self.deadline_ns.map(less).unwrap_or_default()
            }
            Quantity::Execution => Distribution::of(&self.executions),
            Quantity::ExecutionWithoutInterrupts => Distribution::of(&self.net_executions),
            Quantity::ExecutionWithNested => Distribution::default(),
            Quantity::InterArrival => Distribution::of(&self.inter_arrivals),
            Quantity::StartLatency => Distribution::of(&self.start_latencies),
            Quantity::ReleaseLatency => self.release_latencies.as_ref().map(Distribution::of).unwrap_or_default(),
        }
    }
}

impl InterruptStats {
    /// How a quantity is distributed; empty where an interrupt has none of the kind.
    #[must_use]
    pub fn distribution(&self, quantity: Quantity) -> Distribution {
        match quantity {
            Quantity::Execution => Distribution::of(&self.executions),
            Quantity::ExecutionWithNested => Distribution::of(&self.totals),
            Quantity::InterArrival => Distribution::of(&self.inter_arrivals),
            _ => Distribution::default(),
        }
    }
}
