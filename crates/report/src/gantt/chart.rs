//! A chart: its rows, segments and marks, and the options that choose its part of a log.

use takt_log::CancelCause;
use takt_model::{NodeId, Span, Time};

use crate::axis::{clock, short};
use crate::lane::Lane;
use crate::messages::Arrow;
use crate::scene::Scene;

/// Which part of a log to draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// From one instant to another.
    Range {
        /// The first instant shown.
        from: Time,
        /// The end; [`Time::MAX`] stands for the end of the log.
        to: Time,
    },
    /// Around the first missed deadline, whenever that is. Nothing is drawn where none was missed.
    FirstMiss {
        /// How much to show before it.
        before: Span,
        /// How much to show after it.
        after: Span,
    },
    /// Around the first missed deadline, as long as the late job needs: a quarter of its deadline
    /// before its arrival, and a third of all that after the miss. Never longer than
    /// [`Scene::suggested_span`] of so many jobs.
    AroundMiss {
        /// How many jobs of all tasks together at most, about.
        jobs: u32,
    },
    /// A number of jobs in total, and a number of each task that has any. For logs that do not tell
    /// in advance how much time these take.
    Jobs {
        /// The first instant shown; `None`: the first release.
        from: Option<Time>,
        /// How many jobs at least.
        count: u32,
        /// How many of each task at least, on average.
        each: u32,
    },
}

/// Selects the part of a log that a [`GanttBuilder`](super::GanttBuilder) keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GanttOptions {
    /// The part to draw.
    pub window: Window,
    /// One node only; `None`: all.
    pub node: Option<NodeId>,
    /// Only tasks with these names; none: all.
    pub tasks: Vec<String>,
    /// At most so many segments and marks together.
    pub items_max: usize,
}

impl GanttOptions {
    /// As many items as a browser still handles with ease.
    pub const ITEMS_MAX_DEFAULT: usize = 20_000;

    /// All nodes in `window`, with the default limit.
    #[must_use]
    pub fn new(window: Window) -> Self {
        GanttOptions { window, node: None, tasks: Vec::new(), items_max: Self::ITEMS_MAX_DEFAULT }
    }

    /// From the start to `to`, all nodes.
    #[must_use]
    pub fn until(to: Time) -> Self {
        Self::new(Window::Range { from: Time::ZERO, to })
    }
}

/// A finished chart, ready to be drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gantt {
    /// Names and CPUs.
    pub scene: Scene,
    /// The first instant shown.
    pub from: Time,
    /// The end of what is shown.
    pub to: Time,
    /// A row per task of the drawn nodes, in the order of the file.
    pub rows: Vec<Row>,
    /// A lane for each server of the drawn nodes that an event tells of. None if only some tasks are drawn.
    pub lanes: Vec<Lane>,
    /// Messages of the drawn tasks, in the order of their sends.
    pub messages: Vec<Arrow>,
    /// How many tasks [`Gantt::with_rows`] took away: without anything in the window, and others.
    pub left_out: (usize, usize),
    /// Switches of strategy.
    pub modes: Vec<ModeMark>,
    /// The requested end, if the limit of items cut the chart short.
    pub cut: Option<Time>,
    /// The first miss of a drawn task so far as the log was read, in the window or not.
    pub first_miss: Option<Time>,
    /// How many events were lost within the window; `Some(0)` where an unknown number was.
    pub lost: Option<u64>,
}

/// One task's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Index into [`Scene::tasks`].
    pub task: usize,
    /// In the order of their starts.
    pub segments: Vec<Segment>,
    /// In the order of the events that brought them (a deadline comes with its job's release).
    pub marks: Vec<Mark>,
}

/// A stretch of time in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its beginning.
    pub from: Time,
    /// Its end, not before the beginning.
    pub to: Time,
    /// The job's number.
    pub job: u64,
    /// The state of the job.
    pub what: Activity,
    /// Whether the job's deadline has passed.
    pub late: bool,
}

/// The state of a job during a [`Segment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// It runs.
    Running {
        /// The CPU.
        cpu: u32,
    },
    /// It has started and not completed; the log does not tell when it ran.
    InProgress {
        /// The CPU that it started on.
        cpu: u32,
    },
    /// It is ready and waits for a CPU, or is blocked.
    Waiting,
}

/// An instant in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// When.
    pub at: Time,
    /// The job's number.
    pub job: u64,
    /// What.
    pub what: MarkKind,
}

/// The kind of a [`Mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// The job became ready.
    Release,
    /// Its absolute deadline.
    Deadline,
    /// It completed.
    Completion,
    /// It passed its deadline unfinished.
    Miss,
    /// It will not complete.
    Cancel(CancelCause),
}

/// A switch of a node's strategy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeMark {
    /// When.
    pub at: Time,
    /// The node.
    pub node: NodeId,
    /// Which of the node's modes; [`Scene::strategy`] names its strategy.
    pub mode: usize,
}

impl Row {
    /// How long the task runs, or may have run, in the window.
    #[must_use]
    pub fn busy(&self) -> Span {
        let busy = self.segments.iter().filter(|segment| segment.what != Activity::Waiting);
        Span::from_ns(busy.map(|segment| segment.to.saturating_since(segment.from).as_ns()).sum())
    }
}

impl Gantt {
    /// As many rows as a reader still takes in.
    pub const ROWS_MAX_DEFAULT: usize = 40;

    /// Limits the chart to `max` rows. It first drops rows without any content, then the rows that
    /// run least. Not for rows by CPU: without a task's row its CPU would seem idle.
    #[must_use]
    pub fn with_rows(mut self, max: usize) -> Gantt {
        self.lanes.truncate(max);
        if self.rows.len() <= max {
            return self;
        }
        let all = self.rows.len();
        self.rows.retain(|row| !row.segments.is_empty() || !row.marks.is_empty());
        let busy = self.rows.len();
        if busy > max {
            self.rows.sort_by_key(|row| (std::cmp::Reverse(row.busy()), row.task));
            self.rows.truncate(max);
            self.rows.sort_by_key(|row| row.task);
        }
        self.left_out = (all - busy, busy - self.rows.len());
        self
    }

    /// The name of a lane's server.
    #[must_use]
    pub fn server(&self, lane: &Lane) -> &str {
        self.scene.servers.get(lane.server).map_or("?", |server| server.name.as_str())
    }

    /// The name of a row's task.
    #[must_use]
    pub fn name(&self, row: &Row) -> &str {
        self.scene.tasks.get(row.task).map_or("?", |task| task.name.as_str())
    }

    /// How long it shows.
    #[must_use]
    pub fn span(&self) -> Span {
        self.to.saturating_since(self.from)
    }

    /// Sentences below the chart: its early end, and the facts that are missing from the log.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(asked) = self.cut {
            notes.push(format!(
                "The window goes on to {}; the chart shows the first {} of it, for more would not be readable.",
                clock(asked),
                short(self.span())
            ));
        }
        match self.left_out {
            (0, 0) => {}
            (idle, 0) => notes.push(format!("{} without a job here left out.", plural(idle))),
            (idle, busy) => notes.push(format!(
                "The {} that run most are shown; left out: {} that run less, {} without a job here.",
                self.rows.len(),
                plural(busy),
                plural(idle)
            )),
        }
        if !self.scene.preemptions && self.rows.iter().any(|row| !row.segments.is_empty()) {
            notes.push(
                "This log has no preemptions: a light bar goes from a job's start to its completion and may \
                 hold time in which other jobs \
                 ran."
                    .to_owned(),
            );
        }
        match self.lost {
            Some(0) => notes.push("Events were lost in this window.".to_owned()),
            Some(count) => notes.push(format!("{count} events were lost in this window.")),
            None => {}
        }
        notes
    }
}

fn plural(tasks: usize) -> String {
    format!("{tasks} {}", if tasks == 1 { "task" } else { "tasks" })
}
