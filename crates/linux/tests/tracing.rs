//! Records on the real kernel. Each test takes a second or two; where the machine cannot, it says why and passes.
//!
//! The program is its own guardian and its own victim, so it has a main of its own. No test asserts
//! a wall-clock time: what is asserted holds however slow the machine is.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use takt_linux::clock::pause;
use takt_linux::guardian::guardian;
use takt_linux::process::KillOnDrop;
use takt_linux::signals::StopSignals;
use takt_linux::tracing::{
    CpuCount, Descriptions, Event, Guard, Options, Recorder, RecorderError, Threads, cost, now, recover, threads,
    threads_of,
};
use takt_model::{Bytes, Span, Time};
use takt_trace::{
    Abi, DatHead, DatWriter, Endian, EventKind, Format, KernelEvent, PageLayout, Recording, SwitchOutState,
};

use common::eventually;

const TESTS: &[(&str, fn())] = &[
    ("what_a_child_does_is_recorded", what_a_child_does_is_recorded),
    ("a_sweep_brings_what_was_before_it", a_sweep_brings_what_was_before_it),
    ("what_is_lost_is_counted", what_is_lost_is_counted),
    ("a_file_is_read_by_takt_and_by_trace_cmd", a_file_is_read_by_takt_and_by_trace_cmd),
    ("the_cost_is_measured", the_cost_is_measured),
    ("nothing_outside_of_the_instance_changes", nothing_outside_of_the_instance_changes),
    ("two_recorders_at_once_do_not_meet", two_recorders_at_once_do_not_meet),
    ("a_killed_recorder_leaves_no_instance", a_killed_recorder_leaves_no_instance),
    ("a_child_that_was_forked_keeps_no_guardian_waiting", a_child_that_was_forked_keeps_no_guardian_waiting),
    ("a_recorder_killed_at_any_instant_leaves_no_instance", a_recorder_killed_at_any_instant_leaves_no_instance),
    ("a_recorder_asked_to_stop_leaves_no_instance", a_recorder_asked_to_stop_leaves_no_instance),
    ("a_panic_leaves_no_instance", a_panic_leaves_no_instance),
    ("what_has_no_guardian_the_next_start_removes", what_has_no_guardian_the_next_start_removes),
    ("what_is_refused_is_named", what_is_refused_is_named),
];

fn main() -> ExitCode {
    if guardian(std::env::args_os()) {
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("record") => return record(&arguments),
        Some("sleep") => return sleep(),
        Some("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    if let Err(error) = Recorder::start(&Options { buffer: Some(SMALL), ..Options::default() }) {
        println!("tests/tracing.rs: skipped: {error}");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in TESTS {
        if filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())) {
            println!("test {name} ...");
            test();
            println!("test {name} ok");
        }
    }
    ExitCode::SUCCESS
}

/// A recorder to be killed: says its instance's name, and records until it is asked to stop.
fn record(arguments: &[String]) -> ExitCode {
    let guard =
        if arguments.iter().any(|argument| argument == "unguarded") { Guard::NextStart } else { Guard::ThisProgram };
    let signals = StopSignals::catch();
    let mut recorder = match Recorder::start(&Options { guard, buffer: Some(SMALL), ..Options::default() }) {
        Ok(recorder) => recorder,
        Err(error) => {
            println!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.iter().any(|argument| argument == "fork") {
        let switch = instances().join(recorder.name()).join("tracing_on");
        // SAFETY: the child, a copy of this thread alone, ends without going back into the program.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            // For longer than the test waits.
            for _ in 0..9000 {
                if !fs::read_to_string(&switch).is_ok_and(|on| on.starts_with('1')) {
                    break;
                }
                pause(Span::from_ms(10));
            }
            // SAFETY: _exit has no preconditions, and does not return.
            unsafe { libc::_exit(0) };
        }
    }
    println!("{}", recorder.name());
    if arguments.iter().any(|argument| argument == "panic") {
        panic!("as asked");
    }
    // Nobody is asked twice: it ends by itself after a while.
    for _ in 0..600 {
        if signals.caught().is_some() {
            return ExitCode::SUCCESS;
        }
        recorder.sweep(Span::from_ms(100), &mut |_, _| {}).unwrap();
    }
    ExitCode::FAILURE
}

const SLEEPS: usize = 50;

/// Sleeps that many times, once it is told to.
fn sleep() -> ExitCode {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    for _ in 0..SLEEPS {
        pause(Span::from_us(500));
    }
    ExitCode::SUCCESS
}

const SMALL: Bytes = Bytes::new(1 << 20);

fn instances() -> PathBuf {
    takt_linux::tracing::instances().unwrap()
}

/// A recorder in a process of its own, and its instance.
fn victim(arguments: &[&str]) -> (KillOnDrop, PathBuf) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("record").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("takt-"), "{line}");
    let instance = instances().join(line.trim());
    (KillOnDrop(child), instance)
}

fn start(options: Options) -> Recorder {
    Recorder::start(&Options { buffer: Some(SMALL), ..options }).unwrap()
}

type Pages = BTreeMap<u32, Vec<u8>>;

fn decode(texts: &Descriptions, pages: &Pages) -> Vec<KernelEvent> {
    let layout = PageLayout::parse(&texts.header_page).unwrap();
    let formats: Vec<Format> = texts.events.iter().map(|event| Format::parse(&event.text).unwrap()).collect();
    let endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };
    let cpus = pages.iter().map(|(cpu, bytes)| (*cpu, bytes.as_slice())).collect();
    let mut recording = Recording::pages(&formats, layout, endian, cpus);
    let mut events = Vec::new();
    recording.each(|event| events.push(*event));
    assert_eq!(recording.damages().count(), 0, "{:?}", recording.damages().first());
    events
}

/// The events of `pages` and of the data left in `recorder`. Asserts that nothing was lost and that
/// the kernel's counts agree.
fn decoded(recorder: Recorder, mut pages: Pages) -> Vec<KernelEvent> {
    let texts = recorder.descriptions().clone();
    let mut take = |cpu, bytes: &[u8]| pages.entry(cpu).or_default().extend_from_slice(bytes);
    let counts = recorder.finish(&mut take).unwrap();
    let events = decode(&texts, &pages);
    assert_eq!(counts.iter().map(CpuCount::lost).sum::<u64>(), 0, "{counts:?}");
    assert_eq!(counts.iter().map(|count| count.read).sum::<u64>(), events.len() as u64);
    events
}

/// A sleeping child and a recorder of it.
fn sleeper() -> (u32, Recorder) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.arg("sleep").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let id = child.id();
    let recorder = start(Options {
        events: Event::usual(&Abi::NATIVE.calls()),
        threads: Threads::These { ids: threads_of(id), children: true },
        ..Options::default()
    });
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    (id, recorder)
}

fn what_a_child_does_is_recorded() {
    let (id, recorder) = sleeper();
    let events = decoded(recorder, BTreeMap::new());
    let count = |is: &dyn Fn(&KernelEvent) -> bool| events.iter().filter(|event| event.pid == id && is(event)).count();
    let sleep = libc::SYS_clock_nanosleep;
    let entered = count(&|event| matches!(event.what, EventKind::SyscallEnter { number, .. } if number == sleep));
    let left = count(&|event| matches!(event.what, EventKind::SyscallExit { number, .. } if number == sleep));
    assert_eq!((entered, left), (SLEEPS, SLEEPS));
    let blocked = count(
        &|event| matches!(&event.what, EventKind::Switch { prev, left: SwitchOutState::Blocked, .. } if prev.pid == id),
    );
    // If the machine pauses just before a thread sleeps, the time is over and the thread goes on.
    assert!(blocked >= SLEEPS * 9 / 10, "{blocked}");
    assert_eq!(count(&|event| matches!(event.what, EventKind::Exit { pid } if pid == id)), 1);
    assert!(events.windows(2).all(|pair| pair[0].time <= pair[1].time), "in the order of time");
}

fn a_sweep_brings_what_was_before_it() {
    // All threads are recorded. The large buffer avoids losses on a busy machine.
    let mut recorder = Recorder::start(&Options::default()).unwrap();
    let texts = recorder.descriptions().clone();
    let mut all = Pages::new();
    let (mut until, mut late, mut seen) = (Time::ZERO, 0, 0);
    for _ in 0..20 {
        pause(Span::from_us(500));
        let mut new = Pages::new();
        let sweep =
            recorder.sweep(Span::from_ms(5), &mut |cpu, bytes| new.entry(cpu).or_default().extend_from_slice(bytes));
        let events = decode(&texts, &new);
        // These events are later than `until`, except events that were half written at that time.
        late += events.iter().filter(|event| event.time < until).count();
        seen += events.len();
        until = sweep.unwrap().until.unwrap_or(until);
        assert!(until <= now());
        new.iter().for_each(|(cpu, bytes)| all.entry(*cpu).or_default().extend_from_slice(bytes));
    }
    assert!(late * 10 <= seen && until > Time::ZERO, "{late} of {seen} events came too late");
    let events = decoded(recorder, all);
    assert!(events.iter().any(|event| matches!(event.what, EventKind::Switch { .. })));
}

fn what_is_lost_is_counted() {
    const CALLS: u64 = 20_000;
    let me = vec![std::process::id()];
    let recorder = Recorder::start(&Options {
        events: vec![Event::new("raw_syscalls", "sys_enter").only(&format!("id == {}", libc::SYS_getppid))],
        threads: Threads::These { ids: me, children: false },
        buffer: Some(Bytes::new(64 << 10)),
        ..Options::default()
    })
    .unwrap();
    for _ in 0..CALLS {
        let _ = std::os::unix::process::parent_id();
    }
    let texts = recorder.descriptions().clone();
    let mut pages = Pages::new();
    let counts = recorder.finish(&mut |cpu, bytes| pages.entry(cpu).or_default().extend_from_slice(bytes)).unwrap();
    let (read, lost) = counts.iter().fold((0, 0), |(read, lost), cpu| (read + cpu.read, lost + cpu.lost()));
    println!("{read} read, {lost} lost");
    assert!(read > 0 && lost > 0, "the buffer is too small for all");
    assert_eq!(read + lost, CALLS, "each is read or counted as lost");
    let events = decode(&texts, &pages);
    assert_eq!(events.iter().filter(|event| matches!(event.what, EventKind::SyscallEnter { .. })).count() as u64, read);
    assert!(events.iter().any(|event| matches!(event.what, EventKind::Lost { .. })), "and the pages tell where");
}

fn a_file_is_read_by_takt_and_by_trace_cmd() {
    let (id, recorder) = sleeper();
    let texts = recorder.descriptions().clone();
    let events = texts.events.iter().map(|event| (event.system.as_str(), event.text.as_str())).collect();
    let threads = threads();
    let head = DatHead {
        endian: if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big },
        word: size_of::<usize>() as u8,
        page: texts.page_size().unwrap() as u32,
        header_page: &texts.header_page,
        header_event: &texts.header_event,
        own: texts.own.iter().map(|event| event.text.as_str()).collect(),
        events,
        threads: threads.iter().map(|thread| (thread.id, thread.name.as_str())).collect(),
        clock: &texts.clock,
        cpus: recorder.counts().unwrap().iter().map(|count| count.cpu + 1).max().unwrap(),
    };
    let folder = std::env::temp_dir().join(format!("takt-tracing-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("trace.dat");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let mut writer = DatWriter::new(file, &head, 64 << 20).unwrap();
    let counts = recorder.finish(&mut |cpu, pages| assert!(writer.pages(cpu, pages).unwrap())).unwrap();
    let (file, end) = writer.finish().unwrap();
    file.set_len(end).unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut recording = Recording::open(&bytes).unwrap();
    assert_eq!(recording.clock(), "mono");
    let (mut all, mut of_child) = (0, 0);
    recording.each(|event| {
        all += 1;
        of_child += u64::from(event.pid == id);
    });
    assert_eq!(recording.damages().count(), 0, "{:?}", recording.damages().first());
    assert_eq!(all, counts.iter().map(|count| count.read).sum::<u64>());
    match Command::new("trace-cmd").arg("report").arg("-i").arg(&path).output() {
        Ok(report) => {
            let lines = String::from_utf8_lossy(&report.stdout).into_owned();
            let of = format!("-{id}");
            let theirs =
                lines.lines().filter(|line| line.split(" [").next().is_some_and(|who| who.trim().ends_with(&of)));
            assert_eq!(theirs.count() as u64, of_child, "{lines}");
            println!("{all} events, {of_child} of the child; trace-cmd report reads as many");
        }
        Err(error) => println!("not compared: trace-cmd: {error}"),
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn the_cost_is_measured() {
    let events = Event::usual(&Abi::NATIVE.calls());
    let cost = cost(&Options { events, ..Options::default() }).unwrap();
    println!("{cost:?}");
    // Two switches, two wake-ups and two reads, entered and left; less where a thread need not wait.
    assert!((4.0..20.0).contains(&cost.events_per_handover), "{cost:?}");
    assert!(cost.handover_ns > 0.0 && cost.reader_ns > 0.0);
}

fn nothing_outside_of_the_instance_changes() {
    let root = instances().parent().unwrap().to_owned();
    let files = [
        "tracing_on",
        "current_tracer",
        "set_event",
        "set_event_pid",
        "trace_clock",
        "buffer_size_kb",
        "buffer_percent",
        "trace_options",
        "tracing_cpumask",
        "events/sched/sched_switch/filter",
    ];
    let state = || files.map(|file| fs::read_to_string(root.join(file)).unwrap_or_default());
    let others = || {
        let all = fs::read_dir(instances()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let mut others: Vec<String> = all.filter(|name| !name.starts_with("takt-")).collect();
        others.sort();
        others
    };
    let before = (state(), others());
    let me = std::process::id();
    let mut recorder =
        start(Options { threads: Threads::These { ids: vec![me], children: true }, ..Options::default() });
    assert_eq!(before, (state(), others()), "while it records");
    let folder = instances().join(recorder.name());
    assert!(fs::read_to_string(folder.join("trace_clock")).unwrap().contains("[mono]"));
    recorder.sweep(Span::from_ms(20), &mut |_, _| {}).unwrap();
    let mut bytes = 0;
    let counts = recorder.finish(&mut |_, pages| bytes += pages.len()).unwrap();
    println!("{bytes} bytes, {counts:?}");
    assert_eq!(before, (state(), others()), "after it has recorded");
    assert!(!folder.exists());
}

fn two_recorders_at_once_do_not_meet() {
    let (first, second) = (start(Options::default()), start(Options::default()));
    let (one, two) = (instances().join(first.name()), instances().join(second.name()));
    assert_ne!(one, two);
    assert!(one.exists() && two.exists());
    drop(first);
    assert!(!one.exists() && two.exists(), "only its own");
    assert!(!recover().undone.iter().any(|name| name == second.name()), "a living one's stays");
    assert!(two.exists());
    drop(second);
    assert!(!two.exists());
}

fn a_killed_recorder_leaves_no_instance() {
    let bystander = start(Options::default());
    let (mut victim, instance) = victim(&[]);
    assert!(instance.exists());
    victim.0.kill().unwrap();
    // Before it is waited for: the guardian does not need that.
    eventually("the guardian removes the instance", || !instance.exists());
    victim.0.wait().unwrap();
    assert!(instances().join(bystander.name()).exists(), "another's stays");
}

/// The forked child holds all descriptors of the recorder. It ends when it sees the guardian act.
fn a_child_that_was_forked_keeps_no_guardian_waiting() {
    let (mut victim, instance) = victim(&["fork"]);
    victim.0.kill().unwrap();
    eventually("the guardian removes the instance", || !instance.exists());
    victim.0.wait().unwrap();
}

fn a_recorder_killed_at_any_instant_leaves_no_instance() {
    // From before its start to well into the recording; the start takes some 20 ms on an idle
    // machine.
    let kills = if std::env::var("TAKT_CASES").is_ok_and(|cases| cases.parse().is_ok_and(|cases: u64| cases > 10_000)) {
        400
    } else {
        24
    };
    let mut seen = 0;
    for number in 0..kills {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("record").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut victim = KillOnDrop(command.spawn().unwrap());
        pause(Span::from_us(1250 * (number % 24)));
        let of = format!("takt-{}-", victim.0.id());
        let its = || {
            let all = fs::read_dir(instances()).unwrap().flatten();
            all.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&of))).count()
        };
        victim.0.kill().unwrap();
        seen += its();
        // Until it is waited for, nobody else has its number.
        eventually("the instance of a killed recorder goes", || its() == 0);
        victim.0.wait().unwrap();
        eventually("it stays gone", || its() == 0);
    }
    println!("{kills} killed, {seen} of them while they had an instance");
}

fn a_recorder_asked_to_stop_leaves_no_instance() {
    let (mut victim, instance) = victim(&[]);
    terminate(&victim.0);
    assert!(victim.0.wait().unwrap().success());
    assert!(!instance.exists());
}

fn a_panic_leaves_no_instance() {
    let (mut victim, instance) = victim(&["panic"]);
    assert!(!victim.0.wait().unwrap().success());
    assert!(!instance.exists());
}

fn what_has_no_guardian_the_next_start_removes() {
    let (mut victim, instance) = victim(&["unguarded"]);
    let name = instance.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(!recover().undone.contains(&name) && instance.exists(), "its owner lives");
    victim.0.kill().unwrap();
    victim.0.wait().unwrap();
    // Another takt that starts now may do it, too.
    println!("{:?}", recover());
    // If tracefs is not mounted, only a start that records looks there.
    drop(start(Options::default()));
    eventually("one of them has removed it", || !instance.exists());
}

fn what_is_refused_is_named() {
    let refused = |event: Event| {
        let events = vec![Event::new("sched", "sched_switch"), event];
        Recorder::start(&Options { events, buffer: Some(SMALL), ..Options::default() }).err()
    };
    match refused(Event::new("sched", "sched_waking").only("no_such_field == 3")) {
        Some(RecorderError::Filter { event, .. }) => assert_eq!(event, "sched/sched_waking"),
        other => panic!("{other:?}"),
    }
    let essential = Event { essential: true, ..Event::new("sched", "no_such_event") };
    assert_eq!(refused(essential), Some(RecorderError::EventMissing { event: "sched/no_such_event".to_owned() }));
    let events = vec![Event::new("sched", "sched_switch"), Event::new("sched", "no_such_event")];
    let recorder = start(Options { events, ..Options::default() });
    assert_eq!(recorder.missing(), ["sched/no_such_event"]);
    let buffer = Some(Bytes::new(1 << 50));
    match Recorder::start(&Options { buffer, ..Options::default() }).err() {
        Some(RecorderError::Memory { .. }) => {}
        other => panic!("{other:?}"),
    }
    let helpless = Recorder::start(&Options { guard: Guard::Program("/bin/true".into()), ..Options::default() }).err();
    assert!(matches!(helpless, Some(RecorderError::Guardian { .. })), "{helpless:?}");
}

/// SIGTERM to a child that this program started and has not waited for.
fn terminate(child: &Child) {
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}
