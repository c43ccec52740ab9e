//! The Gantt model: rows of execution segments and marks, built from a stream of events in bounded memory.
//!
//! [`GanttBuilder`] is a [`Sink`]. It takes a log of any length and keeps the part in its window,
//! at most [`GanttOptions::items_max`] segments and marks. If the window holds more, the chart ends
//! earlier and says so ([`Gantt::cut`]).

use std::collections::{BTreeMap, VecDeque};

use takt_log::{CancelCause, Definition, Event, Sink};
use takt_model::{NodeId, Span, Time};

use crate::axis::{clock, short};
use crate::lane::{Lane, LaneKeeper};
use crate::messages::{Arrow, ArrowKeeper};
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

/// Selects the part of a log that a [`GanttBuilder`] keeps.
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

/// Builds a [`Gantt`] from events.
#[derive(Clone, Debug)]
pub struct GanttBuilder {
    scene: Scene,
    options: GanttOptions,
    from: Time,
    to: Time,
    rows: Vec<Keeper>,
    lanes: Vec<LaneKeeper>,
    messages: ArrowKeeper,
    modes: VecDeque<ModeMark>,
    items: usize,
    first_miss: Option<Time>,
    cut: bool,
    lost: Option<u64>,
    /// Jobs released so far, and tasks that have any, while the window counts them.
    counted: (u64, u64),
    /// The last task on each CPU of a node.
    holders: BTreeMap<(NodeId, u32), usize>,
}

/// The state of one task while events come in.
#[derive(Clone, Debug, Default)]
struct Keeper {
    segments: VecDeque<Segment>,
    marks: VecDeque<Mark>,
    /// The stretch that goes on.
    open: Option<Segment>,
    /// Jobs released and neither completed nor cancelled.
    pending: u64,
    /// Whether any job was released.
    seen: bool,
}

impl GanttBuilder {
    /// An empty chart of `scene`.
    #[must_use]
    pub fn new(scene: Scene, options: GanttOptions) -> Self {
        let (from, to) = match options.window {
            Window::Range { from, to } => (from, to.max(from)),
            Window::FirstMiss { .. } | Window::AroundMiss { .. } => (Time::ZERO, Time::MAX),
            Window::Jobs { from, .. } => (from.unwrap_or(Time::ZERO), Time::MAX),
        };
        let rows = vec![Keeper::default(); scene.tasks.len()];
        let lanes = vec![LaneKeeper::default(); scene.servers.len()];
        GanttBuilder {
            scene,
            options,
            from,
            to,
            rows,
            lanes,
            messages: ArrowKeeper::default(),
            modes: VecDeque::new(),
            items: 0,
            first_miss: None,
            cut: false,
            lost: None,
            counted: (0, 0),
            holders: BTreeMap::new(),
        }
    }

    /// Whether nothing that still comes can change the chart, so that reading may stop.
    #[must_use]
    pub fn is_done(&self, now: Time) -> bool {
        // A payment is told at its end, and lasts a period at most.
        let periods = self.scene.servers.iter().map(|server| server.period.unwrap_or(Span::from_ns(u64::MAX)));
        now > self.to.saturating_add(periods.max().unwrap_or_default())
    }

    /// The chart of what was seen; the log ends at `end`.
    #[must_use]
    pub fn finish(mut self, end: Time) -> Gantt {
        let asked = self.to;
        if self.around_miss(None).is_some() && self.first_miss.is_none() {
            (self.from, self.to) = (Time::ZERO, Time::ZERO);
            self.rows = vec![Keeper::default(); self.scene.tasks.len()];
            self.lanes = vec![LaneKeeper::default(); self.scene.servers.len()];
            self.messages = ArrowKeeper::default();
        }
        self.to = self.to.min(end).max(self.from);
        let (from, to) = (self.from, self.to);
        let wanted = |node: NodeId| self.options.node.is_none_or(|only| only == node);
        let (scene, options) = (&self.scene, &self.options);
        let rows = (self.rows.into_iter().enumerate())
            .filter(|(task, _)| options.draws(scene, *task))
            .map(|(task, keeper)| keeper.row(task, from, to))
            .collect();
        let lanes = (self.lanes.into_iter().enumerate())
            .filter(|(server, _)| options.draws_server(scene, *server))
            .filter_map(|(server, keeper)| keeper.lane(scene, server, from, to))
            .collect();
        let draws = |task: usize| options.draws(scene, task);
        let mut messages = self.messages.arrows(from, to);
        messages.retain(|arrow| draws(arrow.task) && arrow.fate.receiver().is_none_or(draws));
        let mut modes: Vec<ModeMark> = self.modes.into_iter().collect();
        modes.retain(|mode| wanted(mode.node) && mode.at >= from && mode.at <= to);
        let cut = (self.cut && asked <= end).then(|| match self.options.window {
            Window::Range { to, .. } => to.min(end),
            Window::FirstMiss { .. } | Window::AroundMiss { .. } | Window::Jobs { .. } => end,
        });
        let (first_miss, lost) = (self.first_miss, self.lost);
        Gantt { scene: self.scene, from, to, rows, lanes, messages, left_out: (0, 0), modes, cut, first_miss, lost }
    }

    fn add_mark(&mut self, task: usize, mark: Mark) {
        if mark.at < self.from || mark.at > self.to {
            return;
        }
        if let Some(keeper) = self.rows.get_mut(task) {
            keeper.marks.push_back(mark);
            self.items += 1;
        }
    }

    /// Ends the stretch that `task` is in and begins another.
    fn turn(&mut self, task: usize, now: Time, next: Option<Segment>) {
        let Some(keeper) = self.rows.get_mut(task) else { return };
        if let Some(mut open) = keeper.open.take() {
            open.to = now;
            if open.to > open.from && open.to > self.from && open.from < self.to {
                keeper.segments.push_back(open);
                self.items += 1;
            }
        }
        keeper.open = next;
    }

    /// Before the first miss, forgets what lies too far back; else ends the chart at the limit.
    fn keep_bounded(&mut self, now: Time) {
        if self.items <= self.options.items_max {
            return;
        }
        match self.around_miss(None) {
            Some((before, _)) if self.first_miss.is_none() => {
                let mut since = now.saturating_sub(before);
                self.forget_before(since);
                // Down to half, so that this is not done again at once.
                while self.items > self.options.items_max / 2 && since < now {
                    since = Time::from_ns(since.as_ns() + now.saturating_since(since).as_ns().div_ceil(2));
                    self.forget_before(since);
                }
                self.from = self.from.max(since);
            }
            _ => {
                self.cut = true;
                self.to = now;
            }
        }
    }

    /// How much to show before and after the first miss, if the window is there; at most so much while the late task is
    /// unknown.
    fn around_miss(&self, late: Option<usize>) -> Option<(Span, Span)> {
        match self.options.window {
            Window::FirstMiss { before, after } => Some((before, after)),
            Window::AroundMiss { jobs } => {
                let most = self.scene.suggested_span(jobs);
                let deadline = late.and_then(|task| self.scene.tasks.get(task)?.deadline);
                let before = deadline.map_or(most, |d| d.saturating_add(Span::from_ns(d.as_ns() / 4)).min(most));
                Some((before, Span::from_ns(before.as_ns() / 3)))
            }
            Window::Range { .. } | Window::Jobs { .. } => None,
        }
    }

    fn forget_before(&mut self, since: Time) {
        self.items = 0;
        for keeper in &mut self.rows {
            keeper.segments.retain(|segment| segment.to >= since);
            keeper.marks.retain(|mark| mark.at >= since);
            self.items += keeper.segments.len() + keeper.marks.len();
        }
        for keeper in &mut self.lanes {
            keeper.forget_before(since);
            self.items += keeper.len();
        }
        self.messages.forget_before(since);
        self.items += self.messages.len();
        self.modes.retain(|mode| mode.at >= since);
    }

    fn note_miss(&mut self, task: usize, now: Time) {
        if self.first_miss.is_some() || !self.options.draws(&self.scene, task) {
            return;
        }
        self.first_miss = Some(now);
        if let Some((before, after)) = self.around_miss(Some(task)) {
            self.from = self.from.max(now.saturating_sub(before));
            self.to = now.saturating_add(after);
        }
    }

    fn job_event(&mut self, now: Time, event: &Event) {
        let running = |job, cpu, late| Segment { from: now, to: now, job, what: Activity::Running { cpu }, late };
        let waiting = |job, late| Segment { from: now, to: now, job, what: Activity::Waiting, late };
        let late_of = |keeper: &Keeper, job: u64| keeper.open.is_some_and(|open| open.job == job && open.late);
        match *event {
            Event::Release { job, arrival, .. } => {
                let task = job.task.index();
                if self.is_full(now, task) {
                    return;
                }
                let Some(deadline) = self.scene.tasks.get(task).map(|task| task.deadline) else { return };
                let Some(keeper) = self.rows.get_mut(task) else { return };
                keeper.pending += 1;
                if keeper.open.is_none() {
                    keeper.open = Some(waiting(job.number, false));
                }
                self.add_mark(task, Mark { at: now, job: job.number, what: MarkKind::Release });
                if let Some(deadline) = deadline {
                    let at = arrival.saturating_add(deadline);
                    self.add_mark(task, Mark { at, job: job.number, what: MarkKind::Deadline });
                }
            }
            Event::Start { job, cpu } | Event::Resume { job, cpu } => {
                let task = job.task.index();
                let Some(keeper) = self.rows.get(task) else { return };
                let late = late_of(keeper, job.number);
                let mut next = running(job.number, cpu, late);
                if self.scene.preemptions {
                    self.take_cpu(task, now, cpu);
                } else {
                    next.what = Activity::InProgress { cpu };
                }
                self.turn(task, now, Some(next));
            }
            Event::Preempt { job, .. } | Event::Block { job, .. } => {
                let task = job.task.index();
                let Some(keeper) = self.rows.get(task) else { return };
                let late = late_of(keeper, job.number);
                self.turn(task, now, Some(waiting(job.number, late)));
            }
            Event::Complete { job, .. } => {
                let task = job.task.index();
                self.end_job(task, job.number, now, &waiting);
                self.add_mark(task, Mark { at: now, job: job.number, what: MarkKind::Completion });
            }
            Event::Cancel { job, cause } => {
                let task = job.task.index();
                self.end_job(task, job.number, now, &waiting);
                self.add_mark(task, Mark { at: now, job: job.number, what: MarkKind::Cancel(cause) });
            }
            Event::Miss { job } => {
                let task = job.task.index();
                self.note_miss(task, now);
                let Some(keeper) = self.rows.get(task) else { return };
                if let Some(open) = keeper.open.filter(|open| open.job == job.number) {
                    self.turn(task, now, Some(Segment { from: now, to: now, late: true, ..open }));
                }
                self.add_mark(task, Mark { at: now, job: job.number, what: MarkKind::Miss });
            }
            _ => {}
        }
    }

    /// `task` gets a CPU. Another job that seems to run there has left it without an event; its
    /// present state is unknown.
    fn take_cpu(&mut self, task: usize, now: Time, cpu: u32) {
        let Some(node) = self.scene.tasks.get(task).map(|task| task.node) else { return };
        let Some(other) = self.holders.insert((node, cpu), task).filter(|other| *other != task) else { return };
        if self.rows[other].open.is_some_and(|open| open.what == Activity::Running { cpu }) {
            self.turn(other, now, None);
        }
    }

    /// Nobody knows what the node's jobs do from here on, until an event tells it again.
    fn lose(&mut self, stream: u32, now: Time) {
        for task in 0..self.rows.len() {
            if self.scene.tasks.get(task).is_some_and(|task| task.node == NodeId(stream)) {
                self.lose_task(task, now);
            }
        }
    }

    /// Nothing is known any more of the task's open jobs.
    fn lose_task(&mut self, task: usize, now: Time) {
        if self.rows.get(task).is_some() {
            self.turn(task, now, None);
            self.rows[task].pending = 0;
        }
    }

    /// Counts a release where the window is so many jobs, and ends the chart at the one that is too many.
    fn is_full(&mut self, now: Time, task: usize) -> bool {
        let Window::Jobs { from, count, each } = self.options.window else { return false };
        if now < self.from || !self.options.draws(&self.scene, task) {
            return false;
        }
        let Some(keeper) = self.rows.get_mut(task) else { return false };
        let (jobs, tasks) = self.counted;
        if jobs >= u64::from(count) && jobs >= u64::from(each) * tasks {
            self.to = now;
            return true;
        }
        if jobs == 0 && from.is_none() {
            self.from = now;
        }
        let is_new = !std::mem::replace(&mut keeper.seen, true);
        self.counted = (jobs + 1, tasks + u64::from(is_new));
        false
    }

    /// A job of `task` is over; the next one released, if any, waits from here on.
    fn end_job(&mut self, task: usize, job: u64, now: Time, waiting: &dyn Fn(u64, bool) -> Segment) {
        let Some(keeper) = self.rows.get_mut(task) else { return };
        keeper.pending = keeper.pending.saturating_sub(1);
        let next = (keeper.pending > 0).then(|| waiting(job + 1, false));
        if keeper.open.is_none_or(|open| open.job == job) {
            self.turn(task, now, next);
        }
    }
}

impl GanttBuilder {
    /// A payment that goes on at the end of the window is told after it.
    fn server_event(&mut self, server: u32, now: Time, event: &Event) {
        let server = server as usize;
        let begins = if let Event::Charge { since, .. } = event { *since } else { now };
        if begins > self.to || !self.options.draws_server(&self.scene, server) {
            return;
        }
        if let Some(keeper) = self.lanes.get_mut(server) {
            let points = keeper.event(&self.scene, server, now, event);
            if now < self.from {
                keeper.forget_before(self.from);
            } else {
                self.items += points;
            }
        }
    }
}

impl Sink for GanttBuilder {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if let Event::Replenish { server, .. }
        | Event::Exhaust { server }
        | Event::ServerIdle { server }
        | Event::Charge { server, .. } = *event
        {
            self.server_event(server, now, event);
        }
        if now > self.to {
            return;
        }
        self.items += self.messages.event(&self.scene, stream, now, event);
        if now < self.from {
            self.items -= self.messages.len();
            self.messages.forget_before(self.from);
            self.items += self.messages.len();
        }
        match *event {
            Event::ModeChange { mode } => {
                if now >= self.from {
                    self.modes.push_back(ModeMark { at: now, node: NodeId(stream), mode: mode as usize });
                }
            }
            Event::Lost { count } => {
                self.lose(stream, now);
                if now >= self.from {
                    self.lost = Some(self.lost.unwrap_or(0) + count);
                }
            }
            Event::Gap { job } => self.lose_task(job.task.index(), now),
            _ => self.job_event(now, event),
        }
        self.keep_bounded(now);
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        self.scene.define(definition);
        self.rows.resize_with(self.scene.tasks.len(), Keeper::default);
        self.lanes.resize_with(self.scene.servers.len(), LaneKeeper::default);
    }
}

impl GanttOptions {
    /// Whether `task` may have a row.
    fn draws(&self, scene: &Scene, task: usize) -> bool {
        scene.tasks.get(task).is_some_and(|task| {
            self.node.is_none_or(|only| only == task.node) && (self.tasks.is_empty() || self.tasks.contains(&task.name))
        })
    }

    /// Whether `server` may have a lane.
    fn draws_server(&self, scene: &Scene, server: usize) -> bool {
        let of_node = |node: NodeId| self.node.is_none_or(|only| only == node);
        self.tasks.is_empty() && scene.servers.get(server).is_some_and(|server| of_node(server.node))
    }
}

impl Row {
    /// How long the task runs, or may have run, in the window.
    #[must_use]
    pub fn busy(&self) -> Span {
        let busy = self.segments.iter().filter(|segment| segment.what != Activity::Waiting);
        Span::from_ns(busy.map(|segment| segment.to.saturating_since(segment.from).as_ns()).sum())
    }
}

impl Keeper {
    fn row(self, task: usize, from: Time, to: Time) -> Row {
        let mut segments: Vec<Segment> = self.segments.into();
        segments.extend(self.open.map(|open| Segment { to, ..open }));
        for segment in &mut segments {
            segment.from = segment.from.max(from);
            segment.to = segment.to.min(to);
        }
        segments.retain(|segment| segment.from < segment.to);
        let mut marks: Vec<Mark> = self.marks.into();
        marks.retain(|mark| mark.at >= from && mark.at <= to);
        Row { task, segments, marks }
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

    /// How many deadlines were missed within the window.
    #[must_use]
    pub fn misses(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.marks).filter(|mark| mark.what == MarkKind::Miss).count()
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
