//! The state of `takt top` and the effects of keys. It is pure, so tests need no terminal.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use takt_log::stats::{Histogram, Stats, TaskStats};
use takt_model::{Lateness, Span, Time};

use crate::args::Sort;
use crate::numbers::percent;
use crate::table::{Table, or_dash, time, width};

use super::keys::Key;

/// Lines above the rows: the time, the CPUs, an empty one, the columns.
const HEAD: usize = 4;
const KEYS: &str = "q quit  u x r l m n sort  R turn  / filter  space pause";

#[derive(Debug, Default)]
pub(super) struct Model {
    now: Time,
    interval: Span,
    rows: Vec<Row>,
    /// By node, name, and which of several of that name.
    places: BTreeMap<(String, String, usize), usize>,
    /// Each CPU's name and used part in the last interval.
    cpus: Vec<(String, Option<f64>)>,
    lost: Option<u64>,
    begun: bool,
}

/// A task: its part of a CPU in the last interval, all else since the start.
#[derive(Clone, Debug, Default)]
struct Row {
    name: String,
    utilization: Option<f64>,
    completed: u64,
    missed: Option<u64>,
    missed_now: bool,
    executions: Histogram,
    responses: Histogram,
    execution_max: Option<u64>,
    response_max: Option<u64>,
    laxity_min: Option<i64>,
    budget: Option<u64>,
    period: Option<u64>,
    deadline: Option<u64>,
    preemptions: Option<u64>,
    migrations: Option<u64>,
}

impl Model {
    pub(super) fn take(&mut self, now: Time, stats: &Stats) {
        (self.now, self.interval) = (now, Span::from_ns(stats.duration_ns));
        self.lost = if self.begun { self.lost } else { Some(0) };
        self.begun = true;
        self.lost = self.lost.zip(stats.lost_events).map(|(a, b)| a.saturating_add(b));
        let several = stats.cpus.iter().any(|cpu| cpu.node != stats.cpus[0].node);
        let name = |cpu: &takt_log::stats::CpuStats| {
            let kernel = cpu.kernel_cpu.map_or_else(String::new, |kernel| format!(" (kernel {kernel})"));
            if several { format!("{} {}{kernel}", cpu.node, cpu.cpu) } else { format!("cpu {}{kernel}", cpu.cpu) }
        };
        self.cpus = stats.cpus.iter().map(|cpu| (name(cpu), cpu.utilization)).collect();
        // One that is not told any more has another name now.
        self.rows.iter_mut().for_each(|row| (row.utilization, row.missed_now) = (None, false));
        let mut seen = BTreeMap::new();
        for task in &stats.tasks {
            let nth = seen.entry((&task.node, &task.task)).or_insert(0usize);
            let key = (task.node.clone(), task.task.clone(), *nth);
            *nth += 1;
            let next = self.rows.len();
            let place = *self.places.entry(key).or_insert(next);
            if place == next {
                self.rows.push(Row { name: task.task.clone(), ..Row::default() });
            }
            self.rows[place].take(task);
        }
    }

    /// The screen: at most so many lines, none wider than this.
    pub(super) fn screen(&self, view: &mut View, columns: usize, lines: usize) -> Vec<Line> {
        let mut rows = self.sorted(view);
        let shown = rows.len();
        let room = lines.saturating_sub(HEAD + 1);
        view.offset = view.offset.min(shown.saturating_sub(room.max(1)));
        rows = rows.into_iter().skip(view.offset).take(room).collect();
        let mut screen = vec![Line::plain(self.title(view, shown)), Line::plain(self.cpus())];
        screen.push(Line::plain(String::new()));
        let table = table(&rows, columns).fitting(&view.importance(), columns).lines();
        for (i, line) in table.into_iter().enumerate() {
            let kind = match i.checked_sub(1).and_then(|i| rows.get(i)) {
                None => Kind::Head,
                Some(row) if row.missed_now => Kind::Missing,
                Some(row) if row.missed.is_some_and(|missed| missed > 0) => Kind::Missed,
                Some(_) => Kind::Plain,
            };
            screen.push(Line { text: line, kind });
        }
        screen.truncate(lines.saturating_sub(1));
        while screen.len() + 1 < lines {
            screen.push(Line::plain(String::new()));
        }
        let foot = if view.editing {
            format!("filter: {}_  (Enter keeps it, Esc clears)", view.filter)
        } else {
            KEYS.to_owned()
        };
        screen.push(Line { text: foot, kind: Kind::Head });
        for line in &mut screen {
            line.text = cropped(&line.text, columns);
        }
        screen
    }

    /// All rows as one table, with the most important columns as far as they fit.
    pub(super) fn once(&self, view: &View, columns: Option<usize>) -> String {
        let rows = self.sorted(view);
        let columns = columns.unwrap_or(usize::MAX);
        let table = table(&rows, columns).fitting(&view.importance(), columns);
        format!("{}\n{}\n\n{}", self.title(view, rows.len()), self.cpus(), table.render(""))
    }

    fn title(&self, view: &View, shown: usize) -> String {
        if !self.begun {
            return "waiting for the log".to_owned();
        }
        let mut parts = vec![format!("at {}", time(Span::from_ns(self.now.as_ns())))];
        parts.push(format!("last {}", time(self.interval)));
        parts.push(match shown {
            _ if shown < self.rows.len() => format!("{shown} of {} tasks", self.rows.len()),
            1 => "1 task".to_owned(),
            n => format!("{n} tasks"),
        });
        let missed: u64 = self.rows.iter().filter_map(|row| row.missed).sum();
        parts.push(if missed == 1 { "1 deadline missed".to_owned() } else { format!("{missed} deadlines missed") });
        match self.lost {
            Some(0) => {}
            Some(lost) => parts.push(format!("{lost} EVENTS LOST")),
            None => parts.push("EVENTS LOST".to_owned()),
        }
        if view.ended {
            parts.push("the log has ended".to_owned());
        }
        if view.paused {
            parts.push("PAUSED".to_owned());
        }
        format!("takt top: {}", parts.join(", "))
    }

    fn cpus(&self) -> String {
        let part = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), percent);
        let cpus: Vec<String> = self.cpus.iter().map(|(name, used)| format!("{name} {}", part(*used))).collect();
        cpus.join("   ")
    }

    fn sorted(&self, view: &View) -> Vec<&Row> {
        let keeps = view.matcher();
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| keeps(&row.name)).collect();
        // Stable: equal ones stay in the order of the log.
        rows.sort_by(|a, b| a.before(b, view.sort));
        if view.reverse {
            rows.reverse();
        }
        rows
    }
}

impl Row {
    fn take(&mut self, task: &TaskStats) {
        let add = |sum: Option<u64>, more: Option<u64>, first: bool| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
            (None, Some(more)) if first => Some(more),
            (sum, _) => sum,
        };
        self.utilization = task.utilization;
        self.completed += task.completed;
        self.missed_now = task.missed.is_some_and(|missed| missed > 0);
        self.missed = add(self.missed, task.missed, true);
        self.preemptions = add(self.preemptions, task.preemptions, true);
        self.migrations = add(self.migrations, task.migrations, true);
        self.executions.merge(&task.executions);
        self.responses.merge(&task.responses);
        self.execution_max = self.execution_max.max(task.execution_ns.map(|summary| summary.max));
        self.response_max = self.response_max.max(task.response_ns.map(|summary| summary.max));
        let laxity = task.laxity_ns.map(|laxity| laxity.min);
        self.laxity_min = [self.laxity_min, laxity].into_iter().flatten().min();
        (self.budget, self.period, self.deadline) = (task.wcet_ns, task.period_ns, task.deadline_ns);
    }

    fn before(&self, other: &Row, sort: Sort) -> Ordering {
        match sort {
            Sort::Utilization => {
                let part = |row: &Row| row.utilization.unwrap_or(-1.0);
                part(other).total_cmp(&part(self))
            }
            Sort::Execution => Reverse(self.execution_max).cmp(&Reverse(other.execution_max)),
            Sort::Response => Reverse(self.response_max).cmp(&Reverse(other.response_max)),
            Sort::Laxity => {
                let laxity = |row: &Row| (row.laxity_min.is_none(), row.laxity_min);
                laxity(self).cmp(&laxity(other))
            }
            Sort::Misses => Reverse(self.missed).cmp(&Reverse(other.missed)),
            Sort::Name => self.name.cmp(&other.name),
        }
    }
}

/// The columns, the most important one first: on a narrow terminal the last ones go.
const IMPORTANCE: &str = "MISSED|LAXITY MIN|CPU|RESP MAX|DEADLINE|DONE|EXEC MAX|RESP P99|RESP MEAN|EXEC MEAN|BUDGET|\
                          PERIOD|PREEMPT|MIGRATE";
/// Width of the most important columns beside a task's name, plus the least width of a name.
const BESIDE_NAMES: usize = 40;
const NAME_MIN: usize = 12;

/// Names are cut where they would leave no room for numbers.
fn table(rows: &[&Row], columns: usize) -> Table {
    let mut table = Table::headed(
        "TASK|CPU|EXEC MEAN|EXEC MAX|BUDGET|PERIOD|DEADLINE|RESP MEAN|RESP P99|RESP MAX|LAXITY MIN|MISSED|DONE|PREEMPT|\
         MIGRATE",
    );
    let span = |ns: Option<u64>| or_dash(ns.map(|ns| time(Span::from_ns(ns))));
    for row in rows {
        let (execution, response) = (row.executions.summary(), row.responses.summary());
        table.row(vec![
            cropped(&row.name, columns.saturating_sub(BESIDE_NAMES).max(NAME_MIN)),
            or_dash(row.utilization.map(percent)),
            span(execution.map(|summary| summary.mean)),
            span(execution.map(|summary| summary.max)),
            span(row.budget),
            span(row.period),
            span(row.deadline),
            span(response.map(|summary| summary.mean)),
            span(response.map(|summary| summary.p99)),
            span(response.map(|summary| summary.max)),
            or_dash(row.laxity_min.map(|ns| Lateness::from_ns(ns).four_digits_down())),
            or_dash(row.missed),
            row.completed.to_string(),
            or_dash(row.preemptions),
            or_dash(row.migrations),
        ]);
    }
    table.without_empty_columns()
}

/// As much of a text as fits; what a terminal would obey is shown as a box.
fn cropped(text: &str, columns: usize) -> String {
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(if c.is_control() { '\u{fffd}' } else { c });
        if width(&cut) > columns {
            cut.pop();
            break;
        }
    }
    cut
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Plain,
    /// The line of columns, or of keys.
    Head,
    /// A task that missed a deadline.
    Missed,
    /// A task that missed a deadline since the last update.
    Missing,
}

impl Line {
    fn plain(text: String) -> Line {
        Line { text, kind: Kind::Plain }
    }
}

/// The user's choice of view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct View {
    pub(super) sort: Sort,
    reverse: bool,
    pub(super) filter: String,
    editing: bool,
    pub(super) paused: bool,
    offset: usize,
    pub(super) ended: bool,
}

impl View {
    pub(super) fn new(sort: Sort, filter: &str) -> View {
        let filter = filter.to_owned();
        View { sort, reverse: false, filter, editing: false, paused: false, offset: 0, ended: false }
    }

    /// Whether the filter keeps a task of this name.
    pub(super) fn matcher(&self) -> impl Fn(&str) -> bool {
        let filter = self.filter.to_lowercase();
        move |name| name.to_lowercase().contains(&filter)
    }

    /// The columns, that of the order right after what nobody may overlook.
    fn importance(&self) -> Vec<&'static str> {
        let mut columns: Vec<&str> = IMPORTANCE.split('|').collect();
        let sorted = match self.sort {
            Sort::Execution => "EXEC MAX",
            Sort::Response => "RESP MAX",
            Sort::Utilization | Sort::Laxity | Sort::Misses | Sort::Name => return columns,
        };
        columns.retain(|column| *column != sorted);
        columns.insert(2, sorted);
        columns
    }

    /// Does what a key asks for; whether to go on.
    pub(super) fn key(&mut self, key: Key) -> bool {
        if key == Key::Quit {
            return false;
        }
        if self.editing {
            match key {
                Key::Char(c) => self.filter.push(c),
                Key::Backspace => drop(self.filter.pop()),
                Key::Enter => self.editing = false,
                Key::Esc => {
                    self.filter.clear();
                    self.editing = false;
                }
                _ => {}
            }
            self.offset = 0;
            return true;
        }
        let sort = match key {
            Key::Char('q') | Key::Esc => return false,
            Key::Char('u') => Sort::Utilization,
            Key::Char('x') => Sort::Execution,
            Key::Char('r') => Sort::Response,
            Key::Char('l') => Sort::Laxity,
            Key::Char('m') => Sort::Misses,
            Key::Char('n') => Sort::Name,
            _ => {
                self.other(key);
                return true;
            }
        };
        (self.sort, self.reverse, self.offset) = (sort, false, 0);
        true
    }

    fn other(&mut self, key: Key) {
        const PAGE: usize = 10;
        match key {
            Key::Char('R') => self.reverse = !self.reverse,
            Key::Char('/') => self.editing = true,
            Key::Char(' ') => self.paused = !self.paused,
            Key::Down => self.offset += 1,
            Key::Up => self.offset = self.offset.saturating_sub(1),
            Key::PageDown => self.offset += PAGE,
            Key::PageUp => self.offset = self.offset.saturating_sub(PAGE),
            Key::Home => self.offset = 0,
            _ => {}
        }
    }
}
