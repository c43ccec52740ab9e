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

/// A class: its queue, and the rate and burst of its bucket in bytes.
#[derive(Clone, Copy, Debug)]
struct Class {
    order: Order,
    late: LateRule,
    packets_max: usize,
    bucket: Option<(u64, u64)>,
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

fn class() -> impl Strategy<Value = Class> {
    let bucket = proptest::option::of((1u64..5_000_000, LENGTH_MAX..20_000));
    (any::<bool>(), 0usize..3, prop_oneof![1usize..30, Just(1_024)], bucket).prop_map(
        |(edf, late, packets_max, bucket)| Class {
            order: if edf { Order::Edf } else { Order::Fifo },
            late: [LateRule::Send, LateRule::Drop, LateRule::Demote][late],
            packets_max,
            bucket,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..2, 0..STREAMS, 60..=LENGTH_MAX, prop_oneof![Just(0), 0..20_000_000u64])
            .prop_map(|(class, stream, length, relative)| Step::Push { class, stream, length, relative }),
        1 => prop_oneof![Just(0), 0..5_000_000u64, 0..2 * SECOND].prop_map(|after| Step::Pop { after }),
    ]
}

/// The decisions of the machines of this crate, a line each.
fn machines(classes: [Class; 2], steps: &[Step]) -> String {
    let mut queues = classes.map(|Class { order, late, packets_max, .. }| {
        PacketQueue::new(QueueSpec { order, late, packets_max, streams: STREAMS as usize }).unwrap()
    });
    let mut buckets = classes.map(|class| {
        let (rate, burst) = class.bucket?;
        let spec = BucketSpec { rate: Rate::from_bps(rate * 8), burst: Bytes::new(burst) };
        Some(TokenBucket::new(spec, Bytes::new(LENGTH_MAX)).unwrap())
    });
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
                while leaves(&mut queues, &mut buckets, at, &mut text) {}
                let ready = |(queue, bucket): (&PacketQueue, &Option<TokenBucket>)| {
                    let ready = bucket.as_ref().map_or(at, |bucket| bucket.ready_at(at));
                    (!queue.is_empty()).then_some(ready)
                };
                let wake = queues.iter().zip(&buckets).filter_map(ready).min();
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

/// Takes out the packet that may leave: of the first class with one, and without negative tokens.
fn leaves(queues: &mut [PacketQueue; 2], buckets: &mut [Option<TokenBucket>; 2], at: Time, text: &mut String) -> bool {
    for (queue, bucket) in queues.iter_mut().zip(buckets) {
        if bucket.as_ref().is_some_and(|bucket| bucket.ready_at(at) > at) {
            continue;
        }
        let drop = |packet: Packet| writeln!(text, "drop {}", packet.tag).unwrap();
        if let Some(next) = queue.pop(at, drop) {
            let _ = writeln!(text, "send {}", next.packet.tag);
            if let Some(bucket) = bucket {
                bucket.charge(at, next.packet.bytes);
            }
            return true;
        }
    }
    false
}

/// The same steps for the program in C.
fn script(classes: [Class; 2], steps: &[Step]) -> String {
    let mut text = String::new();
    for (number, class) in classes.iter().enumerate() {
        let order = u8::from(class.order == Order::Edf);
        let late = [LateRule::Send, LateRule::Drop, LateRule::Demote].iter().position(|of| *of == class.late).unwrap();
        let (rate, burst) = class.bucket.unwrap_or_default();
        let _ = writeln!(text, "class {number} {order} {late} {} {rate} {burst}", class.packets_max);
    }
    let mut now = START;
    for (tag, step) in steps.iter().enumerate() {
        let _ = match *step {
            Step::Push { class, stream, length, relative } => {
                // Like the address of a socket.
                let owner = 0xffff_8880_0000_0000 + stream * 0x940;
                writeln!(text, "push {class} {owner} {length} {} {tag}", now + relative)
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
    let strategy = ([class(), class()], proptest::collection::vec(step(), 0..400));
    // Each case starts a process, so there are few unless more are asked for.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let result = proptest::test_runner::TestRunner::new(config).run(&strategy, |(classes, steps)| {
        let (kernel, ours) = (run(&program, &script(classes, &steps)), machines(classes, &steps));
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
    let mut text = String::from("class 0 1 0 1024 0 0\nclass 1 0 0 1 0 0\n");
    let deadline = |tag: u64| tag * 7_919 % 1_024;
    for tag in 0..1_025 {
        let _ = writeln!(text, "push 0 {} 100 {} {tag}", 0xffff_8880_0000_0000 + tag * 0x940, START + deadline(tag));
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
