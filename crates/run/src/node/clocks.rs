//! Measures how the clocks of the peers differ, by exchanges with them ([`TimeSync`]), and shows the
//! table thread. The jobs of `clock.sync` do it, or a thread where the system has none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use takt_linux::clock::monotonic_ns;
use takt_model::{NodeId, Span, Time};

use super::{NodeError, NodeLive, Part};
use crate::clock_source::SourcePaths;
use crate::time_sync::{TimeSync, TimeSyncSpec};

/// How often the differences are shown, and is looked whether to stop.
const TURN: Span = Span::from_ms(20);
/// The period of exchanges, if the file has no `clock.sync`.
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
        period: clock.sync.map_or(PERIOD, |sync| sync.period),
        drift_ppm: if clock.drift_ppm == 0 { DRIFT_PPM } else { clock.drift_ppm },
        priority: network.priority,
        sources,
    };
    TimeSync::bind(&spec).map(Some).map_err(|error| NodeError::Socket(error.to_string()))
}

/// The jobs of `clock.sync`: each is a round of exchanges. So the messages of clocks are part of the
/// analysed load, and no other thread sends any.
pub(crate) struct SyncJob {
    live: Arc<NodeLive>,
    sync: TimeSync,
    nodes: Vec<NodeId>,
}

impl SyncJob {
    /// `None` if the node has no such task, or no differences are to be measured.
    pub(crate) fn open(live: &Arc<NodeLive>) -> Result<Option<SyncJob>, NodeError> {
        if !live.plan.parts.contains(&Part::Sync) {
            return Ok(None);
        }
        // A real-time thread asks no other program.
        let Some(sync) = open(live, None)? else { return Ok(None) };
        Ok(Some(SyncJob { live: live.clone(), sync, nodes: live.plan.peers() }))
    }

    /// One job. It allocates nothing.
    pub(crate) fn run(&mut self) {
        self.sync.round();
        for (at, node) in self.nodes.iter().enumerate() {
            self.live.set_difference(*node, self.sync.offset(at));
        }
    }
}

/// The thread. Dropping this ends it.
pub(crate) struct Clocks {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clocks {
    /// Starts the thread, if differences are to be measured and no job does it.
    pub(crate) fn start(live: &Arc<NodeLive>) -> Result<Clocks, NodeError> {
        let stop = Arc::new(AtomicBool::new(false));
        let in_jobs = live.plan.parts.contains(&Part::Sync);
        let Some(mut sync) = (if in_jobs { None } else { open(live, Some(SourcePaths::default()))? }) else {
            return Ok(Clocks { stop, thread: None });
        };
        let (stopped, shown) = (stop.clone(), live.clone());
        let measure = move || {
            let nodes = shown.plan.peers();
            while !stopped.load(Ordering::Acquire) {
                sync.run_until(Time::from_ns(monotonic_ns()).saturating_add(TURN));
                for (at, node) in nodes.iter().enumerate() {
                    shown.set_difference(*node, sync.offset(at));
                }
            }
        };
        let thread = std::thread::Builder::new().name("takt clocks".to_owned()).spawn(measure);
        let thread = thread.map_err(|error| NodeError::Socket(format!("no thread could be started: {error}")))?;
        Ok(Clocks { stop, thread: Some(thread) })
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
