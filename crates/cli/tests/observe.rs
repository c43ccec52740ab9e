//! The kernel's record of a run agrees with the stamps of the run's own threads. No test asserts a
//! duration.
//!
//! The live test records this kernel; it is skipped, with the reason on the screen, where this machine or user cannot.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use jobs::{Job, jobs};

mod jobs;

fn takt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_takt")).args(arguments).output().expect("takt starts")
}

const SYSTEM: &str = r#"takt = 1
node = [{ name = "n", strategy = "rm" }]
task = [
    { name = "fast", period = "10ms", wcet = "500us" },
    { name = "slow", period = "35ms", wcet = "3ms" },
]
"#;

#[test]
fn the_kernel_tells_of_a_run_what_its_threads_stamped() {
    // The record is always sound. On a machine that pauses, jobs are late, and the kernel does not
    // show them separately.
    for attempt in 1..=5 {
        match seen_as_stamped() {
            None | Some((0, 0)) => return,
            Some((hidden, merges)) => {
                println!(
                    "attempt {attempt}: {hidden} jobs were not seen by themselves, {merges} were seen as one \
                     with others"
                );
            }
        }
    }
    panic!("in none of five runs was each job seen");
}

/// For a run: the number of separate jobs that the kernel merged, and the number of jobs merged
/// with their predecessor. `None`: recording is not permitted.
fn seen_as_stamped() -> Option<(usize, u32)> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("s.toml"), SYSTEM).unwrap();
    let tried = takt(&["run", &path("s.toml"), "--for", "50ms"]);
    if tried.status.code() == Some(3) {
        println!("skipped: {}", String::from_utf8_lossy(&tried.stderr));
        return None;
    }
    assert!(tried.status.success(), "{}", String::from_utf8_lossy(&tried.stderr));
    let run = [env!("CARGO_BIN_EXE_takt"), "run", &path("s.toml"), "--for", "1500ms", "-o", &path("run.takt")];
    let observed = takt(&[&["observe", "-o", &path("seen.takt"), "--"][..], &run].concat());
    if observed.status.code() == Some(3) {
        println!("skipped: {}", String::from_utf8_lossy(&observed.stderr));
        return None;
    }
    assert!(observed.status.success(), "{}", String::from_utf8_lossy(&observed.stderr));
    let [stamped, seen] = ["run.takt", "seen.takt"].map(|log| jobs(Path::new(&path(log))).expect("no event was lost"));
    let (mut zero, mut merges, mut hidden) = (None, 0, 0);
    for (task, stamped) in &stamped {
        let thread = seen.iter().find(|(name, _)| name.starts_with(&format!("takt {task}-")));
        let (_, seen) = thread.unwrap_or_else(|| panic!("{task} is not among {:?}", seen.keys()));
        // The logs' zeros differ by what the arrivals say, for all tasks the same: arrivals are
        // exact in both. Before its first job a thread has waited for the others, and after its
        // last one it ends.
        let by_arrival: BTreeMap<u64, Job> = seen.iter().map(|job| (job.arrival, *job)).collect();
        let shift = zero.or(jobs::shift(stamped, &by_arrival)).unwrap_or_else(|| panic!("{task}: {seen:?}"));
        zero = Some(shift);
        // A machine that pauses makes many jobs late. Jobs with a predecessor done well before them
        // are separate.
        let apart: Vec<&Job> = stamped
            .windows(2)
            .filter(|pair| pair[0].done.is_some_and(|done| done + 500_000 < pair[1].arrival))
            .map(|pair| &pair[1])
            .collect();
        let found = apart.iter().filter(|job| by_arrival.contains_key(&(job.arrival + shift))).count();
        assert!(stamped.len() >= 20, "{task}: {} jobs", stamped.len());
        hidden += apart.len() - found;
        for (k, stamped) in stamped.iter().enumerate() {
            let Some(done) = stamped.done.map(|done| done + shift) else { continue };
            let arrival = stamped.arrival + shift;
            let (_, seen) =
                by_arrival.range(..=arrival).next_back().unwrap_or_else(|| panic!("{task}: job {k} was not seen"));
            // A late thread goes on with its next job without a system call. Then the kernel sees a
            // single job.
            let merged = seen.arrival != arrival;
            merges += u32::from(merged);
            let started = seen.start.or(seen.gap.then_some(seen.arrival)).unwrap();
            let completed = seen.done.unwrap();
            assert!(
                started <= done && done <= completed,
                "{task}: job {k} (merged: {merged}): the thread stamps between its start and the call that ends \
                 the job: {stamped:?} {seen:?}"
            );
            if let Some(stamp) = stamped_start(stamped, shift) {
                assert!(started <= stamp, "{task}: job {k} stamps its start once it runs");
            }
        }
    }
    // The kernel's record gives back the system, unless the machine was too busy to keep jobs
    // separate.
    let inferred = takt(&["infer", &path("seen.takt"), "--json"]);
    let inferred: serde_json::Value = serde_json::from_slice(&inferred.stdout).expect("JSON");
    for (name, period) in [("takt fast-", 10_000_000_u64), ("takt slow-", 35_000_000)] {
        let tasks = inferred["tasks"].as_array().unwrap();
        let task = tasks.iter().find(|task| task["task"].as_str().unwrap().starts_with(name)).unwrap();
        let found = (task["kind"].as_str(), task["period_ns"].as_u64());
        assert!(merges > 0 || found == (Some("periodic"), Some(period)), "{name}: {merges} merges, {task}");
    }
    Some((hidden, merges))
}

/// When the thread said that its job started.
fn stamped_start(job: &Job, shift: u64) -> Option<u64> {
    job.start.map(|start| start + shift)
}

#[test]
fn invalid_traces_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("text"), "no trace\n").unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    std::fs::write(path("folder/cpu0"), [0; 4096]).unwrap();
    for (arguments, status, says) in [
        (&["observe", &path("text")][..], 2, "no trace: neither trace.dat, nor a Perfetto trace, nor text"),
        (&["observe", &path("folder")], 2, "is no recording: it should hold raw pages"),
        (&["observe", &path("missing")], 2, "cannot read"),
        (&["observe", &path("text"), "--for", "1s"], 2, "cannot be used with"),
        (&["observe", "--for", "0s"], 2, "is zero"),
        (&["observe", "--buffer", "5", "--for", "1s"], 2, "has no unit"),
        (&["observe", "--cgroup", "no/such/group", "--for", "1s"], 2, "there is no control group"),
        (&["observe", "--pid", "4294967295", "--for", "1s"], 2, "there is no process"),
        (&["observe", "--serve", "nowhere", "--for", "1s"], 2, "is no address"),
    ] {
        let output = takt(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}

/// A thread that is woken every 10 ms and runs for 2 ms, thirty times: 90 events, each after what
/// `head` makes of thread, microseconds and context.
fn wakes_and_runs(head: impl Fn(&str, u64) -> String) -> String {
    let mut text = String::new();
    for k in 0..30 {
        let at = 100_000_000 + 10_000 * k;
        for (thread, us, what) in [
            ("<idle>-0", at, "sched_wakeup: comm=app pid=507 prio=120 target_cpu=000"),
            (
                "<idle>-0",
                at + 10,
                "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=app \
                 next_pid=507 next_prio=120",
            ),
            (
                "app-507",
                at + 2_000,
                "sched_switch: prev_comm=app prev_pid=507 prev_prio=120 prev_state=S ==> next_comm=swapper/0 \
                 next_pid=0 next_prio=120",
            ),
        ] {
            text += &format!("{}{what}\n", head(thread, us));
        }
    }
    text
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn usual(thread: &str, us: u64) -> String {
    format!("{thread:>16}     [000] d..2. {}: ", seconds(us))
}

/// Reads what is written to a file, and says status, answer and what was said.
fn observed(name: &str, bytes: &[u8], more: &[&str]) -> (Option<i32>, serde_json::Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(&path, bytes).unwrap();
    let output = takt(&[&["observe", &path, "--json"], more].concat());
    let answer = serde_json::from_slice(&output.stdout).unwrap_or(serde_json::Value::Null);
    (output.status.code(), answer, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// However the kernel, trace-cmd or perf print an event, it is the same job.
#[test]
fn texts_of_all_printers_are_read() {
    let id = |thread: &str| thread.rsplit_once('-').map_or("0", |(_, id)| id).to_owned();
    let verbose = |thread: &str, us: u64| {
        let (ms, rest) = (us / 1000, us % 1000);
        format!("{:>16} {:>7} {:>3} 1 00000003 0000002a [{us:08x}] {ms}.{rest:03}ms (+0.010ms): ", "x y", id(thread), 0)
    };
    let usual_text = wakes_and_runs(usual);
    let json = serde_json::json!({ "traceEvents": [], "systemTraceEvents": format!("# tracer: nop\n#\n{usual_text}") });
    for (form, text) in [
        ("usual", usual_text.clone()),
        ("latency-format", wakes_and_runs(|thread, us| format!("{thread:>8}       0d..3 {us:>4}us+: "))),
        ("dmesg", wakes_and_runs(|thread, us| format!("[   12.000001] {thread:>8}       0d..3 {us:>4}us : "))),
        ("verbose", wakes_and_runs(verbose)),
        ("trace-cmd report -l", wakes_and_runs(|thread, us| format!("{thread:>8}       0d..3 {}: ", seconds(us)))),
        (
            "perf script",
            wakes_and_runs(|thread, us| format!("    x y {:>7} [000] {}:       sched:", id(thread), seconds(us))),
        ),
        ("JSON", json.to_string()),
    ] {
        let (status, answer, said) = observed("trace", text.as_bytes(), &[]);
        assert_eq!((status, said.as_str()), (Some(0), ""), "{form}");
        assert_eq!(answer["observed"]["events"], 90, "{form}");
        let task = &answer["tasks"][0];
        assert_eq!((&task["task"], &task["completed"]), (&"app-507".into(), &29.into()), "{form}: {task}");
        assert_eq!(task["response_ns"]["max"], 2_000_000, "{form}: {task}");
    }
}

/// A trace without events of running threads, or without times, is refused with a reason.
#[test]
fn a_trace_without_jobs_is_refused_with_a_reason() {
    let heading = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 90/90   #P:2\n#\n";
    let unknown = "# tracer: nop\n#\n# form\n\n  bash 1977 0 0 gone\n  w 77 0 0 gone\n";
    let wakeup = "# tracer: wakeup_rt\n#\n  <idle>-0       3dNh7    0us :      0:120:R   + [003]  2872: 94:R sleep\n\
        \x20 <idle>-0       3d..3   15us :      0:120:R ==> [003]  2872: 94:R sleep\n";
    let function = "# tracer: function\n#\n  a-1 [000] d..2 1.000001: schedule <-do_nanosleep\n";
    let graph =
        "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n 0)   0.123 us    |  }\n";
    let others = "  a-1 [000] d..2 1.000001: cpu_idle: state=1 cpu_id=0\n";
    let counted = wakes_and_runs(|thread, us| format!("{thread:>16}     [000] d..2. {us}: "));
    for (text, says) in [
        (heading, "there is no event in it: its heading is all there is"),
        (unknown, "none of the 2 lines behind its heading has a known form; line 5 is \"bash 1977 0 0 gone\""),
        (wakeup, "no sched_switch, so takt cannot tell which thread ran; the trace is of the tracer wakeup_rt"),
        (function, "the trace is of the tracer function, which records something else"),
        (graph, "the trace is of the tracer function_graph, which records something else"),
        (others, "there are 1 events in it (cpu_idle), but no sched_switch"),
        (&counted, "its stamps have no unit, so takt cannot compute durations and periods; record with the clock mono"),
        ("PERFILE2....", "perf script --ns -i perf.data > trace.txt"),
        ("/* CTF 1.8 */\n", "Common Trace Format (CTF)"),
        ("{\"traceEvents\": [{\"name\": \"x\"}]}", "JSON without the kernel's events"),
        (&"\0".repeat(100_000), "no trace: neither trace.dat"),
    ] {
        let (status, _, said) = observed("trace", text.as_bytes(), &[]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(says) && said.contains("trace: "), "{says}: {said}");
    }
    let promising = heading.to_owned()
        + &wakes_and_runs(usual).lines().take(48).map(|line| format!("{line}\n")).collect::<String>();
    let (status, answer, said) = observed("trace", promising.as_bytes(), &[]);
    assert_eq!((status, &answer["observed"]["events"]), (Some(0), &48.into()));
    assert!(said.contains("line 3: the heading promises 90 events, and 48 are there"), "{said}");
    // A device without an end is not read to it.
    let endless = takt(&["observe", "/dev/zero"]);
    assert_eq!(endless.status.code(), Some(2), "{}", String::from_utf8_lossy(&endless.stderr));
    // Nor is text: the writer cannot write much more than what decides.
    let mut reader = std::process::Command::new(env!("CARGO_BIN_EXE_takt"));
    reader.args(["observe", "-"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut reader = reader.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = reader.stdin.take().unwrap();
    let block = "just a log\n".repeat(100_000);
    let blocks = (0..200).take_while(|_| std::io::Write::write_all(&mut input, block.as_bytes()).is_ok()).count();
    drop(input);
    assert_eq!(reader.wait_with_output().unwrap().status.code(), Some(2));
    assert!(blocks < 40, "{blocks} of 200 blocks of 1.1 MB were read");
}

/// Without switches a trace is refused, unless it has interrupts and they are asked for.
#[test]
fn a_trace_without_switches_has_interrupts_at_most() {
    let wakeups: String = wakes_and_runs(usual)
        .lines()
        .filter(|line| line.contains("sched_wakeup"))
        .map(|line| format!("{line}\n"))
        .collect();
    let interrupts: String = (0..20)
        .flat_map(|k| {
            let at = 100_000_000 + 10_000 * k;
            let event = |us, what: &str| format!("{}{what}\n", usual("<idle>-0", us));
            let handler = "irq_handler_entry: irq=16 name=eth0";
            [event(at, handler), event(at + 10, "irq_handler_exit: irq=16 ret=handled")]
        })
        .collect();
    let both = wakeups.clone() + &interrupts;
    let remedy =
        "record sched/sched_switch and sched/sched_waking; --irq '*' or -o LOG reads the interrupts in it alone";
    for (text, says) in [
        (&wakeups, "there are 30 events in it (sched_wakeup), but no sched_switch"),
        (&both, remedy),
        (&interrupts, remedy),
    ] {
        let (status, answer, said) = observed("trace", text.as_bytes(), &[]);
        assert_eq!((status, answer.is_null()), (Some(2), true), "{said}");
        assert!(said.contains(says), "{says}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for (name, text) in [("wakeups", &wakeups), ("both", &both), ("interrupts", &interrupts)] {
        std::fs::write(path(name), text).unwrap();
    }
    let none = takt(&["observe", &path("wakeups"), "--irq", "*"]);
    assert_eq!(none.status.code(), Some(2), "{}", String::from_utf8_lossy(&none.stderr));
    for name in ["both", "interrupts"] {
        for more in [["--irq", "eth0"], ["-o", &path("log.takt")]] {
            let ran = takt(&[&["observe", &path(name)][..], &more].concat());
            let (table, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert_eq!(ran.status.code(), Some(0), "{said}");
            assert!(said.contains("note: no sched_switch in it, so there are no jobs: interrupts only"), "{said}");
            let row = table.lines().find_map(|line| line.split_once("eth0")).map(|(_, row)| row.split_whitespace());
            let row: Vec<&str> = row.into_iter().flatten().collect();
            assert_eq!(row, ["interrupt", "20", "10us", "10us", "10us", "10ms", "10ms", "10ms", "10ms"], "{table}");
            assert!(!table.contains("released"), "{table}");
        }
    }
    let nobody = takt(&["observe", &path("interrupts"), "--irq", "nosuch"]);
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("note: no interrupt that is asked for was seen"));
}

/// A named pipe can be opened once only, so its headers are not looked at apart.
#[test]
fn a_trace_dat_comes_through_a_named_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "mkfifo pipe && { printf '\\027\\010\\104tracing6\\0\\0\\010\\0\\020\\0\\0' >pipe & \"$0\" observe pipe; }";
    let mut shell = Command::new("sh");
    let ran = shell.current_dir(folder.path()).args(["-c", script, env!("CARGO_BIN_EXE_takt")]).output();
    let ran = ran.expect("a shell");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("trace.dat ends at byte 18, within its header_page"), "{said}");
}

/// The headers of a trace.dat are looked at before memory is taken for the rest.
#[test]
fn a_trace_dat_with_holes_takes_no_memory() {
    use std::io::Write as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holes.dat");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0").unwrap();
    file.set_len(3 << 30).unwrap();
    let limited = "ulimit -v 1000000 && exec \"$0\" observe \"$1\"";
    let mut shell = Command::new("sh");
    let ran = shell.args(["-c", limited, env!("CARGO_BIN_EXE_takt")]).arg(&path).output().expect("a shell");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("trace.dat ends at byte 18, within its header_page"), "{said}");
}

/// A trace of another machine is read by its numbers of system calls, and the answer says so.
#[test]
fn system_calls_of_other_machines() {
    let text = |sleep: i64| {
        let mut text = String::new();
        for (k, line) in wakes_and_runs(usual).lines().enumerate() {
            let us = 100_000_000 + 10_000 * (k as u64 / 3) + 1_999;
            if k % 3 == 2 {
                text += &format!("{}sys_enter: NR {sleep} (1, 0, 7ffe0, 0, 0, 0)\n", usual("app-507", us));
            }
            text += &format!("{line}\n");
            if k % 3 == 1 && k > 3 {
                text += &format!("{}sys_exit: NR {sleep} = 0\n", usual("app-507", us - 1_980));
            }
        }
        text
    };
    let completed = |answer: &serde_json::Value| answer["tasks"][0]["completed"].clone();
    for (number, abi, says) in [
        (230, "x86-64", ""),
        (
            115,
            "arm64 or riscv",
            "takt reads its system calls as those of arm64 or riscv, since 30 of 30 in which a thread slept fit",
        ),
        (265, "arm", "those of arm, ppc64, since 30 of 30"),
        (248, "ppc64", "those of ppc64, since 30 of 30"),
        (267, "i386", "those of i386, since 30 of 30"),
        (162, "arm", "those of arm, ppc64, i386, since 30 of 30"),
    ] {
        let (status, answer, said) = observed("trace", text(number).as_bytes(), &[]);
        assert_eq!(
            (status, &answer["observed"]["abi"], completed(&answer)),
            (Some(0), &abi.into(), 29.into()),
            "{number}: {said}"
        );
        assert!(
            if says.is_empty() { said.is_empty() } else { said.contains(says) && said.contains("--abi") },
            "{said}"
        );
    }
    let (status, answer, said) = observed("trace", text(999).as_bytes(), &[]);
    assert_eq!((status, answer["tasks"].as_array().map(Vec::len)), (Some(0), Some(0)), "{said}");
    assert!(said.contains("none of 30 system calls in which a thread slept is a waiting call of x86-64"), "{said}");
    let (_, answer, said) = observed("trace", text(115).as_bytes(), &["--abi", "arm64"]);
    assert_eq!((completed(&answer), said.as_str()), (29.into(), ""));
    // The wrong one, and names that nobody has: the empty table has a reason.
    for (arguments, says) in [
        (["--abi", "x86-64"], "none of 30 system calls in which a thread slept is a waiting call of x86-64"),
        (["--abi", "x86-64"], "note: no thread has a job"),
        (["--comm", "nosuch"], "note: no thread that the options name has a job"),
    ] {
        let (_, answer, said) = observed("trace", text(115).as_bytes(), &arguments);
        assert!(answer["tasks"].as_array().is_some_and(Vec::is_empty) && said.contains(says), "{says}: {said}");
        assert!(answer["notes"][0].as_str().is_some_and(|note| note.contains("has a job")), "{answer}");
    }
}

const SWITCH: &str =
    "name: sched_switch\nID: 314\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;
";

/// A page of a ring buffer with so many switches from one thread to itself.
fn page(switches: usize) -> Vec<u8> {
    let thread = |id: u32| [&b"thread\0\0\0\0\0\0\0\0\0\0"[..], &id.to_le_bytes(), &120_u32.to_le_bytes()].concat();
    let event = [
        &(16_u32 | 100 << 5).to_le_bytes()[..],
        &314_u32.to_le_bytes(),
        &7_u32.to_le_bytes(),
        &thread(7),
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &thread(8),
    ];
    let mut page = 1_000_u64.to_le_bytes().to_vec();
    page.extend((68 * switches as u64).to_le_bytes());
    for _ in 0..switches {
        page.extend(event.concat());
    }
    page.resize(4096, 0);
    page
}

/// If a folder holds several recordings, one is read as a whole, and the others are named.
#[test]
fn a_folder_of_several_recordings_says_which_one_is_read() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let write = |name: &str, bytes: &[u8]| {
        let file = std::path::PathBuf::from(path(name));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    };
    write("b/cpu0", &page(1));
    write("a/cpu0", &page(3));
    write("a/cpu1", &page(2));
    write("instances/c/per_cpu/cpu0/trace_pipe_raw", &page(4));
    write("events/sched/sched_switch/format", SWITCH.as_bytes());
    write("a/trace_clock", b"local [mono]\n");
    std::fs::copy(format!("{data}/trappy-raw_trace.dat.gz"), path("other.dat.gz")).unwrap();
    std::fs::write(path("notes.txt"), "nothing of that kind\n").unwrap();
    let output = takt(&["observe", folder.path().to_str().unwrap(), "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((&answer["observed"]["events"], &answer["observed"]["clock"]), (&5.into(), &"mono".into()), "{said}");
    assert_eq!(answer["observed"]["left_out"].as_array().map(Vec::len), Some(3), "{said}");
    let expected = format!(
        "that of {} is read, not {}, {}, {}",
        path("a"),
        path("b"),
        path("instances/c/per_cpu"),
        path("other.dat.gz")
    );
    assert!(said.contains(&expected), "{expected}: {said}");
    // A folder of files that are traces by themselves.
    std::fs::create_dir(path("files")).unwrap();
    std::fs::write(path("files/one.txt"), wakes_and_runs(usual)).unwrap();
    let refused = takt(&["observe", &path("files")]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(2) && said.contains(&format!("name one of {}", path("files/one.txt"))),
        "{said}"
    );
}

/// The known counts of the given traces, through the verb.
#[test]
fn given_traces_have_the_events_that_are_known() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data");
    for (file, events, switches) in [
        ("trappy-raw_trace.dat.gz", 757, 755),
        ("lisa-sched_load_trace.dat.gz", 3724, 399),
        ("lisa-trace.txt.gz", 2941, 1856),
    ] {
        let output = takt(&["observe", &format!("{data}/{file}"), "--json"]);
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let observed = &answer["observed"];
        assert_eq!(
            (observed["events"].as_u64(), observed["names"]["sched_switch"].as_u64()),
            (Some(events), Some(switches)),
            "{file}"
        );
        let jobs: u64 =
            answer["tasks"].as_array().unwrap().iter().map(|task| task["completed"].as_u64().unwrap()).sum();
        assert!(jobs > 5, "{file}: {jobs} jobs");
    }
}

/// A Perfetto trace gives jobs. A trace exported by takt has no kernel events; the answer names the
/// remedy.
#[test]
fn traces_of_perfetto() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data/schema.perfetto-trace");
    let shown = takt(&["observe", trace]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.ends_with("schema.perfetto-trace: Perfetto, clock boot, 24 events\n"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("s.toml"), SYSTEM).unwrap();
    assert!(takt(&["sim", &path("s.toml"), "-o", &path("s.takt")]).status.success());
    let drawn = path("s.perfetto-trace");
    assert!(takt(&["export", &path("s.takt"), "--format", "perfetto", "-o", &drawn]).status.success());
    let refused = takt(&["observe", &drawn]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(
        text.contains("a Perfetto trace without events of the kernel") && text.contains("give the log itself (.takt)"),
        "{text}"
    );
}

/// A recording can be kept in trace-cmd's format and read again, with the same events.
#[test]
fn a_raw_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let recorded = takt(&["observe", "--json", "--raw", &path("raw.dat"), "--", "sleep", "0.05"]);
    if recorded.status.code() == Some(3) {
        println!("skipped: {}", String::from_utf8_lossy(&recorded.stderr));
        return;
    }
    let answer = |output: &Output| -> serde_json::Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let (live, again) = (answer(&recorded), answer(&takt(&["observe", "--json", &path("raw.dat")])));
    assert_eq!(live["observed"]["command_status"], 0);
    assert_eq!(live["observed"]["events"], again["observed"]["events"]);
    assert_eq!(again["observed"]["clock"], "mono");
    let jobs = |answer: &serde_json::Value| -> Vec<(String, u64)> {
        let tasks = answer["tasks"].as_array().unwrap().iter();
        let of =
            |task: &serde_json::Value| (task["task"].as_str().unwrap().to_owned(), task["completed"].as_u64().unwrap());
        tasks.map(of).filter(|(name, _)| name.starts_with("sleep-")).collect()
    };
    assert_eq!(jobs(&live).len(), 1, "the command: {live}");
    assert_eq!(jobs(&live), jobs(&again));
    // A small room keeps what fits, and says so.
    let small = takt(&["observe", "--raw", &path("small.dat"), "--raw-limit", "4KiB", "--for", "200ms"]);
    assert!(small.status.success());
    // One page may happen to hold no sched_switch; then no job can be told, and that is refused.
    let read = takt(&["observe", &path("small.dat")]);
    let told = String::from_utf8_lossy(&read.stderr);
    let refused = read.status.code() == Some(2) && told.contains("but no sched_switch, so");
    assert!(read.status.success() || refused, "{told}");
}

/// A thread is woken every 10 ms and runs 1 ms. A softirq takes 0.2 ms of it, and an interrupt 0.05
/// ms of the softirq.
fn text_of_a_trace() -> String {
    let mut text = "# tracer: nop\n".to_owned();
    let mut line = |thread: &str, us: u64, what: &str| {
        text += &format!(" {thread} [000] d..1 {}.{:06}: {what}\n", us / 1_000_000, us % 1_000_000);
    };
    let (task, idle) = ("work-10", "<idle>-0");
    for k in 1..=20 {
        let at = 10_000 * k;
        line(idle, at, "sched_waking: comm=work pid=10 prio=120 target_cpu=000");
        line(
            idle,
            at + 10,
            "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=work \
             next_pid=10 next_prio=120",
        );
        line(task, at + 300, "softirq_entry: vec=3 [action=NET_RX]");
        line(task, at + 350, "irq_handler_entry: irq=24 name=eth0");
        line(task, at + 400, "irq_handler_exit: irq=24 ret=handled");
        line(task, at + 500, "softirq_exit: vec=3 [action=NET_RX]");
        line(
            task,
            at + 1_010,
            "sched_switch: prev_comm=work prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 \
             next_pid=0 next_prio=120",
        );
    }
    text
}

/// A log that carries no system is told all the same: distributions of interrupts too, and a page.
#[test]
fn an_observed_log_has_distributions_of_interrupts_and_a_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("trace.txt"), text_of_a_trace()).unwrap();
    let log = path("seen.takt");
    let told = |arguments: &[&str]| {
        let output = takt(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    assert_eq!(told(&["observe", &path("trace.txt"), "-o", &log]).0, Some(0));

    let (_, all, _) = told(&["stats", &log, "--pmf", "execution"]);
    let named: Vec<(&str, &str)> =
        (all.lines().skip(1)).map(|line| (line.split(',').nth(1).unwrap(), line.rsplit(',').next().unwrap())).collect();
    assert_eq!(named, [("work-10", "task"), ("NET_RX", "softirq"), ("24 eth0", "interrupt")], "{all}");
    let (_, nested, _) = told(&["stats", &log, "--cdf", "execution-with-nested", "--irq", "NET_RX"]);
    assert_eq!(nested.lines().count(), 2, "{nested}");
    assert!(nested.lines().last().unwrap().ends_with(",NET_RX,200000,20,1,softirq"), "{nested}");
    let json = |arguments: &[&str]| serde_json::from_str::<serde_json::Value>(&told(arguments).1).unwrap();
    let own = json(&["stats", &log, "--pmf", "execution", "--task", "work-10", "--json"]);
    assert_eq!((own["tasks"][0]["count"].as_u64(), own["interrupts"].as_array().map(Vec::len)), (Some(19), Some(0)));
    assert!(json(&["stats", &log, "--pmf", "response", "--json"])["interrupts"].is_null());
    assert_eq!(json(&["stats", &log, "--irq", "NET_RX", "--json"])["interrupts"][0]["execution_ns"]["p50"], 150_000);
    let (status, _, said) = told(&["stats", &log, "--irq", "eth1"]);
    assert!(status == Some(2) && said.contains("no interrupt is called \"eth1\""), "{said}");

    let (status, table, said) = told(&["report", &log, "-o", &path("seen.html")]);
    assert_eq!(status, Some(0), "{said}");
    assert!(table.contains("work-10") && table.contains("no model: "), "{table}");
    let page = std::fs::read_to_string(path("seen.html")).unwrap();
    for part in ["No model", "work-10", "24 eth0", "takt infer"] {
        assert!(page.contains(part), "no \"{part}\"");
    }
    let answer = json(&["report", &log, "-o", &path("seen.html"), "--json"]);
    assert!(answer["system"].is_null() && answer["tasks"][0]["verdict"].is_null(), "{answer}");
    assert_eq!(answer["tasks"][0]["measured"]["released"], 19);
    let (status, _, said) = told(&["report", &log, "--for", "1s"]);
    assert!(status == Some(2) && said.contains("carries no system to simulate"), "{said}");
}

/// If preemptions are unknown, the reason is given, in JSON too.
#[test]
fn unknown_preemptions_have_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let whole = include_str!("../../trace/tests/data/made/cfsquota.txt");
    let file = folder.path().join("cut.txt").to_string_lossy().into_owned();
    // Nobody says that the thread got its CPU back.
    let lines = whole.lines().filter(|line| !line.contains("100.120000"));
    std::fs::write(&file, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let shown = takt(&["observe", &file, "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let reason = "preemptions and migrations of 1 tasks are unknown (-): 1 switches of their threads within \
         jobs were not recorded";
    assert!(answer["notes"][0].as_str().unwrap().starts_with(reason), "{}", answer["notes"]);
    assert_eq!(
        (&answer["observed"]["gaps"], &answer["tasks"][0]["preemptions"]),
        (&1.into(), &serde_json::Value::Null)
    );
    assert!(String::from_utf8_lossy(&shown.stderr).contains(reason));
}
