//! A steady stream of packets for a kernel thread: a sender, a receiver that counts, and a filter
//! that gives the thread work for each packet.

use std::fs;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_linux::clock::{Epoch, pause};
use takt_linux::net::{Cable, NetError, burden};
use takt_linux::sched::{Class, ClassGuard, set_affinity};
use takt_model::{Span, Time};

use crate::failure::Failure;

/// Bytes of a packet's payload. With its headers it is one of the largest packets of a wire.
pub(super) const PAYLOAD: usize = 1472;
/// The period of the sender.
const SEND_PERIOD: Span = Span::from_ms(1);
/// The priority of sender and receiver. They sleep between packets, so other threads of their CPUs
/// go on.
const PRIORITY: u8 = 10;
const PORT: u16 = 7000;
/// The kernel releases the bandwidth of an ended thread within this time.
const BANDWIDTH_RELEASE: Span = Span::from_ms(120);
/// The most checks, 10 ms apart, for the end of the driver's thread.
const ENDED_MAX: u32 = 300;
/// The most checks, 10 ms apart, for the first packet.
const FIRST_MAX: u32 = 1_000;

/// Traffic that goes on until this is dropped. Dropping also removes its network.
pub(super) struct Traffic {
    cable: Option<Arc<Cable>>,
    over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Sends `rate` packets a second over `cable` from these CPUs. Each packet costs the receiving
    /// thread the full filter.
    pub(super) fn start(cable: Cable, rate: f64, cpus: &[u32]) -> Result<Traffic, Failure> {
        let mut traffic = Traffic {
            cable: Some(Arc::new(cable)),
            over: Arc::default(),
            received: Arc::default(),
            threads: Vec::new(),
        };
        // A thread opens its socket in its namespace and reports the outcome here.
        let (started, startup) = std::sync::mpsc::channel();
        let sender_started = started.clone();
        traffic.begin("takt receiver", cpus, move |ends, over, received| {
            let socket = ends.right().enter().map_err(|error| error.to_string()).and_then(|()| listening(ends));
            let socket = match socket {
                Ok(socket) => socket,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(()));
            let mut bytes = [0; PAYLOAD];
            while !over.load(Ordering::Acquire) {
                if let Ok(length) = socket.recv(&mut bytes) {
                    received.fetch_add(length as u64, Ordering::Relaxed);
                }
            }
        })?;
        wait_for_start(&startup)?;
        traffic.begin("takt sender", cpus, move |ends, over, _| {
            let socket = ends.left().enter().map_err(|error| error.to_string()).and_then(|()| connected(ends));
            match socket {
                Ok(socket) => {
                    let _ = sender_started.send(Ok(()));
                    send(&socket, rate, over);
                }
                Err(error) => drop(sender_started.send(Err(error))),
            }
        })?;
        wait_for_start(&startup)?;
        Ok(traffic)
    }

    fn begin(
        &mut self,
        name: &str,
        cpus: &[u32],
        work: impl FnOnce(&Cable, &AtomicBool, &AtomicU64) + Send + 'static,
    ) -> Result<(), Failure> {
        let Some(cable) = self.cable.clone() else { return Ok(()) };
        let (over, received) = (Arc::clone(&self.over), Arc::clone(&self.received));
        let cpus = cpus.to_vec();
        let body = move || {
            // If the kernel refuses either, packets come less evenly, and the measurement shows it.
            let _ = set_affinity(&cpus);
            let _class = ClassGuard::enter(&Class::Fifo { priority: PRIORITY }).ok();
            work(&cable, &over, &received);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        self.threads.push(thread.map_err(|error| Failure::trouble(format_args!("cannot start a thread: {error}")))?);
        Ok(())
    }

    /// Gives the receiving thread a class and CPUs. An empty list leaves its CPUs as they are.
    pub(super) fn schedule_driver(&self, class: &Class, cpus: &[u32]) -> Result<(), Failure> {
        let Some(cable) = &self.cable else { return Ok(()) };
        cable.right().schedule_driver(class, cpus).map_err(Failure::cannot)
    }

    /// Waits until a packet comes, 10 s at most. Before the first packet an ordinary kernel thread looks
    /// for the neighbour, which takes a while beside busy CPUs.
    pub(super) fn wait_for_packet(&self) -> Result<(), Failure> {
        let before = self.received();
        for _ in 0..FIRST_MAX {
            if self.received() > before {
                return Ok(());
            }
            pause(Span::from_ms(10));
        }
        Err(Failure::trouble("no packet came within 10 s: other programs take both CPUs; stop them and try again"))
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) fn driver_cpu(&self) -> Option<Span> {
        let id = self.cable.as_ref()?.right().driver()?;
        let text = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok().map(Span::from_ns)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let driver = self.cable.as_ref().and_then(|cable| cable.right().driver());
        // The kernel removes the network shortly after its last user has closed it.
        self.cable = None;
        for _ in 0..ENDED_MAX {
            if driver.is_none_or(|id| fs::metadata(format!("/proc/{id}")).is_err()) {
                break;
            }
            pause(Span::from_ms(10));
        }
        pause(BANDWIDTH_RELEASE);
    }
}

fn wait_for_start(startup: &std::sync::mpsc::Receiver<Result<(), String>>) -> Result<(), Failure> {
    match startup.recv_timeout(Duration::from_secs(10)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::trouble(format_args!("no traffic: {error}"))),
        Err(_) => Err(Failure::trouble("no traffic: its threads did not start within 10 s")),
    }
}

fn listening(ends: &Cable) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((ends.right().address(), PORT)).map_err(|error| error.to_string())?;
    burden(&socket).map_err(|error| format!("packets cannot be given work: {error}"))?;
    socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(|error| error.to_string())?;
    Ok(socket)
}

fn connected(ends: &Cable) -> Result<UdpSocket, String> {
    let socket = UdpSocket::bind((ends.left().address(), 0)).map_err(|error| error.to_string())?;
    socket.connect((ends.right().address(), PORT)).map_err(|error| error.to_string())?;
    Ok(socket)
}

/// Sends the packets that are due, once a period. After a late period it skips all but a few of the
/// missing packets.
fn send(socket: &UdpSocket, rate: f64, over: &AtomicBool) {
    let bytes = [0; PAYLOAD];
    let most = (rate * SEND_PERIOD.as_ns() as f64 / 1e9).ceil() * 4.0;
    let epoch = Epoch::now_is_zero();
    let (mut sent, mut next_send) = (0.0, Time::ZERO);
    while !over.load(Ordering::Acquire) {
        next_send = next_send.saturating_add(SEND_PERIOD).max(epoch.now());
        let _ = epoch.sleep_until(next_send);
        let wanted = rate * next_send.as_ns() as f64 / 1e9;
        sent = f64::max(sent, wanted - most);
        while sent < wanted {
            let _ = socket.send(&bytes);
            sent += 1.0;
        }
    }
}

/// The failure for a missing network, with its exit status.
pub(super) fn refused(error: &NetError) -> Failure {
    match error {
        NetError::Privilege | NetError::Missing { .. } => Failure::cannot(error),
        _ => Failure::trouble(error),
    }
}
