//! Groups on a made-up file system, and on this machine's.

use super::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::guard::Guard;
use crate::hold::{HoldError, Holder, UndoResult, Undone};
use crate::process::Identity;

/// A file system of control groups, of ordinary strings, that behaves as the kernel's documentation
/// says and remembers what was done.
struct Fake {
    files: RefCell<BTreeMap<PathBuf, String>>,
    log: RefCell<Vec<String>>,
    /// Refuses this step, counted from zero.
    fails: Cell<Option<usize>>,
    version: Version,
}

const GROUP: &str = "/cg/app";

impl Fake {
    fn new(version: Version) -> Fake {
        let files: &[(&str, &str)] = match version {
            Version::V1 => &[
                ("/cg/app/tasks", "7\n8\n"),
                ("/cg/app/cpu.cfs_quota_us", "-1\n"),
                ("/cg/app/cpu.cfs_period_us", "100000\n"),
                ("/cg/app/cpu.rt_runtime_us", "400000\n"),
                ("/cg/app/cpu.rt_period_us", "1000000\n"),
                ("/cg/app/other/cpu.rt_runtime_us", "100000\n"),
                ("/cg/app/other/cpu.rt_period_us", "1000000\n"),
                ("/cg/cpu.cfs_quota_us", "50000\n"),
                ("/cg/cpu.cfs_period_us", "100000\n"),
            ],
            Version::V2 => &[
                ("/cg/app/cgroup.threads", "7\n8\n"),
                ("/cg/app/cgroup.controllers", "cpuset cpu memory\n"),
                ("/cg/app/cgroup.subtree_control", "\n"),
                ("/cg/app/cpu.max", "max 100000\n"),
            ],
        };
        let files = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        Fake { files: RefCell::new(files), log: RefCell::default(), fails: Cell::new(None), version }
    }

    fn step(&self, what: String) -> io::Result<()> {
        let step = self.log.borrow().len();
        self.log.borrow_mut().push(what.replace("/cg/app/", ""));
        if self.fails.get() == Some(step) { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
    }

    fn state(&self) -> BTreeMap<PathBuf, String> {
        self.files.borrow().clone()
    }
}

impl Files for Fake {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.borrow().get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.step(format!("{} = {text}", path.display()))?;
        let mut files = self.files.borrow_mut();
        if !files.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name = path.file_name().unwrap();
        if name == "tasks" || name == "cgroup.threads" {
            for (other, list) in files.iter_mut().filter(|(other, _)| other.ends_with(name)) {
                let mut lines: Vec<&str> = list.lines().filter(|line| *line != text).collect();
                if other == path {
                    lines.push(text);
                }
                lines.sort_unstable();
                *list = lines.iter().map(|line| format!("{line}\n")).collect();
            }
        } else if name == CONTROL {
            files.insert(path.into(), if text == "+cpu" { "cpu\n".into() } else { "\n".into() });
        } else {
            files.insert(path.into(), text.into());
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.borrow().keys().any(|file| file.starts_with(path))
    }

    fn folders(&self, path: &Path) -> Vec<String> {
        let files = self.files.borrow();
        let below = files.keys().filter_map(|file| file.strip_prefix(path).ok());
        let folders =
            below.filter(|below| below.components().count() > 1).filter_map(|below| below.iter().next()?.to_str());
        let mut names: Vec<String> = folders.map(str::to_owned).collect();
        names.dedup();
        names
    }

    fn make(&self, folder: &Path) -> io::Result<()> {
        self.step(format!("make {}", folder.display()))?;
        let passed = self.read(&folder.parent().unwrap().join(CONTROL)).unwrap_or_default();
        let files: &[(&str, &str)] = match self.version {
            Version::V1 => &[
                ("tasks", ""),
                ("cpu.cfs_quota_us", "-1"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.shares", "1024"),
                ("cpu.rt_runtime_us", "0"),
                ("cpu.rt_period_us", "1000000"),
            ],
            Version::V2 => {
                &[("cgroup.threads", ""), ("cgroup.type", "domain"), ("cpu.max", "max 100000"), ("cpu.weight", "100")]
            }
        };
        for (name, text) in files
            .iter()
            .filter(|(name, _)| self.version == Version::V1 || has_word(&passed, "cpu") || !name.starts_with("cpu"))
        {
            self.files.borrow_mut().insert(folder.join(name), (*text).into());
        }
        Ok(())
    }

    fn remove(&self, folder: &Path) -> io::Result<()> {
        self.step(format!("remove {}", folder.display()))?;
        let threads = ["tasks", "cgroup.threads"].iter().filter_map(|name| self.read(&folder.join(name)).ok());
        if threads.map(|text| text.len()).sum::<usize>() > 0 {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        self.files.borrow_mut().retain(|path, _| !path.starts_with(folder));
        Ok(())
    }
}

fn placed(files: &Fake) -> Place {
    Place::at(files, files.version, GROUP.into()).unwrap()
}

const LIMIT: Limit = Limit { share: Share { runtime_us: 12_000, period_us: 40_000 }, real_time: false };

fn made(files: &Fake, limit: &Limit) -> (Group, Result<(), GroupError>) {
    let group = Group::at(files, &placed(files), "1-2-3-0");
    let result = group.make(files, 7, limit);
    (group, result)
}

#[test]
fn a_place_knows_what_it_can_give() {
    let first = placed(&Fake::new(Version::V1));
    assert_eq!(first.quota, Some(1 << 19), "of the group above");
    assert_eq!(first.real_time, Some(RealTime { limit: Some(419_430), taken: 104_857 }));
    let second = placed(&Fake::new(Version::V2));
    assert_eq!((second.quota, second.real_time), (None, None));
    let files = Fake::new(Version::V2);
    files.files.borrow_mut().insert("/cg/app/cgroup.controllers".into(), "cpuset memory\n".into());
    let error = Place::at(&files, Version::V2, GROUP.into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the control group /cg/app has no CPU time to share out: \"cpu\" is not in its cgroup.controllers; as \
         root, for each group above it from the top: echo +cpu > GROUP/cgroup.subtree_control"
    );
}

#[test]
fn a_group_is_set_before_the_thread_is_moved() {
    let files = Fake::new(Version::V1);
    assert_eq!(made(&files, &LIMIT).1, Ok(()));
    let steps = [
        "make takt-1-2-3-0",
        "takt-1-2-3-0/cpu.cfs_period_us = 40000",
        "takt-1-2-3-0/cpu.cfs_quota_us = 12000",
        "takt-1-2-3-0/cpu.shares = 262144",
        "takt-1-2-3-0/tasks = 7",
    ];
    assert_eq!(*files.log.borrow(), steps);
    let files = Fake::new(Version::V1);
    assert_eq!(made(&files, &Limit { real_time: true, ..LIMIT }).1, Ok(()));
    let steps = [
        "make takt-1-2-3-0",
        "takt-1-2-3-0/cpu.rt_period_us = 40000",
        "takt-1-2-3-0/cpu.rt_runtime_us = 12000",
        "takt-1-2-3-0/tasks = 7",
    ];
    assert_eq!(*files.log.borrow(), steps);
    let files = Fake::new(Version::V2);
    assert_eq!(made(&files, &LIMIT).1, Ok(()));
    let steps = [
        "cgroup.subtree_control = +cpu",
        "make takt-1-2-3-0",
        "takt-1-2-3-0/cgroup.type = threaded",
        "takt-1-2-3-0/cpu.max = 12000 40000",
        "takt-1-2-3-0/cpu.weight = 10000",
        "takt-1-2-3-0/cgroup.threads = 7",
    ];
    assert_eq!(*files.log.borrow(), steps);
}

#[test]
fn a_failure_at_any_step_undoes_all_group_changes() {
    for version in [Version::V1, Version::V2] {
        for fails in 0..7 {
            let files = Fake::new(version);
            let before = files.state();
            files.fails.set(Some(fails));
            let (group, result) = made(&files, &LIMIT);
            files.fails.set(None);
            assert_eq!(
                result.is_err(),
                fails < files.log.borrow().len() && fails < if version == Version::V1 { 5 } else { 6 }
            );
            // Somebody that it started.
            if result.is_ok() {
                files.write(&group.path().join(group.threads()), "9").unwrap();
            }
            assert_eq!(group.undo(&files), Ok(()));
            let mut after = files.state();
            let threads = after.get_mut(&Path::new(GROUP).join(group.threads())).unwrap();
            *threads = threads.replace("9\n", "");
            assert_eq!(after, before, "{version:?}, step {fails}");
            assert_eq!(group.undo(&files), Ok(()), "a second time");
        }
    }
}

#[test]
fn controllers_that_others_use_stay_enabled() {
    let files = Fake::new(Version::V2);
    let (first, result) = made(&files, &LIMIT);
    assert_eq!(result, Ok(()));
    let second = Group::at(&files, &placed(&files), "4-5-6-0");
    second.make(&files, 8, &LIMIT).unwrap();
    assert!(second.enabled && !first.enabled);
    first.undo(&files).unwrap();
    assert_eq!(files.read(&Path::new(GROUP).join(CONTROL)).unwrap(), "cpu\n", "the other's limits hang on it");
    let names = ["takt-", "takt-x", "takt", "takt-1-2-../x", "takt-1/2", ""];
    assert!(is_ours("takt-1-2-3-0") && !names.iter().any(|name| is_ours(name)));
}

#[test]
fn both_versions_tell_how_often_a_budget_was_used_up() {
    let expected = Throttled { periods: 40, throttled: 12, time: Span::from_ms(250) };
    let first = "nr_periods 40\nnr_throttled 12\nthrottled_time 250000000\n";
    let second = "usage_usec 9\nnr_periods 40\nnr_throttled 12\nthrottled_usec 250000\nnr_bursts 0\n";
    assert_eq!((parse_throttled(first), parse_throttled(second)), (Some(expected), Some(expected)));
    assert_eq!(parse_throttled("usage_usec 9\n"), None);
}

/// On this kernel.
#[test]
fn a_thread_and_what_it_started_are_where_they_were_afterwards() {
    use std::process::{Command, Stdio};
    let mut shell = Command::new("sh");
    let mut shell = shell.args(["-c", "read go; sleep 3 & read go"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    let thread = Identity::of(shell.id()).unwrap();
    let (place, before) = (Place::of(thread.pid), now_in(thread.pid));
    let mut holder = Holder::start(&Guard::NextStart).unwrap();
    let limited = place.map_err(HoldError::from).and_then(|place| holder.limit(thread, &place, &LIMIT));
    match limited {
        Ok(folder) => {
            assert_eq!((now_in(thread.pid), folder.parent()), (Some(folder.clone()), before.as_deref()));
            input.write_all(b"go\n").unwrap();
            let inside = || {
                fs::read_to_string(folder.join("tasks")).or_else(|_| fs::read_to_string(folder.join("cgroup.threads")))
            };
            let both = (0..500).any(|_| {
                inside().unwrap().lines().count() == 2 || {
                    crate::clock::pause(Span::from_ms(10));
                    false
                }
            });
            assert!(both, "what it starts is in the group, too");
            assert!(holder.throttled().iter().all(|(of, _)| *of == thread));
            assert_eq!(holder.give_back(), [UndoResult { thread, undone: Undone::Restored }]);
            assert_eq!((now_in(thread.pid), folder.exists()), (before, false));
        }
        Err(refused) => println!("skipped: {refused}"),
    }
    drop(input);
    shell.wait().unwrap();
    assert_eq!(Place::of(u32::MAX), Err(GroupError::Gone { id: u32::MAX }));
}
