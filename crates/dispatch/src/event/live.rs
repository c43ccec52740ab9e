//! A channel while it is connected: events go to consumers, other nodes and outlets.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use takt_linux::memory::prefault_stack;
use takt_linux::{Class, ClassGuard, sched};

use super::consumers::{Consumers, Pushed};
use super::filter::Head;
use super::lane::Lane;
use super::outlet::OutletQueue;
use crate::gate::{READY_MAX, STACK_BYTES, STACK_TOUCHED};
use crate::sync::{self, Futex, wake};
use crate::{Dispatching, IDLE_MAX, StartError};

/// The state of a channel while it is connected.
pub(super) struct Live {
    pub(super) consumers: Consumers,
    pub(super) lanes: Vec<Lane>,
    pub(super) outlets: Vec<Arc<OutletQueue>>,
    /// A futex that is zero until the threads may start.
    pub(super) gate: Futex,
}

impl Live {
    pub(super) fn is_stopped(&self) -> bool {
        self.consumers.is_stopped()
    }

    /// Offers an event to consumers, other nodes and outlets.
    pub(super) fn push(&self, head: &Head, payload: &[u8]) -> Pushed {
        let wants = |at: usize| self.lanes.get(at).is_some_and(|lane| lane.wants(head));
        let send = |at: usize, pushed: &mut Pushed| {
            let Some(lane) = self.lanes.get(at) else { return };
            let outcome = lane.push(&self.consumers, head, payload);
            pushed.sent += outcome.sent;
            pushed.unsent += outcome.dropped;
        };
        let mut pushed = self.consumers.serve(head, payload, head.sent, wants, send);
        for outlet in self.outlets.iter().filter(|outlet| outlet.wants(head)) {
            let kept = outlet.push(head, payload, self.consumers.clock);
            pushed.sent += usize::from(kept);
            pushed.unsent += usize::from(!kept);
        }
        pushed
    }

    pub(super) fn stop(&self, threads: &mut Vec<JoinHandle<()>>) {
        self.consumers.stopped.store(true, Ordering::Release);
        wake(&self.gate);
        self.consumers.wake_timer();
        self.lanes.iter().for_each(Lane::wake);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts all threads of a channel. If one fails, none remains.
pub(super) fn threads(live: &Arc<Live>, dispatching: &Dispatching) -> Result<Vec<JoinHandle<()>>, StartError> {
    type Body = fn(&Live, usize);
    let mut wanted: Vec<(String, Class, Option<u32>, Body, usize)> = Vec::new();
    wanted.push(("takt events".to_owned(), dispatching.timer_class(), None, |live, _| live.consumers.keep_time(), 0));
    for (at, lane) in live.lanes.iter().enumerate() {
        let class = dispatching.level_class(lane.level);
        let listen: Body = |live, at| live.lanes.get(at).into_iter().for_each(|lane| lane.listen(&live.consumers));
        wanted.push((format!("takt from {}", lane.name()), class, lane.cpu, listen, at));
        if lane.queues() {
            let empty: Body = |live, at| live.lanes.get(at).into_iter().for_each(|lane| lane.empty(&live.consumers));
            wanted.push((format!("takt to {}", lane.name()), class, lane.cpu, empty, at));
        }
    }
    let mut threads = Vec::new();
    for (name, class, cpu, body, at) in wanted {
        let own = live.clone();
        let body = move || {
            while own.gate.load(Ordering::Acquire) == 0 {
                let (clock, now) = (own.consumers.clock, own.consumers.now());
                sync::wait(&own.gate, 0, clock, now.saturating_add(IDLE_MAX));
            }
            body(&own, at);
        };
        match thread(name, class, cpu, body) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                live.stop(&mut threads);
                return Err(error);
            }
        }
    }
    Ok(threads)
}

fn thread(
    name: String,
    class: Class,
    cpu: Option<u32>,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let (send, ready) = mpsc::channel();
    let pinned = move || cpu.map_or(Ok(()), |cpu| sched::set_affinity(&[cpu]));
    let entered = move || {
        prefault_stack::<STACK_TOUCHED>();
        pinned().and_then(|()| ClassGuard::enter(&class))
    };
    let body = move || match entered() {
        Ok(_class) => {
            let _ = send.send(Ok(()));
            body();
        }
        Err(error) => drop(send.send(Err(error))),
    };
    let spawned = std::thread::Builder::new().name(name.clone()).stack_size(STACK_BYTES).spawn(body);
    let thread = spawned.map_err(|error| StartError::Spawn { thread: name.clone(), cause: error.to_string() })?;
    match ready.recv_timeout(READY_MAX) {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(cause)) => Err(StartError::of(name, cause)),
        Err(_) => Err(StartError::Spawn { thread: name, cause: "it did not come up".to_owned() }),
    }
}
