//! Lines of real traces, one of each form, and lines that nobody should write.

use super::*;

fn event(text: &str) -> (u64, u32, Pid, String, EventKind) {
    match line(text.as_bytes()) {
        Line::Event { time, cpu, pid, name, what, .. } => {
            (time, cpu, pid, String::from_utf8_lossy(name).into_owned(), what)
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn heads_of_all_forms() {
    for (text, time, cpu, pid) in [
        ("  ls-4734  [002] 106439.675571: bprint:  select: x", 106_439_675_571_000, 2, 4734),
        ("          <idle>-0     [000] d..2  1136.097253: cpu_idle: state=0", 1_136_097_253_000, 0, 0),
        ("RenderThread-1143  (  611) [004] ...1 514769.085985: tracing_mark_write: E", 514_769_085_985_000, 4, 1143),
        ("   <idle>-0     (-----) [002] d..3 514769.086339: e: x", 514_769_086_339_000, 2, 0),
        ("a [b] - c-77 [011] d.h.. 1.000000002: e: [003] 1.0: f: y", 1_000_000_002, 11, 77),
        ("\t<...>-15430 [006]  7115.449594: e: x", 7_115_449_594_000, 6, 15430),
        ("x-1 [0] 12345: e:", 12345, 0, 1),
        ("x-1 [000] ..... 5.5: e: \\n\\", 5_500_000_000, 0, 1),
    ] {
        let (t, c, p, ..) = event(text);
        assert_eq!((t, c, p), (time, cpu, pid), "{text}");
    }
}

#[test]
fn flags_tell_the_context() {
    for (flags, expected) in [
        ("d..2.", Context::Thread),
        ("d.h2.", Context::Hard),
        ("..s1", Context::Soft),
        ("d.H.", Context::Hard),
        ("", Context::Thread),
    ] {
        let text = format!("x-1 [000] {flags} 1.0: e: x");
        assert!(matches!(line(text.as_bytes()), Line::Event { context, .. } if context == expected), "{text}");
    }
}

#[test]
fn switches_of_both_forms() {
    let thread = |pid, comm: &str, prio| Thread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(prio) };
    let (prev, next) = (thread(4734, "a b=c:d", 120), thread(18, "migration/2", -1));
    for (state, left) in [
        ("S", SwitchOutState::Blocked),
        ("R", SwitchOutState::Ready),
        ("R+", SwitchOutState::Preempted),
        ("X", SwitchOutState::Ended),
        ("D|W", SwitchOutState::Held),
        ("1024", SwitchOutState::Preempted),
        ("64", SwitchOutState::Blocked),
    ] {
        let long = format!(
            "a b=c:d-4734 [002] 1.5: sched_switch: prev_comm=a b=c:d prev_pid=4734 prev_prio=120 \
             prev_state={state} ==> next_comm=migration/2 next_pid=18 next_prio=-1"
        );
        let without_arrow = long.replace(" ==>", "");
        let short = format!("a b=c:d-4734 [002] 1.5: sched_switch: a b=c:d:4734 [120] {state} ==> migration/2:18 [-1]");
        for text in [long, without_arrow, short] {
            assert_eq!(event(&text).4, EventKind::Switch { prev, left, next }, "{text}");
        }
    }
}

/// A thread without budget leaves its CPU ready, and the CPU idle.
#[test]
fn a_thread_that_leaves_its_cpu_idle_may_be_ready() {
    for (state, expected) in [
        ("R+", SwitchOutState::Preempted),
        ("R", SwitchOutState::Ready),
        ("S+", SwitchOutState::Preempted),
        ("256", SwitchOutState::Preempted),
        ("S", SwitchOutState::Blocked),
    ] {
        let text = format!(
            "w-77 [000] 1.5: sched_switch: prev_comm=w prev_pid=77 prev_prio=120 prev_state={state} ==> \
             next_comm=swapper/0 next_pid=0 next_prio=120"
        );
        assert!(matches!(event(&text).4, EventKind::Switch { left, .. } if left == expected), "{text}");
    }
}

#[test]
fn other_events_that_are_read() {
    let thread = Thread { pid: 9, comm: Comm::new(b"rcu preempt"), prio: Some(98) };
    for (text, what) in [
        (
            "sched_wakeup: comm=rcu preempt pid=9 prio=98 success=1 target_cpu=006",
            EventKind::Wake { thread, waking: Waking::Queued, cpu: Some(6) },
        ),
        (
            "sched_waking: rcu preempt:9 [98] success=1 CPU:006",
            EventKind::Wake { thread, waking: Waking::Begins, cpu: Some(6) },
        ),
        ("sched_wakeup_new: rcu preempt:9 [98]", EventKind::Wake { thread, waking: Waking::New, cpu: None }),
        (
            "sched_migrate_task: comm=a pid=9 prio=120 orig_cpu=1 dest_cpu=0",
            EventKind::Migrate { pid: 9, from: 1, to: 0 },
        ),
        (
            "sched_process_fork: comm=sh pid=1 child_comm=a b child_pid=9",
            EventKind::Fork { parent: 1, child: 9, comm: Comm::new(b"a b") },
        ),
        ("sched_process_exit: comm=sh pid=9 prio=120", EventKind::Exit { pid: 9 }),
        (
            "task_rename: pid=9 oldcomm=a b newcomm=c d oom_score_adj=0",
            EventKind::Rename { pid: 9, comm: Comm::new(b"c d") },
        ),
        ("irq_handler_entry: irq=24 name=virtio0", EventKind::IrqEnter { irq: 24, name: Comm::new(b"virtio0") }),
        (
            "irq_handler_entry: irq=19 name=ehci_hcd:usb2",
            EventKind::IrqEnter { irq: 19, name: Comm::new(b"ehci_hcd:usb2") },
        ),
        (
            "hrtimer_start: hrtimer=00000000c function=hrtimer_wakeup expires=1050000 softexpires=1000000 \
             mode=ABS was_armed=0",
            EventKind::Timer { expires: 1_000_000 },
        ),
        ("irq_handler_exit: irq=24 ret=handled", EventKind::IrqExit { irq: 24 }),
        ("softirq_raise: vec=3 [action=NET_RX]", EventKind::SoftirqRaise { vec: 3 }),
        ("softirq_entry: vec=3 [action=NET_RX]", EventKind::SoftirqEnter { vec: 3 }),
        ("softirq_exit: vec=3 [action=NET_RX]", EventKind::SoftirqExit { vec: 3 }),
        (
            "sys_enter: NR 230 (1, 1, 7ffe0, 0, ffffffffffffffff, 2)",
            EventKind::SyscallEnter { number: 230, args: [1, 1, 0x7ffe0, 0, u64::MAX, 2] },
        ),
        ("sys_exit: NR 230 = -4", EventKind::SyscallExit { number: 230, result: -4 }),
        ("cpu_idle: state=1 cpu_id=0", EventKind::Other),
        ("thermal: [FAILED TO PARSE] a=b", EventKind::Other),
    ] {
        assert_eq!(event(&format!("x-1 [000] d.... 1.000000: {text}")).4, what, "{text}");
    }
    assert_eq!(event("x-1 [000] .... 1.0: schedule <-do_nanosleep").3, "function");
}

#[test]
fn lost_events_and_what_is_no_event() {
    assert_eq!(line(b"CPU:2 [LOST 1234 EVENTS]"), Line::Lost { cpu: 2, count: Some(1234) });
    assert_eq!(line(b"CPU:11 [77 EVENTS DROPPED]"), Line::Lost { cpu: 11, count: Some(77) });
    assert_eq!(line(b"CPU:0 [EVENTS DROPPED]"), Line::Lost { cpu: 0, count: None });
    assert_eq!(line(b"##### CPU 3 buffer started ####"), Line::Lost { cpu: 3, count: None });
    for text in ["  a-1  [4000000000] d..2.  7.000001: x: y", "  a-1  [65536] d..2.  7.000001: x: y"] {
        assert_eq!(line(text.as_bytes()), Line::Unreadable("no kernel has a CPU of that number"));
    }
    assert_eq!(line(b"CPU:65536 [LOST 1 EVENTS]"), Line::Other);
    assert_eq!(line(b"##### CPU x buffer started ####"), Line::Other);
    assert_eq!(line(b"##### CPU 3 is here ####"), Line::Other);
    assert_eq!(line(b"#####"), Line::Other);
    for text in
        ["", "# tracer: nop", "version = 6", "CPU 3 is empty", "cpus=6", " gid=4", "</html>", "a[0]-b [x] 1.0: e:"]
    {
        assert_eq!(line(text.as_bytes()), Line::Other, "{text}");
    }
    for text in [
        "x-1 [000] d..2 soon: e: y",
        "x-1 [000] 1.0: and then nothing",
        "x-1 [000] 1.0: sched_switch: prev_comm=a prev_pid=1",
        "x-1 [000] 1.0: sched_switch: prev_comm=a prev_pid=99999999999 prev_prio=1 prev_state=S ==> next_comm=b \
         next_pid=1 next_prio=1",
        "x-1 [000] 18446744074.0: e: y",
        "x-1 [000] 1.0000000001: e: y",
    ] {
        assert!(matches!(line(text.as_bytes()), Line::Unreadable(_)), "{text}: {:?}", line(text.as_bytes()));
    }
}

#[test]
fn a_heading_says_what_was_overwritten() {
    assert_eq!(entries(b"# entries-in-buffer/entries-written: 12/40   #P:2"), Some((12, 40)));
    assert_eq!(entries(b"# entries-in-buffer/entries-written: 12/   #P:2"), None);
    assert_eq!(entries(b"# latency: 46 us, #66/70, CPU#0 | (M:preempt VP:0, KP:0, SP:0 HP:0 #P:4)"), Some((66, 70)));
    assert_eq!(entries(b"# tracer: nop"), None);
    assert_eq!(tracer(b"# tracer: wakeup_rt"), Some(&b"wakeup_rt"[..]));
    assert_eq!(tracer(b"# entries"), None);
}

/// The kernel's options latency-format and verbose, dumps in dmesg, `trace-cmd report -l`, `perf
/// script`.
#[test]
fn heads_of_other_printers() {
    let switch =
        "sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=9";
    for (head, time, cpu, pid) in [
        ("  <idle>-0     0d..3 100000000us : ", 100_000_000_000, 0, 0),
        ("my task -77   11dNh4 4567us+: ", 4_567_000, 11, 77),
        ("  a-1-77     3d..3. 12us!: ", 12_000, 3, 77),
        ("[   12.000001] my task [x] 1-2-77    0d..3 100000050us : ", 100_000_050_000, 0, 77),
        ("<4>[   12.000001][    C0]   <idle>-0     1d..3 50us : ", 50_000, 1, 0),
        ("Nov 26 14:21:00 my-host kernel: [1.5]   <idle>-0     1d..3 50us : ", 50_000, 1, 0),
        ("  ls-4734    2d..3 106439.675571: ", 106_439_675_571_000, 2, 4734),
        ("          my 5 1       77   3 1 00000003 0000002a [0001e240] 123.456ms (+0.012ms): ", 123_456_000, 3, 77),
        ("     swapper/1     0 [001]  5678.123456789:       sched:", 5_678_123_456_789, 1, 0),
        ("     my 12 x   71/77 [001]  5678.123456: sched:", 5_678_123_456_000, 1, 77),
        // A name that looks like a head, with a CPU.
        ("  a-1 [0] b-77  [003] d..2 1.5: ", 1_500_000_000, 3, 77),
    ] {
        let (t, c, p, name, what) = event(&format!("{head}{switch}"));
        assert_eq!((t, c, p, name.as_str()), (time, cpu, pid, "sched_switch"), "{head}");
        assert!(matches!(what, EventKind::Switch { left: SwitchOutState::Blocked, .. }), "{head}");
    }
    for (flags, expected) in [("d..3", Context::Thread), ("dNh4", Context::Hard), ("..s1.", Context::Soft)] {
        let text = format!("x-1    0{flags} 100us : e: x");
        assert!(matches!(line(text.as_bytes()), Line::Event { context, .. } if context == expected), "{text}");
    }
    for (text, counted) in [
        ("x-1 [000] d..2 100000010: e: x", true),
        ("x-1 [000] d..2 1.000010: e: x", false),
        ("x-1    0d..3 100000050us : e: x", false),
        ("x-1    0d..3 100000050: e: x", true),
        ("x 1   3 1 00000003 0000002a [0001e240] 123 (+12): e: x", true),
    ] {
        assert!(matches!(line(text.as_bytes()), Line::Event { .. }), "{text}");
        assert_eq!(when(text.as_bytes()).map(|(_, counted)| counted), Some(counted), "{text}");
    }
    for text in
        ["a-1 2 3", "x-1    0d..3 100ms : e: x", "a 1 [000] 1.0: e: x", "at a-1 0 nothing", "x (+1): y", "x-1 0d..3 5"]
    {
        assert_eq!(line(text.as_bytes()), Line::Other, "{text}");
    }
}

/// Entries that only the latency tracers print.
#[test]
fn entries_of_tracers_are_events_that_are_not_read() {
    for (rest, name) in [
        ("      0:120:R   + [003]  2872: 94:R sleep", "wakeup"),
        ("      0:120:R ==> [003]  2872: 94:R sleep", "context_switch"),
        ("<stack trace>", "stack"),
        ("ttwu_do_activate <-try_to_wake_up", "function"),
    ] {
        for head in ["  <idle>-0       3dNh7    0us : ", "  <idle>-0   [003] d..2  1.000001: "] {
            let (.., found, what) = event(&format!("{head}{rest}"));
            assert_eq!((found.as_str(), what), (name, EventKind::Other), "{head}{rest}");
        }
    }
    assert!(is_function_graph(b" 0)   0.123 us    |  }") && is_function_graph(b" 11)               |  do_it() {"));
    assert!(!is_function_graph(b"# CPU  DURATION"));
}

/// A name may hold what stands between names, as far as 15 bytes go.
#[test]
fn names_that_look_like_arguments() {
    let thread = |pid, comm: &str| Thread { pid, comm: Comm::new(comm.as_bytes()), prio: Some(120) };
    let what = |text: &str| event(&format!("x-1 [000] d.... 1.000000: {text}")).4;
    let odd = [("x prev_pid=9", "y next_pid=8"), ("a prev_prio=1", " ==> "), ("a ==> b:5", "[120] S ==> c")];
    for (prev, next) in odd {
        let expected =
            EventKind::Switch { prev: thread(502, prev), left: SwitchOutState::Blocked, next: thread(503, next) };
        let long = format!(
            "sched_switch: prev_comm={prev} prev_pid=502 prev_prio=120 prev_state=S ==> next_comm={next} \
             next_pid=503 next_prio=120"
        );
        assert_eq!(what(&long), expected, "{long}");
        let short = format!("sched_switch: {prev}:502 [120] S ==> {next}:503 [120]");
        assert_eq!(what(&short), expected, "{short}");
    }
    for comm in ["x prev_pid=9", "a pid=9 prio=1", "a pid=9"] {
        let expected = EventKind::Wake { thread: thread(502, comm), waking: Waking::Queued, cpu: Some(6) };
        for success in ["", " success=1"] {
            let text = format!("sched_wakeup: comm={comm} pid=502 prio=120{success} target_cpu=006");
            assert_eq!(what(&text), expected, "{text}");
        }
        let text = format!("sched_migrate_task: comm={comm} pid=502 prio=120 orig_cpu=1 dest_cpu=0");
        assert_eq!(what(&text), EventKind::Migrate { pid: 502, from: 1, to: 0 }, "{text}");
        assert_eq!(what(&format!("sched_process_exit: comm={comm} pid=502 prio=120")), EventKind::Exit { pid: 502 });
        let forked = EventKind::Fork { parent: 1, child: 9, comm: Comm::new(comm.as_bytes()) };
        assert_eq!(what(&format!("sched_process_fork: comm={comm} pid=1 child_comm={comm} child_pid=9")), forked);
    }
}
