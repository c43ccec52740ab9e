//! A thread that measures how the clocks of the peers differ, by exchanges with them ([`TimeSync`]).
//! It shows the table thread the likely differences.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use takt_linux::clock::monotonic_ns;
use takt_model::{Span, Time};

use super::{NodeError, NodeLive};
use crate::time_sync::{TimeSync, TimeSyncSpec};

/// How often the differences are shown, and is looked whether to stop.
const TURN: Span = Span::from_ms(20);
/// The period of exchanges, if the file has no `clock.sync`.
const PERIOD: Span = Span::from_ms(100);
/// The drift of clocks, if the file has none.
const DRIFT_PPM: u32 = 50;

/// The thread. Dropping this ends it.
pub(crate) struct Clocks {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clocks {
    /// Starts the thread, if differences are to be measured.
    pub(crate) fn start(live: &Arc<NodeLive>) -> Result<Clocks, NodeError> {
        let stop = Arc::new(AtomicBool::new(false));
        let network = &live.plan.network;
        let (Some(port), Some(listen)) = (network.clocks, network.listen) else {
            return Ok(Clocks { stop, thread: None });
        };
        let clock = live.plan.original.clock;
        let at = |address: SocketAddr| SocketAddr::new(address.ip(), port);
        let spec = TimeSyncSpec {
            listen: at(listen),
            peers: network.peers.iter().map(|(_, address)| at(*address)).collect(),
            period: clock.sync.map_or(PERIOD, |sync| sync.period),
            drift_ppm: if clock.drift_ppm == 0 { DRIFT_PPM } else { clock.drift_ppm },
            priority: network.priority,
        };
        let mut sync = TimeSync::bind(&spec).map_err(|error| NodeError::Socket(error.to_string()))?;
        let (stopped, shown) = (stop.clone(), live.clone());
        let measure = move || {
            let nodes = shown.plan.peers();
            while !stopped.load(Ordering::Acquire) {
                sync.run_until(Time::from_ns(monotonic_ns()).saturating_add(TURN));
                for (node, peer) in nodes.iter().zip(sync.peers()) {
                    shown.set_difference(*node, peer.offset.map(|offset| offset.middle));
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
