//! Shares of a device on this kernel, in network namespaces of the test's own. If this machine
//! cannot, each test says so and passes.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_linux::datagram::{Datagrams, Destination};
use takt_linux::net::Cable;
use takt_linux::tc::{self, ClassStatus, Device, NetError, Plan, Role, Rule, Status, apply};
use takt_model::{Background, Bucket, Bytes, Link, Rate, Span};

use common::eventually;

const MBIT: u64 = 1_000_000;

/// One test at a time: each looks for what dead processes have left.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` on a thread at the left end of a new cable.
fn on_cable(body: impl FnOnce(&Cable) + Send) {
    let cable = match Cable::lay(false) {
        Ok(cable) => cable,
        Err(error) => return println!("skipped: {error}"),
    };
    let at_left = || {
        allow_segments(cable.left().device());
        body(&cable);
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

fn link(bucket: Option<u64>, replies: Option<u64>) -> Link {
    let share = |mbit: u64| Bucket { burst: Bytes::new(4_000), rate: Rate::from_bps(mbit * MBIT) };
    let background = Some(Background { size: Bytes::new(4_000), rate: None });
    let whole = Link::at(Rate::from_bps(100 * MBIT));
    Link { bucket: bucket.map(share), replies: replies.map(share), background, ..whole }
}

fn rules(texts: &[(&str, Role)]) -> Vec<Rule> {
    texts.iter().map(|(text, role)| Rule { of: text.parse().unwrap(), role: *role }).collect()
}

fn shown(device: &Device) -> Status {
    let mut all = tc::show(Some(device)).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn packets(device: &Device, role: Role) -> u64 {
    class(&shown(device), role).counters.packets
}

fn class(status: &Status, role: Role) -> ClassStatus {
    *status.classes.iter().find(|class| class.role == role).unwrap()
}

/// Sends so many datagrams with a priority to a port, without waiting for room.
fn send(cable: &Cable, priority: u32, port: u16, count: usize) {
    let at = (cable.left().address(), 0).into();
    let socket = Datagrams::bind(at, priority, 1 << 20, Span::from_ms(1)).unwrap();
    let to = Destination::from(std::net::SocketAddr::from((cable.right().address(), port)));
    for _ in 0..count {
        assert_eq!(socket.send([b"message", b""], &to, Span::ZERO), takt_linux::datagram::Sent::Yes);
    }
}

#[test]
fn packets_go_to_the_class_of_their_rule_and_the_device_gets_back_what_it_had() {
    let _alone = alone();
    on_cable(|cable| {
        let device = device(cable);
        assert_eq!(tc::show(Some(&device)).unwrap(), []);
        let plan = Plan::new(&link(Some(20), Some(5)), &device).unwrap();
        let rules = rules(&[
            ("port:7000-7009", Role::RealTime),
            ("priority:6", Role::RealTime),
            ("from-port:8000", Role::Reply),
        ]);
        let mut applied = apply(&device, &plan, &rules, false).unwrap();
        let checks = applied.checks();
        assert_eq!(checks.len(), 4, "each rule, and no rule");
        assert!(checks.iter().all(|check| check.sent > 0 && check.counted == check.sent), "{checks:?}");
        let status = applied.status().unwrap();
        assert_eq!((status.holder, &status.rules), (Some(std::process::id()), &rules));
        assert_eq!(status.gso_max_segs, 1);
        let rates: Vec<u64> = status.classes.iter().map(|class| class.assured.rate * 8 / MBIT).collect();
        assert_eq!(rates, [20, 5, 75]);

        let before = Role::ALL.map(|role| packets(&device, role));
        send(cable, 0, 7009, 3);
        send(cable, 6, 9, 4);
        let reply = UdpSocket::bind((cable.left().address(), 8000)).unwrap();
        for _ in 0..5 {
            reply.send_to(b"reply", (cable.right().address(), 9)).unwrap();
        }
        send(cable, 5, 6999, 6);
        let counted = || {
            let now = Role::ALL.map(|role| packets(&device, role));
            [now[0] - before[0], now[1] - before[1], now[2] - before[2]]
        };
        // The kernel also asks for the neighbour's address; that is background.
        eventually("all are sent", || counted()[2] >= 6 && counted()[..2] == [7, 5]);

        let restored = applied.restore().unwrap().unwrap();
        assert_eq!(restored.discipline, "noqueue (the kernel's default)");
        assert_eq!(tc::show(Some(&device)).unwrap(), []);
        assert_eq!(Device::find(&device.name).unwrap().unwrap(), device);
        assert!(matches!(tc::remove(&device), Err(NetError::NotInstalled { .. })));
    });
}

#[test]
fn shares_change_in_place_and_no_waiting_packet_is_lost() {
    let _alone = alone();
    on_cable(|cable| {
        let device = device(cable);
        let tiny =
            Link { bucket: Some(Bucket { burst: Bytes::new(1_000), rate: Rate::from_bps(8_000) }), ..link(None, None) };
        let priority = Rule::usual(false);
        let mut applied = apply(&device, &Plan::new(&tiny, &device).unwrap(), &priority, false).unwrap();
        // More than the burst: most of them wait, once the neighbour has told its address.
        send(cable, 6, 9, 100);
        let mut waiting = class(&applied.status().unwrap(), Role::RealTime).counters;
        eventually("most of them wait", || {
            waiting = class(&shown(&device), Role::RealTime).counters;
            waiting.waiting > 50
        });

        // Refused by the kernel after the first class: the former classes are back.
        let mut bad = Plan::new(&link(Some(50), Some(5)), &device).unwrap();
        bad.classes.last_mut().unwrap().assured.rate = 0;
        let before = applied.status().unwrap();
        assert!(matches!(applied.change(&bad, &Rule::usual(true)), Err(NetError::Refused { .. })));
        let rates = |status: &Status| status.classes.iter().map(|class| class.assured.rate).collect::<Vec<_>>();
        let after = applied.status().unwrap();
        assert_eq!((rates(&after), &after.rules), (rates(&before), &before.rules));
        // A change while a queue is full, so that the frames of the check are dropped there.
        send(cable, 6, 9, 1_100);
        applied.change(&Plan::new(&tiny, &device).unwrap(), &priority).unwrap();
        let full = class(&applied.status().unwrap(), Role::RealTime).counters.dropped;
        assert!(full > 100, "{full}");

        let wider = Plan::new(&link(Some(50), Some(5)), &device).unwrap();
        applied.change(&wider, &Rule::usual(true)).unwrap();
        let status = applied.status().unwrap();
        assert_eq!(status.classes.len(), 3, "a reply class has come");
        eventually("all are sent", || class(&shown(&device), Role::RealTime).counters.waiting == 0);
        let counters = class(&shown(&device), Role::RealTime).counters;
        assert!(counters.dropped - full <= 4, "only frames of the check: {counters:?}, {full} before");
        assert!(counters.packets >= waiting.packets + waiting.waiting, "{counters:?} after {waiting:?}");

        applied.change(&Plan::new(&link(Some(30), None), &device).unwrap(), &priority).unwrap();
        let status = applied.status().unwrap();
        assert_eq!(
            status.classes.iter().map(|class| class.role).collect::<Vec<_>>(),
            [Role::RealTime, Role::Background]
        );
        drop(applied);
        assert_eq!(tc::show(Some(&device)).unwrap(), [], "dropping restores");
    });
}

#[test]
fn shares_that_are_kept_stay_until_they_are_removed() {
    let _alone = alone();
    on_cable(|cable| {
        let device = device(cable);
        let plan = |mbit| Plan::new(&link(Some(mbit), None), &device).unwrap();
        apply(&device, &plan(20), &Rule::usual(false), true).unwrap().leave();
        assert_eq!(shown(&device).holder, None);
        assert!(tc::recover().stuck.is_empty());
        // Once more, in place: what was before takt is still known.
        apply(&device, &plan(30), &Rule::usual(false), true).unwrap().leave();
        let status = shown(&device);
        assert_eq!(class(&status, Role::RealTime).assured.rate * 8, 30 * MBIT);
        assert_eq!(status.former.as_deref(), Some("noqueue (the kernel's default)"));
        // Shares that cannot be had: the others stay.
        let mut bad = plan(35);
        bad.classes.last_mut().unwrap().assured.rate = 0;
        assert!(matches!(apply(&device, &bad, &[], true), Err(NetError::Refused { .. })));
        assert_eq!(shown(&device), status);
        // A process that holds them is asked to end first.
        let held = apply(&device, &plan(40), &Rule::usual(false), false).unwrap();
        assert!(matches!(tc::remove(&device), Err(NetError::InUse { .. })));
        assert!(matches!(apply(&device, &plan(40), &[], false), Err(NetError::InUse { .. })));
        held.restore().unwrap().unwrap();
        apply(&device, &plan(20), &Rule::usual(false), true).unwrap().leave();
        let removed = tc::remove(&device).unwrap();
        assert_eq!((&*removed.discipline, removed.is_former), ("noqueue (the kernel's default)", true));
        // Without a state file nobody knows what the device had.
        apply(&device, &plan(20), &Rule::usual(false), true).unwrap().leave();
        fs::remove_file(state_of(&device)).unwrap();
        assert!(!tc::remove(&device).unwrap().is_former);
        apply(&device, &plan(20), &Rule::usual(false), true).unwrap().leave();
        fs::remove_file(state_of(&device)).unwrap();
        let held = apply(&device, &plan(40), &Rule::usual(false), false).unwrap();
        assert!(!held.restore().unwrap().unwrap().is_former);
        assert_eq!(tc::show(Some(&device)).unwrap(), []);
    });
}

/// The state file of a device in this thread's network namespace.
fn state_of(device: &Device) -> PathBuf {
    let number = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    takt_linux::recovery::state_folder().join(format!("net-{number}-{}", device.index))
}

#[test]
fn settings_of_a_removed_namespace_are_forgotten() {
    let _alone = alone();
    let mut state = None;
    on_cable(|cable| {
        let device = device(cable);
        let plan = Plan::new(&link(Some(20), None), &device).unwrap();
        apply(&device, &plan, &Rule::usual(false), true).unwrap().leave();
        state = Some(state_of(&device));
    });
    let Some(path) = state else { return };
    // As if its process had been killed: it was not to be kept.
    let text = fs::read_to_string(&path).unwrap();
    let dead = text.lines().map(|line| match line.split_once(' ') {
        Some(("kept", _)) => "kept 0\n".to_owned(),
        Some(("start", _)) => "start 1\n".to_owned(),
        _ => format!("{line}\n"),
    });
    fs::write(&path, dead.collect::<String>()).unwrap();
    eventually("the namespace is gone, and the file with it", || {
        assert_eq!(tc::recover().stuck, [] as [&str; 0]);
        !path.exists()
    });
}

#[test]
fn a_default_of_another_kind_is_an_error_and_mended_by_the_kind_that_was_there() {
    let _alone = alone();
    on_cable(|_| {
        // Two queues, each with the kernel's default.
        let ip = |arguments: &str| Command::new("ip").args(arguments.split(' ')).status();
        let made = ip("link add takt-two numtxqueues 2 type ifb");
        if !made.is_ok_and(|status| status.success()) {
            return println!("skipped: no ip of iproute2, or no ifb devices");
        }
        assert!(ip("link set takt-two up").unwrap().success());
        let device = Device::find("takt-two").unwrap().unwrap();
        let plan = Plan::new(&link(Some(20), None), &device).unwrap();
        let kept = || apply(&device, &plan, &Rule::usual(false), true).unwrap().leave();
        kept();
        let former = tc::remove(&device).unwrap().discipline;
        let kind = former.strip_prefix("mq of ").and_then(|rest| rest.strip_suffix(" (the kernel's default)")).unwrap();

        // As if the kernel had made another kind then.
        kept();
        let path = state_of(&device);
        let rewrite = |from: &str, to: &str| {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{text}");
            fs::write(&path, text.replace(from, to)).unwrap();
        };
        rewrite(&format!(" {kind} "), " takt_other ");
        let error = tc::remove(&device).unwrap_err();
        assert!(matches!(error, NetError::NotAsBefore { .. }), "{error}");
        let error = error.to_string();
        let told = "takt-two has mq of KIND (the kernel's default) and had mq of takt_other (the kernel's default): ";
        assert!(error.contains(&told.replace("KIND", kind)), "{error}");
        assert!(error.contains("sysctl -w net.core.default_qdisc=takt_other && "), "{error}");
        // The kernel makes that kind again.
        rewrite(" takt_other ", &format!(" {kind} "));
        assert_eq!(tc::remove(&device).unwrap().discipline, former);
        assert!(!path.exists());
    });
}

/// `tc` of iproute2, where it is.
fn iproute() -> Option<PathBuf> {
    let found = ["/usr/sbin/tc", "/sbin/tc"].map(PathBuf::from).into_iter().find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no tc of iproute2");
    }
    found
}

fn tc(program: &Path, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_tree_of_others_comes_back_exactly_or_is_not_touched() {
    let _alone = alone();
    let Some(program) = iproute() else { return };
    let trees: [&[&str]; 4] = [
        &["qdisc add dev D root handle 1: tbf rate 50mbit burst 5kb latency 20ms"],
        &["qdisc add dev D root handle 5: pfifo limit 77"],
        &["qdisc add dev D root handle 5: bfifo limit 77777"],
        &[
            "qdisc add dev D root handle 2: htb default 20 r2q 7 direct_qlen 55",
            "class add dev D parent 2: classid 2:1 htb rate 40mbit ceil 80mbit burst 9k cburst 8k quantum 3000",
            "class add dev D parent 2:1 classid 2:10 htb rate 10mbit ceil 80mbit prio 3",
            "class add dev D parent 2:1 classid 2:20 htb rate 30mbit ceil 80mbit",
            "qdisc add dev D parent 2:10 handle 10: bfifo limit 40000",
        ],
    ];
    on_cable(|cable| {
        let device = device(cable);
        let tc = |arguments: &str| tc(&program, &arguments.replace(" D", &format!(" {}", device.name)));
        let plan = Plan::new(&link(Some(20), None), &device).unwrap();
        for tree in trees {
            tree.iter().for_each(|step| drop(tc(step)));
            let about = || (tc("-d qdisc show dev D"), sorted(&tc("-d class show dev D")));
            let before = about();
            let applied = apply(&device, &plan, &Rule::usual(false), false).unwrap();
            assert_ne!(about(), before);
            let restored = applied.restore().unwrap().unwrap();
            assert_eq!(about(), before, "{restored:?}");
            tc("qdisc del dev D root");
        }
        tc("qdisc add dev D root handle 1: htb");
        tc("class add dev D parent 1: classid 1:1 htb rate 1mbit");
        tc("filter add dev D parent 1: protocol ip prio 1 u32 match ip dport 80 0xffff flowid 1:1");
        let before = tc("-d filter show dev D");
        let error = apply(&device, &plan, &Rule::usual(false), false).unwrap_err().to_string();
        assert!(
            error.contains("could not be put back exactly: htb 1:0 has filters; remove it first (tc qdisc del "),
            "{error}"
        );
        assert_eq!(tc("-d filter show dev D"), before);
        // Somebody takes takt's tree away: theirs stays.
        tc("qdisc del dev D root");
        let applied = apply(&device, &plan, &Rule::usual(false), false).unwrap();
        tc("qdisc replace dev D root handle 9: pfifo limit 9");
        assert_eq!(applied.restore().unwrap(), None);
        assert_eq!(Device::find(&device.name).unwrap().unwrap(), device, "with its limit of segments");
        assert!(tc("qdisc show dev D").starts_with("qdisc pfifo 9: root"), "{}", tc("qdisc show dev D"));
    });
}

/// Lines in an order of their own: the kernel lists classes as they stand in its table.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A control group of the test's own; removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?.split(' ').nth(1)?;
        let folder = Path::new(mount).join(format!("takt-test-{}", std::process::id()));
        fs::create_dir_all(folder.join("below")).ok()?;
        Some(Group(folder))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("below"));
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group_and_groups_below_it_are_one_class() {
    let _alone = alone();
    let Some(group) = Group::new() else { return println!("skipped: no cgroup v2 to make groups in") };
    on_cable(|cable| {
        let device = device(cable);
        let name = group.0.file_name().unwrap().to_str().unwrap();
        let plan = Plan::new(&link(Some(20), None), &device).unwrap();
        let rules = rules(&[(&format!("cgroup:/{name}"), Role::RealTime)]);
        let applied = apply(&device, &plan, &rules, false).unwrap();
        assert_eq!(applied.checks()[0].sent, 0, "no frame can be made for it");
        for (folder, expected) in [(group.0.clone(), 2), (group.0.join("below"), 4)] {
            let to = format!("/dev/udp/{}/9", cable.right().address());
            let script = "echo $$ > \"$0/cgroup.procs\" && exec bash -c 'echo a >\"$0\" && echo b >\"$0\"' \"$1\"";
            let sent = Command::new("bash").args(["-c", script]).arg(&folder).arg(to).output().unwrap();
            assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
            eventually("both are counted", || packets(&device, Role::RealTime) == expected);
        }
        send(cable, 0, 9, 3);
        eventually("others are background", || packets(&device, Role::Background) >= 3 + 4);
        assert_eq!(packets(&device, Role::RealTime), 4);
        applied.restore().unwrap().unwrap();
        let missing = self::rules(&[("cgroup:/no/such", Role::RealTime)]);
        let error = apply(&device, &plan, &missing, false).unwrap_err();
        assert!(matches!(error, NetError::Rule { .. }), "{error}");
    });
}
