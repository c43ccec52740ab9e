//! Logs of any kind, sensible or not, give pictures and exports that are well-formed, and never a panic.

mod common;

use common::trace::check_trace;
use proptest::prelude::*;
use takt_log::{
    CancelCause, Definition, Definitions, DropCause, Event, InterruptDef, InterruptKind, JobKey, Parent, Sink,
};
use takt_model::{Auto, Builtin, Component, NodeId, ServerRule, Span, TaskId, Time};
use takt_report::{
    GanttBuilder, GanttOptions, JobCsv, PerfettoWriter, Rows, Scene, SvgOptions, TextOptions, Window, golden, svg, text,
};

fn any_event() -> impl Strategy<Value = Event> {
    let job = (0u32..5, 0u64..4).prop_map(|(task, number)| JobKey { task: TaskId(task), number });
    let cause = prop::sample::select(CancelCause::ALL.to_vec());
    (0u8..26, job, 0u32..4, 0u64..40, cause).prop_map(|(kind, job, cpu, at, cause)| match kind {
        0..3 => Event::Release {
            job,
            arrival: Time::from_ns(at * 500_000),
            parent: (at % 2 == 0).then_some(Parent { hop: 1, origin: Time::ZERO }),
        },
        3 | 4 => Event::Start { job, cpu },
        5 => Event::Preempt { job, cpu },
        6 => Event::Resume { job, cpu },
        7 => Event::Block { job, cpu },
        8 | 9 => Event::Complete { job, cpu },
        10 => Event::Miss { job },
        11 => Event::Cancel { job, cause },
        12 => Event::ModeChange { mode: cpu },
        13 => Event::IrqEnter { irq: cpu, cpu: (at % 3) as u32 },
        14 => Event::IrqExit { irq: cpu, cpu: (at % 3) as u32 },
        15 => Event::Window { job, earliest: Time::from_ns(at * 400_000) },
        16 => Event::Gap { job },
        17 => Event::Charge {
            server: cpu,
            since: Time::from_ns(at * 500_000),
            amount: Span::from_ns(at * 300_000),
            idle: at % 3 == 0,
        },
        18 => Event::Replenish { server: cpu, budget: Span::from_ns(at * 400_000) },
        19 => Event::ServerIdle { server: cpu },
        20 | 21 => Event::Send { job, message: at / 8 },
        22 | 23 => Event::Receive { job, message: at / 8 },
        24 => Event::Drop { job, message: at / 8, cause: DropCause::Full },
        _ => Event::Lost { count: at },
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_breaks_and_rows_are_in_order(
        events in prop::collection::vec((0u64..3_000_000, 0u32..3, any_event()), 0..120),
        (from, to, items_max) in (0u64..30, 0u64..60, 1usize..200),
        (live, focus, unicode) in (any::<bool>(), 0u8..4, any::<bool>()),
        (color, width, late) in (any::<bool>(), 0usize..120, any::<bool>()),
    ) {
        let mut system = golden::system(2, Builtin::Edf, "f/0 4 2\nf/1 4 3 D=2\nc 8 3\nd 9 1");
        for rule in [ServerRule::Polling, ServerRule::Sporadic] {
            let component = Component::new(rule.name(), NodeId(0), rule);
            let (period, budget) = (Auto::Value(Span::from_ms(9)), Auto::Value(Span::from_ms(3)));
            system.components.push(Component { period, budget, ..component });
        }
        let definitions: Vec<Definition> = Definitions::of(&system).iter().chain([
            Definition::Interrupt(
                0,
                InterruptDef { name: "24 eth0".to_owned(), node: NodeId(0), kind: InterruptKind::Hard },
            ),
            Definition::Interrupt(
                1,
                InterruptDef { name: "NET_RX".to_owned(), node: NodeId(0), kind: InterruptKind::Soft },
            ),
        ]).collect();
        let system = if late { golden::system(1, Builtin::Edf, "f/0 4 2") } else { system };
        let mut scene = Scene::of(&system);
        scene.preemptions = !live;
        let ms = |ms: u64| Time::from_ns(ms * 1_000_000);
        let window = match focus {
            0 => Window::FirstMiss { before: Span::from_ms(from), after: Span::from_ms(to) },
            1 => Window::AroundMiss { jobs: from as u32 },
            2 => Window::Jobs { from: (to % 2 == 0).then_some(ms(from)), count: to as u32, each: from as u32 / 10 },
            _ => Window::Range { from: ms(from), to: ms(to) },
        };
        let mut gantt = GanttBuilder::new(scene.clone(), GanttOptions { items_max, ..GanttOptions::new(window) });
        let mut csv = JobCsv::new(Vec::new(), &scene).unwrap();
        let mut trace = PerfettoWriter::new(Vec::new(), &scene).unwrap();
        let mut now = Time::ZERO;
        let mut definitions = definitions.iter();
        for (later, stream, event) in &events {
            now += Span::from_ns(*later);
            // Nodes, tasks and interrupts, some again as they were and some new.
            if late && let Some(definition) = definitions.next() {
                gantt.define(0, now, definition);
                csv.define(0, now, definition);
                trace.define(0, now, definition);
            }
            gantt.event(*stream, now, event);
            csv.event(*stream, now, event);
            trace.event(*stream, now, event);
        }
        let gantt = gantt.finish(now).with_rows(width % 5);
        prop_assert!(gantt.rows.len() <= width % 5);
        for row in &gantt.rows {
            prop_assert!(row.segments.iter().all(|s| gantt.from <= s.from && s.from < s.to && s.to <= gantt.to));
            prop_assert!(row.segments.windows(2).all(|pair| pair[0].to <= pair[1].from));
            prop_assert!(row.marks.iter().all(|m| gantt.from <= m.at && m.at <= gantt.to));
        }
        for lane in &gantt.lanes {
            prop_assert!(lane.levels.iter().all(|level| gantt.from <= level.at && level.at <= gantt.to));
            prop_assert!(lane.levels.windows(2).all(|pair| pair[0].at <= pair[1].at));
            prop_assert!(lane.levels.iter().all(|level| level.left <= lane.full));
        }
        for arrow in &gantt.messages {
            prop_assert!(arrow.sent <= arrow.until && arrow.sent <= gantt.to && arrow.until >= gantt.from);
        }
        for rows in [Rows::Tasks, Rows::Cpus] {
            let shown = svg(&gantt, &SvgOptions { rows, ..SvgOptions::new("any") });
            prop_assert!(roxmltree::Document::parse(&shown).is_ok() && !shown.contains("NaN"));
        }
        let shown = text(&gantt, &TextOptions { width, unicode, color });
        if !color {
            prop_assert!(shown.lines().all(|line| line.chars().count() <= width.max(40)), "{shown}");
        }
        prop_assert!(unicode || shown.is_ascii());
        let csv = String::from_utf8(csv.finish(now).unwrap()).unwrap();
        prop_assert!(csv.lines().all(|line| line.split(',').count() == 11));
        check_trace(&trace.finish(now).unwrap());
    }
}
