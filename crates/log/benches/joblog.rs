//! How fast logs are written and read, and statistics made: `cargo bench -p takt-log`, only some with
//! `cargo bench -p takt-log --bench joblog -- read`, and statistics of a file of 10^8 events with `-- file`.
//!
//! It prints the best of several rounds and asserts nothing. The events are those of ten tasks on
//! four CPUs, with a preemption in every fourth job. As in a simulator, each kind goes to the sink
//! at its own call site.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::hint::black_box;
use std::io;
use std::time::Instant;

use takt_log::stats::Collector;
use takt_log::{BackEnd, Definitions, Event, Header, JobKey, KindSet, NullSink, Reader, Sink, Writer};
use takt_model::{Builtin, Span, System, Task, TaskId, Time};

const TASKS: u32 = 10;
const EVENTS: u64 = 400_000;
/// Short rounds and many, so that some are not disturbed.
const ROUNDS: u32 = 100;

fn main() {
    let tasks =
        (0..TASKS).map(|i| Task::periodic(&format!("t{i}"), Span::from_ms(10 + u64::from(i)), Span::from_ms(3)));
    let definitions = Definitions::of(&System::local(4, Builtin::Edf, tasks.collect()));
    let header = Header::new(String::new(), Some(1), BackEnd::Sim, KindSet::JOBS);
    println!("{:<34} {:>14} {:>10}", "JobLog, one core", "million/s", "ns each");

    let (events, jobs) = make(1, &mut NullSink);
    for streams in [1, 16] {
        let write = || {
            let mut writer = Writer::new(io::sink(), &header, &definitions).expect("a sink takes everything");
            make(streams, &mut writer);
            writer.finish(Time::MAX).expect("a sink takes everything");
        };
        measure("write to a null sink", &format!("{streams} streams"), events, write);
        let mut writer = Writer::new(Vec::new(), &header, &definitions).expect("memory takes everything");
        make(streams, &mut writer);
        let log = writer.finish(Time::MAX).expect("memory takes everything");
        measure("read from memory, iterator", &format!("{streams} streams"), events, || {
            let reader = Reader::new(&log[..]).expect("a good log");
            reader.for_each(|record| {
                black_box(record.expect("a good log"));
            });
        });
        measure("read from memory, copy_to", &format!("{streams} streams"), events, || {
            let mut reader = Reader::new(&log[..]).expect("a good log");
            reader.copy_to(&mut Touch).expect("a good log");
        });
        println!("{:<34} {:>14.2}", format!("bytes per event, {streams} streams"), log.len() as f64 / events as f64);
    }
    whole(&header, &definitions);
    for brief in [true, false] {
        measure("collect statistics, jobs", if brief { "brief" } else { "whole" }, jobs, || {
            let collector = Collector::new(&definitions, KindSet::JOBS);
            let mut collector = if brief { collector.brief() } else { collector };
            make(1, &mut collector);
            black_box(collector.finish(Time::MAX));
        });
    }
}

/// A log of 10^8 events in a file, its statistics, and how much memory they took: with `-- file`,
/// for it takes its time.
fn whole(header: &Header, definitions: &Definitions) {
    const WANTED: u64 = 100_000_000;
    if !std::env::args().any(|word| word == "file") {
        return;
    }
    let path = std::env::temp_dir().join(format!("takt-joblog-{}.takt", std::process::id()));
    let file = std::fs::File::create(&path).expect("a folder for temporary files");
    let mut writer = Writer::new(io::BufWriter::new(file), header, definitions).expect("a log");
    let events = make_some(WANTED, 1, &mut writer).0;
    writer.finish(Time::MAX).expect("room for a log");
    let file = std::fs::File::open(&path).expect("the log");
    let start = Instant::now();
    let stats = Collector::read(&mut Reader::new(file).expect("a log")).expect("a good log");
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&path).expect("the log");
    black_box(&stats);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    println!("statistics of a file of {events} events: {seconds:.2} s, at most {peak} of memory");
}

fn measure(what: &str, how: &str, items: u64, mut round: impl FnMut()) {
    let name = if how.is_empty() { what.to_owned() } else { format!("{what}, {how}") };
    if std::env::args().skip(1).any(|word| !word.starts_with('-') && !name.contains(&word)) {
        return;
    }
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:<34} {:>14.1} {:>10.2}", items as f64 / best / 1e6, best * 1e9 / items as f64);
}

/// Takes a look at each event, so that reading it cannot be left out.
struct Touch;

impl Sink for Touch {
    #[inline]
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        black_box((stream, now, event));
    }
}

/// At least `EVENTS` events, of jobs of ten tasks at uneven times; how many events and jobs they are.
fn make(streams: u32, sink: &mut impl Sink) -> (u64, u64) {
    make_some(EVENTS, streams, sink)
}

/// The same, of so many events.
fn make_some(events: u64, streams: u32, sink: &mut impl Sink) -> (u64, u64) {
    let mut random = 1u64;
    let mut now = 0u64;
    let mut made = 0;
    let mut number = [0u64; TASKS as usize];
    while made < events {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let task = (random >> 32) as u32 % TASKS;
        let stream = task % streams;
        let cpu = (random >> 20) as u32 % 4;
        let job = JobKey { task: TaskId(task), number: number[task as usize] };
        number[task as usize] += 1;
        let arrival = now;
        let mut put = |now: u64, event: Event| {
            made += 1;
            sink.event(stream, Time::from_ns(now), &event);
        };
        put(now, Event::Release { job, arrival: Time::from_ns(arrival), parent: None });
        now += random & 0xfff;
        put(now, Event::Start { job, cpu });
        now += random & 0x3f_ffff;
        if random & 0x300 == 0 {
            put(now, Event::Preempt { job, cpu });
            now += random >> 44;
            put(now, Event::Resume { job, cpu });
            now += random & 0xffff;
        }
        put(now, Event::Complete { job, cpu });
    }
    (made, number.iter().sum())
}
