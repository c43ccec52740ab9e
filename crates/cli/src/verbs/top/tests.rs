//! The screen from statistics, and what keys make of it.

use takt_log::stats::Collector;
use takt_log::{Definition, Definitions, Event, JobKey, KindSet, Sink as _, TaskDef};
use takt_model::{Builtin, Span, System, Task, TaskId, Time};

use super::keys::{Key, keys};
use super::model::{Kind, Model, View};
use crate::args::Sort;

fn ms(n: u64) -> Time {
    Time::ZERO.saturating_add(Span::from_ms(n))
}

/// Two intervals of 100 ms: in the first `b` misses once, in the second only `a` runs.
fn model() -> Model {
    let task = |name, period, wcet| Task::periodic(name, Span::from_ms(period), Span::from_ms(wcet));
    let tasks = vec![task("audio", 50, 10), task("bulk", 100, 40), task("idle\u{1b}[2J", 500, 1)];
    let definitions = Definitions::of(&System::local(2, Builtin::Edf, tasks));
    let mut collector = Collector::new(&definitions, KindSet::JOBS);
    let run = |collector: &mut Collector, task, number, from: u64, cpu, length: u64| {
        let job = JobKey { task: TaskId(task), number };
        collector.event(0, ms(from), &Event::Release { job, arrival: ms(from), parent: None });
        collector.event(0, ms(from), &Event::Start { job, cpu });
        collector.event(0, ms(from + length), &Event::Complete { job, cpu });
    };
    let mut model = Model::default();
    run(&mut collector, 0, 0, 0, 0, 10);
    run(&mut collector, 1, 0, 0, 1, 120);
    model.take(ms(120), &collector.cut(ms(120)));
    run(&mut collector, 0, 1, 150, 0, 25);
    model.take(ms(220), &collector.cut(ms(220)));
    model
}

fn texts(model: &Model, view: &mut View, columns: usize, lines: usize) -> Vec<String> {
    model.screen(view, columns, lines).into_iter().map(|line| line.text).collect()
}

#[test]
fn the_screen_tells_the_interval_and_the_whole() {
    let mut view = View::new(Sort::Utilization, "");
    let expected = "\
takt top: at 220ms, last 100ms, 3 tasks, 1 deadline missed
cpu 0 25.0 %   cpu 1 0.0 %

TASK         CPU  EXEC MEAN  EXEC MAX  BUDGET  PERIOD  DEADLINE  RESP MEAN  RESP P99  RESP MAX  LAXITY MIN  \
MISSED  DONE  PREEMPT  MIGRATE
audio     25.0 %     17.5ms      25ms    10ms    50ms      50ms     17.5ms      25ms      25ms        \
25ms       0     2        0        0
bulk       0.0 %      120ms     120ms    40ms   100ms     100ms      120ms     120ms     120ms       \
-20ms       1     1        0        0
idle\u{fffd}[2J   0.0 %          -         -     1ms   500ms     500ms          -         -         -           \
-       0     0        0        0

q quit  u x r l m n sort  R turn  / filter  space pause";
    let found = texts(&model(), &mut view, 200, 9).join("\n");
    assert_eq!(found, expected);
    let kinds: Vec<Kind> = model().screen(&mut view, 200, 9).into_iter().map(|line| line.kind).collect();
    assert_eq!((kinds[3], kinds[4], kinds[5]), (Kind::Head, Kind::Plain, Kind::Missed));
}

#[test]
fn a_narrow_terminal_keeps_what_is_important() {
    let head = |sort, columns| texts(&model(), &mut View::new(sort, ""), columns, 9)[3].clone();
    let eighty = head(Sort::Utilization, 80);
    for column in ["TASK", "CPU", "LAXITY MIN", "MISSED", "DEADLINE", "RESP MAX"] {
        assert!(eighty.contains(column), "{column} is not in {eighty}");
    }
    assert!(eighty.len() <= 80 && !eighty.contains("MIGRATE"), "{eighty}");
    assert_eq!(head(Sort::Utilization, 40), "TASK         CPU  LAXITY MIN  MISSED");
    assert_eq!(head(Sort::Execution, 40), "TASK      EXEC MAX  LAXITY MIN  MISSED");
    let task = Task::periodic(&"long".repeat(30), Span::from_ms(50), Span::from_ms(10));
    let definitions = Definitions::of(&System::local(1, Builtin::Edf, vec![task]));
    let mut long = Model::default();
    long.take(ms(10), &Collector::new(&definitions, KindSet::JOBS).cut(ms(10)));
    let head = texts(&long, &mut View::new(Sort::Utilization, ""), 80, 9)[3].clone();
    assert!(head.contains("MISSED"), "a long name hides the numbers: {head}");
}

/// The kernel's threads may change their names.
#[test]
fn a_renamed_thread_is_idle_under_its_old_name() {
    let tasks = vec![Task::periodic("sh-7", Span::from_ms(50), Span::from_ms(10))];
    let definitions = Definitions::of(&System::local(1, Builtin::Edf, tasks));
    let mut collector = Collector::new(&definitions, KindSet::JOBS);
    let run = |collector: &mut Collector, number, from: u64| {
        let job = JobKey { task: TaskId(0), number };
        collector.event(0, ms(from), &Event::Release { job, arrival: ms(from), parent: None });
        collector.event(0, ms(from), &Event::Start { job, cpu: 0 });
        collector.event(0, ms(from + 60), &Event::Complete { job, cpu: 0 });
    };
    let mut model = Model::default();
    run(&mut collector, 0, 0);
    model.take(ms(100), &collector.cut(ms(100)));
    let renamed = TaskDef { name: "sleep-7".to_owned(), ..definitions.tasks[0].clone() };
    collector.define(0, ms(100), &Definition::Task(TaskId(0), renamed));
    run(&mut collector, 1, 100);
    model.take(ms(200), &collector.cut(ms(200)));
    let screen = model.screen(&mut View::new(Sort::Utilization, ""), 200, 8);
    let row = |at: usize| (screen[at].text.split_whitespace().take(2).collect::<Vec<_>>().join(" "), screen[at].kind);
    assert_eq!(row(4), ("sleep-7 60.0".to_owned(), Kind::Missing));
    assert_eq!(row(5), ("sh-7 -".to_owned(), Kind::Missed));
}

#[test]
fn one_table_keeps_the_columns_that_matter_on_a_narrow_terminal() {
    let view = View::new(Sort::Utilization, "");
    let head = |columns| model().once(&view, columns).lines().nth(3).unwrap().to_owned();
    assert!(head(None).contains("PREEMPT") && head(None).contains("MISSED"), "{}", head(None));
    let narrow = head(Some(80));
    assert!(narrow.contains("MISSED") && narrow.contains("LAXITY MIN") && narrow.len() <= 80, "{narrow}");
}

#[test]
fn keys_sort_turn_filter_pause_scroll_and_quit() {
    let model = model();
    let mut view = View::new(Sort::Utilization, "");
    let first = |view: &mut View| {
        let line = texts(&model, view, 80, 12).swap_remove(4);
        line.split_whitespace().next().map(str::to_owned).unwrap_or_default()
    };
    for (keys, task) in [
        ("l", "bulk"),
        ("R", "idle\u{fffd}[2J"),
        ("n", "audio"),
        ("m", "bulk"),
        ("x", "bulk"),
        ("r", "bulk"),
        ("u", "audio"),
    ] {
        assert!(keys.chars().all(|key| view.key(Key::Char(key))));
        assert_eq!(first(&mut view), task, "{keys}");
    }
    assert!("/ULqq".chars().all(|key| view.key(Key::Char(key))), "q is a letter there");
    assert!(view.key(Key::Backspace) && view.key(Key::Backspace));
    assert_eq!(first(&mut view), "bulk");
    assert!(texts(&model, &mut view, 80, 12)[0].contains("1 of 3 tasks"));
    assert_eq!(texts(&model, &mut view, 80, 12)[11], "filter: UL_  (Enter keeps it, Esc clears)");
    assert!(view.key(Key::Enter) && view.filter == "UL");
    assert!(view.key(Key::Char('/')) && view.key(Key::Esc) && view.filter.is_empty());
    assert!(view.key(Key::Char(' ')) && view.paused);
    assert!(texts(&model, &mut view, 200, 12)[0].ends_with(", PAUSED"));
    (0..9).for_each(|_| assert!(view.key(Key::Down)));
    // Room for two rows: the last one stays in sight.
    assert_eq!(first(&mut view), "audio");
    view.key(Key::PageDown);
    assert!(texts(&model, &mut view, 80, 7)[4].starts_with("bulk"));
    assert!(!view.key(Key::Char('q')));
}

#[test]
fn any_size_is_drawn() {
    let model = model();
    for columns in 0..30 {
        for lines in 0..12 {
            let screen = texts(&model, &mut View::new(Sort::Laxity, ""), columns, lines);
            assert!(screen.len() <= lines.max(1) && screen.iter().all(|line| crate::table::width(line) <= columns));
        }
    }
    assert!(texts(&Model::default(), &mut View::new(Sort::Name, ""), 80, 24)[0].starts_with("waiting for the log"));
}

#[test]
fn bytes_of_a_terminal_are_keys() {
    let all = |bytes: &[u8]| keys(&mut bytes.to_vec());
    assert_eq!(all("lü/".as_bytes()), [Key::Char('l'), Key::Char('ü'), Key::Char('/')]);
    assert_eq!(
        all(b"\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~\x1b[H"),
        [Key::Up, Key::Down, Key::Up, Key::PageUp, Key::PageDown, Key::Home]
    );
    assert_eq!(all(b"\x1b"), [Key::Esc]);
    assert_eq!(all(b"\r\x7f\x03"), [Key::Enter, Key::Backspace, Key::Quit]);
    // Unknown sequences are skipped as a whole.
    assert_eq!(all(b"\x1b[1;5Cq\x1b[200~\x01"), [Key::Char('q')]);
    // A letter that is not whole yet waits for its rest.
    let mut part = vec![0xc3];
    assert!(keys(&mut part).is_empty());
    part.push(0xbc);
    assert_eq!(keys(&mut part), [Key::Char('ü')]);
    assert!(part.is_empty() && all(&[0xff, 0xfe]).is_empty());
}
