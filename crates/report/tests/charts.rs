//! Golden charts of small schedules.

mod common;

use common::{Log, as_live, messages, ms, schedule};
use takt_log::{CancelCause, Event, JobKey, Sink};
use takt_model::{Auto, Builtin, Component, NodeId, ServerRule, Span, System, TaskId, Time};
use takt_report::{
    Arrow, Charging, Fate, Gantt, GanttBuilder, GanttOptions, Level, MarkKind, Rows, Scene, SvgOptions, TextOptions,
    Window, golden, svg, text,
};

fn chart(scene: Scene, log: &Log, options: GanttOptions, end: Time) -> Gantt {
    let mut builder = GanttBuilder::new(scene, options);
    for (stream, now, event) in log {
        builder.event(*stream, *now, event);
    }
    builder.finish(end)
}

fn two_tasks() -> (System, Log) {
    let system = golden::system(1, Builtin::Rm, "fast 5 2\nslow 10 5");
    let log = schedule(&system, false, 20);
    (system, log)
}

/// Compares with a golden text whose first line break is only there for the eye.
#[track_caller]
fn assert_golden(shown: &str, expected: &str) {
    let expected = expected.strip_prefix('\n').unwrap_or(expected);
    assert!(shown == expected, "shown:\n{shown}\nexpected:\n{expected}");
}

#[test]
fn a_golden_schedule_shows_preemption_and_waiting() {
    let (system, log) = two_tasks();
    assert_golden(
        &golden::chart(&system, &log, 20),
        "
     ^    |    |    |    v
fast 00   00   00   00
     ^         |         v
slow ..000..00 ..000..00
",
    );
}

#[test]
fn a_miss_is_marked_at_the_deadline_and_what_runs_after_it_differs() {
    let system = golden::system(1, Builtin::Rm, "a 4 2\nb 8 5 D=7");
    assert_golden(
        &golden::chart(&system, &schedule(&system, false, 12), 12),
        "
  ^   |   |   v
a 00  00  00
  ^      X^
b ..00..0!..!0
",
    );
}

#[test]
fn two_cpus_show_where_each_job_ran() {
    let system = golden::system(2, Builtin::Edf, "a 4 2\nb 4 3\nc 8 3");
    assert_golden(
        &golden::chart(&system, &schedule(&system, true, 8), 8),
        "
  ^   |   v
a 00  00
  ^   |   v
b 111 111
  ^       v
c ..00..0
",
    );
}

#[test]
fn the_terminal_chart_in_unicode_and_ascii() {
    let (system, log) = two_tasks();
    let gantt = chart(Scene::of(&system), &log, GanttOptions::until(ms(20)), ms(20));
    assert_golden(
        &text(&gantt, &TextOptions { width: 46, unicode: true, color: false }),
        "
      0                   10 ms
      ┬───────────────────┬──────────────────┬
      ↑         ↕         ↕         ↕        ↓
fast  ████      ████      ████      ████
      ↑                   ↕                  ↓
slow  ····██████····████  ····██████····████
↑ release, ↓ deadline, ↕ both, █ runs, · waits
",
    );
    let ascii = text(&gantt, &TextOptions { width: 46, unicode: false, color: false });
    assert!(ascii.is_ascii() && ascii.contains("slow  ....######....####  ....######....####\n"), "{ascii}");
}

#[test]
fn wide_names_take_the_columns_that_they_take() {
    let (mut system, log) = two_tasks();
    for (name, label) in [("制御", "制御  ███"), ("制御制御制御制御", "制御制御制御…  █"), ("\u{202e}cafe\u{301}", "")]
    {
        system.tasks[0].name = name.to_owned();
        let gantt = chart(Scene::of(&system), &log, GanttOptions::until(ms(20)), ms(20));
        let shown = text(&gantt, &TextOptions { width: 40, unicode: true, color: false });
        assert!(shown.contains(label), "{shown}");
        let widths = shown.lines().map(unicode_width::UnicodeWidthStr::width);
        assert!(widths.into_iter().all(|width| width <= 40), "{shown}");
        let ascii = text(&gantt, &TextOptions { width: 40, unicode: false, color: false });
        assert!(ascii.is_ascii(), "{ascii}");
    }
}

#[test]
fn a_live_log_is_drawn_as_in_progress_and_says_so() {
    let (system, log) = two_tasks();
    let mut scene = Scene::of(&system);
    scene.preemptions = false;
    let gantt = chart(scene, &as_live(&log), GanttOptions::until(ms(20)), ms(20));
    let shown = text(&gantt, &TextOptions { width: 46, unicode: true, color: false });
    assert!(shown.contains("slow  ····░░░░░░░░░░░░░░  ····"), "{shown}");
    assert!(shown.contains("░ in progress") && shown.contains("This log has no preemptions"), "{shown}");
    let picture = svg(&gantt, &SvgOptions { rows: Rows::Cpus, ..SvgOptions::new("live") });
    assert!(picture.contains("in progress, started on CPU 0") && !picture.contains("runs on CPU"), "{picture}");
}

#[test]
fn colours_add_codes_and_change_nothing_else() {
    let system = golden::system(2, Builtin::Edf, "a 4 2\nb 4 3 D=2\nc 8 3");
    let gantt = chart(Scene::of(&system), &schedule(&system, true, 16), GanttOptions::until(ms(16)), ms(16));
    let plain = |color| {
        let shown = text(&gantt, &TextOptions { width: 60, unicode: true, color });
        shown
            .split('\x1b')
            .enumerate()
            .map(|(i, part)| if i == 0 { part } else { part.split_once('m').unwrap().1 })
            .collect::<String>()
    };
    // The axis and three rows; with colours, blocks take the place of the CPUs' numbers, and the legend differs.
    let shape = |text: String| -> Vec<String> {
        let blank = |c: char| if "01█▓▒".contains(c) { '█' } else { c };
        text.lines().take(8).skip(1).map(|line| line.chars().map(blank).collect()).collect()
    };
    assert_eq!(shape(plain(true)), shape(plain(false)));
    assert!(plain(true).lines().all(|line| line.chars().count() <= 60));
    assert!(plain(true).contains("✗ deadline missed"));
}

#[test]
fn a_crowded_window_is_cut_and_says_where() {
    let system = golden::system(1, Builtin::Rm, "fast 5 2\nslow 10 5");
    let log = schedule(&system, false, 5_000);
    let options = GanttOptions { items_max: 500, ..GanttOptions::until(Time::MAX) };
    let gantt = chart(Scene::of(&system), &log, options, ms(5_000));
    let items: usize = gantt.rows.iter().map(|row| row.segments.len() + row.marks.len()).sum();
    assert!((450..=502).contains(&items), "{items}");
    assert_eq!(gantt.cut, Some(ms(5_000)));
    assert!(
        gantt.notes()[0].starts_with("The window goes on to 5 s; the chart shows the first "),
        "{:?}",
        gantt.notes()
    );
}

#[test]
fn the_first_miss_is_found_anywhere_in_a_long_log_with_little_memory() {
    let mut system = golden::system(1, Builtin::Rm, "a 10 4");
    let quiet = schedule(&system, false, 20_000);
    system.tasks[0].deadline = Span::from_ms(10);
    let mut builder = GanttBuilder::new(
        Scene::of(&system),
        GanttOptions {
            items_max: 100,
            ..GanttOptions::new(Window::FirstMiss { before: Span::from_ms(20), after: Span::from_ms(10) })
        },
    );
    for (stream, now, event) in &quiet {
        builder.event(*stream, *now, event);
    }
    assert!(builder.clone().finish(ms(20_000)).first_miss.is_none());
    let job = JobKey { task: TaskId(0), number: 2_000 };
    for (at, event) in [
        (20_000, Event::Release { job, arrival: ms(20_000), parent: None }),
        (20_000, Event::Start { job, cpu: 0 }),
        (20_010, Event::Miss { job }),
        (20_012, Event::Complete { job, cpu: 0 }),
        (20_100, Event::Release { job: JobKey { number: 2_001, ..job }, arrival: ms(20_100), parent: None }),
    ] {
        builder.event(0, ms(at), &event);
    }
    let gantt = builder.finish(ms(20_100));
    assert_eq!((gantt.from, gantt.to), (ms(19_990), ms(20_020)));
    assert_golden(
        &text(&gantt, &TextOptions { width: 63, unicode: true, color: false }),
        "
     19.99 s            20 s               20.01 s
     ┬──────────────────┬──────────────────┬──────────────────┬
     ↕                  ↕                  ✗
a    ███████▓           ▓██████████████████▚▚▚▚▚
↑ release, ↓ deadline, ↕ both, █ runs, ▓ ▒ part of the time,
▚ past its deadline, ✗ deadline missed
",
    );
}

#[test]
fn a_number_alone_in_a_bar_is_the_cpu_in_the_terminal_and_in_svg() {
    let texts = |cpus, rows| {
        let system = golden::system(cpus, Builtin::Edf, "a 4 2\nb 8 1");
        let gantt = chart(Scene::of(&system), &schedule(&system, true, 16), GanttOptions::until(ms(16)), ms(16));
        let shown = svg(&gantt, &SvgOptions { rows, ..SvgOptions::new("") });
        let document = roxmltree::Document::parse(&shown).unwrap();
        // In bars, in the order of the rows, then in the legend.
        let bars = document.descendants().filter(|node| node.attribute("class").is_some_and(|c| c.starts_with("bar ")));
        let inside = |bar: roxmltree::Node<'_, '_>| {
            bar.children().find(|node| node.has_tag_name("text"))?.text().map(str::to_owned)
        };
        let inside: Vec<String> = bars.filter_map(inside).collect();
        (inside.join(" "), shown, text(&gantt, &TextOptions::default()))
    };
    let (bars, shown, terminal) = texts(2, Rows::Tasks);
    assert_eq!(bars, "0 0 0 0 1 1 0 1");
    assert!(shown.contains("runs on CPU 1") && terminal.contains("0 1 ... runs on that CPU"), "{terminal}");
    let (bars, shown, terminal) = texts(1, Rows::Tasks);
    assert_eq!(bars, "#0 #1 #2 #3 #0 #1 #1");
    assert!(shown.contains("number of the job") && !terminal.contains('0'.to_string().repeat(3).as_str()));
    assert_eq!(texts(2, Rows::Cpus).0, "a #0 a #1 a #2 a #3 b #0 b #1 #1");
    let many = golden::system(12, Builtin::Edf, "a 4 2");
    let gantt = chart(Scene::of(&many), &schedule(&many, true, 8), GanttOptions::until(ms(8)), ms(8));
    for color in [false, true] {
        let shown = text(&gantt, &TextOptions { color, ..TextOptions::default() });
        assert!(
            shown.contains("000") && shown.contains("a runs on CPU 10"),
            "six colours are not twelve CPUs: {shown}"
        );
    }
}

#[test]
fn a_chart_of_the_first_miss_is_as_long_as_its_job_needs() {
    let mut system = golden::system(1, Builtin::Rm, "fast 10 4\nslow 5000 1");
    system.tasks[1].deadline = Span::from_ms(5_000);
    let job = |task, number| JobKey { task: TaskId(task), number };
    let around = |task: u32, at: u64, only: &[&str]| {
        let options = GanttOptions {
            tasks: only.iter().map(|name| (*name).to_owned()).collect(),
            ..GanttOptions::new(Window::AroundMiss { jobs: 24 })
        };
        let log = vec![(0, ms(at), Event::Miss { job: job(task, 1) })];
        let gantt = chart(Scene::of(&system), &log, options, ms(60_000));
        gantt.first_miss.map(|_| (gantt.from, gantt.to))
    };
    // From 2.5 ms before its arrival on, and a third of all that after the miss; not ten seconds
    // for the slow task's sake.
    assert_eq!(around(0, 20_010, &[]), Some((Time::from_ns(19_997_500_000), Time::from_ns(20_014_166_666))));
    // A slow task's chart has no more jobs than asked for.
    assert_eq!(around(1, 20_000, &[]), Some((ms(19_800), Time::from_ns(20_066_666_666))));
    // Only a miss of a drawn task.
    assert_eq!(around(1, 20_000, &["fast"]), None);
}

#[test]
fn cancelled_dropped_and_lost_are_shown() {
    let system = golden::system(1, Builtin::Rm, "a 4 2\nb 4 2");
    let job = |task, number| JobKey { task: TaskId(task), number };
    let release =
        |task, number, at| (0, ms(at), Event::Release { job: job(task, number), arrival: ms(at), parent: None });
    let log = vec![
        release(0, 0, 0),
        release(1, 0, 0),
        (0, ms(0), Event::Start { job: job(0, 0), cpu: 0 }),
        (0, ms(2), Event::Cancel { job: job(1, 0), cause: CancelCause::Omitted }),
        (0, ms(3), Event::Lost { count: 7 }),
        (0, ms(4), Event::Miss { job: job(0, 0) }),
        (0, ms(4), Event::Cancel { job: job(0, 0), cause: CancelCause::Late }),
    ];
    assert_golden(
        &golden::chart(&system, &log, 8),
        "
  ^   X
a 000
  ^ o v
b ..
",
    );
    let gantt = chart(Scene::of(&system), &log, GanttOptions::until(ms(8)), ms(8));
    assert_eq!(gantt.notes(), ["7 events were lost in this window."]);
    assert_eq!(gantt.rows[0].marks.last().unwrap().what, MarkKind::Cancel(CancelCause::Late));
}

/// The picture in the folder `golden`; TAKT_BLESS=1 writes it anew, to be looked at before it is kept.
#[test]
fn the_picture_of_two_tasks_is_the_golden_one() {
    let (system, log) = two_tasks();
    let gantt = chart(Scene::of(&system), &log, GanttOptions::until(ms(20)), ms(20));
    let shown = svg(&gantt, &SvgOptions::new("Two tasks under rate-monotonic scheduling"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/two-tasks.svg");
    if std::env::var_os("TAKT_BLESS").is_some() {
        std::fs::write(path, &shown).unwrap();
    }
    assert!(shown == std::fs::read_to_string(path).unwrap(), "the picture differs from {path}; see TAKT_BLESS");
}

#[test]
fn pictures_are_well_formed_by_task_and_by_cpu_small_and_crowded() {
    let system = golden::system(2, Builtin::Edf, "a 4 2\nb 4 3 D=2\nc 8 3");
    let log = schedule(&system, true, 9_000);
    for (until, rows) in [(24, Rows::Tasks), (24, Rows::Cpus), (9_000, Rows::Tasks), (9_000, Rows::Cpus)] {
        let gantt = chart(
            Scene::of(&system),
            &log,
            GanttOptions { items_max: 1 << 20, ..GanttOptions::until(ms(until)) },
            ms(9_000),
        );
        let shown = svg(&gantt, &SvgOptions { rows, ..SvgOptions::new("<&>") });
        let document = roxmltree::Document::parse(&shown).unwrap();
        let tooltips =
            document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "title"))).count();
        assert_eq!(tooltips > 20, until == 24, "{tooltips}: crowded bars share a path, without tooltips");
        assert_eq!(shown.contains("many jobs: the height is the share of the time"), until != 24);
        assert!(shown.contains("<title id=\"gantt-title\">&lt;&amp;&gt;</title>") && !shown.contains("NaN"));
        let names: Vec<&str> =
            document.descendants().filter(|n| n.attribute("class") == Some("name")).filter_map(|n| n.text()).collect();
        assert_eq!(names, if rows == Rows::Tasks { vec!["a", "b", "c"] } else { vec!["CPU 0", "CPU 1"] });
    }
}

/// A server of 4 every 10 ms that pays idle from 0, and for its job from 2 to 4 ms; its next payment goes on at 13 ms.
fn server() -> (Scene, Log) {
    let mut system = golden::system(1, Builtin::Rm, "a 10 2 O=2");
    let component = Component::new("H", NodeId(0), ServerRule::Wcps);
    let (period, budget) = (Auto::Value(Span::from_ms(10)), Auto::Value(Span::from_ms(4)));
    system.components.push(Component { period, budget, ..component });
    let replenish = Event::Replenish { server: 0, budget: Span::from_ms(4) };
    let charge =
        |since, amount, idle| Event::Charge { server: 0, since: ms(since), amount: Span::from_ms(amount), idle };
    let log = vec![
        (0, ms(0), replenish),
        (0, ms(2), charge(0, 2, true)),
        (0, ms(4), charge(2, 2, false)),
        (0, ms(4), Event::Exhaust { server: 0 }),
        (0, ms(10), replenish),
        (0, ms(14), charge(10, 4, true)),
    ];
    (Scene::of(&system), log)
}

#[test]
fn a_server_has_a_lane_with_its_budget() {
    let (scene, log) = server();
    let whole = chart(scene.clone(), &log, GanttOptions::until(ms(13)), ms(14));
    let level = |at, left, then| Level { at: ms(at), left: Span::from_ms(left), then };
    let expected = [
        level(0, 0, Charging::Not),
        level(0, 4, Charging::Idle),
        level(2, 2, Charging::Job),
        level(4, 0, Charging::Not),
        level(10, 0, Charging::Not),
        level(10, 4, Charging::Idle),
        level(13, 1, Charging::Not),
    ];
    assert_eq!(whole.lanes[0].levels, expected);
    // A window that cuts payments has the budget at its ends.
    let window = Window::Range { from: ms(1), to: ms(3) };
    let part = chart(scene, &log, GanttOptions::new(window), ms(14));
    assert_eq!(
        part.lanes[0].levels,
        [level(1, 3, Charging::Idle), level(2, 2, Charging::Job), level(3, 1, Charging::Not)]
    );
    let shown = text(&whole, &TextOptions { width: 40, unicode: false, color: false });
    let lane = shown.lines().find(|line| line.starts_with('H')).unwrap();
    assert_eq!(lane, "H    87765443211               187765443");
    let drawn = svg(&whole, &SvgOptions::new("server"));
    assert!(["level idle", "level paid", "4 ms every 10 ms"].iter().all(|text| drawn.contains(text)), "{drawn}");
}

#[test]
fn a_switch_of_strategy_is_marked() {
    let mut system = golden::system(1, Builtin::Rm, "a 4 2\nb 8 3");
    // Out of order in the file: modes count by their instants, and 0 is the node's own strategy.
    for (at, strategy) in [(9, Builtin::Rm), (6, Builtin::Muf)] {
        let strategy = takt_model::StrategyRef::Builtin(strategy);
        system.modes.push(takt_model::Mode { node: NodeId(0), at: ms(at), strategy });
    }
    let mut log: Log = Vec::new();
    let options = takt_sim::SimOptions { duration: Span::from_ms(16), seed: 0, node: None };
    takt_sim::simulate(&system, &options, &mut log).expect("a plain system");
    let gantt = chart(Scene::of(&system), &log, GanttOptions::until(ms(16)), ms(16));
    assert!(svg(&gantt, &SvgOptions::new("modes")).contains("<title>strategy muf from 6 ms</title>"));
    assert!(svg(&gantt, &SvgOptions::new("modes")).contains("<title>strategy rm from 9 ms</title>"));
    let shown = text(&gantt, &TextOptions::default());
    assert!(shown.contains("┊ muf from 6 ms\n") && shown.contains("┊ rm from 9 ms\n"), "{shown}");
}

#[test]
fn a_chart_of_one_node_leaves_the_others_out() {
    let mut system = golden::system(1, Builtin::Rm, "a 4 2\nb 8 3");
    system.nodes.push(takt_model::NodeSpec { name: "far".to_owned(), ..system.nodes[0].clone() });
    system.tasks[1].node = NodeId(1);
    let log = schedule(&system, false, 16);
    let all = chart(Scene::of(&system), &log, GanttOptions::until(ms(16)), ms(16));
    let shown = text(&all, &TextOptions::default());
    assert!(shown.contains("\nlocal\n") && shown.contains("\nfar\n"), "{shown}");
    let options = GanttOptions { node: Some(NodeId(1)), ..GanttOptions::until(ms(16)) };
    let one = chart(Scene::of(&system), &log, options, ms(16));
    assert_eq!(one.rows.len(), 1);
    assert!(!text(&one, &TextOptions::default()).contains("local"));
}

#[test]
fn a_message_goes_from_the_hop_that_left_it_to_the_hop_that_it_releases() {
    let (scene, log) = messages();
    let gantt = chart(scene.clone(), &log, GanttOptions::until(ms(10)), ms(10));
    let arrow = |job, sent, until, fate| Arrow { task: 0, job, sent: ms(sent), until: ms(until), fate };
    let wanted = [arrow(0, 2, 5, Fate::Received(1)), arrow(1, 6, 8, Fate::Dropped), arrow(2, 9, 10, Fate::OnItsWay)];
    assert_eq!(gantt.messages, wanted);
    // Where the window cuts an arrow, it still touches the window.
    let window = Window::Range { from: ms(3), to: ms(4) };
    let cut = chart(scene.clone(), &log, GanttOptions::new(window), ms(10));
    assert_eq!(cut.messages, [arrow(0, 2, 4, Fate::OnItsWay)]);
    // Without the receiver's row there is no arrow.
    let only = GanttOptions { tasks: vec!["put/0".to_owned()], ..GanttOptions::until(ms(6)) };
    assert_eq!(chart(scene, &log, only, ms(10)).messages, [arrow(1, 6, 6, Fate::OnItsWay)]);
}

#[test]
fn messages_are_arrows_in_pictures_and_lines_on_the_terminal() {
    let (scene, log) = messages();
    let gantt = chart(scene, &log, GanttOptions::until(ms(10)), ms(10));
    let shown = text(&gantt, &TextOptions { width: 60, unicode: false, color: false });
    for line in ["put/0 -> put/1", "-> message from send to receive", "X message lost"] {
        assert!(shown.contains(line), "no \"{line}\" in\n{shown}");
    }
    let line = shown.lines().find(|line| line.starts_with("put/0 -> ")).expect("a line of messages");
    assert!(line.contains("-->") && line.contains("-X") && line.ends_with('-'), "{shown}");
    for rows in [Rows::Tasks, Rows::Cpus] {
        let drawn = svg(&gantt, &SvgOptions { rows, ..SvgOptions::new("messages") });
        for part in [
            "<path class=\"message\" d=\"M",
            "<path class=\"message lost\" d=\"M",
            "message of put/0 job 0: sent at 2 ms\nreceived at 5 ms (3 ms) by put/1",
            ">message, from send to receive</text>",
            ">message lost</text>",
        ] {
            assert!(drawn.contains(part), "no {part} in\n{drawn}");
        }
    }
}
