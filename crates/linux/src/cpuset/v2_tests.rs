use super::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// A cgroup file system of ordinary strings that behaves as the kernel's documentation says, and
/// remembers what was done.
struct Fake {
    files: RefCell<BTreeMap<PathBuf, String>>,
    log: RefCell<Vec<String>>,
    /// Refuses this step, counted from zero.
    fails: Cell<Option<usize>>,
    /// The state that `cpuset.cpus.partition` shows after a cgroup has asked to be a partition.
    becomes: &'static str,
}

const ROOT: &str = "/cg";

impl Fake {
    fn new(cpus: &str, control: &str) -> Fake {
        let files = [
            ("cgroup.controllers", "cpuset cpu io memory\n"),
            ("cgroup.subtree_control", control),
            ("cgroup.procs", "1\n"),
            ("cgroup.threads", "1\n"),
            ("cpuset.cpus.effective", cpus),
        ];
        let files = files.map(|(name, text)| (Path::new(ROOT).join(name), text.to_owned()));
        Fake { files: RefCell::new(files.into()), log: RefCell::default(), fails: Cell::new(None), becomes: "root" }
    }

    fn step(&self, what: String) -> Result<(), CpusetError> {
        let step = self.log.borrow().len();
        self.log.borrow_mut().push(what);
        if self.fails.get() == Some(step) { Err(refused("it was told to")) } else { Ok(()) }
    }

    fn log(&self) -> Vec<String> {
        self.log.borrow().iter().map(|line| line.replace("/cg/", "")).collect()
    }

    fn state(&self) -> BTreeMap<PathBuf, String> {
        self.files.borrow().clone()
    }
}

fn refused(why: &str) -> CpusetError {
    CpusetError::File { path: "/cg".into(), cause: why.into(), hint: "" }
}

impl Tree for Fake {
    fn read(&self, path: &Path) -> Result<String, CpusetError> {
        self.files.borrow().get(path).cloned().ok_or_else(|| refused("no such file"))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), CpusetError> {
        self.step(format!("{} = {text}", path.display()))?;
        let mut files = self.files.borrow_mut();
        let name = path.file_name().unwrap().to_str().unwrap();
        match name {
            "cgroup.subtree_control" => {
                let had = files[path].clone();
                let words = had.split_ascii_whitespace().filter(|word| *word != "cpuset");
                let more = (text == "+cpuset").then_some("cpuset");
                let words: Vec<&str> = words.chain(more).collect();
                files.insert(path.into(), words.join(" "));
            }
            "cgroup.threads" | "cgroup.procs" => {
                for (other, list) in files.iter_mut().filter(|(other, _)| other.ends_with(name)) {
                    let stays = |line: &&str| *line != text;
                    let mut lines: Vec<&str> = list.lines().filter(stays).collect();
                    if other == path {
                        lines.push(text);
                    }
                    *list = lines.iter().map(|line| format!("{line}\n")).collect();
                }
            }
            "cpuset.cpus.partition" if text == "root" => drop(files.insert(path.into(), self.becomes.into())),
            _ => drop(files.insert(path.into(), text.into())),
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.borrow().keys().any(|file| file.starts_with(path))
    }

    fn make(&self, folder: &Path) -> Result<(), CpusetError> {
        self.step(format!("make {}", folder.display()))?;
        let mut files = self.files.borrow_mut();
        let has = files[&Path::new(ROOT).join(CONTROL)].contains("cpuset");
        let own = [("cgroup.threads", ""), ("cgroup.type", "domain"), ("cpuset.cpus.partition", "member")];
        for (name, text) in own.iter().filter(|(name, _)| has || !name.starts_with("cpuset")) {
            files.insert(folder.join(name), (*text).into());
        }
        Ok(())
    }

    fn remove(&self, folder: &Path) -> Result<(), CpusetError> {
        self.step(format!("remove {}", folder.display()))?;
        if !self.read(&folder.join(THREADS))?.is_empty() {
            return Err(refused("busy"));
        }
        self.files.borrow_mut().retain(|path, _| !path.starts_with(folder));
        Ok(())
    }
}

fn planned(tree: &Fake, groups: &[Vec<u32>]) -> Plan {
    plan(tree, root(tree, Some(ROOT.into())).unwrap(), 7, groups).unwrap()
}
fn undo_of(tree: &Fake, plan: &Plan) -> Result<(), CpusetError> {
    let created: Vec<PathBuf> = plan.folders.iter().flatten().cloned().collect();
    undo(tree, &plan.root, &created, plan.enabled)
}

#[test]
fn the_root_keeps_the_first_cpu_if_the_groups_take_all() {
    let tree = Fake::new("0-3\n", "cpu memory");
    let groups = [vec![0, 1], vec![2, 3]];
    let plan = planned(&tree, &groups);
    let before = tree.state();
    make(&tree, &plan, 7, &groups).unwrap();
    join(&tree, &plan, 0, 71).unwrap();
    join(&tree, &plan, 1, 72).unwrap();
    assert_eq!(
        tree.log(),
        [
            "cgroup.subtree_control = +cpuset",
            "cgroup.procs = 7",
            "make takt-7-1",
            "takt-7-1/cgroup.type = threaded",
            "takt-7-1/cpuset.cpus = 2,3",
            "takt-7-1/cpuset.cpus.partition = root",
            "takt-7-1/cgroup.threads = 72",
        ]
    );
    tree.log.borrow_mut().clear();
    undo_of(&tree, &plan).unwrap();
    assert_eq!(
        tree.log(),
        [
            "cgroup.threads = 72",
            "takt-7-1/cpuset.cpus.partition = member",
            "remove takt-7-1",
            "cgroup.subtree_control = -cpuset",
        ]
    );
    let same = |name: &str| assert_eq!(tree.state()[&Path::new(ROOT).join(name)], before[&Path::new(ROOT).join(name)]);
    same("cgroup.subtree_control");
    tree.log.borrow_mut().clear();
    undo_of(&tree, &plan).unwrap();
    assert!(tree.log().is_empty(), "done twice it does nothing");
}

#[test]
fn cpus_left_over_stay_with_the_root_and_cpusets_in_use_stay_enabled() {
    let tree = Fake::new("0-3", "cpuset cpu");
    let groups = [vec![1], vec![3]];
    let plan = planned(&tree, &groups);
    assert!(plan.enabled && plan.folders.iter().all(Option::is_some));
    make(&tree, &plan, 7, &groups).unwrap();
    undo_of(&tree, &plan).unwrap();
    assert!(!tree.log().iter().any(|line| line.contains("subtree_control")), "{:?}", tree.log());
}

#[test]
fn a_partition_that_does_not_hold_is_an_error_with_the_kernels_reason() {
    let tree = Fake { becomes: "root invalid (Cpu list in cpuset.cpus not exclusive)", ..Fake::new("0-1", "cpuset") };
    let groups = [vec![0], vec![1]];
    let plan = planned(&tree, &groups);
    assert_eq!(
        make(&tree, &plan, 7, &groups).unwrap_err().to_string(),
        "/cg/takt-7-1/cpuset.cpus.partition: it became \"root invalid (Cpu list in cpuset.cpus not exclusive)\""
    );
    undo_of(&tree, &plan).unwrap();
    assert!(!tree.exists(Path::new("/cg/takt-7-1")));
}

#[test]
fn a_failure_at_any_step_undoes_all_cpuset_changes() {
    let groups = [vec![1], vec![2]];
    for step in 0.. {
        let tree = Fake { fails: Cell::new(Some(step)), ..Fake::new("0-3", "cpu") };
        let before = tree.state();
        let plan = planned(&tree, &groups);
        let done = make(&tree, &plan, 1, &groups).and_then(|()| join(&tree, &plan, 0, 71));
        tree.fails.set(None);
        undo_of(&tree, &plan).unwrap();
        let mut after = tree.state();
        // A thread that was moved is in the root now.
        after.insert(Path::new(ROOT).join(THREADS), "1\n".into());
        assert_eq!(after, before, "step {step}");
        if done.is_ok() {
            assert_eq!(step, 11, "after the last step there was nothing left to fail");
            return;
        }
    }
}

#[test]
fn a_container_and_a_kernel_without_cpusets_are_told_apart() {
    let tree = Fake::new("0-1", "");
    assert_eq!(root(&tree, None), Err(CpusetError::NoController));
    tree.files.borrow_mut().insert("/cg/cgroup.type".into(), "domain".into());
    assert_eq!(root(&tree, Some(ROOT.into())), Err(CpusetError::NotRoot(ROOT.into())));
    tree.files.borrow_mut().insert("/cg/cgroup.controllers".into(), "cpu cpuset-like".into());
    assert_eq!(root(&tree, Some(ROOT.into())), Err(CpusetError::NoController));
}
