//! The egress that runs in the kernel (bpf/queue.h), built as plain C, beside the machines of this
//! crate on random sequences. Needs a C compiler (`cc`); without one the test says so and passes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use takt_model::{Bytes, Rate, Time};
use takt_net::{BucketSpec, LateRule, Order, Packet, PacketQueue, QueueSpec, TokenBucket};

const SECOND: u64 = 1_000_000_000;
/// Sequences start here, when each bucket is full.
const START: u64 = 1_000 * SECOND;
const STREAMS: u64 = 5;
const LENGTH_MAX: u64 = 1_500;

/// A class: its queue, the rate and burst of its bucket in bytes, and whether it waits for the line's tokens.
#[derive(Clone, Copy, Debug)]
struct Class {
    order: Order,
    late: LateRule,
    packets_max: usize,
    bucket: Option<(u64, u64)>,
    by_line: bool,
}

/// Real-time packets, replies and all others.
const CLASSES: usize = 3;

/// The line's rate and burst, and the classes.
#[derive(Clone, Copy, Debug)]
struct Setup {
    line: Option<(u64, u64)>,
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push {
        class: usize,
        stream: u64,
        length: u64,
        relative: u64,
    },
    /// Time passes, and all leave that may.
    Pop {
        after: u64,
    },
}

/// A rate whose bucket is full at the start.
fn shaper() -> impl Strategy<Value = Option<(u64, u64)>> {
    proptest::option::of((100u64..5_000_000, LENGTH_MAX..20_000))
}

fn class() -> impl Strategy<Value = Class> {
    (any::<bool>(), 0usize..3, prop_oneof![1usize..30, Just(1_024)], shaper(), any::<bool>()).prop_map(
        |(edf, late, packets_max, bucket, by_line)| Class {
            order: if edf { Order::Edf } else { Order::Fifo },
            late: [LateRule::Send, LateRule::Drop, LateRule::Demote][late],
            packets_max,
            bucket,
            by_line,
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    (shaper(), [class(), class(), class()]).prop_map(|(line, classes)| Setup { line, classes })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CLASSES, 0..STREAMS, 60..=LENGTH_MAX, prop_oneof![Just(0), 0..20_000_000u64])
            .prop_map(|(class, stream, length, relative)| Step::Push { class, stream, length, relative }),
        1 => prop_oneof![Just(0), 0..5_000_000u64, 0..2 * SECOND].prop_map(|after| Step::Pop { after }),
    ]
}

/// The decisions of the machines of this crate, a line each.
fn machines(setup: Setup, steps: &[Step]) -> String {
    let mut queues = setup.classes.map(|Class { order, late, packets_max, .. }| {
        PacketQueue::new(QueueSpec { order, late, packets_max, streams: STREAMS as usize }).unwrap()
    });
    let mut shapers = Shapers::new(setup);
    let (mut text, mut now) = (String::new(), START);
    for (tag, step) in (0..).zip(steps) {
        match *step {
            Step::Push { class, stream, length, relative } => {
                let deadline = Time::from_ns(now + relative);
                let packet = Packet { stream: stream as u32, bytes: Bytes::new(length), deadline, tag };
                if queues[class].push(Time::from_ns(now), packet).is_err() {
                    let _ = writeln!(text, "full {tag}");
                }
            }
            Step::Pop { after } => {
                now += after;
                let at = Time::from_ns(now);
                while leaves(&mut queues, &mut shapers, at, &mut text) {}
                let waiting = (0..CLASSES).filter(|class| !queues[*class].is_empty());
                let wake = waiting.map(|class| shapers.ready_at(class, at)).min();
                let _ = writeln!(text, "wake {}", wake.map_or(u64::MAX, Time::as_ns));
            }
        }
    }
    for queue in &queues {
        let counts = queue.counts();
        let sent = counts.sent;
        let _ = writeln!(text, "{} {sent} {} {} {}", counts.arrived, counts.late, counts.demoted, counts.overflow);
    }
    text
}

/// The buckets of the classes and of the line.
struct Shapers {
    classes: [Option<TokenBucket>; CLASSES],
    by_line: [bool; CLASSES],
    line: Option<TokenBucket>,
}

impl Shapers {
    fn new(setup: Setup) -> Shapers {
        let bucket = |(rate, burst): (u64, u64)| {
            let spec = BucketSpec { rate: Rate::from_bps(rate * 8), burst: Bytes::new(burst) };
            TokenBucket::new(spec, Bytes::new(LENGTH_MAX)).unwrap()
        };
        Shapers {
            classes: setup.classes.map(|class| class.bucket.map(bucket)),
            by_line: setup.classes.map(|class| class.by_line),
            line: setup.line.map(bucket),
        }
    }

    fn ready_at(&self, class: usize, now: Time) -> Time {
        let of = |bucket: &Option<TokenBucket>| bucket.as_ref().map_or(now, |bucket| bucket.ready_at(now));
        let own = of(&self.classes[class]);
        if self.by_line[class] { own.max(of(&self.line)) } else { own }
    }

    fn charge(&mut self, class: usize, now: Time, bytes: Bytes) {
        for bucket in [&mut self.classes[class], &mut self.line].into_iter().flatten() {
            bucket.charge(now, bytes);
        }
    }
}

/// Takes out the packet that may leave: of the first class with one, and without negative tokens.
fn leaves(queues: &mut [PacketQueue; CLASSES], shapers: &mut Shapers, at: Time, text: &mut String) -> bool {
    for (class, queue) in queues.iter_mut().enumerate() {
        if shapers.ready_at(class, at) > at {
            continue;
        }
        let drop = |packet: Packet| writeln!(text, "drop {}", packet.tag).unwrap();
        if let Some(next) = queue.pop(at, drop) {
            let _ = writeln!(text, "send {}", next.packet.tag);
            shapers.charge(class, at, next.packet.bytes);
            return true;
        }
    }
    false
}

/// The same steps for the program in C.
fn script(setup: Setup, steps: &[Step]) -> String {
    let (rate, burst) = setup.line.unwrap_or_default();
    let mut text = format!("line {rate} {burst}\n");
    for (number, class) in setup.classes.iter().enumerate() {
        let order = u8::from(class.order == Order::Edf);
        let late = [LateRule::Send, LateRule::Drop, LateRule::Demote].iter().position(|of| *of == class.late).unwrap();
        let (rate, burst) = class.bucket.unwrap_or_default();
        let by_line = u8::from(class.by_line);
        let _ = writeln!(text, "class {number} {order} {late} {} {rate} {burst} {by_line}", class.packets_max);
    }
    text.push_str("tune\n");
    let mut now = START;
    for (tag, step) in steps.iter().enumerate() {
        let _ = match *step {
            Step::Push { class, stream, length, relative } => {
                // Like the address of a socket.
                let owner = 0xffff_8880_0000_0000 + stream * 0x940;
                writeln!(text, "push {class} {owner} {length} {} 0 {tag}", now + relative)
            }
            Step::Pop { after } => {
                now += after;
                writeln!(text, "pop {now}")
            }
        };
    }
    text + "end\n"
}

/// Builds the program; `None`: there is no compiler.
fn build(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-queue-{name}-{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]);
    cc.arg("-I").arg(here.join("../../bpf")).arg(here.join("tests/kernel_queue/egress.c")).arg("-o").arg(&program);
    let built = cc.output().ok()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

fn run(program: &Path, script: &str) -> String {
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(script.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_egress_of_the_kernel_decides_as_the_machines_do() {
    let Some(program) = build("random") else { return println!("skipped: there is no C compiler (cc)") };
    let strategy = (setup(), proptest::collection::vec(step(), 0..400));
    // Each case starts a process, so there are few unless more are asked for.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let result = proptest::test_runner::TestRunner::new(config).run(&strategy, |(setup, steps)| {
        let (kernel, ours) = (run(&program, &script(setup, &steps)), machines(setup, &steps));
        let differs = kernel.lines().zip(ours.lines()).position(|(one, other)| one != other);
        prop_assert_eq!(&kernel, &ours, "line {:?}", differs);
        Ok(())
    });
    let _ = std::fs::remove_file(&program);
    result.unwrap();
}

/// More sockets than the random sequences have, and a full queue.
#[test]
fn a_thousand_sockets_leave_by_their_deadlines() {
    let Some(program) = build("many") else { return println!("skipped: there is no C compiler (cc)") };
    let mut text = String::from("class 0 1 0 1024 0 0 0\ntune\n");
    let deadline = |tag: u64| tag * 7_919 % 1_024;
    for tag in 0..1_025 {
        let _ = writeln!(text, "push 0 {} 100 {} 0 {tag}", 0xffff_8880_0000_0000 + tag * 0x940, START + deadline(tag));
    }
    let out = run(&program, &(text + &format!("pop {START}\nend\n")));
    let _ = std::fs::remove_file(&program);
    assert!(out.starts_with("full 1024\n"), "{out}");
    let tags: Vec<u64> = out.lines().filter_map(|line| line.strip_prefix("send ")?.parse().ok()).collect();
    assert_eq!(tags.len(), 1_024);
    // Where eight neighbouring places are taken, two sockets share a stream: few do.
    let inversions = tags.windows(2).filter(|pair| deadline(pair[0]) > deadline(pair[1])).count();
    assert!(inversions < 100, "{inversions} of 1024");
}

/// Settings that change while packets wait: rates at once, the order when the queue is empty.
#[test]
fn changed_settings_take_force_and_lose_no_packet() {
    let Some(program) = build("tuned") else { return println!("skipped: there is no C compiler (cc)") };
    let start = START;
    // A byte takes a millisecond: the second packet starts 100 ms after the first, which takes the burst of 0.
    let script = format!(
        "class 0 0 0 9 1000 0 0\ntune\npush 0 1 100 {start} 0 1\npush 0 2 100 7 0 2\npush 0 3 100 6 0 3\npop {start}\n\
         class 0 1 0 9 10000 0 0\ntune\npop {}\npush 0 4 100 9 0 4\npush 0 5 100 8 0 5\npop {}\nend\n",
        start + 100_000_000,
        start + SECOND,
    );
    let out = run(&program, &script);
    let _ = std::fs::remove_file(&program);
    let lines: Vec<&str> = out.lines().collect();
    // The queue was not empty when 4 and 5 came, so it is first in, first out until the end.
    let wake = |ns: u64| format!("wake {}", start + ns);
    assert_eq!(lines[..4], ["send 1", &wake(100_000_000), "send 2", &wake(110_000_000)]);
    assert_eq!(lines[4..6], ["send 3", &wake(SECOND + 10_000_000)]);
    let script = "class 0 0 0 9 0 0 0\ntune\npush 0 1 100 7 0 1\nclass 0 1 0 9 0 0 0\ntune\npush 0 2 100 6 0 2\n\
                  pop 0\npush 0 3 100 9 0 3\npush 0 4 100 8 0 4\npop 0\nend\n";
    let program = build("ordered").unwrap();
    let out = run(&program, script);
    let _ = std::fs::remove_file(&program);
    let sent: Vec<&str> = out.lines().filter(|line| line.starts_with("send")).collect();
    assert_eq!(sent, ["send 1", "send 2", "send 4", "send 3"], "{out}");
}

/// The late rule holds for datagrams, and for no packet that is to be kept.
#[test]
fn kept_packets_are_sent_late() {
    let Some(program) = build("kept") else { return println!("skipped: there is no C compiler (cc)") };
    let script = "class 0 1 1 9 0 0 0\ntune\npush 0 1 100 5 0 1\npush 0 2 100 6 1 2\npop 7\nend\n";
    let out = run(&program, script);
    assert!(out.starts_with("drop 1\nsend 2\n"), "{out}");
    let out = run(&program, &script.replacen("0 1 1", "0 1 2", 1));
    let _ = std::fs::remove_file(&program);
    assert!(out.starts_with("send 2\nsend 1\n"), "{out}");
}
