//! Unix sockets that carry messages and file descriptors between processes (SOCK_SEQPACKET,
//! unix(7)), and a wait for several descriptors.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use socket2::{Domain, MsgHdr, SockAddr, Socket, Type};
use takt_model::Span;

/// A socket file that clients connect to. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    path: PathBuf,
}

/// One end of a connection. No call waits.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
}

/// A received message.
#[derive(Debug)]
pub enum Received {
    /// Its length in bytes, and the descriptor that came with it. `None`: none came, or this process
    /// may open no more (RLIMIT_NOFILE).
    Message(usize, Option<OwnedFd>),
    /// Nothing waits.
    Nothing,
    /// The other side has closed, or sent more bytes than there is room for.
    Closed,
}

/// The result of sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The message waits for the other side.
    Yes,
    /// There is no room.
    Full,
    /// The other side has closed, or takes no more messages.
    Closed,
    /// The kernel does not take this message, with this errno. The connection goes on.
    Refused(i32),
}

impl Listener {
    /// Listens at `path`. A file that a dead process left there is replaced.
    ///
    /// # Errors
    /// The kernel's refusal. `AddrInUse`: a process listens there, or the file is no socket.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        Listener::bind_with(path, None)
    }

    /// The same, where only this user may connect (mode 600).
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_private(path: &Path) -> io::Result<Listener> {
        Listener::bind_with(path, Some(0o600))
    }

    fn bind_with(path: &Path, mode: Option<u32>) -> io::Result<Listener> {
        let address = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        if let Err(error) = socket.bind(&address) {
            let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
            let dead = || Connection::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            if error.kind() != io::ErrorKind::AddrInUse || !is_socket || !dead() {
                return Err(error);
            }
            fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        if let Some(mode) = mode {
            // Nobody can connect before listen(2).
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        socket.listen(128)?;
        socket.set_nonblocking(true)?;
        Ok(Listener { socket, path: path.to_owned() })
    }

    /// The next client that waits.
    ///
    /// # Errors
    /// The kernel's refusal, such as too many open files.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        match self.socket.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true)?;
                Ok(Some(Connection { socket }))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Room for one descriptor beside a message, aligned as the kernel's header wants it.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; 64]);

impl Connection {
    /// Connects to the listener at `path`, without waiting.
    ///
    /// # Errors
    /// The kernel's refusal. `NotFound` or `ConnectionRefused`: nobody listens. `WouldBlock`: as many wait as may.
    pub fn connect(path: &Path) -> io::Result<Connection> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Connection { socket })
    }

    /// Sends one message of these parts, which must not be empty together, and a descriptor.
    pub fn send(&self, parts: [&[u8]; 2], descriptor: Option<BorrowedFd<'_>>) -> Sent {
        let parts = parts.map(IoSlice::new);
        let mut control = Control([MaybeUninit::uninit(); 64]);
        let control = descriptor.map(|descriptor| one_descriptor(&mut control, descriptor));
        let header = MsgHdr::new().with_buffers(&parts);
        let header = match control {
            Some(control) => header.with_control(control),
            None => header,
        };
        loop {
            match self.socket.sendmsg(&header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
                Ok(_) => return Sent::Yes,
                Err(error) => match error.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => {}
                    // ETOOMANYREFS: as many descriptors are on their way as the process may have open.
                    libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::ETOOMANYREFS => return Sent::Full,
                    libc::EPIPE | libc::ECONNRESET => return Sent::Closed,
                    errno => return Sent::Refused(errno),
                },
            }
        }
    }

    /// Takes no more messages: later sends of the other side are [`Sent::Closed`]. Those that wait
    /// can still be received, and this side can still send.
    pub fn stop_receiving(&self) {
        let _ = self.socket.shutdown(Shutdown::Read);
    }

    /// Receives one message.
    pub fn receive(&self, into: &mut [u8]) -> Received {
        let mut control = Control([MaybeUninit::uninit(); 64]);
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: msghdr is plain data for which zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let length = loop {
            let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
            // SAFETY: `header` names `into` and `control`, which may be written and outlive the call.
            let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, flags) };
            match usize::try_from(length) {
                Ok(length) => break length,
                Err(_) => match io::Error::last_os_error().kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Received::Nothing,
                    _ => return Received::Closed,
                },
            }
        };
        // SAFETY: the kernel has filled `control` and set its length in `header`.
        let descriptor = unsafe { descriptor_of(&header) };
        if length == 0 || header.msg_flags & libc::MSG_TRUNC != 0 {
            return Received::Closed;
        }
        Received::Message(length, descriptor)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A control message with one descriptor.
fn one_descriptor<'a>(control: &'a mut Control, descriptor: BorrowedFd<'_>) -> &'a [u8] {
    const SIZE: u32 = size_of::<RawFd>() as u32;
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute. `control` is aligned for a header, and larger than one with a
    // descriptor; it is zeroed before the header and the descriptor are written, so that the bytes are initialised.
    unsafe {
        let length = libc::CMSG_SPACE(SIZE) as usize;
        let bytes = control.0.as_mut_ptr().cast::<u8>();
        std::ptr::write_bytes(bytes, 0, control.0.len());
        let header = bytes.cast::<libc::cmsghdr>();
        (*header).cmsg_len = libc::CMSG_LEN(SIZE) as _;
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
        std::slice::from_raw_parts(bytes, length)
    }
}

/// The one descriptor of a received message. Further ones are closed.
///
/// # Safety
/// recvmsg has filled the header, and nobody has taken the descriptors yet.
unsafe fn descriptor_of(header: &libc::msghdr) -> Option<OwnedFd> {
    let mut first = None;
    // SAFETY: by this function's condition the macros walk over whole control messages, and each descriptor in
    // SCM_RIGHTS is open and belongs to nobody else.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = at.as_ref() {
            if message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_RIGHTS {
                // The C library musl has another type here.
                #[allow(clippy::unnecessary_cast)]
                let bytes = message.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for number in 0..bytes / size_of::<RawFd>() {
                    let descriptor = libc::CMSG_DATA(at).cast::<RawFd>().add(number).read_unaligned();
                    let descriptor = OwnedFd::from_raw_fd(descriptor);
                    first.get_or_insert(descriptor);
                }
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    first
}

/// Descriptors to wait for.
#[derive(Clone, Debug, Default)]
pub struct Poll {
    asked: Vec<libc::pollfd>,
}

impl Poll {
    /// Room for so many descriptors, so that nothing is allocated later for them.
    #[must_use]
    pub fn with_room(descriptors: usize) -> Poll {
        Poll { asked: Vec::with_capacity(descriptors) }
    }

    /// Forgets all descriptors.
    pub fn clear(&mut self) {
        self.asked.clear();
    }

    /// Adds a descriptor to wait for until it has something to read (or is closed by the other
    /// side), or room to write. Errors and stamps end the wait in any case. Returns its place, from 0.
    pub fn add(&mut self, descriptor: BorrowedFd<'_>, to_read: bool, to_write: bool) -> usize {
        let events = if to_read { libc::POLLIN } else { 0 } | if to_write { libc::POLLOUT } else { 0 };
        self.asked.push(libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 });
        self.asked.len() - 1
    }

    /// Waits until one of them is ready, `wait` is over (`None`: for ever), or a signal comes. Then
    /// [`Poll::is_ready`] tells which.
    pub fn wait(&mut self, wait: Option<Span>) {
        let timeout = wait.map(|wait| libc::timespec {
            tv_sec: libc::time_t::try_from(wait.as_ns() / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (wait.as_ns() % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.asked.len() as libc::nfds_t;
        // SAFETY: the pointer and the count are those of one vector; `timeout` is null or a timespec that outlives the
        // call; there is no signal mask. A descriptor that was closed meanwhile is reported, not touched.
        let ready = unsafe { libc::ppoll(self.asked.as_mut_ptr(), count, timeout, std::ptr::null()) };
        if ready < 0 {
            self.asked.iter_mut().for_each(|asked| asked.revents = 0);
        }
    }

    /// Whether the descriptor at this place was ready, closed or broken at the end of the last wait.
    #[must_use]
    pub fn is_ready(&self, place: usize) -> bool {
        self.asked.get(place).is_some_and(|asked| asked.revents != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("takt-seqpacket-{}-{name}", std::process::id()))
    }

    #[test]
    fn messages_keep_their_bounds_and_bring_descriptors() {
        let path = path("bounds");
        let listener = Listener::bind(&path).unwrap();
        let client = Connection::connect(&path).unwrap();
        let server = loop {
            if let Some(server) = listener.accept().unwrap() {
                break server;
            }
        };
        let (mut from, to) = std::io::pipe().unwrap();
        assert_eq!(client.send([b"he", b"ad"], Some(to.as_fd())), Sent::Yes);
        assert_eq!(client.send([b"next", b""], None), Sent::Yes);
        drop(to);
        let mut poll = Poll::default();
        let place = poll.add(server.as_fd(), true, false);
        // Signals of other tests end a wait early.
        while !poll.is_ready(place) {
            poll.wait(None);
        }
        let mut bytes = [0; 8];
        let received = server.receive(&mut bytes);
        let Received::Message(4, Some(end)) = received else { panic!("no descriptor: {received:?}") };
        assert_eq!(&bytes[..4], b"head");
        assert!(matches!(server.receive(&mut bytes), Received::Message(4, None)));
        assert!(matches!(server.receive(&mut bytes), Received::Nothing));
        std::fs::File::from(end).write_all(b"through").unwrap();
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(client.send([b"longer than eight", b""], None), Sent::Yes);
        assert!(matches!(server.receive(&mut bytes), Received::Closed), "a message that does not fit");
        drop(client);
        assert!(matches!(server.receive(&mut bytes), Received::Closed));
        assert_eq!(Listener::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_listeners_file_is_replaced_and_no_other_file() {
        let path = path("dead");
        std::mem::forget(Listener::bind(&path).map(drop_socket_only).unwrap());
        assert!(path.exists());
        drop(Listener::bind(&path).unwrap());
        fs::write(&path, "a file").unwrap();
        assert_eq!(Listener::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).unwrap();
    }

    /// As a process that was killed leaves it.
    fn drop_socket_only(mut listener: Listener) -> Listener {
        listener.socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        listener
    }

    #[test]
    fn a_reader_that_does_not_read_fills_the_connection() {
        let path = path("full");
        let listener = Listener::bind(&path).unwrap();
        let client = Connection::connect(&path).unwrap();
        let sent = (0..100_000).take_while(|_| client.send([&[0; 512], b""], None) == Sent::Yes).count();
        assert!(sent > 0 && sent < 100_000);
        drop(listener);
        assert_eq!(client.send([b"x", b""], None), Sent::Closed);
    }

    #[test]
    fn a_listener_that_accepts_nobody_blocks_nobody() {
        let path = path("accepts-nobody");
        let listener = Listener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let refused = (0..500).find_map(|_| Connection::connect(&path).map(|client| waiting.push(client)).err());
        assert_eq!(refused.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        assert!(listener.accept().unwrap().is_some());
        assert!(Connection::connect(&path).is_ok());
    }

    #[test]
    fn a_side_that_stops_receiving_gets_what_was_sent_before_and_still_sends() {
        let path = path("stops");
        let listener = Listener::bind(&path).unwrap();
        let client = Connection::connect(&path).unwrap();
        let server = listener.accept().unwrap().unwrap();
        // The kernel refuses this message alone.
        assert_eq!(client.send([&vec![0; 1 << 24], b""], None), Sent::Refused(libc::EMSGSIZE));
        assert_eq!(client.send([b"before", b""], None), Sent::Yes);
        server.stop_receiving();
        assert_eq!(client.send([b"after", b""], None), Sent::Closed);
        let mut bytes = [0; 8];
        assert!(matches!(server.receive(&mut bytes), Received::Message(6, None)));
        assert!(matches!(server.receive(&mut bytes), Received::Closed));
        assert_eq!(server.send([b"answer", b""], None), Sent::Yes);
        assert!(matches!(client.receive(&mut bytes), Received::Message(6, None)));
    }
}
