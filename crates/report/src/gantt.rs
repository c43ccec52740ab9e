//! The Gantt model: rows of execution segments and marks, built from a stream of events in bounded memory.
//!
//! [`GanttBuilder`] is a [`Sink`]. It takes a log of any length and keeps the part in its window,
//! at most [`GanttOptions::items_max`] segments and marks. If the window holds more, the chart ends
//! earlier and says so ([`Gantt::cut`]).

mod chart;

use std::collections::{BTreeMap, VecDeque};

use takt_log::{Definition, Event, Sink};
use takt_model::{NodeId, Span, Time};

use crate::lane::LaneKeeper;
use crate::messages::ArrowKeeper;
use crate::scene::Scene;

pub use chart::{Activity, Gantt, GanttOptions, Mark, MarkKind, ModeMark, Row, Segment, Window};

/// Builds a [`Gantt`] from events.
#[derive(Clone, Debug)]
pub struct GanttBuilder {
    scene: Scene,
    options: GanttOptions,
    from: Time,
    to: Time,
    rows: Vec<OpenTask>,
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

#[derive(Clone, Debug, Default)]
struct OpenTask {
    segments: VecDeque<Segment>,
    marks: VecDeque<Mark>,
    open: Option<Segment>,
    pending: u64,
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
        let rows = vec![OpenTask::default(); scene.tasks.len()];
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

    /// The chart of what was seen; the log ends at `end`.
    #[must_use]
    pub fn finish(mut self, end: Time) -> Gantt {
        let end_of_window = self.to;
        if self.around_miss(None).is_some() && self.first_miss.is_none() {
            (self.from, self.to) = (Time::ZERO, Time::ZERO);
            self.rows = vec![OpenTask::default(); self.scene.tasks.len()];
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
        let cut = (self.cut && end_of_window <= end).then(|| match self.options.window {
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

    /// Ends the open segment of a task, and opens the next one.
    fn change_segment(&mut self, task: usize, now: Time, next: Option<Segment>) {
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

    /// Keeps at most `items_max` items. Before the first miss it removes the oldest ones, and later it ends the chart.
    fn keep_bounded(&mut self, now: Time) {
        if self.items <= self.options.items_max {
            return;
        }
        match self.around_miss(None) {
            Some((before, _)) if self.first_miss.is_none() => {
                let mut since = now.saturating_sub(before);
                self.forget_before(since);
                // Down to half, so that it is not full again at once.
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

    /// The times to show before and after the first miss, if the window is there; the most without a `late` task.
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
        let late_of = |keeper: &OpenTask, job: u64| keeper.open.is_some_and(|open| open.job == job && open.late);
        match *event {
            Event::Release { job, arrival, .. } => {
                let task = job.task.index();
                if self.ends_at_release(now, task) {
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
                self.change_segment(task, now, Some(next));
            }
            Event::Preempt { job, .. } | Event::Block { job, .. } => {
                let task = job.task.index();
                let Some(keeper) = self.rows.get(task) else { return };
                let late = late_of(keeper, job.number);
                self.change_segment(task, now, Some(waiting(job.number, late)));
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
                    self.change_segment(task, now, Some(Segment { from: now, to: now, late: true, ..open }));
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
            self.change_segment(other, now, None);
        }
    }

    /// Ends the segments of the node's jobs: their states are unknown until their next events.
    fn lose_node(&mut self, stream: u32, now: Time) {
        for task in 0..self.rows.len() {
            if self.scene.tasks.get(task).is_some_and(|task| task.node == NodeId(stream)) {
                self.lose_task(task, now);
            }
        }
    }

    fn lose_task(&mut self, task: usize, now: Time) {
        if self.rows.get(task).is_some() {
            self.change_segment(task, now, None);
            self.rows[task].pending = 0;
        }
    }

    /// Counts a release if the window is a number of jobs. Ends the chart at the first release beyond it.
    fn ends_at_release(&mut self, now: Time, task: usize) -> bool {
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
            self.change_segment(task, now, next);
        }
    }
}

impl GanttBuilder {
    /// The event of a payment that began within the window may come after its end.
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
                self.lose_node(stream, now);
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
        self.rows.resize_with(self.scene.tasks.len(), OpenTask::default);
        self.lanes.resize_with(self.scene.servers.len(), LaneKeeper::default);
    }
}

impl GanttOptions {
    fn draws(&self, scene: &Scene, task: usize) -> bool {
        scene.tasks.get(task).is_some_and(|task| {
            self.node.is_none_or(|only| only == task.node) && (self.tasks.is_empty() || self.tasks.contains(&task.name))
        })
    }

    fn draws_server(&self, scene: &Scene, server: usize) -> bool {
        let of_node = |node: NodeId| self.node.is_none_or(|only| only == node);
        self.tasks.is_empty() && scene.servers.get(server).is_some_and(|server| of_node(server.node))
    }
}

impl OpenTask {
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
