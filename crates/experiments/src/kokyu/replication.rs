//! Replication of the operations' results in the windows of this kernel, as in [KOKYU II-A].
//!
//! Each job writes its value when it ends. The application's flush operation runs at the end of a
//! frame and sends all values whose deadline has come. A value that is written after its deadline
//! misses its flush. The values leave through an outlet of the channel. Its room is allocated at
//! the start, and it is read after the window.
//!
//! A sensor's proxy also pushes an event into the same channel after its write. This event, a
//! reading, releases the operation that processes it.

use std::collections::BTreeSet;
use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use takt_dispatch::event::{
    Bits, Channel, Connected, Full, Options, Outlet, Pattern, Published, Subscription, entries,
};
use takt_dispatch::{Dispatching, Plan};
use takt_model::{Criticality, Span, TaskId, Time};

use super::window::{AfterJob, Subscriptions};
use super::{Comparison, FLUSH, Failure, PROCESSING, Row};

const VALUES: u32 = 1;
/// The type of readings. Their source is the proxy's task. They do not expire within a window.
const READINGS: u32 = 2;
/// The most readings that wait for their operation: the room of a subscription.
const BACKLOG: u32 = 56;
/// Room for events. A window has fewer frames.
const ROOM: usize = 4096;
/// Bytes of an event. The values of all operations fit.
const PAYLOAD: usize = 1024;

/// Outcomes of values. Critical operations come first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Replicated {
    /// Written values, and those that missed their flush.
    pub(super) written: [u64; 2],
    pub(super) late: [u64; 2],
    /// Flushes, and those that ended late.
    pub(super) flushes: [u64; 2],
    /// Values that flushes sent, and events without room.
    pub(super) flushed: u64,
    pub(super) missed: u64,
    /// Delivered values, and those that were not newer than the one before.
    pub(super) came: u64,
    pub(super) stale: u64,
    /// Readings that proxies pushed, jobs that they released, and jobs that ran within the window.
    pub(super) readings: u64,
    pub(super) released: u64,
    pub(super) processed: u64,
}

impl Sum for Replicated {
    fn sum<I: Iterator<Item = Replicated>>(all: I) -> Replicated {
        let both = |one: [u64; 2], other: [u64; 2]| [one[0] + other[0], one[1] + other[1]];
        all.fold(Replicated::default(), |sum, other| Replicated {
            written: both(sum.written, other.written),
            late: both(sum.late, other.late),
            flushes: both(sum.flushes, other.flushes),
            flushed: sum.flushed + other.flushed,
            missed: sum.missed + other.missed,
            came: sum.came + other.came,
            stale: sum.stale + other.stale,
            readings: sum.readings + other.readings,
            released: sum.released + other.released,
            processed: sum.processed + other.processed,
        })
    }
}

impl Replicated {
    /// Whether something was flushed and all of it arrived, each value newer than the one before.
    pub(super) fn is_whole(&self) -> bool {
        self.flushed > 0 && self.came == self.flushed && self.stale == 0 && self.missed == 0
    }

    /// Whether each reading released a job, and some jobs ran within the window.
    pub(super) fn is_read(&self) -> bool {
        self.readings == self.released && (1..=self.released).contains(&self.processed)
    }

    pub(super) fn critical_late(&self) -> f64 {
        self.late[0] as f64 / self.written[0].max(1) as f64
    }
}

#[derive(Default)]
struct Tally {
    written: [AtomicU64; 2],
    late: [AtomicU64; 2],
    readings: AtomicU64,
}

pub(super) struct Replication {
    channel: Channel,
    values: Published,
    outlet: Outlet,
    /// The subscriptions by the task that processes the readings.
    subscriptions: Subscriptions,
    proxies: BTreeSet<TaskId>,
    tally: Arc<Tally>,
    /// Whether each task is noncritical. `flush` is the task that flushes.
    low: Vec<bool>,
    flush: Option<TaskId>,
    ttl: Span,
    end: Time,
}

impl Replication {
    /// Makes the plan of a window, in which events release the operations that process readings,
    /// and the replication. Each task has a value of eight bytes.
    pub(super) fn new(mut plan: Plan, duration: Span) -> Result<(Plan, Replication), Failure> {
        let channel = Channel::new(Options { payload_max: PAYLOAD, ..Options::default() });
        let (mut subscriptions, mut proxies) = (Subscriptions::new(), BTreeSet::new());
        for (name, proxy, _) in PROCESSING {
            plan = plan.released_by_events(name).map_err(Failure::trouble)?;
            plan.rows.iter_mut().filter(|row| row.name == name).for_each(|row| row.backlog = BACKLOG);
            let [Some(task), Some(proxy)] = [name, proxy].map(|name| plan.system.task_by_name(name)) else { continue };
            let reading = Pattern { source: Bits::exactly(proxy.0), ..Pattern::kind(READINGS) };
            subscriptions.insert(task, channel.subscribe(&plan, name, reading).map_err(Failure::trouble)?);
            proxies.insert(proxy);
        }
        let system = &plan.system;
        let values = Published::new(&channel, 1, VALUES, &vec![8; system.tasks.len()]).map_err(Failure::trouble)?;
        let outlet = channel.outlet(&[Pattern::kind(VALUES)], ROOM, Full::Newest).map_err(Failure::trouble)?;
        let flush = system.task_by_name(FLUSH);
        let period = flush.and_then(|task| system.tasks.get(task.index())).map_or(Span::MAX, |task| task.period);
        let replication = Replication {
            channel,
            values,
            outlet,
            subscriptions,
            proxies,
            tally: Arc::default(),
            low: system.tasks.iter().map(|task| task.criticality == Criticality::Low).collect(),
            flush,
            ttl: period,
            end: Time::ZERO.saturating_add(duration),
        };
        Ok((plan, replication))
    }

    pub(super) fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    pub(super) fn after(&self, task: TaskId) -> AfterJob {
        let (values, ttl, end) = (self.values.clone(), self.ttl, self.end);
        if self.flush == Some(task) {
            return Box::new(move |job| {
                // Values that are not sent now go with the next flush.
                let _ = values.flush(ttl, job);
            });
        }
        let class = usize::from(self.low.get(task.index()) == Some(&true));
        let tally = Arc::clone(&self.tally);
        let count = move |counts: &[AtomicU64; 2]| counts.get(class).map(|count| count.fetch_add(1, Ordering::Relaxed));
        let reads = self.proxies.contains(&task).then(|| self.channel.supplier(task.0));
        Box::new(move |job| {
            if let Ok(in_time) = values.write(task.index(), &job.number().to_be_bytes(), job) {
                count(&tally.written);
                if !in_time {
                    count(&tally.late);
                }
            }
            if let Some(supplier) = &reads {
                let taken = supplier.push(READINGS, &job.number().to_be_bytes()).is_ok_and(|pushed| pushed.taken > 0);
                // A reading that nobody takes releases no job. The counts show it, except after the
                // window's end, when nobody has to take it.
                if taken || job.now() < end {
                    tally.readings.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    }

    /// Connects the channel. From here on flushes reach the outlet.
    pub(super) fn connect(&self, dispatching: &Dispatching) -> Result<Connected, Failure> {
        self.channel.connect(dispatching).map_err(Failure::trouble)
    }

    pub(super) fn end(self) -> Replicated {
        let load = |counts: &[AtomicU64; 2]| [&counts[0], &counts[1]].map(|count| count.load(Ordering::Relaxed));
        let counts = self.values.counts();
        let counts_of_readings = || self.subscriptions.values().map(Subscription::counts);
        let mut all = Replicated {
            written: load(&self.tally.written),
            late: load(&self.tally.late),
            flushes: [counts.flushes, counts.late_flushes],
            flushed: counts.flushed,
            missed: counts.missed,
            readings: self.tally.readings.load(Ordering::Relaxed),
            released: counts_of_readings().map(|counts| counts.complete - counts.rejected - counts.replaced).sum(),
            processed: counts_of_readings().map(|counts| counts.handled).sum(),
            ..Replicated::default()
        };
        let mut versions = vec![0; self.low.len()];
        let mut leaving = self.outlet.leaving();
        while self.outlet.next(&mut leaving, Span::ZERO) {
            for entry in entries(leaving.payload()).unwrap_or_default() {
                all.came += 1;
                match versions.get_mut(entry.value) {
                    Some(version) if entry.version > *version => *version = entry.version,
                    _ => all.stale += 1,
                }
            }
        }
        all
    }
}

/// The table of outcomes, by variant. Each adds up the values of all regions.
pub(super) fn table(all: impl Iterator<Item = (String, Replicated)>) -> Comparison {
    type Value = fn(&Replicated) -> u64;
    const COLUMNS: [(&str, Value); 10] = [
        ("critical", |all| all.written[0]),
        ("critical late", |all| all.late[0]),
        ("others", |all| all.written[1]),
        ("others late", |all| all.late[1]),
        ("flushes", |all| all.flushes[0]),
        ("flushes late", |all| all.flushes[1]),
        ("flushed", |all| all.flushed),
        ("readings", |all| all.readings),
        ("released", |all| all.released),
        ("processed", |all| all.processed),
    ];
    let row = |(name, all): (String, Replicated)| Row {
        name,
        values: vec![COLUMNS.iter().map(|(_, value)| Some(value(&all) as f64)).collect()],
    };
    Comparison::new(
        "On this kernel: values that jobs wrote, flushes that sent them, and readings of proxies, all \
            regions together",
        "II-A",
        "values, flushes, readings",
        0,
    )
    .with("strategy", COLUMNS.map(|(what, _)| what.to_owned()), ["live"], all.map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_windows_add_up_and_are_whole_or_not() {
        let one = Replicated {
            written: [8, 4],
            late: [2, 1],
            flushes: [5, 1],
            flushed: 10,
            came: 10,
            readings: 7,
            released: 6,
            processed: 5,
            ..Replicated::default()
        };
        let sum: Replicated = [one, one].into_iter().sum();
        let twice = Replicated {
            written: [16, 8],
            late: [4, 2],
            flushes: [10, 2],
            flushed: 20,
            came: 20,
            readings: 14,
            released: 12,
            processed: 10,
            ..one
        };
        assert_eq!(sum, twice);
        assert!(sum.is_whole() && sum.critical_late() == 0.25);
        for broken in [Replicated { came: 9, ..one }, Replicated { stale: 1, ..one }, Replicated { missed: 1, ..one }] {
            assert!(!broken.is_whole() && ![one, broken].into_iter().sum::<Replicated>().is_whole(), "{broken:?}");
        }
        assert!(!Replicated::default().is_whole(), "nothing was flushed");
        assert_eq!(Replicated::default().critical_late(), 0.0, "none was written");
    }

    #[test]
    fn the_table_has_each_count_in_its_column() {
        let all = Replicated {
            written: [1, 3],
            late: [2, 4],
            flushes: [5, 6],
            flushed: 7,
            readings: 8,
            released: 9,
            processed: 10,
            ..Replicated::default()
        };
        let table = table([("rm".to_owned(), all)].into_iter());
        assert_eq!(table.rows[0].values[0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0].map(Some));
        assert_eq!(table.columns.len(), 10);
    }
}
