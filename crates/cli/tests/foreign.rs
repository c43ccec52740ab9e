//! Components of existing threads on this kernel: budgets hold against greedy processes. Every thread gets its former
//! settings back, also after a kill of takt.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use takt_linux::process::parent_of;
use takt_linux::{clock, foreign, tracing};
use takt_model::{Span, Threads};

use crate::command::{TAKT, alone, eventually, eventually_or, succeeds, takt, unless_refused};
use crate::instants::{Instants, kills};

mod command;
#[path = "command/instants.rs"]
mod instants;

/// A process that spins in several processes for a while, whatever happens to this test.
const GREEDY: &str =
    "timeout --foreground 20 sh -c 'while :; do :; done' & timeout --foreground 20 sh -c 'while :; do :; done' & wait";
/// A process that wants 2 ms of each 20 ms or so, and starts a process each time.
const MODEST: &str =
    "n=0; while [ $n -lt 600 ]; do n=$((n+1)); i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.02; done";

struct Guest {
    child: Child,
    group: Option<PathBuf>,
}

impl Guest {
    fn start(script: &str) -> Guest {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own, to be ended as a whole.
        command.process_group(0);
        Guest { child: command.spawn().expect("a shell"), group: None }
    }

    /// The same in a group of its own. `None`: none can be made here.
    fn in_group(script: &str, name: &str) -> Option<Guest> {
        Guest::in_folder(script, &format!("takt-test-{name}-{}", std::process::id()))
    }

    /// The same in the group that a unit of systemd would have.
    fn in_unit(script: &str) -> Option<Guest> {
        Guest::in_folder(script, &format!("takt-test-unit-{}.service", std::process::id()))
    }

    fn in_folder(script: &str, name: &str) -> Option<Guest> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount =
            mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?.to_owned();
        let folder = Path::new(&mount).join(name);
        fs::create_dir(&folder).ok()?;
        // Later children come into the group with it.
        let mut guest = Guest::start(&format!("sleep 0.1; {script}"));
        let moved = fs::write(folder.join("cgroup.procs"), guest.child.id().to_string());
        guest.group = Some(folder);
        moved.ok().map(|()| guest)
    }

    fn name(&self) -> String {
        match &self.group {
            Some(folder) => {
                let kind = folder.extension().map_or("cgroup:/", |_| "unit:");
                format!("{kind}{}", folder.file_name().unwrap().to_str().unwrap())
            }
            None => format!("pid:{}", self.child.id()),
        }
    }

    fn processes(&self) -> Vec<u32> {
        let all = tracing::threads();
        let mut found = vec![self.child.id()];
        // Children have larger numbers, but for a wrap-around, which a second look covers.
        for _ in 0..3 {
            for thread in &all {
                if !found.contains(&thread.process) && parent_of(thread.process).is_some_and(|id| found.contains(&id)) {
                    found.push(thread.process);
                }
            }
        }
        found
    }

    /// Threads that are not as ordinary threads are, or may not use all CPUs.
    fn held(&self) -> Vec<String> {
        let (processes, all) = (self.processes(), takt_linux::sched::affinity());
        let threads = tracing::threads().into_iter().filter(|thread| processes.contains(&thread.process));
        let held = threads.filter(|thread| thread.policy != 0 || thread.affinity != all);
        held.map(|thread| format!("{} {} {:?}", thread.name, thread.class.describe(), thread.affinity)).collect()
    }

    /// Its group, if takt made one, which is gone when all is as before.
    fn group_of_takt(&self) -> bool {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", self.child.id())).unwrap_or_default();
        groups.lines().any(|line| line.starts_with("0::") && line.contains("/takt-") && !line.contains("takt-test"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Its leader has not been waited for, so the number of the group is still its own.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.group {
            for _ in 0..200 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                clock::pause(Span::from_ms(10));
            }
        }
    }
}

fn system(threads: &str, rule: &str) -> String {
    format!(
        "takt = 1\n[[node]]\nname = \"n\"\nstrategy = \"rm\"\n[[component]]\nname = \"guest\"\nserver = \"{rule}\"\n\
         period = \"20ms\"\nbudget = \"6ms\"\nthreads = \"{threads}\"\n[[component]]\nname = \"own\"\nserver = \
         \"polling\"\nperiod = \"10ms\"\nbudget = \"4ms\"\n[[task]]\nname = \"control\"\ncomponent = \"own\"\n\
         period = \"40ms\"\nwcet = \"9ms\"\n"
    )
}

/// Runs the guest beside a task. `None`: it may not run here.
fn run(folder: &Path, guest: &Guest, rule: &str, time: &str) -> Option<Value> {
    fs::write(folder.join("guest.toml"), system(&guest.name(), rule)).expect("a file");
    let (out, _) = unless_refused(folder, &["run", "guest.toml", "--for", time, "-o", "guest.takt", "--json"])?;
    Some(serde_json::from_str(&out).expect("JSON"))
}

/// The guest's CPU time, and the most CPU time allowed by its turns and unnoticed moments.
fn used(answer: &Value) -> (u64, u64) {
    let guest = &answer["foreign"][0];
    let of = |key: &str| guest[key].as_u64().expect(key);
    let manager = &answer["managers"][0];
    let late = manager["late_ns"]["max"].as_u64().unwrap_or(0) + manager["cost_ns"]["max"].as_u64().unwrap_or(0);
    let late = late.max(answer["steal_ns"].as_u64().unwrap_or(0)) + 50_000;
    let preemptions = manager["preemptions"].as_u64().expect("a count");
    // Six of each 20 ms, for 600 ms, and a budget at the end. A turn may end late each time.
    (of("used_ns"), 31 * 6_000_000 + of("owed_max_ns") + late * preemptions)
}

#[test]
fn a_greedy_process_gets_its_budget_and_no_more() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    for rule in ["cbs-hard", "deferrable"] {
        let mut was_greedy = false;
        for _ in 0..10 {
            // One that lives longer than the run, and has started all of its processes.
            let guest = Guest::start(GREEDY);
            let mut looks = 0;
            while guest.processes().len() < 5 && looks < 1000 {
                looks += 1;
                clock::pause(Span::from_ms(5));
            }
            let Some(answer) = run(folder.path(), &guest, rule, "600ms") else { return };
            let (used, most) = used(&answer);
            assert!(used <= most, "{rule}: {used} of {most}: {answer:#}");
            assert_eq!(answer["foreign"][0]["threads_of"], guest.name());
            // `timeout` and its shell, twice, and the shell around them, or some of these.
            assert!(answer["foreign"][0]["threads"].as_u64().is_some_and(|count| count >= 3), "{answer:#}");
            assert_eq!(guest.held(), Vec::<String>::new(), "{rule}: not given back");
            assert!(!guest.group_of_takt(), "{rule}: takt's group is still there");
            let tasks = answer["tasks"].as_array();
            let control = tasks.and_then(|tasks| tasks.iter().find(|task| task["task"] == "control"));
            let in_time = control.is_some_and(|task| task["missed"] == 0);
            // It wants everything. Real-time threads of other programs may take the CPU.
            was_greedy = used >= 100_000_000 && in_time;
            if was_greedy {
                break;
            }
            println!("{rule}: disturbed: {answer:#}");
        }
        assert!(was_greedy, "{rule}: in ten runs the guest did not get its budget, or the task missed");
    }
}

/// A unit of systemd is the group of its name, wherever it is.
#[test]
fn a_unit_is_found_by_its_name() {
    let _alone = alone();
    let Some(guest) = Guest::in_group("sleep 60", "unit") else { return println!("skipped: no group here") };
    let folder = guest.group.clone().expect("a group");
    let name = format!("takt-test-{}.service", std::process::id());
    fs::create_dir(folder.join(&name)).expect("a group");
    let found = foreign::ForeignGroup::find(&Threads::Unit(name.clone()));
    fs::remove_dir(folder.join(&name)).expect("an empty group");
    assert!(found.expect("a unit").folder.ends_with(name));
}

/// takt finds the threads of a unit, holds them to their budget, and gives them back.
#[test]
fn the_threads_of_a_unit_get_their_budget_and_no_more() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let Some(guest) = Guest::in_unit(GREEDY) else { return println!("skipped: no group can be made") };
    // All of its processes have started.
    eventually("the processes of the unit", || guest.processes().len() >= 5);
    let Some(answer) = run(folder.path(), &guest, "deferrable", "600ms") else { return };
    assert_eq!(answer["foreign"][0]["threads_of"], guest.name());
    assert!(answer["foreign"][0]["threads"].as_u64().is_some_and(|count| count >= 3), "{answer:#}");
    let (used, most) = used(&answer);
    assert!(used > 0 && used <= most, "{used} of {most}: {answer:#}");
    assert_eq!(guest.held(), Vec::<String>::new(), "not given back");
}

/// Jobs of existing threads are the times in which they want the CPU. Consumers read the log.
#[test]
fn a_modest_group_is_idle_in_between() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    // A wcps or crps server keeps its turn while the guest is idle, and lends it to the task.
    for rule in ["wcps", "crps", "deferrable"] {
        let Some(guest) = Guest::in_group(MODEST, "modest") else { return println!("skipped: no group can be made") };
        let Some(answer) = run(folder.path(), &guest, rule, "600ms") else { return };
        let jobs = answer["tasks"].as_array().and_then(|tasks| tasks.iter().find(|task| task["task"] == "guest"));
        let jobs = jobs.expect("the guest");
        assert!(jobs["completed"].as_u64().is_some_and(|count| count >= 3), "{rule}: {answer:#}");
        assert!(jobs["missed"].is_null() || jobs["missed"] == 0, "{rule}: {jobs:#}");
        let (used, most) = used(&answer);
        assert!(used > 0 && used <= most, "{rule}: {answer:#}");
        assert_eq!(guest.held(), Vec::<String>::new(), "{rule}");
    }
    for verb in [&["stats", "guest.takt"][..], &["chart", "guest.takt"], &["report", "guest.takt", "-o", "guest.html"]]
    {
        succeeds(folder.path(), verb);
    }
}

/// After a kill -9 the guardian restores and thaws the threads. After other signals takt does it itself.
#[test]
fn a_killed_takt_leaves_no_thread_frozen() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let mut instants = Instants::new();
    // Then SIGTERM, SIGINT and SIGHUP.
    for (at, signal) in kills(4).chain([15, 2, 1]).enumerate() {
        let group = if at % 2 == 0 { Guest::in_group(GREEDY, "killed") } else { None };
        let guest = group.unwrap_or_else(|| Guest::start(GREEDY));
        clock::pause(Span::from_ms(30));
        fs::write(folder.path().join("guest.toml"), system(&guest.name(), "deferrable")).expect("a file");
        let mut command = Command::new(TAKT);
        command.args(["run", "guest.toml", "--for", "10s"]).current_dir(&folder);
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("takt starts");
        clock::pause(Span::from_ms(30).saturating_add(instants.below_ms(300)));
        if let Ok(Some(status)) = run.try_wait() {
            assert_eq!(status.code(), Some(3), "it ended by itself");
            return println!("skipped: takt run may not run here");
        }
        takt_linux::process::signal(&mut run, signal);
        let _ = run.wait();
        let kill = format!("kill {at}: signal {signal}");
        eventually_or(
            || guest.held().is_empty() && !guest.group_of_takt(),
            || format!("{kill}: {:?} held; takt's group is still there: {}", guest.held(), guest.group_of_takt()),
        );
        // They run: nobody left them frozen.
        let used = || guest.processes().into_iter().filter_map(cpu_time).sum::<u64>();
        let before = used();
        eventually(&format!("{kill}: the guest runs"), || used() > before);
    }
}

fn cpu_time(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// A refusal comes before anything is frozen.
#[test]
fn threads_that_cannot_be_held_are_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let of = |text: &str, more: &[&str]| {
        fs::write(folder.join("guest.toml"), text).expect("a file");
        let (status, out, error) = takt(folder, &[&["run", "guest.toml", "--for", "50ms"], more].concat());
        assert!(out.is_empty(), "{out}");
        (status, error)
    };
    let guest = Guest::start("sleep 60");
    let here = system(&guest.name(), "deferrable");
    for (text, more, status, says) in [
        (system("pid:4194304", "deferrable"), &[][..], 2, "there is no such process"),
        (system("cgroup:/no/such/group", "deferrable"), &[], 2, "there is no group"),
        (system("unit:no-such-unit.service", "deferrable"), &[], 2, "start the unit first"),
        (
            here.replace("[[component]]\nname = \"own\"", "[[component]]\nname = \"own\"\nparent = \"guest\""),
            &[],
            2,
            "which holds existing threads and nothing else",
        ),
        (system(&guest.name(), "cbs"), &[], 3, "server = \"cbs-hard\""),
        (here.clone(), &["--best-effort"], 3, "leave --best-effort out"),
        (here.clone(), &["--trace"], 3, "--trace does not go with existing threads"),
        (here.clone(), &["--backend", "deadline"], 3, "use --backend manager"),
        (system("pid:x", "deferrable"), &[], 2, "guest.toml:10:11: threads \"pid:x\" of component \"guest\""),
    ] {
        let (ended, error) = of(&text, more);
        if error.contains("cgroup v2 is not mounted") {
            println!("skipped: {error}");
            continue;
        }
        assert!(ended == status && error.contains(says), "{ended}, not {status} with {says:?}: {error}");
    }
    assert!(!guest.group_of_takt() && guest.held().is_empty());
    // `check` and `sim` go by the budget and the tasks of the file.
    for verb in ["check", "sim"] {
        let (status, _, error) = takt(folder, &[verb, "guest.toml"]);
        assert_eq!(status, 2, "{error}");
        fs::write(folder.join("good.toml"), &here).expect("a file");
        let (status, _, error) = takt(folder, &[verb, "good.toml"]);
        assert_eq!(status, 0, "{verb}: {error}");
    }
    let own = Threads::Pid(std::process::id());
    assert!(foreign::ForeignGroup::find(&own).is_err());
}
