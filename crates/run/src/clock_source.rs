//! Asks clock-bound, chronyd and ptp4l for the accuracy of CLOCK_REALTIME. The first has a shared
//! memory, the others have sockets. [`takt_net::source`] reads their bytes.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use takt_linux::clock::{monotonic_ns, realtime_ns};
use takt_linux::process::Identity;
use takt_model::{Span, Time};
use takt_net::source::{ClockBoundary, ClockReport, SourceKind, chrony, clock_bound, ptp4l};

/// The time from one question to the next.
const EVERY: Span = Span::from_s(1);
/// A program that runs answers within this time.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// A report counts for so long after a program's last answer. A bound grows meanwhile.
const KEPT: Span = Span::from_s(5);
/// Datagrams read for one answer: others may come in between, and ptp4l sends two for each of its ports.
const READS_MAX: usize = 128;
/// Attempts to read a shared memory that is written again and again.
const ATTEMPTS: usize = 5;

/// Numbers the sockets of this process.
static CLIENTS: AtomicU32 = AtomicU32::new(0);

/// Where the programs are found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePaths {
    /// Shared memories of clock-bound; the first that exists counts.
    pub clock_bound: Vec<PathBuf>,
    /// The socket of chronyd's commands.
    pub chrony: PathBuf,
    /// The port of chronyd's commands on 127.0.0.1, if the socket is closed to this user.
    pub chrony_port: Option<u16>,
    /// Sockets of ptp4l's management; the first that may be used counts.
    pub ptp4l: Vec<PathBuf>,
}

impl Default for SourcePaths {
    /// The paths that the programs choose by default.
    fn default() -> SourcePaths {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        SourcePaths {
            clock_bound: paths(&["/var/run/clockbound/shm0", "/var/run/clockbound/shm"]),
            chrony: PathBuf::from("/run/chrony/chronyd.sock"),
            chrony_port: Some(323),
            ptp4l: paths(&["/var/run/ptp4lro", "/var/run/ptp4l"]),
        }
    }
}

/// The programs and their last reports.
#[derive(Debug)]
pub struct ClockSources {
    paths: SourcePaths,
    due: Time,
    number: u32,
    /// The domain in which ptp4l has answered.
    domain: Option<u8>,
    /// The last report of each program, with its time.
    reports: Vec<(Time, ClockReport)>,
}

impl ClockSources {
    /// Asks nobody yet.
    #[must_use]
    pub fn new(paths: SourcePaths) -> ClockSources {
        ClockSources { paths, due: Time::ZERO, number: 0, domain: None, reports: Vec::new() }
    }

    /// Asks again, if the last answers are a second old. It waits up to 100 ms for each answer and each send.
    pub fn refresh(&mut self) {
        let now = now();
        if now < self.due {
            return;
        }
        self.number = self.number.wrapping_add(1);
        let reports = [self.clock_bound(), self.chrony(), self.ptp4l()];
        for report in reports.into_iter().flatten() {
            self.reports.retain(|(_, old)| old.source != report.source);
            self.reports.push((now, report));
        }
        self.reports.retain(|(at, _)| now.saturating_since(*at) <= KEPT);
        self.reports.sort_unstable_by_key(|(_, report)| report.source);
        self.due = now.saturating_add(EVERY);
    }

    /// The last reports, at most one of each program that runs.
    #[must_use]
    pub fn reports(&self) -> Vec<ClockReport> {
        let now = now();
        self.reports.iter().map(|(_, report)| report.at(now)).collect()
    }

    /// The bound that counts, with its error now: of ptp4l, else of clock-bound, else of chrony.
    #[must_use]
    pub fn bound(&self) -> Option<(SourceKind, ClockBoundary, Span)> {
        let now = now();
        self.reports.iter().find_map(|(_, report)| {
            let bound = report.state.ok()?;
            Some((report.source, bound, bound.error_at(now)?))
        })
    }

    fn clock_bound(&self) -> Option<ClockReport> {
        let mut file = self.paths.clock_bound.iter().find_map(|path| File::open(path).ok())?;
        for _ in 0..ATTEMPTS {
            let before = memory(&mut file).ok()?;
            // The memory may have changed while it was read.
            let after = memory(&mut file).ok()?;
            let generations = [&before, &after].map(|memory| clock_bound::generation(memory));
            if generations[0] == generations[1]
                && let Some(report) = clock_bound::report(&before)
            {
                return Some(report);
            }
        }
        None
    }

    fn chrony(&self) -> Option<ClockReport> {
        let request = chrony::request(self.number);
        let read = |bytes: &[u8]| chrony::report(bytes, self.number, now());
        if let Ok(socket) = Client::open(&self.paths.chrony, "takt-chrony") {
            return socket.0.send(&request).ok().and_then(|_| answer(|into| socket.0.recv(into), read));
        }
        let port = self.paths.chrony_port?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        socket.connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        socket.set_read_timeout(Some(ANSWER_MAX)).ok()?;
        socket.send(&request).ok()?;
        answer(|into| socket.recv(into), read)
    }

    fn ptp4l(&mut self) -> Option<ClockReport> {
        let client = self.paths.ptp4l.iter().find_map(|path| Client::open(path, "takt-ptp").ok())?;
        let socket = &client.0;
        let number = self.number as u16;
        let domain = match self.domain {
            Some(domain) => domain,
            None => self.find_domain(socket, number)?,
        };
        let mut answers = ptp4l::Answers::default();
        for question in ptp4l::Question::ALL {
            socket.send(&ptp4l::request(question, domain, number)).ok()?;
        }
        let read = |bytes: &[u8]| {
            let (_, _, answer) = ptp4l::answer(bytes).filter(|(of, to, _)| (*of, *to) == (domain, number))?;
            answers.take(answer);
            answers.is_complete().then_some(())
        };
        if answer(|into| socket.recv(into), read).is_none() {
            // It may be another program, with another domain.
            self.domain = None;
        }
        answers.report(now(), realtime_ns())
    }

    /// Asks all domains: ptp4l answers in its own.
    fn find_domain(&mut self, socket: &UnixDatagram, number: u16) -> Option<u8> {
        let read = |bytes: &[u8]| ptp4l::answer(bytes).filter(|(_, to, _)| *to == number).map(|(domain, ..)| domain);
        for domain in 0..ptp4l::DOMAINS {
            socket.send(&ptp4l::request(ptp4l::Question::Default, domain, number)).ok()?;
        }
        self.domain = answer(|into| socket.recv(into), read);
        self.domain
    }
}

fn now() -> Time {
    Time::from_ns(monotonic_ns())
}

fn memory(file: &mut File) -> io::Result<[u8; clock_bound::LENGTH]> {
    let mut memory = [0; clock_bound::LENGTH];
    file.rewind()?;
    let mut length = 0;
    while let Some(rest) = memory.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            // Version 1 may be shorter.
            0 => break,
            read => length += read,
        }
    }
    Ok(memory)
}

/// The first answer that `read` knows.
fn answer<T>(
    mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    mut read: impl FnMut(&[u8]) -> Option<T>,
) -> Option<T> {
    let mut bytes = [0; 1500];
    for _ in 0..READS_MAX {
        match receive(&mut bytes) {
            Ok(length) => {
                if let Some(answer) = bytes.get(..length).and_then(&mut read) {
                    return Some(answer);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

/// A Unix socket that is connected to a program, and has a name to which the program answers.
/// Dropping it removes the name.
struct Client(UnixDatagram, PathBuf);

impl Client {
    /// The name stands beside the program's socket, or in the folder for temporary files.
    fn open(program: &Path, name: &str) -> io::Result<Client> {
        // Without the program nothing is made.
        fs::metadata(program)?;
        let beside = program.parent().unwrap_or(Path::new("/"));
        let (socket, path) = bind(beside, name).or_else(|_| bind(&std::env::temp_dir(), name))?;
        let client = Client(socket, path);
        // The program may be another user.
        fs::set_permissions(&client.1, Permissions::from_mode(0o666))?;
        client.0.connect(program)?;
        client.0.set_read_timeout(Some(ANSWER_MAX))?;
        client.0.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(client)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.1);
    }
}

/// A socket with a name of its own in this folder.
fn bind(folder: &Path, name: &str) -> io::Result<(UnixDatagram, PathBuf)> {
    remove_left(folder, name);
    let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("{name}.{}.{number}", std::process::id()));
    let socket = match UnixDatagram::bind(&path) {
        // A killed process with this number may have left it.
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            fs::remove_file(&path)?;
            UnixDatagram::bind(&path)?
        }
        bound => bound?,
    };
    Ok((socket, path))
}

/// Removes the names that killed processes have left in this folder. A name stays while any process has its number,
/// because that process may be about to bind it.
fn remove_left(folder: &Path, name: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_left = entry.file_name().to_str().and_then(|text| owner(text, name)).is_some_and(|owner| {
            // A process of another PID namespace has another number here. But it has its socket.
            Identity::of(owner).is_none() && is_dead_socket(&entry.path())
        });
        if is_left {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that has given this name, `NAME.PID.NUMBER`.
fn owner(text: &str, name: &str) -> Option<u32> {
    let (process, number) = text.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?;
    number.parse::<u32>().ok()?;
    process.parse().ok()
}

/// Whether this is the name of a socket that no process has any more.
fn is_dead_socket(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket && connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_client_removes_what_a_killed_one_left() {
        let folder = std::env::temp_dir().join(format!("takt-clients-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let program = UnixDatagram::bind(folder.join("program")).unwrap();
        // No process has the largest number. To drop a socket leaves its name, as a kill does.
        let (dead, own) = (u32::MAX, std::process::id());
        for name in [format!("takt-a.{dead}.0"), format!("takt-a.{own}.x"), format!("takt-b.{dead}.0")] {
            drop(UnixDatagram::bind(folder.join(name)).unwrap());
        }
        // A process has this number now, perhaps another one than the owner.
        drop(UnixDatagram::bind(folder.join(format!("takt-a.{own}.{}", u32::MAX))).unwrap());
        // A process of another PID namespace.
        let elsewhere = UnixDatagram::bind(folder.join(format!("takt-a.{dead}.1"))).unwrap();
        fs::write(folder.join(format!("takt-a.{dead}.2")), "no socket").unwrap();
        let client = Client::open(&folder.join("program"), "takt-a").unwrap();
        client.0.send(b"question").unwrap();
        assert_eq!(program.recv_from(&mut [0; 8]).unwrap().1.as_pathname(), Some(client.1.as_path()));
        drop(client);
        let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: std::collections::BTreeSet<String> = names.collect();
        let wanted = [
            "program".to_owned(),
            format!("takt-a.{dead}.1"),
            format!("takt-a.{dead}.2"),
            format!("takt-a.{own}.x"),
            format!("takt-a.{own}.{}", u32::MAX),
            format!("takt-b.{dead}.0"),
        ];
        drop(elsewhere);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, wanted.into());
    }
}
