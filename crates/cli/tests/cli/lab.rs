//! `takt lab` without QEMU: bad usage, missing parts, and remedies.

use std::fs;
use std::process::Command;

use super::folder::{CommandResult, Folder, TAKT};

fn without_programs(folder: &Folder, arguments: &[&str]) -> CommandResult {
    let mut command = Command::new(TAKT);
    command.args(arguments).current_dir(folder.0.path()).env("PATH", "").env("XDG_CACHE_HOME", folder.path("cache"));
    CommandResult::of(command.output().expect("takt starts"))
}

#[test]
fn bad_input_is_named_before_anything_starts() {
    let folder = Folder::new();
    let cases: &[(&[&str], &str)] = &[
        (&["run"], "the following required arguments were not provided"),
        (&["run", "missing.toml"], "cannot read missing.toml"),
        (&["run", "unitless.toml"], "has no unit; write a duration"),
        (&["run", "idle.toml"], "has no tasks"),
        (&["run", "good.toml", "--cpus", "2"], "--cpus 2 with exact devices"),
        (&["run", "good.toml", "--cards", "9"], "9 is not in 0..=8"),
        (&["run", "good.toml", "late.toml", "-o", "x.takt"], "-o takes the log of one FILE"),
        (&["run", "good.toml", "--json", "-o", "-"], "both want standard output"),
        (&["run", "good.toml", "--add", "missing.sh"], "cannot read missing.sh"),
        (&["run", "good.toml", "--disk", "8"], "--disk 8 with exact devices"),
        (&["run", "good.toml", "--virtio-disk", "8"], "--virtio-disk 8 with exact devices"),
        (&["run", "good.toml", "--module", "a b"], "has \"b\", which is no parameter"),
        (&["run", "good.toml", "--module", "a;b"], "is no single word"),
        (&["run", "good.toml", "--kernel", "..", "--for", "1s"], "is no kernel"),
        (&["repeat", "--pairs", "0", "good.toml"], "0 is not in 1..=1000"),
        (&["fetch", "--kernel", "./good.toml"], "it is no bzImage of Linux for x86"),
        (&["fetch", "--kernel", "./missing"], "./missing: No such file"),
        (&["guest"], "runs in a guest of takt lab run"),
        (&["play", "2", "--for", "1s"], "takt lab play runs in a guest of takt lab run"),
    ];
    for (arguments, expected) in cases {
        let ran = without_programs(&folder, &[&["lab"], *arguments].concat());
        assert_eq!(ran.status, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!folder.path("cache").exists());
}

#[test]
fn experiments_without_a_form_in_the_lab_are_refused() {
    let folder = Folder::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["sdd-fig4", "--lab"], 2, "sdd-fig4 has no form in the lab; leave it out, or choose one of sdd-throughput"),
        (&["sdd-throughput", "--lab", "--for", "1s"], 2, "leave --for and --repeat out"),
        (&["sdd-throughput", "--kernel", "plain"], 2, "--lab"),
        (&["sdd-throughput", "--lab"], 3, "qemu-system-x86_64 is missing"),
    ];
    for (arguments, status, expected) in cases {
        let ran = without_programs(&folder, &[&["reproduce"], *arguments].concat());
        assert_eq!(ran.status, *status, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!folder.path("sdd-throughput").exists());
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let folder = Folder::new();
    for arguments in [["lab", "run", "good.toml"], ["lab", "repeat", "good.toml"]] {
        let ran = without_programs(&folder, &arguments);
        let expected = "takt: the program qemu-system-x86_64 is missing; on Debian: apt-get install qemu-system-x86\n";
        assert_eq!((ran.status, ran.stderr.as_str()), (3, expected));
    }
    let ran = without_programs(&folder, &["lab", "fetch", "--mirror", "http://127.0.0.1:9/debian"]);
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("apt-get install"), "{}", ran.stderr);
}

/// A program in place of QEMU shows the way to each later refusal.
#[test]
fn a_missing_kernel_and_a_dynamic_binary_are_refused_with_the_remedy() {
    let folder = Folder::new();
    let script = "#!/bin/sh\necho QEMU emulator version 9.9\n";
    fs::create_dir(folder.path("bin")).unwrap();
    fs::write(folder.path("bin/qemu-system-x86_64"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path("bin/qemu-system-x86_64"), executable).unwrap();
    let path = format!("{}:{}", folder.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    let takt = |arguments: &[&str]| {
        let mut command = Command::new(TAKT);
        command.args(arguments).current_dir(folder.0.path()).env("PATH", &path);
        CommandResult::of(command.env("XDG_CACHE_HOME", folder.path("cache")).output().expect("takt starts"))
    };
    let ran = takt(&["lab", "run", "good.toml", "--kernel", "plain"]);
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("has no kernel plain; fetch it first: takt lab fetch --kernel plain"),
        "{}",
        ran.stderr
    );

    let sealed = |name: &str, file: &str| {
        let folder = folder.path("cache/takt/lab").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), "bytes").unwrap();
        let sums = Command::new("sha256sum").arg(format!("./{file}")).current_dir(&folder).output().unwrap();
        fs::write(folder.join("SHA256SUMS"), sums.stdout).unwrap();
        folder.join(file)
    };
    let kernel = sealed("kernels/1.2.3-amd64", "vmlinuz");
    sealed("busybox", "busybox");
    let ran = takt(&["lab", "run", "good.toml", "--kernel", "1.2.3-amd64"]);
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("make a static binary (make lab-binary)"), "{}", ran.stderr);
    let ran = takt(&["lab", "run", "good.toml", "--kernel", "1.2.3-amd64", "--binary", "good.toml"]);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("good.toml is no static program"), "{}", ran.stderr);

    // A kernel of another suite, or an update, is asked of the archive.
    fs::write(folder.path("cache/takt/lab/kernels/rt.newest"), "1.2.3-amd64\nsid\n").unwrap();
    fs::write(folder.path("bin/apt-get"), "#!/bin/sh\necho no archive >&2\nexit 100\n").unwrap();
    fs::set_permissions(folder.path("bin/apt-get"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let fetch = ["lab", "fetch", "--mirror", "http://127.0.0.1:9/debian"];
    for (more, status, expected) in [
        (&["--suite", "sid"][..], 2, "it is no bzImage"),
        (&["--suite", "sid", "--update"][..], 3, ""),
        (&["--suite", "trixie"][..], 3, ""),
    ] {
        let ran = takt(&[&fetch[..], more].concat());
        assert_eq!(ran.status, status, "{more:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{more:?}: {}", ran.stderr);
    }

    let above = folder.path("cache/takt/lab/kernels/1.2.3-amd64");
    fs::create_dir(above.join("kernel")).unwrap();
    fs::write(above.join("kernel/veth.ko"), "bytes").unwrap();
    let sums = Command::new("sha256sum").args(["./vmlinuz", "./kernel/veth.ko"]).current_dir(&above).output().unwrap();
    fs::write(above.join("SHA256SUMS"), sums.stdout).unwrap();
    fs::write(above.join("kernel/veth.ko"), "other").unwrap();
    let ran = takt(&["lab", "run", "good.toml", "--kernel", "1.2.3-amd64", "--module", "veth"]);
    assert_eq!(ran.status, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("kernel/veth.ko does not have the checksum"), "{}", ran.stderr);

    fs::write(kernel, "other").unwrap();
    let ran = takt(&["lab", "run", "good.toml", "--kernel", "1.2.3-amd64"]);
    assert_eq!(ran.status, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("does not have the checksum"), "{}", ran.stderr);
}
