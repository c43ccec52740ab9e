//! Reports of chronyd, ptp4l and clock-bound, which run without touching a clock, and of a written
//! memory of clock-bound. Their claims in the time-difference table.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use takt_linux::clock::{monotonic_ns, pause};
use takt_linux::net::{Cable, End};
use takt_linux::process;
use takt_model::{Span, Time};
use takt_net::source::{ClockReport, SourceKind, Timescale, Unsynchronised, clock_bound};
use takt_run::clock_source::{ClockSources, SourcePaths};
use takt_run::time_sync::{TimeSync, TimeSyncSpec};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("takt-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        // chronyd wants its folder closed to others.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        Folder(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.at(name), text).unwrap();
        self.at(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that ends with the test.
struct Daemon(Child);

impl Daemon {
    /// `None`: it is not installed.
    fn start(mut command: Command) -> Option<Daemon> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map(Daemon).map_err(|error| println!("skipped: {error}")).ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        process::terminate(&mut self.0);
        let _ = self.0.wait();
    }
}

/// Nobody is at these paths.
fn nowhere(folder: &Folder) -> SourcePaths {
    let none = folder.at("none");
    SourcePaths { clock_bound: vec![none.clone()], chrony: none.clone(), chrony_port: None, ptp4l: vec![none] }
}

/// Asks until a report of `source` is as wanted, for a minute.
fn report(paths: &SourcePaths, source: SourceKind, wanted: impl Fn(&ClockReport) -> bool) -> ClockReport {
    let mut last = None;
    for _ in 0..1200 {
        let mut sources = ClockSources::new(paths.clone());
        sources.refresh();
        last = sources.reports().into_iter().find(|report| report.source == source);
        if let Some(report) = last.filter(&wanted) {
            return report;
        }
        pause(Span::from_ms(50));
    }
    panic!("the last report of {source} was {last:?}");
}

/// It touches no clock: -x.
fn chronyd(mut command: Command, folder: &Folder, name: &str, lines: &str) -> Option<Daemon> {
    let socket = folder.at(&format!("{name}.sock"));
    let more = format!(
        "cmdport 0\nbindcmdaddress {}\npidfile {}\n{lines}\n",
        socket.display(),
        folder.at(&format!("{name}.pid")).display()
    );
    let file = folder.write(&format!("{name}.conf"), &more);
    command.args(["-d", "-x", "-U", "-u", "root", "-t", "600", "-f"]).arg(file);
    Daemon::start(command)
}

#[test]
fn chronyd_says_how_exact_it_is() {
    if process::effective_user() != 0 {
        return println!("skipped: chronyd opens its socket for root");
    }
    let folder = Folder::new("chrony");
    // An address of this process alone: nobody else takes its port.
    let address = Ipv4Addr::from(0x7F00_0000 | (std::process::id() & 0x00FF_FFFF));
    let port = 11_123;
    let served = format!("local stratum 8\nport {port}\nbindaddress {address}\nallow 127.0.0.0/8");
    let Some(_server) = chronyd(Command::new("chronyd"), &folder, "server", &served) else { return };
    let asks = format!("port 0\nserver {address} port {port} iburst minpoll -4 maxpoll -4");
    let Some(_client) = chronyd(Command::new("chronyd"), &folder, "client", &asks) else { return };
    let paths = |name: &str| SourcePaths { chrony: folder.at(name), ..nowhere(&folder) };
    let is_own = |report: &ClockReport| report.state == Err(Unsynchronised::OwnClock);
    let _ = report(&paths("server.sock"), SourceKind::Chrony, is_own);
    // Both have one clock: an error of 0, and what an exchange of NTP leaves open. The first one may take long.
    let is_near = |report: &ClockReport| report.state.is_ok_and(|bound| bound.error < Span::from_s(1));
    let bound = report(&paths("client.sock"), SourceKind::Chrony, is_near).state.unwrap();
    assert_eq!(bound.timescale, Timescale::Utc);
    assert!(!bound.error.is_zero(), "{bound:?}");
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("takt")), "{left:?}");
}

/// `program` sees the folder as /var/run, for clock-bound has no options for its paths.
fn below(folder: &Folder, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "--foreground",
        "600",
        "unshare",
        "-m",
        "sh",
        "-c",
        "mount -n --bind \"$0\" /var/run && exec \"$@\"",
    ]);
    command.arg(&folder.0).arg(program);
    command
}

#[test]
fn clock_bound_follows_chronyd() {
    // Version 3 would correct the clock.
    match Command::new("clockbound").arg("--version").output() {
        Ok(output) if output.stdout.starts_with(b"clockbound 2.") => {}
        Ok(_) => return println!("skipped: this clockbound is not of version 2"),
        Err(error) => return println!("skipped: clockbound: {error}"),
    }
    let folder = Folder::new("clock-bound");
    let trial = below(&folder, "true").output().unwrap();
    if !trial.status.success() {
        return println!("skipped: {}", String::from_utf8_lossy(&trial.stderr).trim());
    }
    fs::create_dir(folder.at("chrony")).unwrap();
    fs::set_permissions(folder.at("chrony"), fs::Permissions::from_mode(0o770)).unwrap();
    let address = Ipv4Addr::from(0x7F00_0000 | (std::process::id() & 0x00FF_FFFF));
    // Not the port of the other server in this process.
    let port = 11_124;
    let served = format!("local stratum 8\nport {port}\nbindaddress {address}\nallow 127.0.0.0/8");
    let Some(_server) = chronyd(Command::new("chronyd"), &folder, "server", &served) else { return };
    // clock-bound says that the clock runs free after eight intervals without an update, in whole
    // seconds. So they must not be short.
    let asks = format!("port 0\nserver {address} port {port} iburst minpoll 0 maxpoll 0\nmaxclockerror 50");
    let client = chronyd(below(&folder, "chronyd"), &folder, "chrony/chronyd", &asks);
    let start = || {
        let mut command = below(&folder, "clockbound");
        command.args(["--max-drift-rate", "50", "--disable-clock-disruption-support"]);
        Daemon::start(command)
    };
    let daemon = start();
    let paths = SourcePaths {
        clock_bound: vec![folder.at("clockbound/shm0")],
        chrony: folder.at("chrony/chronyd.sock"),
        ..nowhere(&folder)
    };
    let bound = |source| report(&paths, source, |report| report.state.is_ok()).state.unwrap();
    // chronyd's bound grows until it measures again. In most turns clock-bound's lies between two.
    let agreed = (0..600).find_map(|_| {
        pause(Span::from_ms(50));
        let before = bound(SourceKind::Chrony).error;
        let between = bound(SourceKind::ClockBound);
        let after = bound(SourceKind::Chrony).error;
        (before <= between.error_at(now())? && between.error <= after).then_some(between)
    });
    let agreed = agreed.expect("clock-bound and chronyd agree");
    assert_eq!((agreed.timescale, agreed.growth_ppb), (Timescale::Utc, 50_000));
    drop(daemon);
    // Nobody renews the bound. There is none if the daemon ended while it wrote.
    let memory = || clock_bound::report(&fs::read(folder.at("clockbound/shm0")).unwrap());
    let last = memory();
    pause(Span::from_ms(300));
    assert_eq!(memory(), last);
    if let Some((last, bound)) = last.and_then(|last| Some((last, last.state.ok()?))) {
        let late = bound.until.saturating_add(Span::from_ns(1));
        assert_eq!(last.at(late).state, Err(Unsynchronised::Expired));
    }
    let _daemon = start();
    let is_newer = |report: &ClockReport| report.state.is_ok_and(|bound| bound.at > agreed.at);
    let _ = report(&paths, SourceKind::ClockBound, is_newer);
    drop(client);
    let _ = report(&paths, SourceKind::ClockBound, |report| report.state == Err(Unsynchronised::NoSource));
}

/// The domain of both clocks.
const DOMAIN: &str = "44";

/// ptp4l at both ends of a cable of its own: a master on the left, a client on the right. Both end before their
/// folder goes.
struct Ptp {
    master: Option<Daemon>,
    _client: Daemon,
    folder: Folder,
    _cable: Cable,
}

impl Ptp {
    /// `mechanism` is E2E or P2P. `None`: this machine lacks a part.
    fn start(mechanism: &str) -> Option<Ptp> {
        let version = match Command::new("ptp4l").arg("-v").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => {
                println!("skipped: ptp4l: {error}");
                return None;
            }
        };
        let cable = match Cable::lay(false) {
            Ok(cable) => cable,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        let folder = Folder::new(&format!("ptp4l-{mechanism}"));
        let start = |name: &str, end: &End, role: &str| {
            // free_running: the clock is not touched.
            let mut text = format!(
                "[global]\nfree_running 1\ntime_stamping software\nuds_address {}\ndomainNumber {DOMAIN}\n\
                 delay_mechanism {mechanism}\nlogAnnounceInterval -3\nlogSyncInterval -1\n\
                 logMinDelayReqInterval -1\nlogMinPdelayReqInterval -1\n{role}\n",
                folder.at(name).display()
            );
            // Version 4 has a second socket, by default where that of this machine's ptp4l is.
            if !version.starts_with(['1', '2', '3']) {
                text.push_str(&format!("uds_ro_address {}\n", folder.at(&format!("{name}.ro")).display()));
            }
            text.push_str(&format!("[{}]\n", end.device()));
            let file = folder.write(&format!("{name}.conf"), &text);
            let mut command = Command::new("timeout");
            command.args(["1800", "ptp4l", "-f"]).arg(file);
            end.run(|| Daemon::start(command)).unwrap()
        };
        let master = start("master", cable.left(), "priority1 1")?;
        let client = start("client", cable.right(), "slaveOnly 1")?;
        Some(Ptp { master: Some(master), _client: client, folder, _cable: cable })
    }

    fn paths(&self, name: &str) -> SourcePaths {
        SourcePaths { ptp4l: vec![self.folder.at(name)], ..nowhere(&self.folder) }
    }

    fn report(&self, name: &str, wanted: impl Fn(&ClockReport) -> bool) -> ClockReport {
        report(&self.paths(name), SourceKind::Ptp4l, wanted)
    }

    /// What pmc of linuxptp prints of the client's answers. With -b 0 it asks no other clock.
    fn pmc(&self, commands: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["20", "pmc", "-u", "-b", "0", "-d", DOMAIN, "-i"]).arg(self.folder.at("pmc"));
        command.arg("-s").arg(self.folder.at("client")).args(commands);
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    }

    /// The offset, the time of the last message, the mean path delay and the delay to the peer. `None`: an answer
    /// did not come in time.
    fn measured(&self) -> Option<[i64; 4]> {
        let printed = self.pmc(&["GET TIME_STATUS_NP", "GET CURRENT_DATA_SET", "GET PORT_DATA_SET"]);
        let value = |name: &str| -> Option<i64> {
            let mut words = printed.split_whitespace().skip_while(|word| *word != name);
            // Some have a fraction, which is zero.
            words.nth(1)?.split('.').next()?.parse().ok()
        };
        Some([value("master_offset")?, value("ingress_time")?, value("meanPathDelay")?, value("peerMeanPathDelay")?])
    }
}

/// A client of ptp4l before it follows its master, while it does, and without its master.
fn follows_a_master(mechanism: &str) {
    let Some(mut ptp) = Ptp::start(mechanism) else { return };
    let master = ptp.report("master", |report| report.state.is_ok()).state.unwrap();
    assert!(matches!(master.timescale, Timescale::Grandmaster(_)));
    assert_eq!(master.error, Span::ZERO);
    // It may not correct the clock, so it stays before the state SLAVE.
    let _ = ptp.report("client", |report| report.state == Err(Unsynchronised::PortState(8)));
    // A clock that runs free becomes SLAVE if its user says that its time is certain.
    let taken = "RESPONSE MANAGEMENT SYNCHRONIZATION_UNCERTAIN_NP";
    let is_certain = (0..100).any(|_| ptp.pmc(&["SET SYNCHRONIZATION_UNCERTAIN_NP 0"]).contains(taken));
    assert!(is_certain, "the client did not take the setting");
    // If pmc prints the same before and after a report, the report is of these numbers.
    let agreed = (0..200).find_map(|_| {
        let before = ptp.measured()?;
        let report = ptp.report("client", |report| report.state.is_ok());
        (ptp.measured() == Some(before)).then_some((before, report.state.unwrap()))
    });
    let ([offset, _, mean, peer], bound) = agreed.expect("pmc and the report agree");
    let (used, other) = if mechanism == "P2P" { (peer, mean) } else { (mean, peer) };
    assert!(used > 0 && other == 0, "{mechanism}: mean path delay {mean} ns, to the peer {peer} ns");
    assert_eq!(bound.error, Span::from_ns(offset.unsigned_abs() + used.unsigned_abs()));
    assert_eq!(bound.timescale, master.timescale);
    // The table uses the bounds of both ends, which have one clock.
    let agrees = |own: &TimeSync| own.peers()[0].claim.is_some_and(|claim| claim.offset.agrees);
    let own = compare(&ptp.paths("client"), &ptp.paths("master"), agrees);
    let claim = own.peers()[0].claim.unwrap();
    assert_eq!((claim.own, claim.peer), (SourceKind::Ptp4l, SourceKind::Ptp4l));
    drop(ptp.master.take());
    let _ = ptp.report("client", |report| report.state == Err(Unsynchronised::PortState(4)));
}

#[test]
fn ptp4l_as_a_client_measures_from_end_to_end() {
    follows_a_master("E2E");
}

#[test]
fn ptp4l_as_a_client_measures_from_peer_to_peer() {
    follows_a_master("P2P");
}

/// Version 2 of the memory, of a daemon that runs.
fn write_memory(path: &Path, error: i64, status: i32, seconds: i64) {
    let now = (monotonic_ns() / 1_000_000_000) as i64;
    let mut memory = Vec::new();
    memory.extend([0x414d_5a4e_u32, 0x4342_0200, 80].map(u32::to_ne_bytes).concat());
    memory.extend([2_u16, 8].map(u16::to_ne_bytes).concat());
    memory.extend([now, 0, now + seconds, 0, error, 0].map(i64::to_ne_bytes).concat());
    memory.extend(1_000_u32.to_ne_bytes());
    memory.extend(status.to_ne_bytes());
    memory.resize(80, 0);
    fs::write(path, memory).unwrap();
}

fn now() -> Time {
    Time::from_ns(monotonic_ns())
}

/// The status of a peer whose clock is an hour ahead, by exchanges and by bounds of programs.
fn compare(own: &SourcePaths, other: &SourcePaths, wanted: impl Fn(&TimeSync) -> bool) -> TimeSync {
    let spec = |peers, sources: &SourcePaths| TimeSyncSpec {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        peers,
        period: Span::from_ms(5),
        drift_ppm: 100,
        priority: 6,
        sources: Some(sources.clone()),
    };
    let ahead = |time: Time| time + Span::from_s(3600);
    let mut peer = TimeSync::with_clock(&spec(Vec::new(), other), Box::new(ahead)).unwrap();
    let mut own = TimeSync::bind(&spec(vec![peer.address().unwrap()], own)).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                peer.run_until(now().saturating_add(Span::from_ms(10)));
            }
        });
        let found = (0..6000).any(|_| {
            own.run_until(now().saturating_add(Span::from_ms(10)));
            if let Some(offset) = own.peers()[0].offset {
                let truth = -3_600_000_000_000;
                assert!(offset.low <= truth && truth <= offset.high, "{:?}", own.peers());
            }
            wanted(&own)
        });
        ends.store(true, Ordering::Release);
        answers.join().unwrap();
        assert!(found, "{:?}", own.peers());
    });
    own
}

#[test]
fn bounds_of_both_machines_narrow_the_interval_unless_they_are_false() {
    let folder = Folder::new("bounds");
    let memory = |name: &str, error, status| {
        write_memory(&folder.at(name), error, status, 1000);
        SourcePaths { clock_bound: vec![folder.at(name)], ..nowhere(&folder) }
    };
    let (one, other) = (memory("one", 20, 1), memory("other", 30, 1));
    let has_claim = |own: &TimeSync| own.peers()[0].claim.is_some();
    // Exchanges through the kernel take more than 50 ns. The bounds hold, for both have one clock.
    let own = compare(&one, &other, has_claim);
    let status = own.peers()[0];
    let claim = status.claim.unwrap();
    assert_eq!((claim.own, claim.peer, claim.offset.agrees), (SourceKind::ClockBound, SourceKind::ClockBound, true));
    let offset = status.offset.unwrap();
    assert!(claim.offset.low <= offset.low && offset.high <= claim.offset.high, "{status:?}");
    // If a clock runs free, its status says so, and there is no claim.
    let free = memory("free", 20, 2);
    let own = compare(&free, &other, |own| own.peers()[0].answered > 5);
    assert_eq!(own.peers()[0].claim, None);
    let state = own.sources()[0].state;
    assert_eq!(state, Err(Unsynchronised::FreeRunning));
    // Old values do not count.
    write_memory(&folder.at("old"), 20, 1, -5);
    let old = SourcePaths { clock_bound: vec![folder.at("old")], ..nowhere(&folder) };
    assert_eq!(report(&old, SourceKind::ClockBound, |_| true).state, Err(Unsynchronised::Expired));
    let nobody = compare(&nowhere(&folder), &other, |own| own.peers()[0].answered > 5);
    assert_eq!((nobody.sources(), nobody.peers()[0].claim), (Vec::new(), None));
}
