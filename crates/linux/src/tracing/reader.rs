//! Reads pages from the kernel. splice(2) moves whole pages into a pipe without a copy, and the
//! reader reads them there. read(2) takes the page that is still being written. If splice is
//! refused, read(2) takes all pages, one per call. Before Linux 6.1 splice stops at the rest of a
//! partly read page: read(2) takes that rest, and splice goes on.
//!
//! The reader never spins. It sleeps until a buffer is filled to its watermark or the time is over,
//! and at least a millisecond between two sweeps. A sweep takes the events written before its
//! start, and at most twice the size of the buffers.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use takt_model::{Bytes, Span, Time};

use super::error::RecorderError;
use super::instance::Instance;
use crate::clock::{self, errno};

/// The result of one [`Recorder::sweep`](super::Recorder::sweep).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadResult {
    /// Bytes of pages.
    pub bytes: u64,
    /// All events recorded before this time (CLOCK_MONOTONIC) have been handed over, except events
    /// that were half written at that moment. `None` if more was waiting than one sweep takes; the
    /// next sweep goes on.
    pub until: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct Reader {
    pipe: Option<Pipe>,
    cpus: Vec<Cpu>,
    polled: Vec<libc::pollfd>,
    has_watermark: bool,
    page: usize,
    /// The most bytes that a sweep takes of one CPU.
    sweep_max: u64,
    bytes: Vec<u8>,
    cpu_time: Span,
    /// End of the last sweep, on CLOCK_MONOTONIC.
    last_ns: u64,
}

#[derive(Debug)]
struct Cpu {
    number: u32,
    raw: File,
}

#[derive(Debug)]
struct Pipe {
    read: File,
    write: OwnedFd,
}

/// The pipe, and the memory for its content.
const CHUNK: usize = 1 << 20;
/// Shortest time between two sweeps.
const REST: Span = Span::from_ms(1);
/// Without a watermark the kernel would wake the reader for each event, so the reader polls at this
/// interval.
const LOOK_EVERY: Span = Span::from_ms(10);

impl Reader {
    pub(crate) fn open(instance: &Instance, page: usize, buffer: Bytes) -> Result<Reader, RecorderError> {
        let mut opened = Vec::new();
        for number in instance.cpus()? {
            let path = instance.path(&format!("per_cpu/cpu{number}/trace_pipe_raw"));
            let raw = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
            opened.push(Cpu { number, raw: raw.map_err(|error| RecorderError::file(&path, &error))? });
        }
        let polled =
            opened.iter().map(|cpu| libc::pollfd { fd: cpu.raw.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        Ok(Reader {
            pipe: Pipe::new(page),
            polled: polled.collect(),
            cpus: opened,
            has_watermark: instance.path("buffer_percent").exists(),
            page,
            sweep_max: buffer.get().saturating_mul(2).max(page as u64),
            bytes: vec![0; CHUNK.max(page)],
            cpu_time: Span::ZERO,
            last_ns: 0,
        })
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().map(|cpu| cpu.number)
    }

    pub(crate) fn cpu_time(&self) -> Span {
        self.cpu_time
    }

    /// Sleeps until a buffer reaches its watermark, `timeout` is over, or a signal comes.
    pub(crate) fn wait(&mut self, timeout: Span) -> Result<(), RecorderError> {
        let now = clock::monotonic_ns();
        let rest = self.last_ns.saturating_add(REST.as_ns()).saturating_sub(now);
        if rest > 0 {
            clock::pause(Span::from_ns(rest));
        }
        let left = timeout.as_ns().saturating_sub(rest);
        if left == 0 {
            return Ok(());
        }
        if !self.has_watermark {
            clock::pause(Span::from_ns(left.min(LOOK_EVERY.as_ns())));
            return Ok(());
        }
        let limit = libc::timespec {
            tv_sec: libc::time_t::try_from(left / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (left % 1_000_000_000) as libc::c_long,
        };
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: `polled` holds as many valid pollfds as announced. Their descriptors are open while `cpus`
        // lives. `limit` is a valid timespec. There is no signal mask.
        let result = unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, &raw const limit, std::ptr::null()) };
        if result < 0 && errno() != libc::EINTR {
            let cpu = self.cpus.first().map_or(0, |cpu| cpu.number);
            return Err(RecorderError::Read { cpu, cause: io::Error::last_os_error().to_string() });
        }
        Ok(())
    }

    /// Reads all waiting pages of each CPU, up to pages that begin after the start of this sweep.
    pub(crate) fn sweep(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<ReadResult, RecorderError> {
        let until_ns = clock::monotonic_ns();
        let mut total = 0;
        let mut whole = true;
        // Read one share of a CPU at a time, so that no buffer overflows while another is read.
        let mut going: Vec<(usize, u64)> = (0..self.cpus.len()).map(|k| (k, 0)).collect();
        while !going.is_empty() {
            let mut next = Vec::with_capacity(going.len());
            for (k, taken) in going {
                let began = clock::thread_cpu();
                let length = self.some(k)?;
                self.cpu_time = self.cpu_time.saturating_add(since(began));
                let (Some(cpu), Some(bytes @ [_, ..])) = (self.cpus.get(k), self.bytes.get(..length)) else { continue };
                take(cpu.number, bytes);
                total += length as u64;
                let taken = taken + length as u64;
                if taken >= self.sweep_max {
                    whole = false;
                } else if last_page_ns(bytes, self.page) < until_ns {
                    next.push((k, taken));
                }
            }
            going = next;
        }
        self.last_ns = clock::monotonic_ns();
        Ok(ReadResult { bytes: total, until: whole.then_some(Time::from_ns(until_ns)) })
    }

    /// Reads some pages of a CPU into `bytes` and returns the number of bytes.
    fn some(&mut self, k: usize) -> Result<usize, RecorderError> {
        let Some(cpu) = self.cpus.get_mut(k) else { return Ok(0) };
        let failed = |error: io::Error| RecorderError::Read { cpu: cpu.number, cause: error.to_string() };
        if let Some(pipe) = &mut self.pipe {
            match pipe.fill(&cpu.raw, self.bytes.len()) {
                Ok(0) => {}
                Ok(length) => {
                    let into = self.bytes.get_mut(..length).unwrap_or_default();
                    pipe.read.read_exact(into).map_err(failed)?;
                    return Ok(length);
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => self.pipe = None,
                Err(error) => return Err(failed(error)),
            }
        }
        // Reads the page that is still being written; without splice, reads all pages.
        let into = self.bytes.get_mut(..self.page).unwrap_or_default();
        read_page(&mut cpu.raw, into).map_err(failed)
    }
}

/// The time in the first eight bytes of the last page: its begin.
fn last_page_ns(pages: &[u8], page: usize) -> u64 {
    let head = pages.len().checked_sub(page).and_then(|start| pages.get(start..start + 8)?.try_into().ok());
    head.map_or(u64::MAX, u64::from_ne_bytes)
}

/// Reads a page, if there is one.
fn read_page(raw: &mut File, into: &mut [u8]) -> io::Result<usize> {
    loop {
        return match raw.read(into) {
            Ok(0) => Ok(0),
            Ok(length) if length == into.len() => Ok(length),
            Ok(length) => Err(io::Error::other(format!("{length} bytes of a page of {}", into.len()))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        };
    }
}

impl Pipe {
    /// `None` if no pipe can be made or a page does not fit.
    fn new(page: usize) -> Option<Pipe> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` is valid for writing two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return None;
        }
        // SAFETY: the kernel has just given these descriptors to us, and nobody else has them.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the descriptor is open; the call passes no memory. A refusal leaves the usual size.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, CHUNK as libc::c_int) };
        (page <= CHUNK).then_some(Pipe { read: File::from(read), write })
    }

    /// Moves full pages into the empty pipe and returns the number of bytes.
    fn fill(&mut self, raw: &File, bytes_max: usize) -> io::Result<usize> {
        loop {
            // SAFETY: both descriptors are open; no offsets are passed.
            let moved = unsafe {
                libc::splice(
                    raw.as_raw_fd(),
                    std::ptr::null_mut(),
                    self.write.as_raw_fd(),
                    std::ptr::null_mut(),
                    bytes_max,
                    libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE,
                )
            };
            match usize::try_from(moved) {
                Ok(moved) => return Ok(moved),
                Err(_) if errno() == libc::EAGAIN => return Ok(0),
                Err(_) if errno() == libc::EINTR => {}
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
    }
}

fn since(began: Span) -> Span {
    Span::from_ns(clock::thread_cpu().as_ns().saturating_sub(began.as_ns()))
}

#[cfg(test)]
mod tests {
    use super::super::{Guard, Options, Recorder};
    use super::*;

    /// Records for some sweeps, with or without a pipe: entries that the kernel counts as read, and pages.
    fn recorded(with_pipe: bool) -> Result<(u64, u64), RecorderError> {
        let mut recorder = Recorder::start(&Options { guard: Guard::NextStart, ..Options::default() })?;
        if !with_pipe {
            recorder.reader.pipe = None;
        }
        let mut bytes = 0;
        for _ in 0..20 {
            clock::pause(Span::from_us(200));
            let sweep = recorder.sweep(Span::from_ms(1), &mut |_, pages| bytes += pages.len() as u64)?;
            assert!(sweep.until.is_some(), "a sweep ends, whoever writes meanwhile");
        }
        let page = recorder.reader.page as u64;
        let counts = recorder.finish(&mut |_, pages| bytes += pages.len() as u64)?;
        assert!(bytes.is_multiple_of(page));
        assert_eq!(counts.iter().map(|count| count.lost() + count.waiting).sum::<u64>(), 0, "{counts:?}");
        Ok((counts.iter().map(|count| count.read).sum(), bytes / page))
    }

    #[test]
    fn pages_come_with_splice_and_without() {
        for with_pipe in [true, false] {
            match recorded(with_pipe) {
                Ok((events, pages)) => assert!(events > 0 && pages > 0, "{events} events, {pages} pages"),
                Err(error) => println!("skipped: {error}"),
            }
        }
    }
}
