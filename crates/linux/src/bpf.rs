//! Programs of the folder bpf/, given to the kernel by libbpf (feature `bpf`).
//!
//! The build script has compiled each file NAME.bpf.c into an image. [`image!`] embeds the image, and [`load`]
//! fits and gives it to the running kernel (CO-RE). Programs and their links are descriptors: they
//! vanish with the process, however it ends. libbpf prints nothing; its messages are in the errors.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{ErrorKind, Link, MapCore as _, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, set_print};
use thiserror::Error;

use crate::process::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, has_capability};

/// The place of the running kernel's types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Why a program is not in the kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BpfError {
    /// Only privileged processes may load programs.
    #[error(
        "BPF programs in the kernel need the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root (sudo)"
    )]
    Privilege,
    /// The kernel does not tell its types.
    #[error("{TYPES} cannot be read: {cause}; BPF programs need a kernel with CONFIG_DEBUG_INFO_BTF")]
    NoTypes {
        /// The reason.
        cause: io::Error,
    },
    /// The kernel refused a program.
    #[error("the kernel refuses the BPF programs \"{name}\": {cause}{}", libbpf_messages(.messages))]
    Refused {
        /// The file in bpf/.
        name: &'static str,
        /// Its answer.
        cause: io::Error,
        /// The last messages of libbpf and of the verifier.
        messages: Vec<String>,
    },
    /// A program was not attached.
    #[error("a BPF program cannot be attached to {place}: {cause}")]
    Attach {
        /// Where.
        place: String,
        /// The kernel's answer.
        cause: io::Error,
    },
}

impl BpfError {
    pub(crate) fn attach(place: &str, cause: io::Error) -> BpfError {
        BpfError::Attach { place: place.to_owned(), cause }
    }
}

fn libbpf_messages(messages: &[String]) -> String {
    if messages.is_empty() { String::new() } else { format!("; libbpf says: {}", messages.join(" / ")) }
}

/// The compiled file bpf/NAME.bpf.c, aligned as libbpf reads it.
macro_rules! image {
    ($name:literal) => {{
        #[repr(C, align(8))]
        struct Aligned<Bytes: ?Sized>(Bytes);
        static IMAGE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        &IMAGE.0
    }};
}
pub(crate) use image;

/// Messages of libbpf while [`load`] runs. libbpf has one printer for the whole process.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LOADING: Mutex<()> = Mutex::new(());
/// The most messages, and the most letters of each, that an error repeats.
const MESSAGES_MAX: usize = 4;
const LETTERS_MAX: usize = 200;

fn record(_: PrintLevel, message: String) {
    let mut all = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    all.extend(message.lines().map(str::to_owned));
}

/// Whether this process may load programs and attach them.
pub fn privilege() -> Result<(), BpfError> {
    let may = |capability| has_capability(capability) || has_capability(CAP_SYS_ADMIN);
    if may(CAP_BPF) && may(CAP_PERFMON) && has_capability(CAP_NET_ADMIN) { Ok(()) } else { Err(BpfError::Privilege) }
}

/// Loads an image. `prepare` may change the opened programs and maps before.
pub fn load(
    name: &'static str,
    image: &[u8],
    prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, BpfError> {
    privilege()?;
    std::fs::File::open(TYPES).map_err(|cause| BpfError::NoTypes { cause })?;
    let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    set_print(Some((PrintLevel::Warn, record)));
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let loaded = ObjectBuilder::default().open_memory(image).and_then(|mut object| {
        prepare(&mut object)?;
        object.load()
    });
    loaded.map_err(|error| {
        let messages = std::mem::take(&mut *MESSAGES.lock().unwrap_or_else(PoisonError::into_inner));
        BpfError::Refused { name, cause: cause(&error), messages: shortened(&messages) }
    })
}

/// The last messages that say something: the verifier's reason stands before its statistics.
fn shortened(messages: &[String]) -> Vec<String> {
    let tells = |line: &&String| {
        let noise = ["processed ", "-- ", "verification time", "stack depth", "failed to load object"];
        let line = line.trim_start_matches("libbpf: ").trim();
        !line.is_empty() && !noise.iter().any(|start| line.starts_with(start))
    };
    let told: Vec<&String> = messages.iter().filter(tells).collect();
    let last = &told[told.len().saturating_sub(MESSAGES_MAX)..];
    last.iter().map(|line| line.trim_start_matches("libbpf: ").trim().chars().take(LETTERS_MAX).collect()).collect()
}

/// An error of libbpf as one of the system.
pub(crate) fn cause(error: &libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

/// A map of a loaded image.
pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, BpfError> {
    let map = object.maps().find(|map| map.name() == name).ok_or_else(|| BpfError::attach(name, missing()))?;
    MapHandle::try_from(&map).map_err(|error| BpfError::attach(name, io::Error::other(error)))
}

/// Gives the kernel the operations in a map of a loaded image, until the link is dropped.
pub(crate) fn register(object: &mut Object, name: &str) -> io::Result<Link> {
    let mut map = object.maps_mut().find(|map| map.name() == name).ok_or_else(missing)?;
    map.attach_struct_ops().map_err(|error| io::Error::other(format!("{error:#}")))
}

pub(crate) fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the image lacks it")
}

/// A place for programs, of the kinds that libbpf-rs lacks.
#[derive(Clone, Copy, Debug)]
pub enum Hook<'a> {
    /// Where sockets of a control group set an option.
    SetOption(BorrowedFd<'a>),
    /// Where they ask for one.
    GetOption(BorrowedFd<'a>),
    /// Before the queueing discipline of the device with that number (Linux 6.6).
    Egress(u32),
}

/// Attaches the program until the descriptor is closed.
pub fn attach(program: BorrowedFd<'_>, hook: Hook<'_>, place: &str) -> Result<OwnedFd, BpfError> {
    let (target, kind) = match hook {
        Hook::SetOption(group) => (group.as_raw_fd(), libbpf_sys::BPF_CGROUP_SETSOCKOPT),
        Hook::GetOption(group) => (group.as_raw_fd(), libbpf_sys::BPF_CGROUP_GETSOCKOPT),
        Hook::Egress(device) => (device.cast_signed(), libbpf_sys::BPF_TCX_EGRESS),
    };
    // SAFETY: both descriptors are open during the call, and options may be null; a descriptor that it returns is new,
    // and nobody else's.
    let link = unsafe {
        match libbpf_sys::bpf_link_create(program.as_raw_fd(), target, kind, std::ptr::null()) {
            link if link >= 0 => Ok(OwnedFd::from_raw_fd(link)),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    };
    link.map_err(|cause| BpfError::attach(place, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_none_is_refused_with_the_reason() {
        match load("nothing", b"no image", |_| Ok(())) {
            Err(BpfError::Privilege) => println!("skipped: {}", BpfError::Privilege),
            Err(error @ BpfError::NoTypes { .. }) => println!("skipped: {error}"),
            other => {
                let error = other.map(drop).unwrap_err().to_string();
                assert!(error.starts_with("the kernel refuses the BPF programs \"nothing\": "), "{error}");
                assert!(error.contains("libbpf says: "), "{error}");
            }
        }
    }

    #[test]
    fn an_error_repeats_the_reason_and_not_the_noise() {
        let lines = [
            "libbpf: prog 'tag': BPF program load failed: Invalid argument",
            "libbpf: prog 'tag': -- BEGIN PROG LOAD LOG --",
            "0: R1=ctx() R10=fp0",
            "R0 invalid mem access 'scalar'",
            "processed 3 insns (limit 1000000) max_states_per_insn 0",
            "-- END PROG LOAD LOG --",
            "libbpf: failed to load object ''",
        ];
        let told = shortened(&lines.map(str::to_owned));
        assert_eq!(told.last().unwrap(), "R0 invalid mem access 'scalar'");
        assert!(told[0].starts_with("prog 'tag': BPF program load failed"), "{told:?}");
    }
}
