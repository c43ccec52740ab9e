//! How fast traces are decoded: `cargo bench -p takt-trace`, only some with `cargo bench -p
//! takt-trace --bench decode -- text`.
//!
//! `trace-cmd report` prints the same pages, if it is installed. Figures are the best of several
//! rounds, and nothing is asserted. Pages, text and Perfetto's packets hold the same events. On
//! each of two CPUs a thread is woken, runs, and leaves, as on a machine with many short jobs.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[allow(dead_code, reason = "shared with tests")]
#[path = "../tests/common/packets.rs"]
mod written;

use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use takt_log::{BackEnd, Definition, Event, Header, Sink, Writer};
use takt_model::Time;
use takt_trace::jobs::{self, Options, Rebuilder};
use takt_trace::{DatHead, DatWriter, Endian, Format, PageLayout, Recording};
use written::Message;

const PAGES: usize = 2000;
const ROUNDS: u32 = 30;

fn main() {
    let layout = PageLayout::usual(8, 4096);
    let formats = [SWITCH, WAKING].map(|text| Format::parse(text).expect("a format"));
    let (one, text) = events(&layout);
    let (two, _) = events(&layout);
    println!("{:<34} {:>14} {:>10} {:>10}", "traces, one core", "million/s", "ns each", "MB/s");

    let mut count = 0;
    Recording::pages(&formats, layout, Endian::Little, vec![(0, &one)]).each(|_| count += 1);
    measure("pages of one CPU", count, one.len(), || {
        let mut recording = Recording::pages(&formats, layout, Endian::Little, vec![(0, &one)]);
        recording.each(|event| {
            black_box(event);
        });
    });
    measure("pages of two CPUs, merged", 2 * count, 2 * one.len(), || {
        let mut recording = Recording::pages(&formats, layout, Endian::Little, vec![(0, &one), (1, &two)]);
        recording.each(|event| {
            black_box(event);
        });
    });
    measure("pages of one CPU, to jobs", count, one.len(), || {
        let mut recording = Recording::pages(&formats, layout, Endian::Little, vec![(0, &one)]);
        let mut rebuilder = Rebuilder::new(Options::default());
        let mut jobs = Count(0);
        recording.each(|event| rebuilder.event(event, &mut jobs));
        black_box(jobs.0);
    });
    measure("pages of one CPU, to a JobLog", count, one.len(), || {
        let mut recording = Recording::pages(&formats, layout, Endian::Little, vec![(0, &one)]);
        let mut rebuilder = Rebuilder::new(Options::default());
        let header = Header::new(String::new(), None, BackEnd::Observe, jobs::KINDS);
        let mut log = Writer::new(std::io::sink(), &header, &rebuilder.definitions()).expect("to nowhere");
        recording.each(|event| rebuilder.event(event, &mut log));
        log.finish(rebuilder.end()).expect("to nowhere");
    });
    if let Err(why) = trace_cmd(count, &one) {
        println!("{PEER:<34} not available: {why}");
    }
    for (what, compact) in [("Perfetto, compact", true), ("Perfetto, whole events", false)] {
        let trace = packets(count as u32, compact);
        measure(what, count, trace.len(), || {
            let mut recording = Recording::open(&trace).expect("a trace");
            recording.each(|event| {
                black_box(event);
            });
        });
    }
    measure("text", count, text.len(), || {
        let mut recording = Recording::open(text.as_bytes()).expect("a trace");
        recording.each(|event| {
            black_box(event);
        });
    });
}

const PEER: &str = "pages of one CPU, trace-cmd report";

/// How fast trace-cmd prints the same pages.
fn trace_cmd(count: u64, pages: &[u8]) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("takt-decode-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let file = folder.join("trace.dat");
    let done = write_dat(&file, pages).and_then(|()| {
        let report = || {
            // trace-cmd mounts debugfs if it may, and leaves it mounted. A mount namespace of its
            // own contains this. A user who may not mount needs no namespace.
            let contained = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
            let mut command = if contained.is_ok_and(|status| status.success()) {
                let mut command = Command::new("unshare");
                command.args(["--mount", "trace-cmd"]);
                command
            } else {
                Command::new("trace-cmd")
            };
            command.arg("report").arg("-i").arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
            command
        };
        let output = report().output().map_err(|error| error.to_string())?;
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.contains(&b'[')).count() as u64;
        if !output.status.success() || lines != count {
            return Err(format!("it printed {lines} of {count} events, {}", output.status));
        }
        measure_rounds(PEER, count, pages.len(), 3, || {
            let _ = report().stdout(Stdio::null()).status();
        });
        Ok(())
    });
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn write_dat(file: &Path, pages: &[u8]) -> Result<(), String> {
    let head = DatHead {
        endian: Endian::Little,
        word: 8,
        page: 4096,
        header_page: HEADER_PAGE,
        header_event: HEADER_EVENT,
        own: Vec::new(),
        events: vec![("sched", SWITCH), ("sched", WAKING)],
        threads: Vec::new(),
        clock: "[mono]",
        cpus: 1,
    };
    let options = File::options().read(true).write(true).create(true).truncate(true).clone();
    let out = options.open(file).map_err(|error| error.to_string())?;
    let mut writer = DatWriter::new(out, &head, u64::MAX).map_err(|error| error.to_string())?;
    writer.pages(0, pages).map_err(|error| error.to_string())?;
    let (out, end) = writer.finish().map_err(|error| error.to_string())?;
    out.set_len(end).map_err(|error| error.to_string())
}

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;
";
const HEADER_EVENT: &str = "# compressed entry header
\ttype_len    :    5 bits
\ttime_delta  :   27 bits
\tarray       :   32 bits

\tpadding     : type == 29
\ttime_extend : type == 30
\ttime_stamp : type == 31
\tdata max type_len  == 28
";

/// Counts the events of jobs.
struct Count(u64);

impl Sink for Count {
    fn event(&mut self, _: u32, _: Time, event: &Event) {
        self.0 += 1;
        black_box(event);
    }
    fn define(&mut self, _: u32, _: Time, _: &Definition) {}
}

fn measure(what: &str, events: u64, bytes: usize, work: impl FnMut()) {
    measure_rounds(what, events, bytes, ROUNDS, work);
}

fn measure_rounds(what: &str, events: u64, bytes: usize, rounds: u32, mut work: impl FnMut()) {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if !chosen.is_empty() && !chosen.iter().any(|part| what.contains(part.as_str())) {
        return;
    }
    let best = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .expect("there are rounds");
    let seconds = best.as_secs_f64();
    let rate = events as f64 / seconds / 1e6;
    println!("{what:<34} {rate:>14.1} {:>10.1} {:>10.0}", 1e3 / rate, bytes as f64 / seconds / 1e6);
}

const SWITCH: &str = "name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;

print fmt: \"%s\", REC->prev_state & 256 ? \"+\" : \"\"
";
const WAKING: &str = "name: sched_waking
ID: 374
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;

print fmt: \"\"
";

/// Full pages, and the text that a kernel would print of them.
fn events(layout: &PageLayout) -> (Vec<u8>, String) {
    let (mut pages, mut text) = (Vec::new(), String::new());
    let mut time = 1_000_000_000_u64;
    let mut step = 0;
    for _ in 0..PAGES {
        let mut data = Vec::new();
        let start = time;
        loop {
            let (payload, line) = event(step);
            if data.len() + payload.len() + 4 > layout.page - layout.data {
                break;
            }
            let head = (1_700_u32 << 5) | (payload.len() as u32 / 4);
            data.extend(head.to_le_bytes());
            data.extend(payload);
            time += 1_700;
            step += 1;
            let (whole, micro) = (time / 1_000_000_000, time % 1_000_000_000 / 1000);
            writeln!(text, "          worker-{:<5} [000] d..2. {whole:>5}.{micro:06}: {line}", 1000)
                .expect("to memory");
        }
        let mut page = start.to_le_bytes().to_vec();
        page.extend((data.len() as u64).to_le_bytes());
        page.extend(data);
        page.resize(layout.page, 0);
        pages.extend(page);
    }
    (pages, text)
}

/// The bytes and the text of the event with that number.
fn event(step: u32) -> (Vec<u8>, String) {
    let mut bytes = Vec::new();
    let thread = 1000 + step / 3 % 7;
    if step.is_multiple_of(3) {
        bytes.extend(374_u32.to_le_bytes());
        bytes.extend(1000_u32.to_le_bytes());
        bytes.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
        for number in [thread, 120, 0] {
            bytes.extend(number.to_le_bytes());
        }
        return (bytes, format!("sched_waking: comm=worker pid={thread} prio=120 target_cpu=000"));
    }
    let (prev, next, state) = if step % 3 == 1 { (0, thread, 0_u64) } else { (thread, 0, 1) };
    bytes.extend(372_u32.to_le_bytes());
    bytes.extend(1000_u32.to_le_bytes());
    bytes.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
    bytes.extend(prev.to_le_bytes());
    bytes.extend(120_u32.to_le_bytes());
    bytes.extend(state.to_le_bytes());
    bytes.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
    bytes.extend(next.to_le_bytes());
    bytes.extend(120_u32.to_le_bytes());
    let letter = if state == 0 { "R" } else { "S" };
    let line = format!(
        "sched_switch: prev_comm=worker prev_pid={prev} prev_prio=120 prev_state={letter} ==> next_comm=worker \
         next_pid={next} next_prio=120"
    );
    (bytes, line)
}

/// The same events in Perfetto's packets, a few hundred each.
fn packets(count: u32, compact: bool) -> Vec<u8> {
    const EACH: u32 = 400;
    let mut trace = Message::default();
    let (mut time, mut step) = (1_000_000_000_u64, 0);
    while step < count {
        let mut bundle = Message::default().number(1, 0);
        let mut lists: [Vec<u64>; 13] = Default::default();
        let mut latest = [0; 2];
        for step in step..count.min(step + EACH) {
            time += 1_700;
            let thread = u64::from(1000 + step / 3 % 7);
            let (waking, prev, next, state) = match step % 3 {
                0 => (true, 1000, thread, 0),
                1 => (false, 0, thread, 0),
                _ => (false, thread, 0, 1),
            };
            if compact {
                let latest = &mut latest[usize::from(waking)];
                let values: &[u64] = &[time - *latest, state, next, 120, 0, 0];
                let fields: [usize; 6] = if waking { [7, 9, 8, 10, 11, 12] } else { [1, 2, 3, 4, 6, 0] };
                fields.iter().zip(values).for_each(|(field, value)| lists[*field].push(*value));
                *latest = time;
                continue;
            }
            let event = Message::default().number(1, time).number(2, prev);
            let body = Message::default().bytes(1, b"worker");
            let body = if waking {
                body.number(2, next).number(3, 120).number(4, 1).number(5, 0)
            } else {
                let body = body.number(2, prev).number(3, 120).number(4, state);
                body.bytes(5, b"worker").number(6, next).number(7, 120)
            };
            bundle = bundle.message(2, &event.message(if waking { 20 } else { 4 }, &body));
        }
        if compact {
            let message = Message::default().bytes(5, b"worker");
            let all = (1..).zip(&lists[1..]);
            let message = all.fold(message, |message, (field, list)| message.packed(field, list.iter().copied()));
            bundle = bundle.message(4, &message);
        }
        trace = trace.message(1, &Message::default().message(1, &bundle).number(10, 1));
        step += EACH;
    }
    trace.0
}
