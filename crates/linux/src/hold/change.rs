//! One change of a thread's setting: its text and its undo.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use takt_model::{Span, Time};

use super::band::{Band, BandGroup};
use super::undone::{UndoResult, Undone};
use crate::clock::{self, Epoch};
use crate::group::{self, Group, Kernel, Version};
use crate::process::{self, Identity};
use crate::sched::{self, Attributes, Class, FLAG_RECLAIM, FLAG_RESET_ON_FORK, Reservation};

/// SCHED_DEADLINE with its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// Runtime, deadline, period.
    pub reservation: Reservation,
    /// The thread may use bandwidth that others leave, beyond its runtime (SCHED_FLAG_RECLAIM,
    /// GRUB).
    pub reclaim: bool,
}

impl Deadline {
    pub(crate) fn attributes(self) -> Attributes {
        let reclaim = if self.reclaim { FLAG_RECLAIM } else { 0 };
        let base = Attributes::from(&Class::Deadline(self.reservation));
        // Children of the thread are ordinary. Without this flag the kernel would refuse all forks.
        Attributes { flags: FLAG_RESET_ON_FORK | reclaim, ..base }
    }
}

/// A change of a thread: its `former` setting and `ours`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Its class, with what belongs to it.
    Class { thread: Identity, former: Attributes, ours: Attributes },
    /// CPUs that it may use.
    Affinity { thread: Identity, former: Vec<u32>, ours: Vec<u32> },
    /// Its control group, and the new group below.
    Group { thread: Identity, group: Group },
    /// A group of existing threads, frozen and thawed by this process.
    Band { owner: Identity, group: BandGroup },
}

/// The step that undoes a change of class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// It is as it was.
    Nothing,
    /// It is not what was set.
    Leave,
    /// Give up bandwidth first.
    ShrinkAndSet,
    Set,
}

impl Change {
    pub(crate) fn thread(&self) -> Identity {
        match self {
            Change::Class { thread, .. } | Change::Affinity { thread, .. } | Change::Group { thread, .. } => *thread,
            Change::Band { owner, .. } => *owner,
        }
    }

    /// A line, without its end.
    pub(crate) fn to_text(&self) -> String {
        let Identity { pid, start } = self.thread();
        match self {
            Change::Class { former, ours, .. } => format!("class {pid} {start} {} {}", line(former), line(ours)),
            Change::Affinity { former, ours, .. } => format!("cpus {pid} {start} {} {}", list(former), list(ours)),
            Change::Group { group: Group { folder, name, version, enabled }, .. } => {
                let version = if *version == Version::V1 { "v1" } else { "v2" };
                format!("group {pid} {start} {version} {} {name} {}", u8::from(*enabled), escaped(folder))
            }
            Change::Band { group: BandGroup { folder, made, band: Band { cpu, first, second }, cpus }, .. } => {
                let (made, cpus, folder) = (u8::from(*made), list(cpus), escaped(folder));
                format!("band {pid} {start} {made} {cpu} {first} {second} {cpus} {folder}")
            }
        }
    }

    pub(crate) fn from_text(text: &str) -> Option<Change> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let thread = Identity { pid: words.next()?.parse().ok()?, start: words.next()?.parse().ok()? };
        let change = match kind {
            "class" => Change::Class { thread, former: parse(&mut words)?, ours: parse(&mut words)? },
            "cpus" => {
                let mut cpus = || words.next()?.split(',').map(|cpu| cpu.parse().ok()).collect::<Option<Vec<u32>>>();
                Change::Affinity { thread, former: cpus()?, ours: cpus()? }
            }
            "group" => Change::Group { thread, group: parse_group(&mut words)? },
            "band" => Change::Band { owner: thread, group: parse_band(&mut words)? },
            _ => return None,
        };
        (words.next().is_none() && thread.pid > 0).then_some(change)
    }

    /// Undoes changes, the last one first.
    pub(crate) fn undo_all(changes: &[Change]) -> Vec<UndoResult> {
        let known = |change: &Change| matches!(change, Change::Class { .. }).then(|| change.thread());
        let known: Vec<Identity> = changes.iter().filter_map(known).collect();
        changes.iter().rev().map(|change| change.undo(&known)).collect()
    }

    fn undo(&self, known: &[Identity]) -> UndoResult {
        let undone = match self {
            Change::Band { owner, group } => return group.undo(*owner, known),
            Change::Class { thread, former, ours } => undo_class(*thread, former, ours),
            Change::Affinity { thread, former, ours } => undo_affinity(*thread, former, ours),
            Change::Group { thread, group } => undo_group(*thread, group),
        };
        UndoResult { thread: self.thread(), undone }
    }
}

/// The least reservation that the kernel takes. Its bandwidth is zero, unless an administrator has
/// set the longest period below a second.
pub(super) fn least() -> Attributes {
    let period = crate::limits::Limits::read().dl_period_max;
    let runtime = Span::from_ns(sched::RUNTIME_MIN_NS);
    Deadline { reservation: Reservation { runtime, deadline: period, period }, reclaim: false }.attributes()
}

fn undo_class(thread: Identity, former: &Attributes, ours: &Attributes) -> Undone {
    let (Some(now), Ok(id)) = (attributes_of(thread), libc::pid_t::try_from(thread.pid)) else { return Undone::Gone };
    let least = least();
    match step(&now, former, ours, &least) {
        Step::Nothing => return Undone::Restored,
        Step::Leave => return Undone::Changed { now: sched::class_of(&now).describe() },
        Step::ShrinkAndSet => shrink(thread, id, ours, &least),
        Step::Set => {}
    }
    // Without CAP_SYS_NICE nobody may clear RESET_ON_FORK.
    let kept = Attributes { flags: former.flags | FLAG_RESET_ON_FORK, ..*former };
    match sched::set_of(id, former).or_else(|_| sched::set_of(id, &kept)) {
        Ok(()) => Undone::Restored,
        Err(_) if !thread.is_alive() => Undone::Gone,
        Err(errno) => Undone::Failed(sched::text(errno)),
    }
}

/// Gives up the bandwidth of a sleeping thread. A runnable one keeps its reservation, and the kernel unbooks it at the
/// thread's zero-lag time. Reduced, the overrun of a throttled thread would put this time off by seconds. Until then
/// the thread stays marked as throttled, and a new reservation would take away the timer that clears the mark: the
/// thread would not run any more.
fn shrink(thread: Identity, id: libc::pid_t, ours: &Attributes, least: &Attributes) {
    // One that fell asleep when its budget ended gets a new one within a period. Its mark is cleared then.
    let epoch = Epoch::now_is_zero();
    while state_of(thread) == State::Throttled && epoch.now() < Time::from_ns(ours.period) {
        clock::pause(Span::from_ms(1));
    }
    // Refused, it will be demoted all the same: bandwidth may be lost then, the thread must not be.
    if state_of(thread) != State::Runnable {
        let _ = sched::set_of(id, least);
    }
    // It may have woken up, or takt was killed after it had reduced the reservation.
    if state_of(thread) == State::Runnable {
        let _ = sched::set_of(id, ours);
    }
}

/// A thread's state under SCHED_DEADLINE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It runs, or waits for a CPU or for its next budget.
    Runnable,
    /// Asleep with its budget overrun.
    Throttled,
    Asleep,
}

fn state_of(thread: Identity) -> State {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", thread.pid)).unwrap_or_default();
    state(&read("stat"), &read("sched"))
}

/// From the files of these names in /proc. A kernel without /proc/PID/sched does not tell that a sleeping thread is
/// throttled.
fn state(stat: &str, sched: &str) -> State {
    let left = |line: &str| line.strip_prefix("dl.runtime")?.trim_start().strip_prefix(':')?.trim().parse::<i64>().ok();
    if process::state(stat) == Some('R') {
        State::Runnable
    } else if sched.lines().find_map(left).is_some_and(|left| left < 0) {
        State::Throttled
    } else {
        State::Asleep
    }
}

/// A class that was reduced already counts as set here: a kill may have come in between.
fn step(now: &Attributes, former: &Attributes, ours: &Attributes, least: &Attributes) -> Step {
    let deadline = |of: &Attributes| of.policy as i32 == libc::SCHED_DEADLINE;
    if same(now, ours) || (deadline(ours) && same(now, least)) {
        if deadline(now) && !deadline(former) { Step::ShrinkAndSet } else { Step::Set }
    } else if same(now, former) {
        // A thread that left the class may still have our flags.
        if now.flags == former.flags { Step::Nothing } else { Step::Set }
    } else {
        Step::Leave
    }
}

/// As far as a class is told by them.
fn same(a: &Attributes, b: &Attributes) -> bool {
    let told = |of: &Attributes| match sched::class_of(of) {
        // The same number for all classes that `Class` does not have.
        Class::Other => (of.policy, of.nice, Class::Other),
        class => (of.policy, 0, class),
    };
    told(a) == told(b)
}

fn undo_affinity(thread: Identity, former: &[u32], ours: &[u32]) -> Undone {
    let Some(id) = libc::pid_t::try_from(thread.pid).ok().filter(|_| thread.is_alive()) else { return Undone::Gone };
    let now = sched::cpus_of(id);
    if now.is_empty() {
        return Undone::Gone;
    }
    if now == former {
        return Undone::Restored;
    }
    // The kernel leaves out CPUs that are not there, or not in the thread's cpuset.
    if !now.iter().all(|cpu| ours.contains(cpu)) {
        return Undone::Changed { now: format!("CPUs {}", list(&now)) };
    }
    match sched::set_cpus_of(id, former) {
        Ok(()) => Undone::Restored,
        Err(_) if !thread.is_alive() => Undone::Gone,
        Err(errno) => Undone::Failed(sched::text(errno)),
    }
}

/// All that is in the group goes back; a thread that somebody has moved elsewhere stays there.
fn undo_group(thread: Identity, group: &Group) -> Undone {
    if let Err(cause) = group.undo(&Kernel) {
        return Undone::Failed(cause);
    }
    match group::now_in(thread.pid) {
        _ if !thread.is_alive() => Undone::Gone,
        Some(now) if now != group.folder => Undone::Changed { now: format!("control group {}", now.display()) },
        _ => Undone::Restored,
    }
}

/// The thread's present attributes; `None` if the thread has ended.
pub(crate) fn attributes_of(thread: Identity) -> Option<Attributes> {
    let id = libc::pid_t::try_from(thread.pid).ok().filter(|id| *id > 0)?;
    let attributes = sched::get_of(id, 0).ok()?;
    thread.is_alive().then_some(settable(attributes))
}

/// The calling thread's attributes, which its children inherit.
pub(crate) fn own_attributes() -> Option<Attributes> {
    sched::get_of(0, 0).ok().map(settable)
}

/// Since Linux 6.12 the kernel reports the slice of an ordinary thread as its runtime. Setting this
/// value would pin the slice, so that it no longer follows the machine's default. Zero asks for the
/// default.
fn settable(attributes: Attributes) -> Attributes {
    let usual = || crate::machine::debugfs("sched/base_slice_ns")?.trim().parse::<u64>().ok();
    match sched::class_of(&attributes) {
        Class::Other if usual().is_none_or(|usual| usual == attributes.runtime) => {
            Attributes { runtime: 0, ..attributes }
        }
        _ => attributes,
    }
}

fn line(of: &Attributes) -> String {
    let Attributes { policy, flags, nice, priority, runtime, deadline, period, .. } = of;
    format!("{policy} {flags} {nice} {priority} {runtime} {deadline} {period}")
}

fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Attributes> {
    let (policy, flags) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (nice, priority) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut number = || words.next()?.parse().ok();
    let (runtime, deadline, period) = (number()?, number()?, number()?);
    Some(Attributes { policy, flags, nice, priority, runtime, deadline, period, ..Attributes::default() })
}

/// A whole folder below the mount of groups. If takt made it, its name is one of takt's.
fn parse_band<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<BandGroup> {
    let made = match words.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let (cpu, first, second) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let cpus = words.next()?.split(',').map(|cpu| cpu.parse().ok()).collect::<Option<Vec<u32>>>()?;
    let folder = unescaped(words.next()?)?;
    let plain = folder.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let name = folder.file_name()?.to_str();
    let is_ours = !made || name.is_some_and(group::is_ours);
    let group = BandGroup { folder, made, band: Band { cpu, first, second }, cpus };
    (group.folder.is_absolute() && plain && is_ours).then_some(group)
}

/// Only what takt makes, below a folder that is named in full.
fn parse_group<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Group> {
    let version = match words.next()? {
        "v1" => Version::V1,
        "v2" => Version::V2,
        _ => return None,
    };
    let enabled = match words.next()? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let name = words.next().filter(|name| group::is_ours(name))?.to_owned();
    let folder = unescaped(words.next()?)?;
    let plain = folder.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    (folder.is_absolute() && plain).then_some(Group { folder, name, version, enabled })
}

/// A path as a word: all but letters, digits and `/._:@-` as `%` and two hexadecimal digits.
fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._:@-".contains(&byte);
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn unescaped(word: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                // Not a sign, which numbers may have.
                let digits = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Deadline;
    use crate::sched::Reservation;
    use takt_model::Span;

    fn ordinary(nice: i32) -> Attributes {
        Attributes { nice, ..Attributes::default() }
    }
    fn reserved(runtime: u64) -> Attributes {
        let (runtime, period) = (Span::from_ms(runtime), Span::from_ms(40));
        Deadline { reservation: Reservation { runtime, deadline: period, period }, reclaim: true }.attributes()
    }

    fn group(folder: &str) -> Group {
        Group { folder: folder.into(), name: "takt-7-99-1".to_owned(), version: Version::V2, enabled: false }
    }

    #[test]
    fn a_change_survives_its_line() {
        let thread = Identity { pid: 7, start: 99 };
        let class = Change::Class { thread, former: ordinary(-5), ours: reserved(12) };
        let cpus = Change::Affinity { thread, former: vec![1], ours: vec![0, 1] };
        let group = Change::Group { thread, group: group("/sys/fs/cgroup/a b%\n") };
        let band = Band { cpu: 1, first: 47, second: 46 };
        let (folder, cpus_of) = ("/sys/fs/cgroup/a b/takt-7-99-1".into(), vec![0, 1]);
        let band = Change::Band { owner: thread, group: BandGroup { folder, made: true, band, cpus: cpus_of } };
        for change in [class, cpus, group, band] {
            let text = change.to_text();
            let read = Change::from_text(&text).unwrap();
            assert_eq!(read.to_text(), text);
            assert_eq!(read.thread(), thread);
            for cut in 0..text.len() {
                let cut = Change::from_text(&text[..cut]);
                assert!(cut.is_none_or(|cut| cut.thread() == thread), "{text}");
            }
            assert_eq!(Change::from_text(&format!("{text} 1")), None);
        }
        assert_eq!(Change::from_text("cpus 0 1 1 1"), None);
        assert_eq!(Change::from_text("rm 7 99"), None);
    }

    #[test]
    fn only_groups_that_takt_makes_are_taken_from_a_journal() {
        let of = |text: &str| Change::from_text(&format!("group 7 99 {text}"));
        let thread = Identity { pid: 7, start: 99 };
        assert_eq!(of("v2 0 takt-7-99-1 /cg/a%20b"), Some(Change::Group { thread, group: group("/cg/a b") }));
        for other in [
            "v3 0 takt-7-99-1 /cg",
            "v2 2 takt-7-99-1 /cg",
            "v2 0 system.slice /cg",
            "v2 0 takt- /cg",
            "v2 0 takt-7/../.. /cg",
            "v2 0 takt-7 cg",
            "v2 0 takt-7 /cg/../etc",
            "v2 0 takt-7 /cg%2",
            "v2 0 takt-7 /cg%+1",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn only_whole_folders_of_groups_are_thawed() {
        let of = |text: &str| Change::from_text(&format!("band 7 99 {text}")).is_some();
        assert!(of("0 1 47 46 0,1 /cg/guest") && of("1 1 47 46 0 /cg/takt-7-99-1"));
        for other in [
            "2 1 47 46 0 /cg/guest",
            "1 1 47 46 0 /cg/guest",
            "0 1 47 46 0 cg/guest",
            "0 1 47 46 0 /cg/../guest",
            "0 1 47 46 /cg/guest",
            "0 1 47 256 0 /cg/guest",
            "0 1 47 46 0 /",
        ] {
            assert!(!of(other), "{other}");
        }
    }

    #[test]
    fn a_thread_whose_budget_is_overrun_is_throttled() {
        let overrun = "policy                                       :                    6\n\
                       dl.runtime                                   :                -3930\n";
        let left = overrun.replace("-3930", "15800497");
        for (stat, sched, expected) in [
            ("9 (a) R) R 2 0", overrun, State::Runnable),
            ("9 (irq/11-eth1) S 2 0", overrun, State::Throttled),
            ("9 (a) R) S 2 0", left.as_str(), State::Asleep),
            ("9 (a) S 2 0", "", State::Asleep),
            ("", "", State::Asleep),
        ] {
            assert_eq!(state(stat, sched), expected, "{stat} {sched}");
        }
    }

    #[test]
    fn only_what_was_set_is_undone() {
        let (former, ours, least) = (ordinary(3), reserved(12), least());
        let step = |now: &Attributes| step(now, &former, &ours, &least);
        assert_eq!(step(&ours), Step::ShrinkAndSet);
        assert_eq!(step(&least), Step::ShrinkAndSet, "killed in between");
        assert_eq!(step(&former), Step::Nothing, "written down, never set");
        assert_eq!(
            step(&Attributes { flags: FLAG_RESET_ON_FORK, ..former }),
            Step::Set,
            "it left the class, and our flag"
        );
        assert_eq!(step(&ordinary(0)), Step::Leave, "it has left the class, and taken another nice value");
        assert_eq!(step(&reserved(13)), Step::Leave);
        let kernel = Attributes { flags: 0, ..ours };
        assert_eq!(step(&kernel), Step::ShrinkAndSet, "flags do not tell");
        assert_eq!(super::step(&ours, &reserved(5), &ours, &least), Step::Set, "one reservation after another");
    }
}
