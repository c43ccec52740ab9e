//! Perfetto's traces: what is written in any of their forms is read again, and what is missing or
//! broken is told.

use std::process::Command;

use takt_model::Time;
use takt_trace::{
    Abi, Comm, Context, EventKind, Form, KernelEvent, OpenError, Recording, SwitchOutState, Thread, Waking, unpacked,
};

#[path = "common/machine.rs"]
mod machine;
#[path = "common/packets.rs"]
mod packets;

use machine::{Draw, World};
use packets::{Message, TimerForm, compact, compressed, descriptor, event, message, trace};

/// An event without its name.
type Decoded = (u64, u32, u32, Context, EventKind);

fn seen(event: &KernelEvent) -> Decoded {
    (event.time.as_ns(), event.cpu, event.pid, event.context, event.what)
}

/// All events, and what is told of damage.
fn read(bytes: &[u8]) -> (Vec<Decoded>, Vec<String>) {
    let mut recording = Recording::open(bytes).expect("a trace");
    assert_eq!(recording.form(), Form::Perfetto);
    let mut events = Vec::new();
    recording.each(|event| events.push(seen(event)));
    assert!(events.is_sorted_by_key(|event| event.0), "in the order of time");
    (events, recording.damages().first().iter().map(ToString::to_string).collect())
}

fn thread(pid: u32, name: &str, prio: Option<i32>) -> Thread {
    Thread { pid, comm: Comm::new(name.as_bytes()), prio }
}

fn at(time: u64, cpu: u32, pid: u32, what: EventKind) -> KernelEvent {
    KernelEvent { time: Time::from_ns(time), cpu, pid, context: Context::Thread, name: 0, what }
}

fn switch(time: u64, cpu: u32, prev: Thread, left: SwitchOutState, next: Thread) -> KernelEvent {
    at(time, cpu, prev.pid, EventKind::Switch { prev, left, next })
}

fn bundle(cpu: u32) -> Message {
    message().number(1, u64::from(cpu))
}

fn whole(cpu: u32, events: &[KernelEvent]) -> Message {
    events.iter().fold(bundle(cpu), |bundle, one| bundle.message(2, &event(one, TimerForm::Typed)))
}

fn packet(bundle: &Message) -> Message {
    message().message(1, bundle).number(10, 7)
}

/// Bundles of random length of each CPU's events, in any form, in an order that is almost that of
/// time.
fn written(events: &[KernelEvent], cpus: u32, draw: &mut Draw) -> Vec<u8> {
    let mut bundles = Vec::new();
    for cpu in 0..cpus {
        let of_cpu: Vec<&KernelEvent> = events.iter().filter(|event| event.cpu == cpu).collect();
        let is_compact = draw.below(2) == 0;
        let (mut rest, mut before) = (&of_cpu[..], 0);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(1 + draw.below(40) as usize));
            rest = later;
            let in_lists = |event: &&KernelEvent| {
                is_compact
                    && matches!(event.what, EventKind::Switch { .. } | EventKind::Wake { waking: Waking::Begins, .. })
            };
            let (lists, mut others): (Vec<&KernelEvent>, Vec<&KernelEvent>) =
                now.iter().partition(|event| in_lists(event));
            if draw.below(8) == 0 {
                others.reverse();
            }
            let mut message = bundle(cpu).number(10, before);
            let form = [TimerForm::Typed, TimerForm::Named, TimerForm::Described][draw.below(3) as usize];
            if !lists.is_empty() {
                message = message.message(4, &compact(&lists));
            }
            message = others.iter().fold(message, |message, one| message.message(2, &event(one, form)));
            if let TimerForm::Described = form {
                message = message.message(11, &descriptor());
            }
            before = now.last().map_or(0, |event| event.time.as_ns());
            bundles.push((now[0].time.as_ns() + draw.below(3000), packet(&message)));
        }
    }
    bundles.sort_by_key(|(time, _)| *time);
    let mut packets = Vec::new();
    let mut rest: Vec<Message> = bundles.into_iter().map(|(_, packet)| packet).collect();
    while !rest.is_empty() {
        let now: Vec<Message> = rest.drain(..rest.len().min(1 + draw.below(6) as usize)).collect();
        match draw.below(3) {
            0 => packets.push(compressed(&now)),
            _ => packets.extend(now),
        }
        // What others tell.
        packets.push(message().number(8, 5).message(78, &message().number(1, 1)));
    }
    trace(&packets)
}

/// A machine after so many steps. Wake-ups name their CPUs.
fn world(seed: u64, steps: u32) -> World {
    let mut world = World::new(seed);
    (0..steps).for_each(|_| world.step());
    for event in &mut world.events {
        if let EventKind::Wake { cpu, .. } = &mut event.what {
            *cpu = Some(event.cpu);
        }
    }
    world
}

#[test]
fn traces_of_random_machines_are_read_back() {
    let cases = std::env::var("TAKT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200);
    let mut events = 0;
    for seed in 0..cases {
        let world = world(seed, 200);
        let cpus = world.on.len() as u32;
        let bytes = written(&world.events, cpus, &mut Draw(seed));
        let (mut read, damages) = read(&bytes);
        assert_eq!(damages, Vec::<String>::new(), "seed {seed}");
        // The first switch of a CPU in compact form has only the thread's number.
        let mut first = vec![true; cpus as usize];
        for ((_, cpu, _, _, what), told) in read.iter_mut().zip(&world.events) {
            if let (EventKind::Switch { prev, .. }, EventKind::Switch { prev: truth, .. }) = (what, &told.what)
                && std::mem::take(&mut first[*cpu as usize])
            {
                assert_eq!(prev.pid, truth.pid);
                *prev = *truth;
            }
        }
        assert_eq!(read.len(), world.events.len(), "seed {seed}");
        for (read, told) in read.iter().zip(&world.events) {
            assert_eq!(*read, seen(told), "seed {seed}");
        }
        events += read.len();
    }
    assert!(events > 10_000, "{events}");
}

/// One of each, in the order of time.
fn one_of_each() -> Vec<KernelEvent> {
    let (a, b) = (thread(41, "a thread", Some(-1)), thread(0, "swapper/1", Some(120)));
    let soft = |time, what| KernelEvent { context: Context::Soft, ..at(time, 1, 41, what) };
    vec![
        switch(1_000, 1, b, SwitchOutState::Ready, a),
        at(1_001, 1, 41, EventKind::SyscallEnter { number: 232, args: [3, u64::MAX, 8, 7, 0, 1] }),
        at(1_002, 1, 41, EventKind::SyscallExit { number: 232, result: -4 }),
        soft(1_003, EventKind::Wake { thread: thread(77, "c", Some(98)), waking: Waking::Begins, cpu: Some(3) }),
        soft(1_004, EventKind::Wake { thread: thread(77, "c", Some(98)), waking: Waking::Queued, cpu: Some(3) }),
        at(1_005, 1, 41, EventKind::Wake { thread: thread(78, "d", None), waking: Waking::New, cpu: None }),
        at(1_006, 1, 41, EventKind::Migrate { pid: 78, from: 1, to: 2 }),
        at(1_007, 1, 41, EventKind::Fork { parent: 41, child: 79, comm: Comm::new(b"e") }),
        at(1_008, 1, 41, EventKind::Rename { pid: 41, comm: Comm::new(b"\xff\xfe no UTF-8") }),
        at(1_009, 1, 41, EventKind::Exit { pid: 41 }),
        at(1_010, 1, 41, EventKind::IrqEnter { irq: 24, name: Comm::new(b"eth0") }),
        at(1_011, 1, 41, EventKind::SoftirqRaise { vec: 3 }),
        at(1_012, 1, 41, EventKind::IrqExit { irq: 24 }),
        at(1_013, 1, 41, EventKind::SoftirqEnter { vec: 3 }),
        at(1_014, 1, 41, EventKind::SoftirqExit { vec: 3 }),
        at(1_015, 1, 41, EventKind::Timer { expires: 5_000 }),
        at(1_016, 1, 41, EventKind::Other),
        switch(1_017, 1, a, SwitchOutState::Ended, b),
    ]
}

#[test]
fn each_kind_of_event_is_read() {
    let events = one_of_each();
    let bytes = trace(&[packet(&whole(1, &events))]);
    assert_eq!(read(&bytes), (events.iter().map(seen).collect(), Vec::new()));
    let mut recording = Recording::open(&bytes).unwrap();
    let mut names = Vec::new();
    recording.each(|event| names.push(event.name));
    let names: Vec<&str> = names.iter().map(|name| recording.names().name(*name)).collect();
    assert_eq!(names[..3], ["sched_switch", "sys_enter", "sys_exit"]);
    assert_eq!(names[14..], ["softirq_exit", "hrtimer_start", "print", "sched_switch"]);
    // gzip around it is undone as around others.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, &bytes).unwrap();
    assert_eq!(unpacked(&packer.finish().unwrap()).unwrap()[..], bytes);
}

/// Calls whose arguments were not recorded wait, as far as arguments would tell.
#[test]
fn system_calls_without_arguments() {
    let enter = message().number(1, 9).number(2, 41).message(329, &message().number(1, 232));
    let (events, damages) = read(&trace(&[packet(&bundle(0).message(2, &enter))]));
    assert!(damages.is_empty());
    let [(9, 0, 41, Context::Thread, EventKind::SyscallEnter { number: 232, args })] = events[..] else {
        panic!("{events:?}")
    };
    assert!(args[3] != 0, "epoll_wait with a timeout");
}

#[test]
fn losses_are_told_where_the_trace_tells_them() {
    let idle = thread(0, "swapper", Some(120));
    let one = |cpu, time| switch(time, cpu, idle, SwitchOutState::Ready, thread(5, "five", Some(98)));
    let lost = |bytes: &[u8]| -> Vec<(u64, u32, Option<u64>)> {
        let (events, damages) = read(bytes);
        assert_eq!(damages, Vec::<String>::new());
        let lost = events.iter().filter_map(|(time, cpu, _, _, what)| match what {
            EventKind::Lost { count } => Some((*time, *cpu, *count)),
            _ => None,
        });
        lost.collect()
    };
    let bundle = |cpu, time, before| packet(&whole(cpu, &[one(cpu, time)]).number(10, before));
    let stats = |phase, cpu, lost| {
        let cpu = message().number(1, cpu).number(3, lost).number(8, 2);
        message().message(34, &message().number(1, phase).message(2, &cpu))
    };
    // Nothing is missing, though bundles are not in order.
    let sound = [bundle(0, 10, 0), bundle(0, 30, 20), bundle(0, 20, 10), bundle(1, 12, 0)];
    assert_eq!(lost(&trace(&sound)), []);
    // The recorder says so.
    let told = packet(&whole(0, &[one(0, 20)]).number(3, 1));
    assert_eq!(lost(&trace(&[bundle(0, 10, 0), told.clone()])), [(20, 0, None)]);
    // A bundle between them is missing; the first of a CPU's are missing.
    assert_eq!(lost(&trace(&[bundle(0, 10, 0), bundle(0, 30, 20)])), [(30, 0, None)]);
    assert_eq!(lost(&trace(&[bundle(0, 10, 0), bundle(1, 30, 20)])), [(30, 1, None)]);
    // A packet says that others were dropped, and later bundles of its writer on every CPU do not
    // say what was before.
    let old = |cpu, time| packet(&whole(cpu, &[one(cpu, time)]));
    let dropped = [old(0, 10), old(1, 11), old(0, 20).number(42, 1), old(1, 21), old(2, 22)];
    assert_eq!(lost(&trace(&dropped)), [(20, 0, None), (21, 1, None)]);
    // The kernel counted, and nobody knows when; the last loss that is known takes the count.
    let counted = [stats(1, 0, 40), bundle(0, 10, 0), bundle(0, 20, 10), stats(2, 0, 45)];
    assert_eq!(lost(&trace(&counted)), [(20, 0, Some(5))]);
    let counted = [stats(1, 0, 40), bundle(0, 10, 0), told, bundle(0, 30, 20), stats(2, 0, 45)];
    assert_eq!(lost(&trace(&counted)), [(20, 0, Some(5))]);
    // After a loss a compact switch does not know who ran.
    let switches = |time| {
        let next = thread(time as u32, "x", Some(120));
        compact(&[&switch(time, 0, idle, SwitchOutState::Blocked, next)])
    };
    let bundles =
        [10_u64, 20, 30].map(|time| packet(&self::bundle(0).message(4, &switches(time)).number(3, time / 30)));
    let (events, _) = read(&trace(&bundles));
    let ran: Vec<Option<u32>> =
        events.iter().map(|event| matches!(event.4, EventKind::Switch { .. }).then_some(event.2)).collect();
    assert_eq!(ran, [Some(0), Some(10), None, Some(0)]);
}

#[test]
fn names_from_the_process_tree_help_where_nothing_else_does() {
    let tree = message().message(2, &message().number(1, 5).bytes(2, b"five").number(3, 4));
    let enter = at(9, 0, 5, EventKind::SyscallEnter { number: 0, args: [0; 6] });
    let next = thread(6, "six", Some(120));
    let list = compact(&[&switch(10, 0, next, SwitchOutState::Blocked, next)]);
    let bytes = trace(&[packet(&whole(0, &[enter]).message(4, &list)), message().message(2, &tree)]);
    let expected = EventKind::Switch { prev: thread(5, "five", None), left: SwitchOutState::Blocked, next };
    assert_eq!(read(&bytes).0[1], (10, 0, 5, Context::Thread, expected));
}

#[test]
fn clock_and_machine_are_told() {
    let events = one_of_each();
    let snapshot = |boot| {
        let clock = |id, time| message().number(1, id).number(2, time);
        message().message(6, &message().message(1, &clock(6, boot)).message(1, &clock(3, 5_000_000)))
    };
    let machine = |name: &[u8]| message().message(45, &message().message(1, &message().bytes(4, name)));
    let of = |more: &[Message]| {
        let bytes = trace(&[&[packet(&whole(1, &events))], more].concat());
        let recording = Recording::open(&bytes).unwrap();
        (recording.clock().to_owned(), recording.is_monotonic(), recording.abi())
    };
    assert_eq!(of(&[]), ("boot".to_owned(), false, None));
    assert_eq!(of(&[snapshot(5_000_300), machine(b"x86_64")]), ("boot".to_owned(), true, Some(Abi::X86_64)));
    assert_eq!(of(&[snapshot(5_000_300), snapshot(6_000_001)]), ("boot".to_owned(), false, None));
    assert_eq!(of(&[machine(b"aarch64")]).2, Some(Abi::Generic));
    let local = trace(&[packet(&whole(1, &events).number(5, 3)), packet(&whole(0, &events[..1]))]);
    let (read, damages) = read(&local);
    assert_eq!((read.len(), damages.len()), (events.len(), 1), "another clock: {damages:?}");
    assert_eq!(Recording::open(&local).unwrap().clock(), "local");
    // Another machine's CPUs are not this one's.
    let guest = packet(&whole(1, &events)).number(98, 3);
    let bytes = trace(&[packet(&whole(1, &events[..2])), guest]);
    let mut recording = Recording::open(&bytes).unwrap();
    let mut count = 0;
    recording.each(|_| count += 1);
    assert_eq!((count, recording.skipped_instances()), (2, &["machine 3".to_owned()][..]));
}

#[test]
fn a_trace_without_the_kernel_says_what_to_do() {
    let track = message().number(8, 5).message(11, &message().number(9, 1)).number(10, 1);
    let error = Recording::open(&trace(&[track])).map(|_| ()).unwrap_err();
    assert_eq!(error, OpenError::NoKernelEvents { tracks: true });
    assert_eq!(
        error.to_string(),
        "a Perfetto trace without events of the kernel: its data source linux.ftrace has to record \
         sched/sched_switch and sched/sched_waking; where takt exported it from a log, give the log itself \
         (.takt) to takt's verbs"
    );
    let other = message().number(8, 5).message(78, &message().number(1, 1));
    let error = Recording::open(&trace(&[other])).map(|_| ()).unwrap_err();
    assert_eq!(error, OpenError::NoKernelEvents { tracks: false });
}

/// Wherever the trace ends, what is there is read, and the end is told.
#[test]
fn a_cut_trace_is_read_as_far_as_it_goes() {
    let events = one_of_each();
    let packets: Vec<Message> = events.chunks(4).map(|events| packet(&whole(1, events))).collect();
    let bytes = trace(&packets);
    let ends: Vec<usize> = (1..=packets.len()).map(|count| trace(&packets[..count]).len()).collect();
    let expected: Vec<Decoded> = events.iter().map(seen).collect();
    let mut before = 0;
    for length in 0..bytes.len() {
        let Ok(mut recording) = Recording::open(&bytes[..length]) else {
            assert!(before == 0, "byte {length}: once a first event is there, all are read");
            continue;
        };
        let mut found = Vec::new();
        recording.each(|event| found.push(seen(event)));
        assert!(found.len() >= before && found[..] == expected[..found.len()], "byte {length}");
        assert_eq!(recording.damages().count() == 0, ends.contains(&length), "byte {length}");
        before = found.len();
    }
    assert!(before > 12, "{before}");
}

#[test]
fn damage_is_told_with_its_byte_and_the_rest_is_read() {
    let events = one_of_each();
    let packets: Vec<Message> = events.chunks(2).map(|events| packet(&whole(1, events))).collect();
    let sound = trace(&packets);
    let starts: Vec<usize> = (0..packets.len()).map(|count| trace(&packets[..count]).len()).collect();
    // A packet's length is wrong: its events are gone, and no others.
    let mut broken = sound.clone();
    broken[starts[2] + 1] ^= 0x40;
    let (found, damages) = read(&broken);
    let kept: Vec<Decoded> = events[..4].iter().chain(&events[6..]).map(seen).collect();
    assert_eq!(found, kept);
    assert!(
        damages[0].starts_with(&format!("byte {}: ", starts[2])) && damages[0].ends_with("bytes are no packets"),
        "{damages:?}"
    );
    // Within an event: that one is gone.
    let enter = starts[0] + sound[starts[0]..].windows(2).position(|two| two == [0xca, 0x14]).unwrap();
    let mut broken = sound.clone();
    broken[enter + 3] = 0x0b;
    let (found, damages) = read(&broken);
    assert_eq!(found.len(), events.len() - 1);
    assert_eq!(damages, [format!("byte {}: an event's fields cannot be read", enter + 3)]);
    // Compressed packets that break off: what came before is read.
    let many: Vec<Message> =
        (0..500).map(|k| packet(&whole(0, &[at(k * 7919 % 4001, 0, 5, EventKind::Other)]))).collect();
    let Message(packed) = compressed(&many);
    // Without the field's own key and length.
    let half = &packed[4..packed.len() / 2];
    let (found, damages) = read(&trace(&[message().bytes(50, half)]));
    assert!(!found.is_empty() && found.len() < many.len(), "{}", found.len());
    assert_eq!(damages[0], "byte 7: compressed packets cannot be unpacked beyond some point");
    // Lists that do not fit each other.
    let one = switch(5, 0, thread(0, "", Some(120)), SwitchOutState::Ready, thread(1, "one", Some(120)));
    let lists = compact(&[&one, &KernelEvent { time: Time::from_ns(6), ..one }]);
    let uneven = lists.clone().packed(1, [1].into_iter());
    let (found, damages) = read(&trace(&[packet(&bundle(0).message(4, &uneven))]));
    assert_eq!(found.len(), 2);
    assert_eq!(damages, ["byte 8: lists of compact events are not of one length"]);
    let nameless = message().packed(1, [1].into_iter()).packed(2, [0].into_iter()).packed(3, [1].into_iter());
    let nameless = nameless.packed(4, [120].into_iter()).packed(6, [0].into_iter());
    let (found, damages) = read(&trace(&[packet(&bundle(0).message(4, &nameless)), packet(&whole(1, &events))]));
    assert_eq!(found.len(), events.len());
    assert_eq!(damages, ["byte 8: a compact event refers to a name that is not there"]);
}

/// Random bytes in a sound trace: no panic, and time goes forward.
#[test]
fn no_damage_makes_it_panic() {
    let mut draw = Draw(5);
    for seed in 0..300 {
        let world = world(seed, 30);
        let mut bytes = written(&world.events, world.on.len() as u32, &mut draw);
        for _ in 0..1 + draw.below(4) {
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] = draw.below(256) as u8;
        }
        if let Ok(mut recording) = Recording::open(&bytes) {
            let mut latest = Time::ZERO;
            recording.each(|event| {
                assert!(event.time >= latest);
                latest = event.time;
            });
        }
    }
}

/// Reads a trace that the published schema wrote once. If the Python package `perfetto` is
/// installed, it also reads a trace that the package writes now. TAKT_PYTHON names an interpreter
/// with the package. TAKT_DEMAND_PERFETTO makes a missing package a failure, as CI does.
#[test]
fn traces_of_the_published_schema_are_read() {
    let kept = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/schema.perfetto-trace")).unwrap();
    is_what_the_schema_wrote(&kept);
    let python = std::env::var("TAKT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = Command::new(&python).args(["-c", "import perfetto.protos.perfetto.trace.perfetto_trace_pb2"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("TAKT_DEMAND_PERFETTO").is_none(), "{python} has no package perfetto");
        println!("the kept one only: {python} has no package perfetto (pip install perfetto protobuf)");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perfetto_encode.py");
    let output = Command::new(&python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_what_the_schema_wrote(&output.stdout);
}

/// Compares with what tests/perfetto_encode.py has.
fn is_what_the_schema_wrote(bytes: &[u8]) {
    let mut recording = Recording::open(bytes).unwrap();
    assert_eq!((recording.clock(), recording.is_monotonic(), recording.abi()), ("boot", true, Some(Abi::X86_64)));
    let mut events = Vec::new();
    recording.each(|event| events.push(seen(event)));
    assert_eq!(recording.damages().first(), []);
    let (five, idle) = (thread(5, "five", Some(-1)), thread(0, "swapper/0", Some(120)));
    let wake = EventKind::Wake { thread: five, waking: Waking::Begins, cpu: Some(0) };
    let mut expected = vec![
        KernelEvent { context: Context::Hard, ..at(2_000, 0, 0, wake) },
        switch(2_010, 0, thread(0, "", None), SwitchOutState::Ready, five),
        at(2_020, 0, 5, EventKind::SyscallEnter { number: 230, args: [1, 1, 0, 0, 0, 0] }),
        at(2_021, 0, 5, EventKind::Timer { expires: 9_000 }),
        switch(2_030, 0, five, SwitchOutState::Blocked, idle),
        at(2_040, 0, 0, EventKind::Lost { count: Some(3) }),
    ];
    expected.extend(one_of_each().iter().map(|event| KernelEvent {
        time: Time::from_ns(event.time.as_ns() + 1_040),
        cpu: 0,
        ..*event
    }));
    // Python's texts are UTF-8.
    for event in &mut expected {
        if let EventKind::Rename { comm, .. } = &mut event.what {
            *comm = Comm::new("é".as_bytes());
        }
    }
    assert_eq!(events, expected.iter().map(seen).collect::<Vec<_>>());
}
