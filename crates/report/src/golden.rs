//! Golden schedules: a few lines of task set in, a small ASCII chart out, both inline in a test.
//!
//! One character is one unit of time. A task is a line `name T C [D=..] [O=..] [J=..] [P=..] [after=..]`,
//! all numbers in units.
//!
//! ```
//! use takt_model::{Builtin, TaskId, Time};
//! use takt_log::{Event, JobKey, Sink};
//! use takt_report::golden;
//!
//! let system = golden::system(1, Builtin::Rm, "a 4 1\nb 6 2");
//! let mut events = Vec::new(); // a simulator would fill this
//! let job = JobKey { task: TaskId(0), number: 0 };
//! events.event(0, Time::ZERO, &Event::Release { job, arrival: Time::ZERO, parent: None });
//! events.event(0, Time::ZERO, &Event::Start { job, cpu: 0 });
//! events.event(0, Time::from_ns(1_000_000), &Event::Complete { job, cpu: 0 });
//! assert_eq!(golden::chart(&system, &events, 6), "
//!   ^   v
//! a 0
//!
//! b
//! ".trim_start_matches('\n'));
//! ```

use std::fmt::Write as _;

use takt_log::{CancelCause, Event, Sink};
use takt_model::{Builtin, Span, System, Task, Time};

use crate::gantt::{Activity, GanttBuilder, GanttOptions, MarkKind};
use crate::scene::Scene;

/// The unit of golden schedules: one character of a chart.
pub const UNIT: Span = Span::from_ms(1);

/// A system of one node with the tasks of `lines` (see the module's text).
///
/// # Panics
/// A line that is not of that form; this is for tests.
#[must_use]
pub fn system(cpus: u32, strategy: Builtin, lines: &str) -> System {
    let mut system = System::local(cpus, strategy, Vec::new());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let task = task(&system, line);
        system.tasks.push(task);
    }
    system
}

fn task(system: &System, line: &str) -> Task {
    let units = |text: &str| -> Span {
        let n: u64 = text.parse().unwrap_or_else(|_| panic!("\"{text}\" is no number of units in \"{line}\""));
        Span::from_ns(UNIT.as_ns() * n)
    };
    let mut words = line.split_whitespace();
    let mut next = || words.next().unwrap_or_else(|| panic!("\"{line}\" lacks a name, a period or a wcet"));
    let mut task = {
        let (name, period, wcet) = (next(), next(), next());
        Task::periodic(name, units(period), units(wcet))
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or_else(|| panic!("\"{word}\" is no KEY=VALUE in \"{line}\""));
        match key {
            "D" => task.deadline = units(value),
            "O" => task.offset = units(value),
            "J" => task.jitter = units(value),
            "P" => task.priority = Some(value.parse().unwrap_or_else(|_| panic!("\"{value}\" is no priority"))),
            "after" => {
                let of =
                    |name| system.task_by_name(name).unwrap_or_else(|| panic!("no task \"{name}\" above \"{line}\""));
                task.after = value.split(',').map(of).collect();
            }
            _ => panic!("unknown key \"{key}\" in \"{line}\"; known: D, O, J, P, after"),
        }
    }
    task
}

/// The first `units` units of `events` as a chart, with two lines per task. The first line has
/// marks: `^` release, `v` deadline, `|` both, `X` missed, `o` omitted or shed. The second line has
/// the number of the job's CPU in each unit in which it ran, even partly. It has `.` where the job
/// was ready and waited, and `!` where it ran past its deadline.
#[must_use]
pub fn chart(system: &System, events: &[(u32, Time, Event)], units: u64) -> String {
    let end = Time::from_ns(UNIT.as_ns() * units);
    let mut builder = GanttBuilder::new(Scene::of(system), GanttOptions::until(end));
    for (stream, now, event) in events {
        builder.event(*stream, *now, event);
    }
    let gantt = builder.finish(end);
    let pad = system.tasks.iter().map(|task| task.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (row, task) in gantt.rows.iter().zip(&system.tasks) {
        let mut marks = vec![' '; units as usize + 1];
        for mark in &row.marks {
            let Some(cell) = marks.get_mut((mark.at.as_ns() / UNIT.as_ns()) as usize) else { continue };
            *cell = match (mark.what, *cell) {
                (MarkKind::Miss, _) | (_, 'X') => 'X',
                (_, 'o') => 'o',
                (MarkKind::Cancel(cause), _) if cause != CancelCause::Late => 'o',
                (MarkKind::Release, ' ' | '^') => '^',
                (MarkKind::Deadline, ' ' | 'v') => 'v',
                (MarkKind::Release | MarkKind::Deadline, _) => '|',
                (MarkKind::Completion | MarkKind::Cancel(_), old) => old,
            };
        }
        let mut cells = vec![' '; units as usize];
        for segment in &row.segments {
            let first = segment.from.as_ns() / UNIT.as_ns();
            let past = segment.to.as_ns().div_ceil(UNIT.as_ns());
            for cell in cells.iter_mut().take(past as usize).skip(first as usize) {
                *cell = match segment.what {
                    Activity::Waiting if *cell != ' ' => *cell,
                    Activity::Waiting => '.',
                    _ if segment.late => '!',
                    Activity::Running { cpu } | Activity::InProgress { cpu } => {
                        char::from_digit(cpu % 36, 36).unwrap_or('#')
                    }
                };
            }
        }
        let (marks, cells): (String, String) = (marks.iter().collect(), cells.iter().collect());
        let _ = writeln!(out, "{}", format!("{:pad$} {marks}", "").trim_end());
        let _ = writeln!(out, "{}", format!("{:pad$} {cells}", task.name).trim_end());
    }
    out
}
