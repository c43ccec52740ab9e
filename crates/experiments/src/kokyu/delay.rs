//! A link with a latency. A datagram that is sent at one end of a cable leaves another cable later
//! by the latency. The order of datagrams stays.
//!
//! A queueing discipline (netem) could do this, but many kernels lack it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use takt_linux::Epoch;
use takt_linux::net::{Cable, End};
use takt_linux::sched::{Class, ClassGuard, set_affinity};
use takt_model::{Span, Time};

use crate::failure::Failure;

/// The priority that a dispatcher gives to its most important level.
const PRIORITY: u8 = 47;
/// Interval at which the receiver checks for the end.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);
const BYTES: usize = 2048;

/// Two cables with a delay between them: from the left end of one to the right end of the other.
pub(super) struct Link {
    first: Arc<Cable>,
    second: Arc<Cable>,
    port: u16,
}

impl Link {
    pub(super) fn lay(port: u16) -> Result<Link, Failure> {
        let lay = || Cable::lay(false).map(Arc::new).map_err(Failure::cannot);
        Ok(Link { first: lay()?, second: lay()?, port })
    }

    /// The sender's end, its address, and the destination.
    pub(super) fn sender(&self) -> (&End, SocketAddr, SocketAddr) {
        (self.first.left(), self.at(self.first.left()), self.at(self.first.right()))
    }

    /// The receiver's end, its address, and the source.
    pub(super) fn receiver(&self) -> (&End, SocketAddr, SocketAddr) {
        (self.second.right(), self.at(self.second.right()), self.at(self.second.left()))
    }

    fn at(&self, end: &End) -> SocketAddr {
        SocketAddr::from((end.address(), self.port))
    }

    /// Delays datagrams until the returned value is dropped. `cpu` is the kernel's number of the
    /// CPU of its threads.
    pub(super) fn delay(&self, delay: Span, cpu: u32) -> Result<Delay, Failure> {
        let (told, come) = channel();
        let (over, epoch) = (Arc::new(AtomicBool::new(false)), Epoch::now_is_zero());
        let mut line = Delay { over: Arc::clone(&over), threads: Vec::new() };
        let (cable, at) = (Arc::clone(&self.first), self.at(self.first.right()));
        line.begin(cpu, move || {
            let socket = open(cable.right(), at)?;
            Ok(move || take(&socket, epoch, delay, &told, &over))
        })?;
        let (cable, at, to) = (Arc::clone(&self.second), self.at(self.second.left()), self.at(self.second.right()));
        line.begin(cpu, move || {
            let socket = open(cable.left(), at)?;
            Ok(move || give(&socket, to, epoch, &come))
        })?;
        Ok(line)
    }
}

/// Opens a socket in the namespace of an end. The calling thread stays in that namespace.
fn open(end: &End, at: SocketAddr) -> io::Result<UdpSocket> {
    end.enter().map_err(io::Error::other)?;
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    Ok(socket)
}

pub(super) struct Delay {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Delay {
    /// Starts a thread and waits until its socket is open.
    fn begin<W: FnOnce()>(
        &mut self,
        cpu: u32,
        open: impl FnOnce() -> io::Result<W> + Send + 'static,
    ) -> Result<(), Failure> {
        let (told, ready) = channel();
        let body = move || {
            let entered = set_affinity(&[cpu]).and_then(|()| ClassGuard::enter(&Class::Fifo { priority: PRIORITY }));
            let opened = entered.map_err(|error| error.to_string()).and_then(|class| {
                let work = open().map_err(|error| error.to_string())?;
                Ok((class, work))
            });
            match opened {
                Ok((_class, work)) => {
                    let _ = told.send(Ok(()));
                    work();
                }
                Err(error) => drop(told.send(Err(error))),
            }
        };
        let thread = std::thread::Builder::new().name("takt link".to_owned()).spawn(body);
        self.threads.push(thread.map_err(|error| Failure::trouble(format_args!("cannot start a thread: {error}")))?);
        match ready.recv_timeout(Duration::from_secs(10)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::cannot(format_args!("no link between the namespaces: {error}"))),
            Err(_) => Err(Failure::trouble("no link between the namespaces: a thread did not start within 10 s")),
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        // The thread that gives ends after the thread that takes.
        self.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn take(socket: &UdpSocket, epoch: Epoch, delay: Span, told: &Sender<(Time, Vec<u8>)>, over: &AtomicBool) {
    let mut bytes = [0; BYTES];
    while !over.load(Ordering::Acquire) {
        let Ok(length) = socket.recv(&mut bytes) else { continue };
        let due = epoch.now().saturating_add(delay);
        if told.send((due, bytes.get(..length).unwrap_or_default().to_vec())).is_err() {
            return;
        }
    }
}

fn give(socket: &UdpSocket, to: SocketAddr, epoch: Epoch, come: &Receiver<(Time, Vec<u8>)>) {
    for (due, bytes) in come {
        while !epoch.sleep_until(due) {}
        // The kernel refuses a datagram if nobody receives. The receiver counts the missing ones.
        let _ = socket.send_to(&bytes, to);
    }
}
