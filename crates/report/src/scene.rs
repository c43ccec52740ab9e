//! Who appears in a picture: names, deadlines and CPUs, and what the back end records.

use takt_log::{Definitions, Kind, KindSet};
use takt_model::{NodeId, Span, System};

/// What every picture and export needs to know besides the events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scene {
    /// The system's name.
    pub name: String,
    /// Nodes, by [`NodeId`]; a stream has the number of its node.
    pub nodes: Vec<SceneNode>,
    /// Tasks, by `TaskId`.
    pub tasks: Vec<SceneTask>,
    /// Whether the log records when a job loses its CPU and gets it back. Where it does not, the time
    /// from start to completion is drawn as "in progress", for nobody knows when the job ran.
    pub preemptions: bool,
}

/// A node of a [`Scene`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneNode {
    /// Its name.
    pub name: String,
    /// Its number of CPUs.
    pub cpus: u32,
    /// The strategies that it obeys, by the number of the mode: its own, then those of its `[[mode]]`s in the order of time.
    pub strategies: Vec<String>,
}

/// A task of a [`Scene`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneTask {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub node: NodeId,
    /// Its period or minimum inter-arrival time, where known.
    pub period: Option<Span>,
    /// Its deadline, relative to the nominal arrival, where known.
    pub deadline: Option<Span>,
}

impl Scene {
    /// The scene of a system whose back end records every kind of event (the simulator).
    #[must_use]
    pub fn of(system: &System) -> Scene {
        Scene::of_log(&system.name, &Definitions::of(system), KindSet::ALL)
    }

    /// The scene of a log with these definitions, whose back end records these kinds.
    #[must_use]
    pub fn of_log(name: &str, definitions: &Definitions, kinds: KindSet) -> Scene {
        let node = |(id, node): (u32, &takt_log::NodeDef)| {
            let modes = definitions.modes.iter().filter(|mode| mode.node == NodeId(id));
            let strategies = std::iter::once(&node.strategy).chain(modes.map(|mode| &mode.strategy));
            SceneNode { name: node.name.clone(), cpus: node.cpus, strategies: strategies.cloned().collect() }
        };
        let task = |task: &takt_log::TaskDef| SceneTask {
            name: task.name.clone(),
            node: task.node,
            period: task.period,
            deadline: task.deadline,
        };
        Scene {
            name: name.to_owned(),
            nodes: (0..).zip(&definitions.nodes).map(node).collect(),
            tasks: definitions.tasks.iter().map(task).collect(),
            preemptions: kinds.contains(Kind::Preempt) && kinds.contains(Kind::Resume),
        }
    }

    /// The strategy of a node in a mode, `?` where the log does not define it.
    #[must_use]
    pub fn strategy(&self, node: NodeId, mode: usize) -> &str {
        self.nodes.get(node.index()).and_then(|node| node.strategies.get(mode)).map_or("?", String::as_str)
    }

    /// The same scene in a log that records no preemptions (a live run).
    #[must_use]
    pub fn without_preemptions(mut self) -> Scene {
        self.preemptions = false;
        self
    }

    /// How long a chart should be to show the pattern without a crowd: the time in which the slowest
    /// task has two jobs, rounded up to 1, 2 or 5 times a power of ten; but where that is more than about
    /// `jobs_max` jobs of all tasks together, the largest such span that holds fewer.
    #[must_use]
    pub fn suggested_span(&self, jobs_max: u32) -> Span {
        let periods = || self.tasks.iter().filter_map(|task| task.period).map(Span::as_ns).filter(|ns| *ns > 0);
        let Some(longest) = periods().max() else { return Span::from_ms(1) };
        let per_ns: f64 = periods().map(|ns| 1.0 / ns as f64).sum();
        let crowded = f64::from(jobs_max.max(1)) / per_ns;
        let two = 2.0 * longest as f64;
        let wanted = two.min(crowded).max(1.0);
        let unit = crate::axis::round_unit(wanted);
        let power = unit * 10f64.powf((wanted / unit).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let ns = if two <= crowded {
            steps.into_iter().find(|step| *step >= wanted * 0.999)
        } else {
            steps.into_iter().rfind(|step| *step <= wanted * 1.001)
        };
        Span::from_ns(ns.unwrap_or(wanted).round() as u64)
    }
}
