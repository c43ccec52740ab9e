//! The scheduler in the kernel: its maps, its programs and its events, by libbpf.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Link, Map, MapCore as _, MapFlags, Object};
use takt_model::{Span, Time};

use super::types::{
    CHANGES_MAX, CPUS_MAX, CpuCount, Ended, Group, MEMBERS_MAX, Member, POOLS_MAX, SERVERS_MAX, SchedExtError,
    ServerEvent, ServerNews, Terms, Written,
};
use crate::Epoch;
use crate::bpf::{BpfError, image, load, register};

/// The scheduler. See [`crate::sched_ext`].
#[derive(Debug)]
pub struct Scheduler {
    object: Object,
    /// The scheduler among its maps.
    ops: &'static str,
    link: Option<Link>,
    shared: Arc<Shared>,
    events: Ring,
    /// The last version of each server's terms.
    versions: Vec<u32>,
}

/// Another instance of a scheduler, loaded and not attached. See [`Scheduler::successor`].
#[derive(Debug)]
pub struct Successor {
    object: Object,
    shared: Arc<Shared>,
}

/// What the threads of a run share with the scheduler in the kernel.
#[derive(Debug)]
pub struct Shared {
    counts: Pages,
    members: Pages,
    limits: Pages,
    when: Pages,
    join: OwnedFd,
}

/// `struct takt_event` of bpf/takt_scx.bpf.c.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct RawEvent {
    at: u64,
    a: u64,
    b: u64,
    kind: u32,
    cpu: u32,
    server: u32,
    rule: u32,
}

/// `struct takt_join` there.
#[repr(C)]
struct Join {
    member: u32,
}

/// `struct takt_group` there.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawGroup {
    member: u32,
    is_named: u32,
}

/// `struct takt_pool` there.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawPool {
    cpus: u64,
    ready: u32,
    pad: u32,
    servers: [u8; CPUS_MAX as usize],
}

/// `struct takt_end` there.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawEnd {
    is_over: u32,
    kind: u32,
    code: i64,
    reason: [u8; 64],
    message: [u8; 192],
}

/// Words of `struct takt_count`, `struct takt_when` and `struct takt_member`.
const COUNT_WORDS: usize = 4;
const WHEN_WORDS: usize = 4;
/// The word `generation`, and the word `held`.
const GENERATION_WORD: usize = 2;
const HELD_WORD: usize = 3;
/// Values of the latter (`enum takt_held`).
const DECIDES: u64 = 0;
const LEAVES: u64 = 1;
/// Of `struct takt_limit`.
const LIMIT_WORDS: usize = 4;
const MEMBER_WORDS: usize = size_of::<Member>() / 8;
/// Where a member's release stands among its words; its deadline follows.
const RELEASE_WORD: usize = std::mem::offset_of!(Member, release) / 8;
/// In [`RawEvent::b`] of a payment.
const PAID_IDLE: u64 = 1 << 63;
/// A cpu.max of that many microseconds or more is "max".
const NO_LIMIT_US: u64 = 1 << 53;
/// The schedulers of the object: one without control groups, and one with them.
const OPS: [&str; 2] = ["takt_ops", "takt_group_ops"];
/// Whether a successor takes this map over: budgets, threads, events, and all that user space writes.
fn is_kept(map: &OsStr) -> bool {
    let name = map.as_encoded_bytes();
    // libbpf names sections of the program after the object, with a dot.
    name.starts_with(b"takt_") && !name.contains(&b'.') && map != "takt_ends" && OPS.iter().all(|ops| map != *ops)
}

/// Gives the kernel the program with these operations. It has maps of its own, or those of a former instance.
fn open(ops: &str, former: Option<&Object>) -> Result<Object, BpfError> {
    load("takt_scx", image!("takt_scx"), |object| {
        for mut map in object.maps_mut() {
            if OPS.iter().any(|other| map.name() == *other && ops != *other) {
                map.set_autocreate(false)?;
            }
            if is_kept(map.name())
                && let Some(kept) = former.and_then(|former| former.maps().find(|kept| kept.name() == map.name()))
            {
                map.reuse_fd(kept.as_fd())?;
            }
        }
        Ok(())
    })
}

/// Whether the kernel tells schedulers of control groups and of their cpu.max.
pub(super) fn tells_of_groups() -> bool {
    let Ok(btf) = Btf::from_vmlinux() else { return false };
    let Some(ops) = btf.type_by_name::<types::Struct<'_>>("sched_ext_ops") else { return false };
    ops.iter().any(|member| member.name.is_some_and(|name| name == "cgroup_set_bandwidth"))
}

impl Scheduler {
    /// Gives the kernel the scheduler, the servers of each CPU (the kernel's numbers), the places of threads, and the
    /// control groups whose threads have a place. A pool has the threads of a component with several servers: these, by
    /// CPU and number there. Nothing is scheduled by it yet.
    ///
    /// # Errors
    /// The kernel refuses it, or there are more servers, CPUs or places than it takes.
    pub fn load(
        servers: &[(u32, Vec<Terms>)],
        pools: &[Vec<(u32, u32)>],
        members: &[Member],
        groups: &[Group],
    ) -> Result<Scheduler, SchedExtError> {
        let is_small = servers.iter().all(|(cpu, terms)| *cpu < CPUS_MAX && terms.len() <= SERVERS_MAX);
        let is_there = |(cpu, server): &(u32, u32)| *cpu < CPUS_MAX && (*server as usize) < SERVERS_MAX;
        let is_small = is_small && pools.len() <= POOLS_MAX && pools.iter().flatten().all(is_there);
        if !is_small || members.len() > MEMBERS_MAX {
            return Err(broken("its size", io::ErrorKind::InvalidInput.into()));
        }
        let ops = if groups.is_empty() { OPS[0] } else { OPS[1] };
        let object = open(ops, None)?;
        let join = object.progs_mut().find(|program| program.name() == "takt_join");
        let join = join.ok_or_else(|| broken("takt_join", io::ErrorKind::NotFound.into()))?;
        let join = join.as_fd().try_clone_to_owned().map_err(|cause| broken("takt_join", cause))?;
        let shared = Shared {
            counts: Pages::of_map(&object, "takt_counts", 8 * COUNT_WORDS, CPUS_MAX as usize)?,
            members: Pages::of_map(&object, "takt_members", size_of::<Member>(), MEMBERS_MAX)?,
            limits: Pages::of_map(&object, "takt_limits", 8 * LIMIT_WORDS, MEMBERS_MAX)?,
            when: Pages::of_map(&object, "takt_when", 8 * WHEN_WORDS, 1)?,
            join,
        };
        let events = Ring::of_map(&object, "takt_events")?;
        let versions = vec![0; CPUS_MAX as usize * SERVERS_MAX];
        let mut scheduler = Scheduler { object, ops, link: None, shared: Arc::new(shared), events, versions };
        for (cpu, terms) in servers {
            for (at, terms) in (0..).zip(terms) {
                scheduler.write(*cpu, at, *terms)?;
            }
        }
        for (at, pool) in (0u32..).zip(pools) {
            let mut raw = RawPool { cpus: 0, ready: 0, pad: 0, servers: [0; CPUS_MAX as usize] };
            for (cpu, server) in pool {
                raw.cpus |= 1u64 << *cpu;
                raw.servers[*cpu as usize] = *server as u8;
            }
            scheduler
                .map("takt_pools")?
                .update(&at.to_ne_bytes(), bytes_of(&raw), MapFlags::ANY)
                .map_err(|error| broken("takt_pools", io::Error::other(format!("{error:#}"))))?;
        }
        for (at, member) in members.iter().enumerate() {
            scheduler.shared.place(at, member);
        }
        for group in groups {
            let named = RawGroup { member: group.member + 1, is_named: 1 };
            scheduler
                .map("takt_groups")?
                .update(&group.number.to_ne_bytes(), bytes_of(&named), MapFlags::ANY)
                .map_err(|error| broken("takt_groups", io::Error::other(format!("{error:#}"))))?;
        }
        Ok(scheduler)
    }

    /// Puts all ordinary threads of the machine under the scheduler.
    ///
    /// # Errors
    /// The kernel's refusal, for instance if another sched_ext scheduler is at work.
    pub fn attach(&mut self) -> Result<(), SchedExtError> {
        let link = enable(&mut self.object, self.ops);
        self.link = Some(link.map_err(|cause| broken("attaching", cause))?);
        Ok(())
    }

    /// Gives the machine its own scheduler back. All threads run on.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Loads another instance of the scheduler for [`Scheduler::replace`]. This one stays at work. Both have the same
    /// servers, threads and events. The kernel verifies the program once more, which takes long.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn successor(&self) -> Result<Successor, SchedExtError> {
        Ok(Successor { object: open(self.ops, Some(&self.object))?, shared: self.shared.clone() })
    }

    /// Detaches this instance and attaches its successor. The answer is the time between: all threads run under the
    /// kernel's own scheduler then, and no budget is used. Budgets, changes that wait and the places of threads stay. A
    /// thread that does not tell its jobs counts as one that has just woken up. A child that begins between has the
    /// place of its control group, or none.
    ///
    /// # Errors
    /// It is the successor of another scheduler, or the kernel refuses it. Then this instance is attached again, if the
    /// kernel lets it.
    pub fn replace(&mut self, successor: Successor) -> Result<Span, SchedExtError> {
        let Successor { mut object, shared } = successor;
        if !Arc::ptr_eq(&shared, &self.shared) {
            return Err(broken("the successor of another scheduler", io::ErrorKind::InvalidInput.into()));
        }
        shared.word(&shared.when, HELD_WORD).store(LEAVES, Ordering::Release);
        let begin = Epoch::now_is_zero();
        self.link = None;
        let link = enable(&mut object, self.ops);
        let gap = begin.now().saturating_since(Time::ZERO);
        match link {
            Ok(link) => {
                self.object = object;
                self.link = Some(link);
                Ok(gap)
            }
            Err(cause) => {
                if self.attach().is_err() {
                    shared.word(&shared.when, HELD_WORD).store(DECIDES, Ordering::Release);
                }
                Err(broken("attaching the successor", cause))
            }
        }
    }

    /// What threads need of it.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// The server has these terms from the end of its period on. Changes of one server come in the order of their
    /// instants, and at most [`CHANGES_MAX`] of them wait.
    ///
    /// # Errors
    /// There is no such server, or the kernel's refusal.
    pub fn change(&mut self, cpu: u32, server: u32, terms: Terms) -> Result<(), SchedExtError> {
        self.write(cpu, server, terms)?;
        self.shared.word(&self.shared.when, GENERATION_WORD).fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn write(&mut self, cpu: u32, server: u32, terms: Terms) -> Result<(), SchedExtError> {
        let key = cpu.saturating_mul(SERVERS_MAX as u32).saturating_add(server);
        let version = self.versions.get_mut(key as usize).filter(|_| (server as usize) < SERVERS_MAX);
        let version = version.ok_or_else(|| broken("the server", io::ErrorKind::NotFound.into()))?;
        *version += 1;
        let version = *version;
        let place = key.saturating_mul(CHANGES_MAX as u32).saturating_add(version % CHANGES_MAX as u32);
        let map = self.map("takt_terms")?;
        // The version comes last: the kernel may read in between.
        for version in [0, version] {
            let terms = Terms { version, ..terms };
            map.update(&place.to_ne_bytes(), bytes_of(&terms), MapFlags::ANY)
                .map_err(|error| broken("takt_terms", io::Error::other(format!("{error:#}"))))?;
        }
        Ok(())
    }

    fn map(&self, name: &'static str) -> Result<Map<'_>, SchedExtError> {
        let map = self.object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| broken(name, io::ErrorKind::NotFound.into()))
    }

    /// Empties the kernel's buffer of events, which is full after some seconds. [`Scheduler::take`] gives them later.
    pub fn read(&mut self) {
        self.events.read();
    }

    /// Takes what has happened to servers, in the order in which each CPU told it.
    pub fn take(&mut self, tell: &mut dyn FnMut(ServerEvent)) {
        self.events.take(|event| {
            let news = match event.kind {
                0 => ServerNews::Replenished { budget: event.a },
                1 => ServerNews::Exhausted,
                // Other CPUs run threads of its component.
                2 if event.a > 0 => return,
                2 => ServerNews::Idle,
                3 => ServerNews::Paid { since: event.a, amount: event.b & !PAID_IDLE, idle: event.b & PAID_IDLE != 0 },
                _ => ServerNews::Switched { rule: event.rule, budget: event.a, period: event.b },
            };
            tell(ServerEvent { at: event.at, cpu: event.cpu, server: event.server, news });
        });
    }

    /// Whether the kernel has ended the scheduler by itself, and why. All threads run under its own one then.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        ended(&self.object)
    }
}

/// Why the kernel has ended an instance by itself.
fn ended(object: &Object) -> Option<Ended> {
    let map = object.maps().find(|map| map.name() == "takt_ends")?;
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
    let end: RawEnd = read(&bytes)?;
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    (end.is_over != 0).then(|| Ended { kind: end.kind, reason: text(&end.reason), message: text(&end.message) })
}

/// Gives the kernel an instance. If it cannot begin, the kernel reports an end and no error.
fn enable(object: &mut Object, ops: &str) -> io::Result<Link> {
    let link = register(object, ops)?;
    match ended(object) {
        Some(end) => Err(io::Error::other(format!("{} {}", end.reason, end.message))),
        None => Ok(link),
    }
}

impl Shared {
    /// The calling thread takes this place. It must be bound to the CPU of the place, or to those of its pool, and run
    /// there. Its children take it, too.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn join(&self, member: u32) -> Result<(), SchedExtError> {
        let join = Join { member: member + 1 };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ctx_in: (&raw const join).cast(),
            ctx_size_in: size_of::<Join>() as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, and the options point to `join`, which lives on; both have their true sizes.
        let done = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.join.as_raw_fd(), &raw mut options) };
        let errno = if done < 0 { -done } else { options.retval.cast_signed() };
        if errno == 0 { Ok(()) } else { Err(broken("joining a server", io::Error::from_raw_os_error(errno))) }
    }

    /// The thread at this place begins or awaits a job: its release and its absolute deadline.
    pub fn announce_job(&self, member: u32, release: u64, deadline: u64) {
        let at = member as usize * MEMBER_WORDS + RELEASE_WORD;
        self.word(&self.members, at + 1).store(deadline, Ordering::Relaxed);
        self.word(&self.members, at).store(release, Ordering::Release);
    }

    fn place(&self, at: usize, member: &Member) {
        for (word, bytes) in (0..).zip(bytes_of(member).as_chunks::<8>().0) {
            self.word(&self.members, at * MEMBER_WORDS + word).store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// The servers are in force between these instants.
    pub fn begin(&self, start: u64, end: u64) {
        self.end(end);
        self.word(&self.when, 0).store(start, Ordering::Release);
    }

    /// They end there. May be called again with an earlier end.
    pub fn end(&self, end: u64) {
        self.word(&self.when, 1).store(end, Ordering::Release);
    }

    /// When this CPU (the kernel's number) must decide next though nothing happens; the largest number for never.
    #[must_use]
    pub fn next(&self, cpu: u32, now: u64) -> u64 {
        let start = self.word(&self.when, 0).load(Ordering::Acquire);
        let next = self.word(&self.counts, cpu as usize * COUNT_WORDS).load(Ordering::Acquire);
        if start > now { start.min(next) } else { next }
    }

    /// What was written last to the cpu.max of the group with this place. `None`: nothing, or it is being written.
    #[must_use]
    pub fn written(&self, member: u32) -> Option<Written> {
        let word = |at: usize| self.word(&self.limits, member as usize * LIMIT_WORDS + at).load(Ordering::Acquire);
        let count = word(1);
        let (period_us, quota_us) = (word(2), Some(word(3)).filter(|quota| *quota < NO_LIMIT_US));
        (count > 0 && word(0) == count).then_some(Written { count, period_us, quota_us })
    }

    /// How this CPU fared.
    #[must_use]
    pub fn count(&self, cpu: u32) -> CpuCount {
        let word = |at: usize| self.word(&self.counts, cpu as usize * COUNT_WORDS + at).load(Ordering::Relaxed);
        CpuCount { decisions: word(1), preemptions: word(2), lost: word(3) }
    }

    fn word<'a>(&self, pages: &'a Pages, at: usize) -> &'a AtomicU64 {
        pages.word(at)
    }
}

fn broken(what: &'static str, cause: io::Error) -> SchedExtError {
    SchedExtError::Broken { what, cause }
}

/// The bytes of a value without gaps.
fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the structures of this file are repr(C) without gaps, so all their bytes are initialized.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

/// A value of integers, from its bytes.
fn read<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, and each pattern of bits is one of T, which consists of integers.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Pages shared with the kernel.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages stay mapped as long as this lives, and are used by atomic words only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(descriptor: i32, bytes: usize, offset: usize, writable: bool) -> io::Result<Pages> {
        let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses a free place; the descriptor is open.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, descriptor, offset) };
        let start = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        start.map(|start| Pages { start, bytes }).ok_or_else(io::Error::last_os_error)
    }

    /// All values of an array map, whose values have `each` bytes here.
    fn of_map(object: &Object, name: &'static str, each: usize, count: usize) -> Result<Pages, SchedExtError> {
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| broken(name, io::ErrorKind::NotFound.into()))?;
        if map.value_size() as usize != each {
            return Err(broken(name, io::ErrorKind::InvalidData.into()));
        }
        let bytes = (each * count).next_multiple_of(page());
        Pages::map(map.as_fd().as_raw_fd(), bytes, 0, true).map_err(|cause| broken(name, cause))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!((at + 1) * 8 <= self.bytes, "beyond the pages");
        // SAFETY: within the pages, aligned to 8 bytes, and the kernel writes whole words there.
        unsafe { &*self.start.as_ptr().add(at * 8).cast::<AtomicU64>() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nobody refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn page() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The reader of the kernel's ring buffer (BPF_MAP_TYPE_RINGBUF): a page with the reader's position, one with the
/// writer's, and the data twice in a row.
#[derive(Debug)]
struct Ring {
    reader: Pages,
    writer: Pages,
    size: usize,
    /// Taken from the kernel, and not told yet.
    read: Vec<RawEvent>,
}

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEAD: usize = 8;

impl Ring {
    fn of_map(object: &Object, name: &'static str) -> Result<Ring, SchedExtError> {
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| broken(name, io::ErrorKind::NotFound.into()))?;
        let (descriptor, size) = (map.as_fd().as_raw_fd(), map.max_entries() as usize);
        let map = |bytes, offset, writable| {
            Pages::map(descriptor, bytes, offset, writable).map_err(|cause| broken(name, cause))
        };
        Ok(Ring {
            reader: map(page(), 0, true)?,
            writer: map(page() + 2 * size, page(), false)?,
            size,
            read: Vec::new(),
        })
    }

    fn take(&mut self, tell: impl FnMut(RawEvent)) {
        self.read();
        self.read.drain(..).for_each(tell);
    }

    fn read(&mut self) {
        let position = self.reader.word(0);
        let mut at = position.load(Ordering::Relaxed);
        let end = self.writer.word(0).load(Ordering::Acquire);
        while at < end {
            let place = page() + (at as usize & (self.size - 1));
            let head = self.writer.word(place / 8).load(Ordering::Acquire) as u32;
            if head & BUSY != 0 {
                break;
            }
            let bytes = (head & !DISCARDED) as usize;
            if head & DISCARDED == 0 && bytes == size_of::<RawEvent>() {
                // SAFETY: the record is complete and within the pages: the data stands there twice.
                self.read
                    .push(unsafe { self.writer.start.as_ptr().add(place + HEAD).cast::<RawEvent>().read_unaligned() });
            }
            at += (bytes + HEAD).next_multiple_of(8) as u64;
            position.store(at, Ordering::Release);
        }
    }
}
