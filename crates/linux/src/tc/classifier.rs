//! The rules of packets and their classes, and the BPF program for them.
//!
//! The program hangs at the root of takt's tree (cls_bpf), because other filters are missing on
//! some kernels. It is put together here, instruction by instruction, and needs no compiler. The
//! program returns the class of the first rule that holds. At 0 HTB takes the background class.
//! takt's own discipline has no classes for filters. Its program runs before it (tcx), and writes the
//! class into the packet's priority.
//!
//! Ports are those of UDP and TCP, over IPv4, and over IPv6 without extension headers. Fragments
//! after the first have no ports, so they are background.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
#[cfg(feature = "bpf")]
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::htb::class_of;
use super::own::TAGGED;
use super::plan::Role;

/// A packet's property that decides about its class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Match {
    /// SO_PRIORITY of the socket.
    Priority(u32),
    /// Goes to one of these ports.
    ToPort(u16, u16),
    /// Comes from one of these ports.
    FromPort(u16, u16),
    /// Its socket was made in this control group (cgroup v2), or in one below.
    Group(PathBuf),
}

/// A rule: packets with a property belong to a class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The property.
    pub of: Match,
    /// The class.
    pub role: Role,
}

impl Rule {
    /// The rules that hold unless others are given: SO_PRIORITY 6 and 5, which need no privilege.
    #[must_use]
    pub fn usual(reply: bool) -> Vec<Rule> {
        let real_time = Rule { of: Match::Priority(6), role: Role::RealTime };
        let replies = reply.then_some(Rule { of: Match::Priority(5), role: Role::Reply });
        [real_time].into_iter().chain(replies).collect()
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = |f: &mut fmt::Formatter<'_>, name: &str, first: u16, last: u16| {
            if first == last { write!(f, "{name}:{first}") } else { write!(f, "{name}:{first}-{last}") }
        };
        match self {
            Match::Priority(priority) => write!(f, "priority:{priority}"),
            Match::ToPort(first, last) => ports(f, "port", *first, *last),
            Match::FromPort(first, last) => ports(f, "from-port", *first, *last),
            Match::Group(path) => write!(f, "cgroup:{}", path.display()),
        }
    }
}

impl FromStr for Match {
    type Err = String;

    fn from_str(text: &str) -> Result<Match, String> {
        const FORMS: &str = "write priority:6, port:7000, port:7000-7009, from-port:7000 or cgroup:/control";
        let Some((name, value)) = text.split_once(':') else { return Err(format!("is no rule; {FORMS}")) };
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("\"{text}\" is no port from 1 to 65535")),
        };
        let ports = || {
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            match (port(first)?, port(last)?) {
                (first, last) if first > last => Err(format!("port {first} comes after {last}; write the lower first")),
                both => Ok(both),
            }
        };
        match name {
            "priority" => {
                let number = value.parse().map_err(|_| format!("\"{value}\" is no priority from 0 to 4294967295"))?;
                Ok(Match::Priority(number))
            }
            "port" => ports().map(|(first, last)| Match::ToPort(first, last)),
            "from-port" => ports().map(|(first, last)| Match::FromPort(first, last)),
            "cgroup" if value.starts_with('/') && !value.contains(char::is_control) => Ok(Match::Group(value.into())),
            "cgroup" => {
                Err(format!("\"{value}\" is no path of a control group; write one from the root, like /control"))
            }
            _ => Err(format!("\"{name}\" is no property of packets; {FORMS}")),
        }
    }
}

/// A control group as the kernel tells it from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct GroupId {
    id: u64,
    /// Its depth below the root.
    level: u32,
}

impl GroupId {
    fn find(path: &Path) -> io::Result<GroupId> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "cgroup v2 is not mounted");
        let mount = mounts.lines().find_map(cgroup2).ok_or_else(missing)?;
        let below = path.strip_prefix("/").unwrap_or(path);
        let about = fs::metadata(Path::new(mount).join(below))?;
        Ok(GroupId { id: about.ino(), level: u32::try_from(below.components().count()).unwrap_or(u32::MAX) })
    }
}

/// The folder where a line of mountinfo mounts cgroup v2.
fn cgroup2(line: &str) -> Option<&str> {
    let (about, kind) = line.split_once(" - ")?;
    (kind.split(' ').next() == Some("cgroup2")).then(|| about.split(' ').nth(4))?
}

/// An instruction of BPF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    value: i32,
}

// Codes of instructions: class, size or source, mode or operation.
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const LOAD_LONG: u8 = 0x18;
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_ABOVE: u8 = 0x25;
const JUMP_OTHER: u8 = 0x55;
const JUMP_BELOW: u8 = 0xa5;
const JUMP_OTHER_REGISTER: u8 = 0x5d;
const JUMP_OTHER_WORD: u8 = 0x56;
const JUMP_EQUAL_WORD: u8 = 0x16;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const STORE_WORD: u8 = 0x63;
/// The next program goes on.
const TCX_NEXT: i32 = -1;
/// The helper that copies bytes of a packet, counted from its network header.
const LOAD_BYTES_RELATIVE: i32 = 68;
const FROM_NETWORK_HEADER: i32 = 1;
/// The helper that gives the control group of a packet's socket, at a depth.
const ANCESTOR_GROUP: i32 = 83;
// Fields of `__sk_buff`.
const PROTOCOL: i16 = 16;
const PRIORITY: i16 = 32;
/// The place of header bytes on the stack: below the frame pointer.
const HEADERS: i16 = -32;
const HEADER_BYTES: i32 = 20;
// Registers that calls keep.
const PACKET: u8 = 6;
const SOURCE: u8 = 8;
const TARGET: u8 = 9;

/// A program under construction. Jumps go forward to labels.
#[derive(Default)]
struct Assembler {
    program: Vec<Instruction>,
    /// Jumps whose distance is open, with their labels.
    open: Vec<(usize, usize)>,
    labels: Vec<Option<usize>>,
}

impl Assembler {
    fn put(&mut self, code: u8, (to, from): (u8, u8), offset: i16, value: i32) {
        self.program.push(Instruction { code, registers: to | from << 4, offset, value });
    }

    fn label(&mut self) -> usize {
        self.labels.push(None);
        self.labels.len() - 1
    }

    fn jump(&mut self, code: u8, registers: (u8, u8), value: i32, label: usize) {
        self.open.push((self.program.len(), label));
        self.put(code, registers, 0, value);
    }

    fn here(&mut self, label: usize) {
        self.labels[label] = Some(self.program.len());
    }

    /// Copies `length` bytes of the packet onto the stack, from `offset` (none: from register 2) after the
    /// network header; goes to `label` where the packet is too short.
    fn copy(&mut self, offset: Option<i32>, length: i32, label: usize) {
        self.put(MOVE_REGISTER, (1, PACKET), 0, 0);
        if let Some(offset) = offset {
            self.put(MOVE, (2, 0), 0, offset);
        }
        self.put(MOVE_REGISTER, (3, 10), 0, 0);
        self.put(ADD, (3, 0), 0, i32::from(HEADERS));
        self.put(MOVE, (4, 0), 0, length);
        self.put(MOVE, (5, 0), 0, FROM_NETWORK_HEADER);
        self.put(CALL, (0, 0), 0, LOAD_BYTES_RELATIVE);
        self.jump(JUMP_OTHER, (0, 0), 0, label);
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.open {
            let target = self.labels[label].unwrap_or(self.program.len());
            self.program[at].offset = i16::try_from(target - at - 1).unwrap_or(i16::MAX);
        }
        self.program
    }
}

/// The program's use of a packet's class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It returns the class.
    Returned,
    /// It writes the class into the packet's priority, unless the packet carries a deadline already.
    Written,
}

/// The program of rules; `group` tells control groups.
fn assemble(
    rules: &[Rule],
    verdict: Verdict,
    mut group: impl FnMut(&Path) -> io::Result<GroupId>,
) -> io::Result<Vec<Instruction>> {
    let mut program = Assembler::default();
    program.put(MOVE_REGISTER, (PACKET, 1), 0, 0);
    let end = program.label();
    if verdict == Verdict::Written {
        program.put(LOAD_WORD, (1, PACKET), PRIORITY, 0);
        program.jump(JUMP_EQUAL_WORD, (1, 0), TAGGED.cast_signed(), end);
    }
    if rules.iter().any(|rule| matches!(rule.of, Match::ToPort(..) | Match::FromPort(..))) {
        ports(&mut program);
    }
    for rule in rules {
        let next = program.label();
        match &rule.of {
            Match::Priority(priority) => {
                program.put(LOAD_WORD, (1, PACKET), PRIORITY, 0);
                program.jump(JUMP_OTHER_WORD, (1, 0), priority.cast_signed(), next);
            }
            Match::ToPort(first, last) | Match::FromPort(first, last) => {
                let register = if matches!(rule.of, Match::ToPort(..)) { TARGET } else { SOURCE };
                program.jump(JUMP_BELOW, (register, 0), i32::from(*first), next);
                program.jump(JUMP_ABOVE, (register, 0), i32::from(*last), next);
            }
            Match::Group(path) => {
                let GroupId { id, level } = group(path).map_err(|error| {
                    io::Error::new(error.kind(), format!("control group {}: {error}", path.display()))
                })?;
                program.put(MOVE_REGISTER, (1, PACKET), 0, 0);
                program.put(MOVE, (2, 0), 0, level.cast_signed());
                program.put(CALL, (0, 0), 0, ANCESTOR_GROUP);
                program.put(LOAD_LONG, (1, 0), 0, (id as u32).cast_signed());
                program.put(0, (0, 0), 0, ((id >> 32) as u32).cast_signed());
                program.jump(JUMP_OTHER_REGISTER, (0, 1), 0, next);
            }
        }
        // A move of 32 bits extends no sign.
        program.put(0xb4, (0, 0), 0, class_of(rule.role).cast_signed());
        match verdict {
            Verdict::Returned => program.put(EXIT, (0, 0), 0, 0),
            Verdict::Written => {
                program.put(STORE_WORD, (PACKET, 0), PRIORITY, 0);
                program.jump(JUMP, (0, 0), 0, end);
            }
        }
        program.here(next);
    }
    program.here(end);
    program.put(MOVE, (0, 0), 0, if verdict == Verdict::Written { TCX_NEXT } else { 0 });
    program.put(EXIT, (0, 0), 0, 0);
    Ok(program.finish())
}

/// Puts the ports into their registers; 0 where a packet has none.
fn ports(program: &mut Assembler) {
    const IPV4: i32 = (0x0800_u16).to_be() as i32;
    const IPV6: i32 = (0x86dd_u16).to_be() as i32;
    let [v4, v6, transport, found, done] = std::array::from_fn(|_| program.label());
    program.put(MOVE, (SOURCE, 0), 0, 0);
    program.put(MOVE, (TARGET, 0), 0, 0);
    program.put(LOAD_WORD, (1, PACKET), PROTOCOL, 0);
    program.jump(JUMP_EQUAL_WORD, (1, 0), IPV4, v4);
    program.jump(JUMP_EQUAL_WORD, (1, 0), IPV6, v6);
    program.jump(JUMP, (0, 0), 0, done);
    program.here(v4);
    program.copy(Some(0), HEADER_BYTES, done);
    // A fragment after the first.
    program.put(LOAD_HALF, (1, 10), HEADERS + 6, 0);
    program.put(BIG_ENDIAN, (1, 0), 0, 16);
    program.put(AND, (1, 0), 0, 0x1fff);
    program.jump(JUMP_OTHER, (1, 0), 0, done);
    program.put(LOAD_BYTE, (3, 10), HEADERS + 9, 0);
    // The length of the header.
    program.put(LOAD_BYTE, (2, 10), HEADERS, 0);
    program.put(AND, (2, 0), 0, 0xf);
    program.put(SHIFT_LEFT, (2, 0), 0, 2);
    program.jump(JUMP, (0, 0), 0, transport);
    program.here(v6);
    program.copy(Some(0), HEADER_BYTES, done);
    program.put(LOAD_BYTE, (3, 10), HEADERS + 6, 0);
    program.put(MOVE, (2, 0), 0, 40);
    program.here(transport);
    program.jump(JUMP_EQUAL, (3, 0), libc::IPPROTO_UDP, found);
    program.jump(JUMP_OTHER, (3, 0), libc::IPPROTO_TCP, done);
    program.here(found);
    program.copy(None, 4, done);
    for (register, at) in [(SOURCE, HEADERS), (TARGET, HEADERS + 2)] {
        program.put(LOAD_HALF, (register, 10), at, 0);
        program.put(BIG_ENDIAN, (register, 0), 0, 16);
    }
    program.here(done);
}

/// A program that the kernel has taken.
#[derive(Debug)]
pub(super) struct Classifier {
    program: OwnedFd,
    /// Its number in the kernel.
    pub(super) id: u32,
}

impl Classifier {
    /// Gives the kernel the program of these rules.
    pub(super) fn load(rules: &[Rule], verdict: Verdict) -> io::Result<Classifier> {
        let program = assemble(rules, verdict, GroupId::find)?;
        let program = load(&program)?;
        let mut about = String::new();
        fs::File::open(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?.read_to_string(&mut about)?;
        let id = about.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
        let id = id.ok_or_else(|| io::Error::other("the kernel does not tell the number of a BPF program"))?;
        Ok(Classifier { program, id })
    }

    pub(super) fn descriptor(&self) -> u32 {
        self.program.as_raw_fd().cast_unsigned()
    }

    #[cfg(feature = "bpf")]
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// BPF_PROG_LOAD of a classifier.
fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    /// The part of `bpf_attr` that loading needs; the kernel takes the rest as zero.
    #[repr(C)]
    #[derive(Default)]
    struct Load {
        kind: u32,
        length: u32,
        program: u64,
        licence: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
    }
    const PROG_LOAD: libc::c_int = 5;
    const SCHED_CLS: u32 = 3;
    let mut log = vec![0u8; 64 << 10];
    let mut attempt = |log_level: u32| {
        let attributes = Load {
            kind: SCHED_CLS,
            length: program.len() as u32,
            program: program.as_ptr() as u64,
            licence: c"MIT OR Apache-2.0".as_ptr() as u64,
            log_level,
            log_size: if log_level > 0 { log.len() as u32 } else { 0 },
            log: if log_level > 0 { log.as_mut_ptr() as u64 } else { 0 },
        };
        let size = size_of_val(&attributes);
        // SAFETY: the attributes, and the program, text and buffer to which they point, outlive the call and have the
        // lengths that they give; a descriptor that it returns is new, and nobody else's.
        unsafe {
            let loaded = libc::syscall(libc::SYS_bpf, PROG_LOAD, std::ptr::from_ref(&attributes), size);
            match libc::c_int::try_from(loaded) {
                Ok(descriptor) if descriptor >= 0 => Ok(OwnedFd::from_raw_fd(descriptor)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    };
    let first = match attempt(0) {
        Ok(loaded) => return Ok(loaded),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
        Err(error) => error,
    };
    // Once more, for the verifier's reason.
    let _ = attempt(1);
    let told = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = told.lines().filter(|line| !line.starts_with("processed ")).collect();
    match lines.last() {
        Some(last) => Err(io::Error::new(first.kind(), format!("{first}; the verifier says: {last}"))),
        None => Err(first),
    }
}

#[cfg(test)]
#[path = "classifier_tests.rs"]
mod tests;
