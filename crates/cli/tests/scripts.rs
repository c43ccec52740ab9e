//! The scripts of `takt export`, run: a hook promotes the vCPUs of a real QEMU, groups get their budgets, and Xen's
//! command gets its arguments.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use takt_linux::process::KillOnDrop;
use takt_linux::{Class, Reservation, clock, tracing};
use takt_model::Span;

const TAKT: &str = env!("CARGO_BIN_EXE_takt");
const QEMU: &str = "qemu-system-x86_64";

fn system(name: &str, cpus: u32, more: &str) -> String {
    let node = "takt = 1\n[[node]]\nname = \"host\"\ncpus = 2\n";
    let server = "server = \"cbs-hard\"\nperiod = \"20ms\"\nbudget = \"4ms\"\n";
    format!("{node}[[component]]\nname = \"{name}\"\n{server}cpus = {cpus}\n{more}")
}

fn script(folder: &Path, system: &str, format: &str) -> std::path::PathBuf {
    fs::write(folder.join("system.toml"), system).expect("a file");
    let path = folder.join("script");
    let mut command = Command::new(TAKT);
    command.args(["export", "system.toml", "--format", format, "-o", "script"]).current_dir(folder);
    let ran = command.output().expect("takt starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    path
}

fn sh(script: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new("sh").arg(script).args(arguments).envs(variables.iter().copied()).output().expect("a shell")
}

/// Looks until something is there, for ten seconds at most.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(found) = look() {
            return found;
        }
        clock::pause(Span::from_ms(10));
    }
    panic!("QEMU does not start")
}

fn vcpus(socket: &Path) -> Vec<u32> {
    let stream = until(|| UnixStream::connect(socket).ok());
    let (mut lines, mut out) = (BufReader::new(stream.try_clone().expect("a socket")).lines(), stream);
    let mut answer = |request: &str| -> Value {
        out.write_all(request.as_bytes()).expect("QEMU listens");
        let lines = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
        lines.into_iter().find(|line| !line["return"].is_null()).expect("an answer")
    };
    answer("{\"execute\": \"qmp_capabilities\"}\n");
    let cpus = answer("{\"execute\": \"query-cpus-fast\"}\n");
    let cpus = cpus["return"].as_array().expect("CPUs");
    cpus.iter().map(|cpu| cpu["thread-id"].as_u64().expect("an id") as u32).collect()
}

#[test]
fn the_hook_promotes_the_vcpus_of_a_guest_and_no_other_thread() {
    if Command::new(QEMU).arg("--version").stdout(Stdio::null()).status().is_err() {
        return println!("skipped: {QEMU} is not installed");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (pids, socket) = (folder.to_str().expect("a path"), folder.join("qmp"));
    let mut command = Command::new(QEMU);
    command.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "16", "-nodefaults", "-display", "none", "-S"]);
    command.args(["-name", "guest,debug-threads=on", "-monitor", "none", "-serial", "none"]);
    command.args(["-pidfile", &format!("{pids}/guest.pid")]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())]);
    let guest = KillOnDrop(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("QEMU starts"));
    let vcpus = vcpus(&socket);
    until(|| fs::read_to_string(folder.join("guest.pid")).ok().filter(|text| text.ends_with('\n')));
    assert_eq!(vcpus.len(), 2);
    let classes = || -> Vec<(bool, Class)> {
        let threads = tracing::threads().into_iter().filter(|thread| thread.process == guest.0.id());
        threads.map(|thread| (vcpus.contains(&thread.id), thread.class)).collect()
    };

    let hook = script(folder, &system("guest", 2, ""), "qemu-hook");
    // Other guests and other instants are none of its business.
    for arguments in [&["guest", "prepare", "begin", "-"], &["other", "started", "begin", "-"]] {
        let ran = sh(&hook, arguments, &[("QEMU_PIDS", pids)]);
        assert!(ran.status.success() && classes().iter().all(|(_, class)| *class == Class::Other));
    }
    let ran = sh(&hook, &["guest", "started", "begin", "-"], &[("QEMU_PIDS", pids)]);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if !ran.status.success() && said.contains("ermitted") {
        return println!("skipped: {said}");
    }
    assert!(ran.status.success(), "{said}");
    // Half of the budget for each.
    let ms = Span::from_ms;
    let reserved = Class::Deadline(Reservation { runtime: ms(2), deadline: ms(20), period: ms(20) });
    let found = classes();
    assert!(found.iter().all(|(is_vcpu, class)| (*class == reserved) == *is_vcpu), "{found:?}");
    assert!(found.len() > 2 && said.matches("stays as it was").count() == found.len() - 2, "{said}");

    let wrong = script(folder, &system("guest", 1, ""), "qemu-hook");
    let ran = sh(&wrong, &["guest", "started", "begin", "-"], &[("QEMU_PIDS", pids)]);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(1) && said.contains("its component has cpus = 1"), "{said}");
}

#[test]
fn groups_get_their_ceilings() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let root = folder.join("groups");
    fs::create_dir_all(root.join("machine.slice/guest")).expect("a folder");
    let threads = "threads = \"cgroup:/machine.slice/guest\"\n";
    let path = script(folder, &system("guest", 1, threads), "cpu.max");
    let ran = sh(&path, &[], &[("CGROUP_ROOT", root.to_str().expect("a path"))]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(fs::read_to_string(root.join("machine.slice/guest/cpu.max")).expect("a limit"), "4000 20000\n");

    // A budget for real-time threads is in one file of version 2, or in two of version 1.
    let path = script(folder, &system("guest", 1, ""), "cpu.rt.max");
    for (version, files) in [
        ("v2", &[("cpu.rt.max", "4000 20000\n")][..]),
        ("v1", &[("cpu.rt_runtime_us", "4000\n"), ("cpu.rt_period_us", "20000\n")]),
    ] {
        let root = folder.join(version);
        fs::create_dir_all(root.join("guest")).expect("a folder");
        for (file, _) in files {
            fs::write(root.join("guest").join(file), "").expect("a file");
        }
        let ran = sh(&path, &[], &[("CGROUP_ROOT", root.to_str().expect("a path"))]);
        assert!(ran.status.success(), "{version}: {}", String::from_utf8_lossy(&ran.stderr));
        let written = fs::read_dir(root.join("guest")).expect("a folder").count();
        assert_eq!(written, files.len(), "{version}");
        for (file, limit) in files {
            assert_eq!(fs::read_to_string(root.join("guest").join(file)).expect("a limit"), *limit, "{version}");
        }
    }

    // The real files of this kernel, where it has real-time groups.
    let name = format!("takt-export-test-{}", std::process::id());
    let path = script(folder, &system(&name, 1, ""), "cpu.rt.max");
    let cpu = Path::new("/sys/fs/cgroup/cpu");
    if !cpu.join("cpu.rt_runtime_us").exists() || fs::create_dir(cpu.join(&name)).is_err() {
        return println!("skipped: no groups with real-time budgets");
    }
    let ran = sh(&path, &[], &[]);
    let read = |file: &str| fs::read_to_string(cpu.join(&name).join(file)).unwrap_or_default();
    let found = (read("cpu.rt_runtime_us"), read("cpu.rt_period_us"));
    fs::remove_dir(cpu.join(&name)).expect("an empty group");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(found, ("4000\n".to_owned(), "20000\n".to_owned()));
}

#[test]
fn xen_gets_its_arguments() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let path = script(folder, &system("dom u", 2, ""), "xl");
    let stub = folder.join("xl");
    fs::write(&stub, "#!/bin/sh\nfor word in \"$@\"; do printf '%s|' \"$word\"; done\necho\n").expect("a file");
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("permissions");
    let search = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let ran = sh(&path, &[], &[("PATH", &search)]);
    let line = |vcpu: u32| format!("sched-rtds|-d|dom u|-v|{vcpu}|-p|20000|-b|2000|-e|0|\n");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), line(0) + &line(1));
}

#[test]
fn an_export_that_the_other_program_cannot_represent_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (text, format, says) in [
        (system("guest", 1, "").replace("20ms", "2s"), "cpu.max", "cpu.max takes 1ms to 1s"),
        (system("guest", 1, "").replace("4ms", "auto"), "xl", "let \"takt size -o\" write both"),
        (system("guest", 1, "threads = \"unit:a.service\"\n"), "cpu.rt.max", "systemd sets no real-time budget"),
        (system("guest", 2, "").replace("4ms", "500us"), "cpu.max", "its budget is 500us"),
        ("takt = 1\n".to_owned(), "qemu-hook", "the system has no component"),
    ] {
        fs::write(folder.join("system.toml"), text).expect("a file");
        let mut command = Command::new(TAKT);
        let ran = command.args(["export", "system.toml", "--format", format]).current_dir(folder).output();
        let ran = ran.expect("takt starts");
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(2) && error.contains(says) && ran.stdout.is_empty(), "{error}");
    }
}
