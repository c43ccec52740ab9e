//! What may start, and what is missing.

use super::*;

#[test]
fn start_errors_name_their_reason() {
    let _alone = alone();
    let operations = Operations::new("few").with(Operation::periodic("only", ms(10)).wcet(ms(1)));
    let plan = operations.compute(&Builtin::Edf.strategy(), &Limits::default()).unwrap();
    let error = Dispatcher::new(plan.clone()).on("nobody", |_| ()).err().unwrap();
    assert_eq!(error.to_string(), "the plan has no operation \"nobody\" to handle");
    let error = Dispatcher::new(plan.clone()).on("only", |_| ()).unwrap().on("only", |_| ()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "operation \"only\" has a handler already: one function is called for each of its jobs"
    );
    let error = Dispatcher::new(plan.clone()).start().err().unwrap();
    assert_eq!(
        error.to_string(),
        "operation \"only\" has no handler: give it one with on(\"only\", ..) before the start"
    );
    let best_effort = Options { best_effort: true, ..Options::default() };
    let built = Dispatcher::new(plan).with(best_effort).on("only", |_| ()).unwrap();
    let dispatching = built.start().unwrap();
    let (stopped, _) = run(dispatching, each(1));
    assert!(count(&stopped, "only").completed > 0);
    let many = Operations::new("many").cpus(64).with(Operation::periodic("far", ms(10)).wcet(ms(1)).on_cpu(63));
    let plan = many.compute(&Builtin::Edf.strategy(), &Limits::default()).unwrap();
    if sched::affinity().len() < 64 {
        let error = Dispatcher::new(plan).on("far", |_| ()).unwrap().start().err().unwrap();
        assert!(matches!(error, StartError::Cpus { wanted: 64, .. }), "{error}");
    }
}

/// Privileges of another user. The test runs itself again as that user.
const AS_NOBODY: &str = "TAKT_TEST_AS_NOBODY";

/// Starts a dispatcher with `priorities` up to `top`, in a process without privileges.
fn starts_up_to(top: u8) -> Result<(), StartError> {
    let set = Operations::new("nobody").with(Operation::periodic("a", ms(5)).wcet(us(100)));
    let limits = Limits { priorities: 1..=top, ..Limits::default() };
    let plan = set.compute(&Builtin::Rm.strategy(), &limits).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let told = seen.clone();
    let built = Dispatcher::new(plan).on("a", move |_| *told.lock().unwrap() = Some(sched::current())).unwrap();
    let result = built.start();
    let wanted = match &result {
        Ok(dispatching) => {
            let epoch = Epoch::now_is_zero();
            while dispatching.counts()[0].1.completed == 0 && epoch.now() < Time::ZERO + Span::from_s(20) {
                clock::pause(ms(5));
            }
            Some(Class::Fifo { priority: top - 1 })
        }
        Err(_) => None,
    };
    let result = result.map(drop);
    assert_eq!(*seen.lock().unwrap(), wanted, "never a job on a thread of another class");
    result
}

/// Not a test by itself: [`available_privileges_are_used_and_missing_ones_reported`] starts it as
/// another user.
#[test]
fn as_nobody() {
    let Ok(limits) = std::env::var(AS_NOBODY) else { return };
    let privilege = |result: Result<(), StartError>| match result {
        Err(StartError::Privilege { missing }) => missing,
        other => panic!("{other:?}"),
    };
    match limits.as_str() {
        "none" => {
            let missing = privilege(starts_up_to(10));
            assert!(missing.contains("CAP_SYS_NICE") && missing.contains("RLIMIT_RTPRIO is 0, not "), "{missing}");
        }
        "ten" => {
            starts_up_to(10).unwrap();
            let missing = privilege(starts_up_to(11));
            assert!(missing.contains("RLIMIT_RTPRIO is 10, not 11"), "{missing}");
        }
        // SCHED_FIFO inherited from the parent thread, and CAP_IPC_LOCK. Children inherit the same
        // privileges and no more.
        "inherited" => {
            starts_up_to(10).unwrap();
            let missing = privilege(starts_up_to(11));
            assert!(missing.contains("CAP_SYS_NICE") && missing.contains("RLIMIT_RTPRIO is 0, not 11"), "{missing}");
        }
        _ => {
            let missing = privilege(starts_up_to(10));
            assert!(missing.contains("RLIMIT_MEMLOCK") || missing.contains("memory"), "{missing}");
        }
    }
    println!("as nobody: {limits}");
}

#[test]
fn available_privileges_are_used_and_missing_ones_reported() {
    let _alone = alone();
    let own = std::env::current_exe().unwrap();
    // A copy of the program that every user may run.
    struct Removed(std::path::PathBuf);
    impl Drop for Removed {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    let copy = Removed(std::env::temp_dir().join(format!("takt-dispatch-{}", std::process::id())));
    std::fs::copy(&own, &copy.0).unwrap();
    std::fs::set_permissions(&copy.0, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // Raising limits needs CAP_SYS_RESOURCE.
    let lock: &[&str] = &["--inh-caps=+ipc_lock", "--ambient-caps=+ipc_lock"];
    for (limits, set, and) in [
        ("none", &["prlimit", "--rtprio=0"][..], &[][..]),
        ("ten", &["prlimit", "--rtprio=10", "--memlock=unlimited"], &[]),
        ("inherited", &["chrt", "--fifo", "10"], lock),
        ("memory", &["chrt", "--fifo", "10", "prlimit", "--memlock=65536"], &[]),
    ] {
        let mut command = std::process::Command::new(set[0]);
        command.args(&set[1..]);
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]).args(and).arg(&copy.0);
        command.args(["--exact", "starts::as_nobody", "--nocapture", "--test-threads=1"]).env(AS_NOBODY, limits);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if !said.contains("running 1 test") {
            println!("skipped, no other user can have \"{limits}\" here: {said}");
            continue;
        }
        assert!(output.status.success() && said.contains(&format!("as nobody: {limits}")), "{said}");
    }
}
