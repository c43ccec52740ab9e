//! Measures how the clocks of the peers differ, by exchanges with them ([`TimeSync`]), and shows the
//! table thread. A thread does it; from the common start on the jobs of `clock.sync`, if there are any.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use takt_linux::Epoch;
use takt_linux::clock::monotonic_ns;
use takt_model::{NodeId, Span, Time};

use super::{NodeError, NodeLive, Part};
use crate::clock_source::SourcePaths;
use crate::time_sync::{SyncSealSpec, TimeSync, TimeSyncSpec};

/// How often the differences are shown, and is looked whether to stop.
const TURN: Span = Span::from_ms(20);
/// The period of the thread's exchanges.
const PERIOD: Span = Span::from_ms(100);
/// The drift of clocks in parts per million, if the file has none: as `takt net clock` assumes.
const DRIFT_PPM: u32 = 500;

/// The exchanges of a node, if differences are to be measured.
fn open(live: &NodeLive, sources: Option<SourcePaths>) -> Result<Option<TimeSync>, NodeError> {
    let network = &live.plan.network;
    let (Some(port), Some(listen)) = (network.clocks, network.listen) else { return Ok(None) };
    let clock = live.plan.original.clock;
    let at = |address: SocketAddr| SocketAddr::new(address.ip(), port);
    let spec = TimeSyncSpec {
        listen: at(listen),
        peers: network.peers.iter().map(|(_, address)| at(*address)).collect(),
        period: PERIOD,
        drift_ppm: if clock.drift_ppm == 0 { DRIFT_PPM } else { clock.drift_ppm },
        priority: network.priority,
        sources,
    };
    let number = |node: NodeId| node.0 as u16;
    let sync = TimeSync::bind(&spec).and_then(|sync| match network.key.clone() {
        Some(key) => sync.sealed(SyncSealSpec {
            key,
            node: number(live.plan.node),
            peers: live.plan.peers().into_iter().map(number).collect(),
            nodes: live.plan.original.nodes.len(),
            run: network.start,
            system: live.plan.digest,
        }),
        None => Ok(sync),
    });
    sync.map(Some).map_err(|error| NodeError::Socket(error.to_string()))
}

/// The jobs of `clock.sync`: each is a round of exchanges. So the messages of clocks are part of the
/// analysed load, and from the common start on no other thread sends any.
#[derive(Clone)]
pub(crate) struct SyncJob {
    live: Arc<NodeLive>,
    sync: Arc<Mutex<TimeSync>>,
    nodes: Vec<NodeId>,
}

impl SyncJob {
    /// One job. It allocates nothing, and does not wait for a last turn of the thread.
    pub(crate) fn run(&self) {
        if let Ok(mut sync) = self.sync.try_lock() {
            sync.round();
            self.show(&sync);
        }
    }

    /// Asks and answers until `end` of CLOCK_MONOTONIC.
    fn measure(&self, end: Time) {
        let mut sync = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        sync.run_until(end);
        self.show(&sync);
    }

    fn show(&self, sync: &TimeSync) {
        for (at, node) in self.nodes.iter().enumerate() {
            self.live.set_difference(*node, sync.offset(at));
        }
        let (counts, drops) = (&self.live.counts, sync.drops());
        for (count, dropped) in [
            (&counts.clock_malformed, drops.malformed),
            (&counts.clock_foreign, drops.foreign),
            (&counts.clock_forged, drops.forged),
            (&counts.clock_replayed, drops.replayed),
            (&counts.clock_former, drops.former),
        ] {
            count.store(dropped, Ordering::Release);
        }
    }
}

/// The thread. Dropping this ends it.
pub(crate) struct Clocks {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clocks {
    /// Starts the thread, if differences are to be measured. With `clock.sync` it measures until the common
    /// start, and the jobs do from then on. So the differences are known when the first messages come.
    pub(crate) fn start(live: &Arc<NodeLive>) -> Result<(Clocks, Option<SyncJob>), NodeError> {
        let stop = Arc::new(AtomicBool::new(false));
        let in_jobs = live.plan.parts.contains(&Part::Sync);
        // A real-time thread asks no other program.
        let Some(mut sync) = open(live, (!in_jobs).then(SourcePaths::default))? else {
            return Ok((Clocks { stop, thread: None }, None));
        };
        let zero = Epoch::at_realtime(live.plan.network.start).map(|epoch| epoch.monotonic(Time::ZERO));
        if in_jobs && zero.is_none() {
            // The run has begun. The peers answer in their next jobs.
            sync.round();
        }
        let until = if in_jobs { zero.unwrap_or(Time::ZERO) } else { Time::MAX };
        let job = SyncJob { live: live.clone(), sync: Arc::new(Mutex::new(sync)), nodes: live.plan.peers() };
        let (stopped, measuring) = (stop.clone(), job.clone());
        let measure = move || {
            loop {
                let now = Time::from_ns(monotonic_ns());
                if now >= until || stopped.load(Ordering::Acquire) {
                    break;
                }
                measuring.measure(now.saturating_add(TURN).min(until));
            }
        };
        let thread = std::thread::Builder::new().name("takt clocks".to_owned()).spawn(measure);
        let thread = thread.map_err(|error| NodeError::Socket(format!("no thread could be started: {error}")))?;
        Ok((Clocks { stop, thread: Some(thread) }, in_jobs.then_some(job)))
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
