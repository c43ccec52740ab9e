//! Logs with late definitions of tasks, interrupts and CPUs, as `takt observe` writes them, look
//! like logs that define all at once.

mod common;

use common::trace::{check_trace, meaning};
use common::{Log, ms, schedule};
use takt_log::{
    BackEnd, Definition, Definitions, Event, Header, InterruptDef, InterruptKind, JobKey, KindSet, NodeDef, Reader,
    Sink, Writer,
};
use takt_model::{Builtin, NodeId, System, TaskId, Time};
use takt_report::{
    Gantt, GanttBuilder, GanttOptions, JobCsv, PerfettoWriter, Scene, Source, SourceBuilder, SvgOptions, TextOptions,
    Window, golden, svg, text,
};

/// A system, its events, and its definitions with the time at which each becomes known.
fn observed() -> (System, Log, Vec<(Time, Definition)>) {
    let system = golden::system(2, Builtin::Edf, "a 4 2\nb 4 3\nc 8 3 O=9\nlate 8 6 D=3");
    let mut log = schedule(&system, true, 40);
    let (soft, hard) = (1, 0);
    for (at, event) in [
        (12, Event::IrqEnter { irq: soft, cpu: 1 }),
        (13, Event::IrqEnter { irq: hard, cpu: 1 }),
        (13, Event::IrqExit { irq: hard, cpu: 1 }),
        (14, Event::IrqExit { irq: soft, cpu: 1 }),
    ] {
        let place = log.partition_point(|(_, time, _)| *time <= ms(at));
        log.insert(place, (0, ms(at), event));
    }
    let third = JobKey { task: TaskId(0), number: 3 };
    let is_third = |event: &Event| matches!(event, Event::Release { job, .. } if *job == third);
    let release = log.iter().position(|(_, _, event)| is_third(event)).unwrap();
    log.insert(release, (0, ms(12), Event::Window { job: third, earliest: ms(11) }));
    let irq = |name: &str, kind| InterruptDef { name: name.to_owned(), node: NodeId(0), kind };
    let one = NodeDef { name: "local".to_owned(), cpus: 1, strategy: "kernel".to_owned() };
    let mut definitions = vec![(ms(0), Definition::Node(NodeId(0), one))];
    definitions.extend(Definitions::of(&system).iter().map(|definition| match definition {
        Definition::Task(TaskId(2), _) => (ms(9), definition),
        // The one after it: numbers have no gaps.
        _ => (ms(0), definition),
    }));
    definitions.retain(|(_, definition)| !matches!(definition, Definition::Task(TaskId(3), _)));
    let last = Definitions::of(&system).iter().find(|it| matches!(it, Definition::Task(TaskId(3), _))).unwrap();
    definitions.push((ms(9), last));
    definitions.push((ms(12), Definition::Interrupt(hard, irq("24 eth0", InterruptKind::Hard))));
    definitions.push((ms(12), Definition::Interrupt(soft, irq("NET_RX", InterruptKind::Soft))));
    log.retain(|(_, at, event)| *at >= ms(9) || !format!("{event:?}").contains("TaskId(3)"));
    (system, log, definitions)
}

/// The bytes of a log, its definitions in the head or when they become known.
fn written(late: bool) -> Vec<u8> {
    let (_, log, definitions) = observed();
    let mut head = Definitions::default();
    if !late {
        definitions.iter().for_each(|(_, definition)| head.apply(definition.clone()).unwrap());
    }
    let header = Header::new(String::new(), None, BackEnd::Observe, KindSet::ALL);
    let mut writer = Writer::new(Vec::new(), &header, &head).unwrap();
    let mut coming = definitions.iter().filter(|_| late).peekable();
    for (stream, now, event) in &log {
        while let Some((at, definition)) = coming.next_if(|(at, _)| at <= now) {
            writer.define(0, (*at).max(ms(0)), definition);
        }
        writer.event(*stream, *now, event);
    }
    writer.finish(ms(40)).unwrap()
}

fn reader(late: bool) -> (Reader<std::io::Cursor<Vec<u8>>>, Scene) {
    let reader = Reader::new(std::io::Cursor::new(written(late))).unwrap();
    let scene = Scene::of_log("seen", reader.definitions(), reader.header().kinds);
    assert_eq!(scene.tasks.is_empty(), late);
    (reader, scene)
}

fn gantt(late: bool, options: GanttOptions) -> Gantt {
    let (mut reader, scene) = reader(late);
    let mut builder = GanttBuilder::new(scene, options);
    let end = reader.copy_to(&mut builder).unwrap();
    builder.finish(end)
}

#[test]
fn charts_are_the_same() {
    for window in [
        Window::Range { from: Time::ZERO, to: ms(40) },
        Window::Range { from: ms(14), to: ms(22) },
        Window::AroundMiss { jobs: 10 },
        Window::Jobs { from: None, count: 8, each: 2 },
    ] {
        let [late, head] = [true, false].map(|late| gantt(late, GanttOptions::new(window)));
        assert_eq!(late, head);
        assert!(late.rows.iter().map(|row| row.segments.len()).sum::<usize>() > 3, "{window:?}");
        assert_eq!(svg(&late, &SvgOptions::new("")), svg(&head, &SvgOptions::new("")));
        assert_eq!(text(&late, &TextOptions::default()), text(&head, &TextOptions::default()));
    }
}

#[test]
fn sources_of_a_report_are_the_same() {
    let source = |late| -> Source {
        let (mut reader, _) = reader(late);
        let mut builder =
            SourceBuilder::new("seen", reader.header(), reader.definitions(), Some(takt_model::Span::from_ms(20)));
        let end = reader.copy_to(&mut builder).unwrap();
        builder.finish(end)
    };
    let (late, head) = (source(true), source(false));
    assert_eq!((&late.start, &late.totals()), (&head.start, &head.totals()));
    assert_eq!(late.start.rows.len(), 4);
}

#[test]
fn perfetto_traces_tell_the_same() {
    let trace = |late| {
        let (mut reader, scene) = reader(late);
        let mut writer = PerfettoWriter::new(Vec::new(), &scene).unwrap();
        let end = reader.copy_to(&mut writer).unwrap();
        writer.finish(end).unwrap()
    };
    let (late, head) = (trace(true), trace(false));
    let begun = check_trace(&late);
    assert_eq!(begun, check_trace(&head));
    assert_eq!(begun.keys().filter(|track| *track >> 48 == 3).count(), 4);
    assert_eq!(begun.iter().find(|(track, _)| *track >> 48 == 5), Some((&(5 << 48 | 1), &2)));
    let ((late_tracks, late), (head_tracks, head)) = (meaning(&late), meaning(&head));
    assert_eq!(late_tracks, head_tracks);
    assert_eq!(late, head);
    let irqs: Vec<_> =
        late.iter().filter(|event| event.1 >> 48 == 5).map(|event| (event.2, event.3.as_str())).collect();
    assert_eq!(irqs, [(1, "NET_RX"), (1, "24 eth0"), (2, ""), (2, "")]);
}

#[test]
fn csv_is_the_same_and_has_windows() {
    let csv = |late| {
        let (mut reader, scene) = reader(late);
        let mut writer = JobCsv::new(Vec::new(), &scene).unwrap();
        let end = reader.copy_to(&mut writer).unwrap();
        String::from_utf8(writer.finish(end).unwrap()).unwrap()
    };
    let late = csv(true);
    assert_eq!(late, csv(false));
    assert!(late.contains("local,a,3,12000000,12000000,"), "{late}");
    let windows: Vec<&str> = late.lines().filter(|line| line.ends_with(",11000000")).collect();
    assert!(windows.len() == 1 && windows[0].starts_with("local,a,3,"), "{late}");
}

#[test]
fn of_many_tasks_the_busiest_are_drawn_and_any_can_be_named() {
    let whole = gantt(true, GanttOptions::until(ms(8)));
    assert_eq!(whole.rows.len(), 4);
    let busy: Vec<usize> = whole.clone().with_rows(3).rows.iter().map(|row| row.task).collect();
    assert_eq!(busy, [0, 1], "the others have no job before 9 ms");
    let one = whole.with_rows(1);
    assert_eq!((one.rows.len(), one.rows[0].task, one.left_out), (1, 1, (2, 1)));
    assert!(one.notes()[0].contains("1 task that run less"), "{:?}", one.notes());
    let named = GanttOptions { tasks: vec!["late".to_owned()], ..GanttOptions::until(ms(40)) };
    let named = gantt(true, named);
    assert_eq!(named.rows.iter().map(|row| row.task).collect::<Vec<_>>(), [3]);
}

#[test]
fn after_a_loss_nothing_is_drawn_until_an_event_tells() {
    let system = golden::system(1, Builtin::Edf, "a 10 4");
    let job = |number| JobKey { task: TaskId(0), number };
    let mut builder = GanttBuilder::new(Scene::of(&system), GanttOptions::until(ms(20)));
    for (at, event) in [
        (0, Event::Release { job: job(0), arrival: ms(0), parent: None }),
        (0, Event::Start { job: job(0), cpu: 0 }),
        (2, Event::Lost { count: 3 }),
        (10, Event::Release { job: job(1), arrival: ms(10), parent: None }),
        (11, Event::Start { job: job(1), cpu: 0 }),
        (12, Event::Complete { job: job(1), cpu: 0 }),
    ] {
        builder.event(0, ms(at), &event);
    }
    let shown: Vec<_> = builder.finish(ms(20)).rows[0].segments.iter().map(|it| (it.from, it.to, it.job)).collect();
    assert_eq!(shown, [(ms(0), ms(2), 0), (ms(10), ms(11), 1), (ms(11), ms(12), 1)]);
}

/// The log of a job whose completion is lost, and of the two after it.
fn with_a_lost_completion(sink: &mut dyn Sink) {
    let job = |number| JobKey { task: TaskId(0), number };
    let release = |number: u64| Event::Release { job: job(number), arrival: ms(10 * number), parent: None };
    for (at, event) in [
        (0, release(0)),
        (0, Event::Start { job: job(0), cpu: 0 }),
        (2, Event::Lost { count: 3 }),
        (10, release(1)),
        (11, Event::Start { job: job(1), cpu: 0 }),
        (12, Event::Complete { job: job(1), cpu: 0 }),
        (20, release(2)),
        (21, Event::Start { job: job(2), cpu: 0 }),
        (22, Event::Lost { count: 1 }),
        // It was not over.
        (23, Event::Preempt { job: job(2), cpu: 0 }),
    ] {
        sink.event(0, ms(at), &event);
    }
}

#[test]
fn a_job_whose_completion_was_lost_hides_no_later_one() {
    let scene = Scene::of(&golden::system(1, Builtin::Edf, "a 10 4"));
    let mut writer = PerfettoWriter::new(Vec::new(), &scene).unwrap();
    with_a_lost_completion(&mut writer);
    let trace = writer.finish(ms(25)).unwrap();
    check_trace(&trace);
    let (_, events) = meaning(&trace);
    let jobs = events.iter().filter(|event| (event.1, event.2, event.3.as_str()) == (3 << 48, 1, "a"));
    // The second is drawn from when it was known that the first was over.
    assert_eq!(jobs.map(|event| event.0).collect::<Vec<_>>(), [0, 11, 20].map(|at| ms(at).as_ns()));

    let mut writer = JobCsv::new(Vec::new(), &scene).unwrap();
    with_a_lost_completion(&mut writer);
    let csv = String::from_utf8(writer.finish(ms(25)).unwrap()).unwrap();
    let lines: Vec<&str> = csv.lines().skip(1).collect();
    let outcomes: Vec<_> = lines.iter().map(|line| line.split(',').nth(9).unwrap()).collect();
    assert_eq!(outcomes, ["unknown", "in-time", "unfinished"], "{csv}");
}
