//! Scheduling classes and affinity of the calling thread.
//!
//! A thread promotes and demotes itself. If a sleeping SCHED_DEADLINE thread is demoted from
//! outside, its bandwidth leaks. All classes are set with RESET_ON_FORK, so no child inherits them.
//! Without this flag a SCHED_DEADLINE thread could not fork at all.

use std::fs;
use std::marker::PhantomData;

use takt_model::Span;
use thiserror::Error;

use crate::clock::errno;
use crate::process::{CAP_SYS_NICE, has_capability, rtprio_limit};

/// Lowest runtime that the kernel takes, in nanoseconds.
pub const RUNTIME_MIN_NS: u64 = 1024;
/// SCHED_FIFO priorities that takt hands out, the most important last. 99 is left to the kernel's own threads.
pub const FIFO_PRIORITY_MAX: u8 = 98;

pub(crate) const FLAG_RESET_ON_FORK: u64 = 1;
pub(crate) const FLAG_RECLAIM: u64 = 2;
const GETATTR_DYNAMIC: libc::c_uint = 1;

/// A scheduling class with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// SCHED_OTHER, the ordinary one.
    Other,
    /// SCHED_FIFO; kernel priority 1 to 99, the largest number is the most important.
    Fifo {
        /// The kernel's priority.
        priority: u8,
    },
    /// SCHED_RR; priorities as for SCHED_FIFO.
    RoundRobin {
        /// The kernel's priority.
        priority: u8,
    },
    /// SCHED_DEADLINE.
    Deadline(Reservation),
    /// SCHED_EXT: under a sched_ext scheduler, or as [`Class::Other`] where there is none.
    Ext,
}

/// The kernel's number of SCHED_EXT, which libc lacks.
const SCHED_EXT: i32 = 7;

/// Fractional bits of the kernel's bandwidths.
pub const BW_SHIFT: u32 = 20;

/// The reservation of a SCHED_DEADLINE thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// CPU time per period, 1024 ns to `deadline`.
    pub runtime: Span,
    /// Relative deadline, at most `period`.
    pub deadline: Span,
    /// Period.
    pub period: Span,
}

impl Reservation {
    /// The share of a CPU, in 2^-20, as the kernel's admission control books it (`to_ratio`).
    #[must_use]
    pub const fn bandwidth(&self) -> u64 {
        let period = self.period.as_ns();
        if period == 0 { 0 } else { (((self.runtime.as_ns() as u128) << BW_SHIFT) / period as u128) as u64 }
    }
}

impl Class {
    /// As `chrt` names it, with parameters.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Class::Other => "SCHED_OTHER".to_owned(),
            Class::Fifo { priority } => format!("SCHED_FIFO priority {priority}"),
            Class::RoundRobin { priority } => format!("SCHED_RR priority {priority}"),
            Class::Deadline(Reservation { runtime, deadline, period }) => {
                format!("SCHED_DEADLINE runtime {runtime}, deadline {deadline}, period {period}")
            }
            Class::Ext => "SCHED_EXT".to_owned(),
        }
    }
}

/// The reason why a class or an affinity was refused: the cause behind the errno.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SchedError {
    /// No privilege.
    #[error("{class} was refused: {missing}")]
    Privilege {
        /// The requested class.
        class: String,
        /// The missing privilege.
        missing: String,
    },
    /// The CPU cgroup of the process has no real-time budget (CONFIG_RT_GROUP_SCHED).
    #[error(
        "{class} was refused: the CPU cgroup {group} has cpu.rt_runtime_us = 0; write a budget to it, or move the \
         shell to a group with a budget"
    )]
    RtGroup {
        /// The requested class.
        class: String,
        /// The cgroup's folder.
        group: String,
    },
    /// SCHED_DEADLINE with an affinity smaller than the root domain.
    #[error(
        "{class} was refused: the thread's affinity does not cover all CPUs of its scheduling domain; {}, or \
         with sudo, so that it can make a domain of these CPUs",
        start(cpuset.as_deref())
    )]
    Affinity {
        /// The requested class.
        class: String,
        /// The cpuset that limits the process, if any.
        cpuset: Option<String>,
    },
    /// Admission control.
    #[error(
        "{class} was refused by the kernel's admission control: with what runs already, more than {percent} % \
         of each CPU would be reserved"
    )]
    Admission {
        /// The requested class.
        class: String,
        /// The share that may be reserved.
        percent: u64,
    },
    /// Parameters out of the kernel's range.
    #[error(
        "{class} was refused: parameters out of range; the kernel wants 1024ns <= runtime <= deadline <= \
         period, and a period from {min} to {max}"
    )]
    Range {
        /// The requested class.
        class: String,
        /// Shortest period.
        min: Span,
        /// Longest period.
        max: Span,
    },
    /// The class does not exist.
    #[error("{class} was refused: this kernel does not have it")]
    Missing {
        /// The requested class.
        class: String,
    },
    /// Something else.
    #[error("{class} was refused: {cause}")]
    Other {
        /// The requested class.
        class: String,
        /// The kernel's answer.
        cause: String,
    },
}

/// The kernel's `struct sched_attr`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attributes {
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}
const ATTRIBUTES_SIZE: u32 = size_of::<Attributes>() as u32;

impl From<&Class> for Attributes {
    fn from(class: &Class) -> Self {
        let base = Attributes { size: ATTRIBUTES_SIZE, flags: FLAG_RESET_ON_FORK, ..Attributes::default() };
        match *class {
            Class::Other => Attributes { policy: libc::SCHED_OTHER as u32, ..base },
            Class::Ext => Attributes { policy: SCHED_EXT as u32, ..base },
            Class::Fifo { priority } => {
                Attributes { policy: libc::SCHED_FIFO as u32, priority: u32::from(priority), ..base }
            }
            Class::RoundRobin { priority } => {
                Attributes { policy: libc::SCHED_RR as u32, priority: u32::from(priority), ..base }
            }
            Class::Deadline(Reservation { runtime, deadline, period }) => Attributes {
                policy: libc::SCHED_DEADLINE as u32,
                runtime: runtime.as_ns(),
                deadline: deadline.as_ns(),
                period: period.as_ns(),
                ..base
            },
        }
    }
}

/// Puts the calling thread under another class. Dropping this restores the former class.
///
/// Not `Send`: the thread that entered must also leave.
#[derive(Debug)]
#[must_use = "the former class comes back when the guard is dropped"]
pub struct ClassGuard {
    former: Attributes,
    own_thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for Attributes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "policy {} priority {}", self.policy, self.priority)
    }
}

impl ClassGuard {
    /// Gives the calling thread `class`.
    ///
    /// # Errors
    /// The cause of the refusal; the thread keeps its class.
    pub fn enter(class: &Class) -> Result<ClassGuard, SchedError> {
        let former = get(0).unwrap_or_else(|_| Attributes::from(&Class::Other));
        set(&Attributes::from(class)).map_err(|errno| explained(class, errno))?;
        Ok(ClassGuard { former, own_thread: PhantomData })
    }

    /// As [`ClassGuard::enter`], in a scheduling domain that may still be in the making.
    ///
    /// # Errors
    /// The cause of the refusal; the thread keeps its class.
    pub fn enter_in_domain(class: &Class) -> Result<ClassGuard, SchedError> {
        when_there_is_a_domain(|| Self::enter(class))
    }
}

impl Drop for ClassGuard {
    fn drop(&mut self) {
        // Without CAP_SYS_NICE a thread may not clear RESET_ON_FORK, so the second try keeps it.
        let kept = Attributes { flags: self.former.flags | FLAG_RESET_ON_FORK, ..self.former };
        if set(&self.former).is_err() && set(&kept).is_err() {
            let _ = set(&Attributes::from(&Class::Other));
        }
    }
}

/// The class of the calling thread. Classes missing in [`Class`] count as `Other`.
#[must_use]
pub fn current() -> Class {
    get(0).map_or(Class::Other, |attributes| class_of(&attributes))
}

pub(crate) fn class_of(attributes: &Attributes) -> Class {
    let priority = u8::try_from(attributes.priority).unwrap_or(u8::MAX);
    match attributes.policy as i32 {
        libc::SCHED_FIFO => Class::Fifo { priority },
        libc::SCHED_RR => Class::RoundRobin { priority },
        libc::SCHED_DEADLINE => Class::Deadline(Reservation {
            runtime: Span::from_ns(attributes.runtime),
            deadline: Span::from_ns(attributes.deadline),
            period: Span::from_ns(attributes.period),
        }),
        SCHED_EXT => Class::Ext,
        _ => Class::Other,
    }
}

/// The scheduling of another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scheduling {
    pub(crate) class: Class,
    /// The kernel's number of the class.
    pub(crate) policy: u32,
    pub(crate) nice: i32,
}

/// The scheduling of the thread with this id; `None` if the thread is gone.
pub(crate) fn of_thread(id: u32) -> Option<Scheduling> {
    let attributes = get_of(libc::pid_t::try_from(id).ok().filter(|id| *id > 0)?, 0).ok()?;
    Some(Scheduling { class: class_of(&attributes), policy: attributes.policy, nice: attributes.nice })
}

/// The kernel's number for the scheduling policy of the thread with this id; `None` if the thread is gone.
#[must_use]
pub fn policy_of(id: u32) -> Option<u32> {
    of_thread(id).map(|scheduling| scheduling.policy)
}

/// The CPUs of the thread with this id; empty if the thread is gone.
pub(crate) fn affinity_of(id: u32) -> Vec<u32> {
    libc::pid_t::try_from(id).map(cpus_of).unwrap_or_default()
}

/// The absolute scheduling deadline of the calling SCHED_DEADLINE thread (CLOCK_MONOTONIC,
/// nanoseconds). It wavers by a few nanoseconds. The kernel postpones it by a period each time it
/// throttles the thread. `None` before Linux 7.0.
#[inline]
#[must_use]
pub fn scheduling_deadline() -> Option<u64> {
    get(GETATTR_DYNAMIC).ok().map(|attributes| attributes.deadline)
}

/// CPUs (the kernel's numbers, ascending) that the calling thread may use.
#[must_use]
pub fn affinity() -> Vec<u32> {
    cpus_of(0)
}

/// Thread 0 is the caller.
pub(crate) fn cpus_of(thread: libc::pid_t) -> Vec<u32> {
    let mut words = [0u64; CPU_WORDS];
    // SAFETY: `words` is valid for writing as many bytes as are announced.
    let written =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&words), words.as_mut_ptr()) };
    if written <= 0 {
        return Vec::new();
    }
    let has = |cpu: u32| words.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
    (0..CPU_WORDS as u32 * 64).filter(|cpu| has(*cpu)).collect()
}
/// 8192 CPUs, the kernel's largest configuration.
const CPU_WORDS: usize = 128;

/// Binds the calling thread to these CPUs (the kernel's numbers).
///
/// # Errors
/// The kernel's refusal: none of the CPUs exists, or the thread is under SCHED_DEADLINE.
pub fn set_affinity(cpus: &[u32]) -> Result<(), SchedError> {
    set_cpus_of(0, cpus).map_err(|errno| match unbound(cpus, errno) {
        SchedError::Other { class, .. } if errno == libc::EINVAL => {
            SchedError::Other { class, cause: "this process may use none of these CPUs".to_owned() }
        }
        SchedError::Other { class, .. } if errno == libc::EBUSY => SchedError::Affinity { class, cpuset: cpuset() },
        error => error,
    })
}

/// Binds a thread of this process to one CPU (the kernel's number). If it runs, it goes there at once.
///
/// # Errors
/// The kernel's refusal.
pub fn bind(thread: crate::thread::Tid, cpu: u32) -> Result<(), std::io::Error> {
    set_cpus_of(thread.0, &[cpu]).map_err(std::io::Error::from_raw_os_error)
}

/// Why a thread was not bound to these CPUs.
pub(crate) fn unbound(cpus: &[u32], errno: i32) -> SchedError {
    SchedError::Other { class: format!("affinity to CPUs {cpus:?}"), cause: text(errno) }
}

/// Thread 0 is the caller.
pub(crate) fn set_cpus_of(thread: libc::pid_t, cpus: &[u32]) -> Result<(), i32> {
    let mut words = [0u64; CPU_WORDS];
    for cpu in cpus {
        if let Some(word) = words.get_mut(*cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    // SAFETY: `words` is valid for reading as many bytes as are announced.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(&words), words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn get(flags: libc::c_uint) -> Result<Attributes, i32> {
    get_of(0, flags)
}

/// Thread 0 is the caller.
pub(crate) fn get_of(thread: libc::pid_t, flags: libc::c_uint) -> Result<Attributes, i32> {
    let mut attributes = Attributes::default();
    // SAFETY: `attributes` is valid for writing as many bytes as are announced.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, ATTRIBUTES_SIZE, flags) };
    if result == 0 { Ok(attributes) } else { Err(errno()) }
}

/// The bandwidth of an ended thread comes back about a period later, so EBUSY is retried this
/// often.
const ADMISSION_TRIES_MAX: u32 = 10;

/// Attempts to enter SCHED_DEADLINE on the thread's CPUs, 20 ms apart.
const DOMAIN_TRIES_MAX: u32 = 25;

/// Retries, because new domains are not ready right after the machine was divided. A thread moved
/// to another domain enters it only at its next wake-up.
fn when_there_is_a_domain<T>(mut set: impl FnMut() -> Result<T, SchedError>) -> Result<T, SchedError> {
    for _ in 1..DOMAIN_TRIES_MAX {
        match set() {
            Err(SchedError::Affinity { .. }) => crate::clock::pause(Span::from_ms(20)),
            other => return other,
        }
    }
    set()
}

/// Puts another thread under `class`, in a scheduling domain that may still be in the making.
pub(crate) fn set_in_domain(thread: libc::pid_t, class: &Class) -> Result<(), SchedError> {
    when_there_is_a_domain(|| set_of(thread, &Attributes::from(class)).map_err(|errno| explained(class, errno)))
}

fn set(attributes: &Attributes) -> Result<(), i32> {
    set_of(0, attributes)
}

/// Changes the priority of another thread of this process under SCHED_FIFO.
///
/// # Errors
/// The kernel's refusal as it is, because callers hold locks; the thread keeps its priority.
pub fn reprioritize(thread: crate::thread::Tid, priority: u8) -> Result<(), std::io::Error> {
    reclass(thread, &Class::Fifo { priority })
}

/// Puts another thread of this process, which is not under SCHED_DEADLINE, under another class than that.
///
/// # Errors
/// As [`reprioritize`].
pub fn reclass(thread: crate::thread::Tid, class: &Class) -> Result<(), std::io::Error> {
    set_of(thread.0, &Attributes::from(class)).map_err(std::io::Error::from_raw_os_error)
}

/// Thread 0 is the caller. Async-signal-safe.
pub(crate) fn set_of(thread: libc::pid_t, attributes: &Attributes) -> Result<(), i32> {
    let mut last = 0;
    for attempt in 0..ADMISSION_TRIES_MAX {
        let wanted = Attributes { size: ATTRIBUTES_SIZE, ..*attributes };
        // SAFETY: `wanted` is valid for reading as many bytes as its size announces; thread 0 is the caller.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const wanted, 0) } == 0 {
            return Ok(());
        }
        last = errno();
        if last != libc::EBUSY {
            break;
        }
        if attempt + 1 < ADMISSION_TRIES_MAX {
            crate::clock::pause(Span::from_ms(20));
        }
    }
    Err(last)
}

/// Facts that explain a refusal.
struct Facts {
    cap_sys_nice: bool,
    rtprio: u64,
    rt_group: Option<String>,
    cpuset: Option<String>,
    rt_percent: u64,
    period_min: Span,
    period_max: Span,
}

impl Facts {
    fn gather() -> Facts {
        let machine = crate::limits::Limits::read();
        Facts {
            cap_sys_nice: has_capability(CAP_SYS_NICE),
            rtprio: rtprio_limit(),
            rt_group: group_without_budget(),
            cpuset: cpuset(),
            rt_percent: machine.rt_percent(),
            period_min: machine.dl_period_min,
            period_max: machine.dl_period_max,
        }
    }
}

/// Why another thread did not get a class: its own CPU cgroup counts.
pub(crate) fn refused_to(thread: u32, class: &Class, errno: i32) -> SchedError {
    let group = || {
        let groups = fs::read_to_string(format!("/proc/{thread}/cgroup")).ok()?;
        let path = crate::cgroup::group_of(&groups, "cpu")?;
        let folder = crate::cgroup::v1_mount("cpu")?.join(path.trim_start_matches('/'));
        let runtime = fs::read_to_string(folder.join("cpu.rt_runtime_us")).ok()?;
        (runtime.trim() == "0").then(|| folder.display().to_string())
    };
    match group() {
        Some(group) if errno == libc::EPERM => SchedError::RtGroup { class: class.describe(), group },
        _ => explained(class, errno),
    }
}

/// The folder of this process's CPU cgroup (version 1) if its real-time budget is zero.
fn group_without_budget() -> Option<String> {
    let folder = crate::cgroup::v1_folder("cpu")?;
    let runtime = fs::read_to_string(folder.join("cpu.rt_runtime_us")).ok()?;
    (runtime.trim() == "0").then(|| folder.display().to_string())
}

/// The cpuset of this process, unless it is the root.
fn cpuset() -> Option<String> {
    let path = fs::read_to_string("/proc/self/cpuset").ok()?;
    Some(path.trim().to_owned()).filter(|path| !matches!(path.as_str(), "" | "/"))
}

/// The remedy if this process may use some CPUs of the machine only.
#[must_use]
pub fn unconfined() -> String {
    start(cpuset().as_deref())
}

/// The remedy: how a thread gets all CPUs of its domain.
fn start(cpuset: Option<&str>) -> String {
    let out = |path| format!("start takt without taskset, outside of the cpuset \"{path}\" (or give that more CPUs)");
    cpuset.map_or_else(|| "start takt without taskset".to_owned(), out)
}

/// The cause behind an errno, on this machine.
pub(crate) fn explained(class: &Class, errno: i32) -> SchedError {
    explain(class, errno, &Facts::gather())
}

fn explain(class: &Class, errno: i32, facts: &Facts) -> SchedError {
    let name = class.describe();
    match (errno, class) {
        (libc::EPERM, _) if !facts.cap_sys_nice => {
            SchedError::Privilege { missing: missing(class, facts), class: name }
        }
        (libc::EPERM, Class::Deadline(_)) => SchedError::Affinity { class: name, cpuset: facts.cpuset.clone() },
        (libc::EPERM, _) if facts.rt_group.is_some() => {
            SchedError::RtGroup { class: name, group: facts.rt_group.clone().unwrap_or_default() }
        }
        (libc::EBUSY, _) => SchedError::Admission { class: name, percent: facts.rt_percent },
        (libc::EINVAL, Class::Deadline(_)) => {
            SchedError::Range { class: name, min: facts.period_min, max: facts.period_max }
        }
        (libc::EINVAL | libc::ENOSYS, _) => SchedError::Missing { class: name },
        _ => SchedError::Other { class: name, cause: text(errno) },
    }
}

fn missing(class: &Class, facts: &Facts) -> String {
    match class {
        Class::Fifo { priority } | Class::RoundRobin { priority } => format!(
            "the capability CAP_SYS_NICE is missing and the limit RLIMIT_RTPRIO is {}, not {priority}",
            facts.rtprio
        ),
        _ => "the capability CAP_SYS_NICE is missing".to_owned(),
    }
}

pub(crate) fn text(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            cap_sys_nice: true,
            rtprio: 0,
            rt_group: None,
            cpuset: None,
            rt_percent: 90,
            period_min: Span::from_us(100),
            period_max: Span::from_us(4_194_304),
        }
    }
    const FIFO: Class = Class::Fifo { priority: 42 };
    const DEADLINE: Class = Class::Deadline(Reservation {
        runtime: Span::from_ms(2),
        deadline: Span::from_ms(10),
        period: Span::from_ms(10),
    });

    #[test]
    fn refusals_name_the_cause_behind_the_errno() {
        let said = |class: &Class, errno, facts: &Facts| explain(class, errno, facts).to_string();
        let poor = Facts { cap_sys_nice: false, ..facts() };
        assert_eq!(
            said(&FIFO, libc::EPERM, &poor),
            "SCHED_FIFO priority 42 was refused: the capability CAP_SYS_NICE is missing and the limit \
             RLIMIT_RTPRIO is 0, not 42"
        );
        let grouped = Facts { rt_group: Some("/sys/fs/cgroup/cpu/x".to_owned()), ..facts() };
        assert_eq!(
            said(&FIFO, libc::EPERM, &grouped),
            "SCHED_FIFO priority 42 was refused: the CPU cgroup /sys/fs/cgroup/cpu/x has cpu.rt_runtime_us = 0; \
             write a budget to it, or move the shell to a group with a budget"
        );
        assert_eq!(
            said(&DEADLINE, libc::EPERM, &facts()),
            "SCHED_DEADLINE runtime 2ms, deadline 10ms, period 10ms was refused: the thread's affinity does not \
             cover all CPUs of its scheduling domain; start takt without taskset, or with sudo, so that it can \
             make a domain of these CPUs"
        );
        let confined = Facts { cpuset: Some("/one".to_owned()), ..facts() };
        assert!(
            said(&DEADLINE, libc::EPERM, &confined)
                .contains("without taskset, outside of the cpuset \"/one\" (or give that more CPUs), or with sudo")
        );
        assert_eq!(
            said(&DEADLINE, libc::EBUSY, &facts()),
            "SCHED_DEADLINE runtime 2ms, deadline 10ms, period 10ms was refused by the kernel's admission \
             control: with what runs already, more than 90 % of each CPU would be reserved"
        );
        assert_eq!(
            said(&DEADLINE, libc::EINVAL, &facts()),
            "SCHED_DEADLINE runtime 2ms, deadline 10ms, period 10ms was refused: parameters out of range; the \
             kernel wants 1024ns <= runtime <= deadline <= period, and a period from 100us to 4.194304s"
        );
        assert!(said(&FIFO, libc::ENOMEM, &facts()).contains("memory"));
    }

    #[test]
    fn an_affinity_is_read_back() {
        std::thread::spawn(|| {
            let all = affinity();
            let last = *all.last().unwrap();
            set_affinity(&[last]).unwrap();
            assert_eq!(affinity(), [last]);
            assert_eq!(crate::thread::current_cpu(), Some(last));
            set_affinity(&all).unwrap();
            let error = set_affinity(&[8000]).unwrap_err();
            assert_eq!(
                error.to_string(),
                "affinity to CPUs [8000] was refused: this process may use none of these CPUs"
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_class_comes_and_goes_with_its_guard() {
        std::thread::spawn(|| {
            for class in [FIFO, DEADLINE, Class::RoundRobin { priority: 3 }, Class::Other] {
                match ClassGuard::enter(&class) {
                    Ok(guard) => {
                        assert_eq!(current(), class);
                        drop(guard);
                    }
                    Err(error) => println!("skipped: {error}"),
                }
                assert_eq!(current(), Class::Other);
            }
        })
        .join()
        .unwrap();
    }
}
