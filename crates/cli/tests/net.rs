//! `takt net` on this kernel, in network namespaces of the test's own: shares of a device and its
//! return at every kind of end. If this machine cannot, each test says so and passes.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

use serde_json::Value;
use takt_linux::clock::pause;
use takt_linux::net::Cable;
use takt_linux::process::KillOnDrop;
use takt_linux::tc::{self, Device, Role};
use takt_model::Span;
use tempfile::TempDir;

use crate::command::{cable, ended, eventually, piped, ran, signal};

mod command;

fn takt(arguments: &[&str]) -> Command {
    piped(&["net"], arguments)
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    ran(takt(arguments))
}

/// A system of one node; `share` is the rate of its real-time messages.
fn system(share: &str) -> String {
    format!(
        "takt = 1\nname = \"plant\"\n[[node]]\nname = \"arm\"\nlink = {{ rate = \"100Mbit\", bucket = {{ burst = \
         \"4kB\", rate = \"{share}\" }}, background = {{ size = \"4kB\" }} }}\n"
    )
}

/// Two nodes that send each other messages, on links without buckets. "arm" sends one each `period`.
fn flows(period: &str) -> String {
    let mut text = "takt = 1\nname = \"plant\"\n".to_owned();
    for node in ["arm", "leg"] {
        text += &format!(
            "[[node]]\nname = \"{node}\"\nlink = {{ rate = \"100Mbit\" }}\nreceive = {{ period = \"5ms\", wcet = \
             \"500us\", cost = \"20us\" }}\nsend = {{ period = \"5ms\", wcet = \"500us\", cost = \"20us\" }}\n"
        );
    }
    for (name, path, period) in [("put", "\"arm\", \"leg\"", period), ("get", "\"leg\", \"arm\"", "40ms")] {
        text += &format!(
            "[[flow]]\nname = \"{name}\"\npath = [{path}]\nperiod = \"{period}\"\nsend-gap = \"{period}\"\n\
             wcet = \"1ms\"\ndeadline = \"100ms\"\nsize = \"400B\"\n"
        );
    }
    text + "[[network]]\ndelay = [\"0.1ms\", \"0.9ms\"]\n"
}

/// Runs `body` on a thread at the left end of a new cable, with the path of a system file.
fn on_cable(body: impl FnOnce(&Cable, &Path) + Send) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("plant.toml");
    fs::write(&file, system("20Mbit")).unwrap();
    let Some(cable) = cable(false) else { return };
    let at_left = || {
        allow_segments(cable.left().device());
        body(&cable, &file);
    };
    cable.left().run(at_left).unwrap();
}

/// Sets the limit of segments as on a real device. A cable has 1, which takt need not change.
fn allow_segments(device: &str) {
    let set = Command::new("ip").args(["link", "set", "dev", device, "gso_max_segs", "65535"]).status();
    if !set.is_ok_and(|status| status.success()) {
        println!("skipped: the limit of segments: no ip of iproute2 sets gso_max_segs, so it stays 1");
    }
}

fn device(cable: &Cable) -> Device {
    Device::find(cable.left().device()).unwrap().unwrap()
}

/// The rate of the real-time class in Mbit/s; `None`: the device is not shared.
fn real_time_rate(device: &Device) -> Option<u64> {
    Some(real_time_bytes(device)? * 8 / 1_000_000)
}

/// The same in bytes a second.
fn real_time_bytes(device: &Device) -> Option<u64> {
    let status = tc::show(Some(device)).unwrap();
    let class = status.first()?.classes.iter().find(|class| class.role == Role::RealTime)?;
    Some(class.assured.rate)
}

/// A takt that holds shares; ended when dropped.
struct Holding(KillOnDrop);

impl Holding {
    fn start(device: &Device, arguments: &[&str]) -> Holding {
        let apply = takt(&[&["apply", "--device", &device.name], arguments].concat()).spawn();
        let holding = Holding(KillOnDrop(apply.unwrap()));
        eventually("shared", || {
            real_time_rate(device).is_some_and(|_| tc::show(Some(device)).unwrap()[0].gso_max_segs == 1)
        });
        holding
    }

    fn end(mut self, name: &str) -> (ExitStatus, String) {
        let child = &mut self.0.0;
        signal(child, name);
        let status = ended(child, name);
        (status, std::io::read_to_string(child.stdout.take().unwrap()).unwrap())
    }
}

#[test]
fn a_device_has_what_it_had_after_every_end_of_takt() {
    on_cable(|cable, file| {
        let before = device(cable);
        let file = file.to_str().unwrap();
        for end in ["-TERM", "-INT", "-HUP", "-USR1"] {
            let (status, text) = Holding::start(&before, &[file]).end(end);
            assert!(status.success(), "{end}: {status}");
            assert!(text.contains("has what it had before: noqueue (the kernel's default)"), "{end}: {text}");
            assert_eq!((device(cable), real_time_rate(&before)), (before.clone(), None), "{end}");
        }
        Holding::start(&before, &[file, "--watch"]).end("-KILL");
        // Any verb repairs. Another test's takt may have been faster.
        let (status, _, stderr) = run(&["show"]);
        assert_eq!(status, Some(1), "{stderr}");
        assert_eq!((device(cable), real_time_rate(&before)), (before.clone(), None));
    });
}

#[test]
fn a_killed_takt_at_any_instant_leaves_a_device_that_the_next_start_restores() {
    on_cable(|cable, file| {
        let before = device(cable);
        for delay in 0..12 {
            let child = takt(&["apply", "--device", &before.name, file.to_str().unwrap()]).spawn().unwrap();
            let child = KillOnDrop(child);
            pause(Span::from_ms(delay * 3));
            drop(child);
            assert!(run(&["show"]).0 == Some(1), "after {delay} steps");
            assert_eq!((device(cable), real_time_rate(&before)), (before.clone(), None), "after {delay} steps");
        }
    });
}

#[test]
fn shares_follow_the_file_while_they_are_watched() {
    on_cable(|cable, file| {
        let device = device(cable);
        let path = file.to_str().unwrap();
        let holding = Holding::start(&device, &[path, "--watch", "--json"]);
        fs::write(file, system("30Mbit")).unwrap();
        eventually("changed in place", || real_time_rate(&device) == Some(30));
        // A file with errors changes nothing, and a better one does.
        fs::write(file, system("300Mbit")).unwrap();
        pause(Span::from_ms(500));
        assert_eq!(real_time_rate(&device), Some(30));
        fs::write(file, system("40Mbit")).unwrap();
        eventually("changed again", || real_time_rate(&device) == Some(40));
        let (status, text) = holding.end("-INT");
        assert!(status.success());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["changes"], &answer["kept"]), (&2.into(), &false.into()));
        assert_eq!(answer["classes"][0]["rate_bps"], 40_000_000);
        assert_eq!(answer["restored"]["discipline"], "noqueue (the kernel's default)");
    });
}

#[test]
fn shares_follow_the_file_that_size_writes() {
    on_cable(|cable, file| {
        let device = device(cable);
        let base = file.with_file_name("base.toml");
        let (base, path) = (base.to_str().unwrap(), file.to_str().unwrap());
        // In bytes a second, the share that the file has then.
        let size = |period: &str| {
            fs::write(base, flows(period)).unwrap();
            let (status, _, stderr) = ran(piped(&["size"], &[base, "--network-delay", "2ms", "-o", path]));
            assert_eq!(status, Some(0), "{stderr}");
            let text = fs::read_to_string(file).unwrap();
            let system = takt_model::file::parse(&text, "plant").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            let arm = system.nodes.iter().find(|node| node.name == "arm").unwrap();
            arm.link.unwrap().bucket.unwrap().rate.as_bps().div_ceil(8)
        };
        let first = size("20ms");
        let holding = Holding::start(&device, &[path, "--node", "arm", "--watch", "--json"]);
        assert_eq!(real_time_bytes(&device), Some(first));
        let second = size("10ms");
        assert!(second > first, "more messages have a larger share: {first} {second}");
        eventually("the new share", || real_time_bytes(&device) == Some(second));
        let (status, text) = holding.end("-INT");
        assert!(status.success());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["changes"], &answer["classes"][0]["rate_bps"]), (&1.into(), &(second * 8).into()));
    });
}

#[test]
fn the_plan_tells_how_much_longer_packets_of_many_segments_would_make_the_wait() {
    on_cable(|cable, file| {
        let device = device(cable);
        let plan = |more: &[&str]| {
            let apply = ["apply", file.to_str().unwrap(), "--device", &device.name, "--dry-run"];
            let (status, stdout, stderr) = run(&[&apply[..], more].concat());
            assert_eq!(status, Some(0), "{stderr}");
            stdout
        };
        let answer: Value = serde_json::from_str(&plan(&["--json"])).unwrap();
        let [with_gso, without] = ["blocking_with_gso_ns", "blocking_ns"].map(|key| answer[key].as_u64().unwrap());
        assert!(with_gso > without, "{answer}");
        let text = plan(&[]);
        let start = format!("gso_max_segs 1 (before: {}); packets of many segments would make", device.gso_max_segs);
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {start}: {text}"));
        let factor = line.strip_suffix(" times as long").and_then(|line| line.rsplit_once(", ")).unwrap().1;
        let tenths = with_gso * 10 / without;
        assert_eq!(factor, format!("{}.{}", tenths / 10, tenths % 10), "{line}");
    });
}

#[test]
fn kept_shares_are_shown_changed_and_removed() {
    on_cable(|cable, file| {
        let device = device(cable);
        let (name, path) = (device.name.as_str(), file.to_str().unwrap());
        let apply = |more: &[&str]| run(&[&["apply", path, "--device", name, "--json"], more].concat());
        let (status, stdout, stderr) = apply(&["--keep", "--real-time", "port:7000"]);
        assert_eq!(status, Some(0), "{stderr}");
        let answer: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(answer["rules"], serde_json::json!([{ "rule": "port:7000", "class": "real-time" }]));
        assert!(answer["checks"].as_array().unwrap().iter().all(|check| check["counted"] == check["sent"]));
        let (status, stdout, _) = run(&["show", "--device", name]);
        assert_eq!(status, Some(0));
        assert!(stdout.contains("kept until takt net remove") && stdout.contains("real-time: port:7000"), "{stdout}");

        fs::write(file, system("25Mbit")).unwrap();
        assert_eq!(apply(&["--keep"]).0, Some(0));
        assert_eq!(real_time_rate(&device), Some(25));
        // Held by a process instead, and restored when that ends.
        assert_eq!(apply(&["--for", "10ms"]).0, Some(0));
        assert_eq!(real_time_rate(&device), None);
        let (status, _, stderr) = run(&["remove", "--device", name]);
        assert_eq!(status, Some(1));
        assert!(stderr.contains("has no shares of takt"), "{stderr}");

        assert_eq!(apply(&["--keep"]).0, Some(0));
        let (status, stdout, _) = run(&["remove", "--device", name]);
        assert_eq!(status, Some(0), "{stdout}");
        assert_eq!((self::device(cable), real_time_rate(&device)), (device.clone(), None));
        let holding = Holding::start(&device, &[path]);
        let (status, _, stderr) = apply(&[]);
        assert_eq!(status, Some(3));
        assert!(stderr.contains("end it first"), "{stderr}");
        holding.end("-TERM");
    });
}

/// With the feature alone: the end of takt, also by kill -9, takes the option away.
#[cfg(feature = "bpf")]
#[test]
fn sockets_have_deadlines_while_takt_holds_the_device() {
    use std::net::UdpSocket;
    use takt_linux::tc::{PacketDeadline, set_deadline};

    on_cable(|cable, file| {
        let device = device(cable);
        let socket = UdpSocket::bind((cable.left().address(), 0)).unwrap();
        let deadline = || set_deadline(&socket, PacketDeadline::After(Span::from_s(60)));
        for end in ["-TERM", "-KILL"] {
            let holding = Holding::start(&device, &[file.to_str().unwrap(), "--deadlines", "--json"]);
            eventually("sockets have the option", || deadline().is_ok());
            for _ in 0..3 {
                socket.send_to(b"message", (cable.right().address(), 9)).unwrap();
            }
            let (_, text) = holding.end(end);
            assert!(deadline().is_err(), "the option is gone");
            if end == "-TERM" {
                let answer: Value = serde_json::from_str(&text).unwrap();
                let counts = &answer["packets_with_deadline"];
                assert_eq!((&counts["came"], &counts["dropped"], &counts["late"]), (&3.into(), &0.into(), &0.into()));
                assert_eq!(answer["deadlines"], serde_json::json!({ "group": "/", "late": "drop" }));
            }
        }
        assert_eq!(run(&["show"]).0, Some(1));
        assert_eq!((self::device(cable), real_time_rate(&device)), (device.clone(), None));
    });
}

#[test]
fn a_dry_run_needs_nothing_and_refusals_say_what_to_do() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("plant.toml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    let file = path.to_str().unwrap();
    let refused = |arguments: &[&str], status: i32, expected: &str| {
        let (found, _, stderr) = run(&[&["apply", file, "--dry-run"], arguments].concat());
        assert_eq!(found, Some(status), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    write(&system("20Mbit"));
    let (status, stdout, stderr) = run(&["apply", file, "--device", "lo", "--dry-run", "--json"]);
    assert_eq!(status, Some(0), "{stderr}");
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&plan["node"], &plan["rate_bps"]), (&"arm".into(), &100_000_000.into()));
    assert!(plan["blocking_with_gso_ns"].as_u64().unwrap() >= plan["blocking_ns"].as_u64().unwrap());
    refused(&["--device", "no-such"], 2, "no network device is called \"no-such\"; there are ");
    refused(&["--device", "lo", "--reply", "port:7"], 2, "has no share for replies; write link.replies");
    refused(&["--device", "lo", "--real-time", "mark:7"], 2, "is no property of packets");
    refused(&["--device", "lo", "--node", "leg"], 2, "no node is called \"leg\"");
    refused(&["--device", "lo", "--deadlines=control"], 2, "write one from the root, like /control");
    if cfg!(feature = "bpf") {
        let (status, stdout, stderr) = run(&["apply", file, "--device", "lo", "--dry-run", "--deadlines=/control"]);
        assert_eq!(status, Some(0), "{stderr}");
        assert!(stdout.contains("SO_DEADLINE: sockets of control group /control; "), "{stdout}");
        // HTB is the default, and the file has no link.order.
        assert!(stdout.contains("late datagrams are dropped") && stdout.contains("QUANTUM"), "{stdout}");
        let own = ["apply", file, "--device", "lo", "--dry-run", "--deadlines", "--discipline", "takt"];
        let ordered = system("20Mbit").replace("bucket =", "order = \"edf\", late = \"demote\", bucket =");
        write(&ordered);
        let (status, stdout, stderr) = run(&own);
        assert_eq!(status, Some(0), "{stderr}");
        assert!(stdout.contains("late datagrams are sent after all others"), "{stdout}");
        let row = stdout.lines().find(|line| line.starts_with("real-time ")).unwrap();
        assert!(row.split_whitespace().any(|word| word == "edf"), "{stdout}");
        let (_, stdout, _) = run(&[&own[..], &["--json"]].concat());
        let plan: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((&plan["discipline"], &plan["deadlines"]["late"]), (&"takt".into(), &"demote".into()));
        let orders: Vec<&Value> = plan["classes"].as_array().unwrap().iter().map(|class| &class["order"]).collect();
        assert_eq!(orders, ["edf", "fifo"]);
        write(&system("20Mbit"));
    } else {
        refused(&["--device", "lo", "--deadlines"], 3, "build it with the feature \"bpf\"");
        refused(&["--device", "lo", "--discipline", "takt"], 3, "build it with the feature \"bpf\"");
    }
    let late = ["--device", "lo", "--discipline", "takt", "--deadlines", "--late", "drop"];
    refused(&late, 2, "leave --late out, and write link.late");
    let (status, _, stderr) = run(&["apply", file, "--device", "lo", "--discipline", "takt", "--keep"]);
    assert_eq!((status, stderr.contains("leave the option --keep out")), (Some(2), true), "{stderr}");
    write("takt = 1\nname = \"bare\"\n[[node]]\nname = \"arm\"\n");
    refused(&["--device", "lo"], 2, "no node of system \"bare\" has a link");
    let replies = system("80Mbit").replace("bucket =", "replies = { burst = \"1kB\", rate = \"30Mbit\" }, bucket =");
    write(&replies);
    refused(&["--device", "lo"], 2, "take 110Mbit together, and the link has 100Mbit");
    let (status, stdout, _) = run(&["show", "--device", "lo"]);
    assert_eq!((status, stdout.as_str()), (Some(1), "device lo has no shares of takt\n"));
}

#[test]
fn the_doctor_tells_of_each_gap() {
    let (status, stdout, stderr) = run(&["doctor", "--json"]);
    assert!(matches!(status, Some(0 | 1)), "{stderr}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let names: Vec<&str> =
        answer["findings"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    for name in ["htb", "classifier", "gso-limit", "deadline-option", "etf", "bpf-qdisc", "software-timestamps"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(answer["spoils"], status == Some(1));
}
