//! One log, read once, as the report needs it.

use std::collections::BTreeMap;

use takt_log::causes::{Causes, Rules, Worst};
use takt_log::legs::Legs;
use takt_log::stats::{Collector, Stats};
use takt_log::{BackEnd, Clocks, Definition, Definitions, Event, Header, KindSet, Sink};
use takt_model::{Span, TaskId, Time};

use crate::gantt::{Gantt, GanttBuilder, GanttOptions, Window};
use crate::scene::Scene;

/// A simulated or measured log, boiled down to what a page shows.
#[derive(Clone, Debug)]
pub struct Source {
    /// What made it.
    pub back_end: BackEnd,
    /// The seed of its randomness.
    pub seed: Option<u64>,
    /// Which kinds of event it has.
    pub kinds: KindSet,
    /// Deviations of the back end from the System.
    pub notes: Vec<String>,
    /// How the log is damaged, in words; `None` where it is whole.
    pub damage: Option<String>,
    /// Its numbers.
    pub stats: Stats,
    /// Its messages from hop to hop.
    pub legs: Legs,
    /// How the clocks of its nodes differed; whoever reads the log knows at its end.
    pub clocks: Clocks,
    /// By task: what its CPU did during the job with the longest response; where it was asked why jobs were late.
    pub worst: BTreeMap<TaskId, Worst>,
    /// The beginning.
    pub start: Gantt,
    /// The first miss and what lies around it; without any, its [`Gantt::first_miss`] is `None`.
    pub first_miss: Gantt,
}

/// Builds a [`Source`] from a log's events, in bounded memory.
#[derive(Clone, Debug)]
pub struct SourceBuilder {
    header: Header,
    collector: Collector,
    legs: Legs,
    causes: Option<Causes>,
    start: GanttBuilder,
    first_miss: GanttBuilder,
}

/// How many jobs the charts of a page show, about: so many, or so many a task where there are many tasks.
const CHART_JOBS: u32 = 60;
const CHART_JOBS_PER_TASK: u32 = 3;
/// How many segments and marks at most: a page with a few thousand is still small.
const CHART_ITEMS_MAX: usize = 4_000;

impl SourceBuilder {
    /// For the log of the system `name` with this header. Charts are as long as suits its tasks, or as `span` says.
    #[must_use]
    pub fn new(name: &str, header: &Header, definitions: &Definitions, span: Option<Span>) -> Self {
        let scene = Scene::of_log(name, definitions, header.kinds);
        let jobs = CHART_JOBS.max(CHART_JOBS_PER_TASK.saturating_mul(scene.tasks.len() as u32));
        let options = |window| GanttOptions { items_max: CHART_ITEMS_MAX, ..GanttOptions::new(window) };
        let known = span.or_else(|| scene.has_periods().then(|| scene.suggested_span(jobs)));
        let start = options(match known {
            Some(span) => Window::Range { from: Time::ZERO, to: Time::ZERO.saturating_add(span) },
            None => Window::Jobs { from: None, count: jobs, each: CHART_JOBS_PER_TASK },
        });
        let first_miss = options(match span.map(|span| Span::from_ns(span.as_ns() / 2)) {
            Some(half) => Window::FirstMiss { before: half, after: half },
            None => Window::AroundMiss { jobs },
        });
        SourceBuilder {
            header: header.clone(),
            collector: Collector::for_log(header, definitions),
            legs: Legs::new(definitions),
            causes: None,
            start: GanttBuilder::new(scene.clone(), start),
            first_miss: GanttBuilder::new(scene, first_miss),
        }
    }

    /// Finds out why jobs were late, too; `rules` say who goes before whom.
    #[must_use]
    pub fn explaining(mut self, rules: Rules, definitions: &Definitions) -> Self {
        self.causes = Some(Causes::new(rules, definitions).with_worst());
        self
    }

    /// The log ends at `end`.
    #[must_use]
    pub fn finish(self, end: Time) -> Source {
        let mut stats = self.collector.finish(end);
        let mut worst = BTreeMap::new();
        if let Some(causes) = self.causes {
            let (late, jobs) = causes.finish_with_worst(end);
            stats.explain(late.as_ref());
            worst = jobs;
        }
        Source {
            back_end: self.header.back_end,
            seed: self.header.seed,
            kinds: self.header.kinds,
            notes: self.header.notes,
            damage: None,
            stats,
            legs: self.legs,
            clocks: Clocks::default(),
            worst,
            start: self.start.finish(end),
            first_miss: self.first_miss.finish(end),
        }
    }
}

impl Sink for SourceBuilder {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        self.collector.event(stream, now, event);
        if self.header.back_end.is_live() {
            self.legs.event(stream, now, event);
        }
        if let Some(causes) = &mut self.causes {
            causes.event(stream, now, event);
        }
        self.start.event(stream, now, event);
        self.first_miss.event(stream, now, event);
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        self.collector.define(stream, now, definition);
        if let Some(causes) = &mut self.causes {
            causes.define(stream, now, definition);
        }
        self.start.define(stream, now, definition);
        self.first_miss.define(stream, now, definition);
    }
}

impl Source {
    /// Released jobs, missed ones (`None` where the log does not tell), and cancelled ones, of all tasks.
    #[must_use]
    pub fn totals(&self) -> (u64, Option<u64>, u64) {
        let released = self.stats.tasks.iter().map(|task| task.released).sum();
        let missed = self.stats.tasks.iter().map(|task| task.missed).sum();
        (released, missed, self.stats.tasks.iter().map(|task| task.cancelled).sum())
    }
}
