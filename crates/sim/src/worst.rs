//! A search for the largest end-to-end responses of flows, and for missed deadlines.
//!
//! An analysis bounds all phases and all delays. A simulation that draws delays hardly ever meets
//! the worst of them. A [`climb`] looks for it: a local search over [`Traffic`], for one flow.
//!
//! 1. It begins with a traffic. The first climb takes the most delay everywhere. Later ones draw an end
//!    of the interval and a first arrival for each flow.
//! 2. Each step changes one thing and simulates: the delay of a few messages about the instance with
//!    the largest response, the delay of all messages of a hop, or the first arrival of a flow. A
//!    step that does not lower the largest response of the flow is kept.
//! 3. The last quarter of the runs makes the best traffic simple. There a step is kept if the response stays the same.
//!
//! All flows are watched in all runs. Climbs do not depend on each other: the caller may run them
//! side by side, and [`Found::merge`] them in their order. The same seed gives the same climbs. What
//! is found is the largest response seen, not a bound.

use std::collections::BTreeMap;

use takt_log::{Event, JobKey, Sink};
use takt_model::flows::{self, Lowered};
use takt_model::{Draw, FlowId, Span, System, TaskId, Time, draw::Purpose};

use crate::traffic::{End, Ends, Traffic};
use crate::{SimError, SimOptions, simulate_with};

/// Simulations of one climb.
pub const RUNS_PER_CLIMB: u32 = 60;

/// Messages whose delay one step changes, at most.
const WINDOW_MAX: u64 = 4;

/// A response, and the traffic that causes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// From the arrival of the flow to the completion on its last hop.
    pub response: Span,
    /// The instance of the flow, from zero.
    pub instance: u64,
    /// How to see it again, with the same seed and duration.
    pub traffic: Traffic,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// By flow, the largest response. `None` where no instance came to its end.
    pub flows: Vec<Option<Case>>,
    /// The most deadlines missed in one run, with its traffic. `None` if none was missed.
    pub missed: Option<(u64, Traffic)>,
    /// Simulations so far.
    pub runs: u32,
}

impl Found {
    /// Adds what a later climb found. Of equal findings the earlier one stays.
    pub fn merge(&mut self, later: Found) {
        for (mine, other) in self.flows.iter_mut().zip(later.flows) {
            let response = |case: &Option<Case>| case.as_ref().map(|case| case.response);
            if response(&other) > response(mine) {
                *mine = other;
            }
        }
        let count = |missed: &Option<(u64, Traffic)>| missed.as_ref().map_or(0, |(count, _)| *count);
        if count(&later.missed) > count(&self.missed) {
            self.missed = later.missed;
        }
        self.runs += later.runs;
    }
}

/// Makes climb number `start` with `runs` simulations, for flow `start` modulo the number of flows.
/// Options name no node: the whole system is simulated.
///
/// # Errors
/// As [`crate::simulate`].
pub fn climb(system: &System, options: &SimOptions, start: u32, runs: u32) -> Result<Found, SimError> {
    let mut found = Found { flows: vec![None; system.flows.len()], missed: None, runs: 0 };
    let Some(lowered) = flows::lower(system).filter(|_| !system.flows.is_empty()) else { return Ok(found) };
    let target = start as usize % system.flows.len();
    let mut climber = Climber { system, lowered: &lowered, options, dice: Dice::new(options.seed, start), target };
    let mut traffic = climber.first_traffic(start);
    let mut best: Option<(Span, u64)> = None;
    let steps = runs - runs / 4;
    for step in 0..steps {
        let tried = if step == 0 { traffic.clone() } else { climber.mutate(&traffic, best.map_or(0, |best| best.1)) };
        let seen = climber.run(&tried, &mut found)?;
        if seen >= best {
            (traffic, best) = (tried, seen);
        }
    }
    for tried in climber.simplifications(&traffic).into_iter().take((runs - steps) as usize) {
        let tried = tried.apply(&traffic);
        if climber.run(&tried, &mut found)?.map(|seen| seen.0) == best.map(|best| best.0) {
            traffic = tried;
        }
    }
    if let (Some(case), Some((response, _))) = (&mut found.flows[target], best)
        && case.response == response
    {
        case.traffic = traffic;
    }
    Ok(found)
}

struct Climber<'a> {
    system: &'a System,
    lowered: &'a Lowered,
    options: &'a SimOptions,
    dice: Dice,
    /// The flow whose response the climb raises.
    target: usize,
}

/// A change that makes a traffic simpler.
enum Simplification {
    /// This flow arrives at zero.
    Offset(usize),
    /// Messages that leave this hop of this flow have one delay.
    Ends(usize, usize),
}

impl Simplification {
    fn apply(&self, traffic: &Traffic) -> Traffic {
        let mut traffic = traffic.clone();
        match *self {
            Simplification::Offset(flow) => traffic.offsets[flow] = Span::ZERO,
            Simplification::Ends(flow, hop) => {
                if let Some(ends) = &mut traffic.ends[flow][hop] {
                    ends.others.clear();
                }
            }
        }
        traffic
    }
}

impl Climber<'_> {
    /// Simulates, and records what it finds. Returns the largest response of the target, with its instance.
    fn run(&mut self, traffic: &Traffic, found: &mut Found) -> Result<Option<(Span, u64)>, SimError> {
        let mut observer = Observer::new(self.lowered);
        simulate_with(self.system, self.options, traffic, &mut observer)?;
        found.runs += 1;
        for (case, seen) in found.flows.iter_mut().zip(&observer.worst) {
            let Some((response, instance)) = *seen else { continue };
            if case.as_ref().is_none_or(|case| response > case.response) {
                *case = Some(Case { response, instance, traffic: traffic.clone() });
            }
        }
        if observer.missed > found.missed.as_ref().map_or(0, |(count, _)| *count) {
            found.missed = Some((observer.missed, traffic.clone()));
        }
        Ok(observer.worst[self.target])
    }

    /// The traffic with which climb `start` begins.
    fn first_traffic(&mut self, start: u32) -> Traffic {
        let mut traffic = Traffic::drawn(self.system);
        for flow in 0..self.system.flows.len() {
            if start > 0 {
                traffic.offsets[flow] = self.draw_offset(flow, &traffic);
            }
            for ends in &mut traffic.ends[flow] {
                let most = start == 0 || self.dice.below(2) == 0;
                *ends = Some(Ends::all(if most { End::Most } else { End::Least }));
            }
        }
        traffic
    }

    /// The traffic with one random change. `instance` of the target has the largest response so far.
    fn mutate(&mut self, traffic: &Traffic, instance: u64) -> Traffic {
        let mut traffic = traffic.clone();
        let any = self.dice.below(self.system.flows.len() as u64) as usize;
        let flow = if self.dice.below(2) == 0 { self.target } else { any };
        let hops = traffic.ends[flow].len() as u64;
        let kind = self.dice.below(8);
        if hops == 0 || kind < 4 {
            traffic.offsets[flow] = self.draw_offset(flow, &traffic);
            return traffic;
        }
        let Some(ends) = &mut traffic.ends[flow][self.dice.below(hops) as usize] else { return traffic };
        if kind == 4 {
            ends.usual = ends.usual.other();
            return traffic;
        }
        let [of_target, period] = [self.target, flow].map(|flow| self.system.flows[flow].period.as_ns().max(1));
        let about = (u128::from(instance) * u128::from(of_target) / u128::from(period)) as u64;
        let first = (about + self.dice.below(WINDOW_MAX)).saturating_sub(WINDOW_MAX - 1);
        for number in first..=first + self.dice.below(WINDOW_MAX) {
            if !ends.others.remove(&number) {
                ends.others.insert(number);
            }
        }
        traffic
    }

    /// Draws the first arrival of a flow, within its period.
    fn draw_offset(&mut self, flow: usize, traffic: &Traffic) -> Span {
        let of = &self.system.flows[flow];
        let period = of.period.as_ns().max(1);
        let offset = match self.dice.below(4) {
            0 => self.dice.below(period),
            1 => traffic.offsets[self.dice.below(traffic.offsets.len() as u64) as usize].as_ns(),
            2 => traffic.offsets[flow].as_ns() + period + self.dice.below(period / 8 + 1) - period / 16,
            // The job ends just after a sending job has begun.
            _ => {
                let node = of.path.first().and_then(|node| self.system.nodes.get(node.index()));
                let grid = node.and_then(|node| node.send).map_or(period, |send| send.period.as_ns().max(1));
                let at = grid * (1 + self.dice.below(period.div_ceil(grid))) + 1;
                (at + period).saturating_sub(of.wcet.as_ns() % period)
            }
        };
        Span::from_ns(offset % period)
    }

    /// The changes that would make a traffic simpler.
    fn simplifications(&self, traffic: &Traffic) -> Vec<Simplification> {
        let mut all = Vec::new();
        for (flow, hops) in traffic.ends.iter().enumerate() {
            let others = |hop: usize| hops[hop].as_ref().is_some_and(|ends| !ends.others.is_empty());
            all.extend((0..hops.len()).filter(|hop| others(*hop)).map(|hop| Simplification::Ends(flow, hop)));
            all.extend((!traffic.offset(flow).is_zero()).then_some(Simplification::Offset(flow)));
        }
        all
    }
}

/// Draws of one climb.
struct Dice {
    draw: Draw,
    next: u64,
}

impl Dice {
    fn new(seed: u64, start: u32) -> Self {
        Dice { draw: Draw::new(seed, &format!("climb {start}")), next: 0 }
    }

    /// A number below `n`; 0 where n is 0.
    fn below(&mut self, n: u64) -> u64 {
        self.next += 1;
        ((u128::from(self.draw.bits(Purpose::Search, self.next)) * u128::from(n)) >> 64) as u64
    }
}

/// Watches the last hops of all flows, and misses.
struct Observer {
    /// The flow of a last hop.
    flows: BTreeMap<TaskId, usize>,
    /// Arrivals of the instances that are on their last hop.
    arrivals: BTreeMap<JobKey, Time>,
    /// By flow, the largest response and its instance.
    worst: Vec<Option<(Span, u64)>>,
    /// Deadlines missed so far.
    missed: u64,
}

impl Observer {
    fn new(lowered: &Lowered) -> Self {
        let system = &lowered.system;
        let last = |flow: usize| {
            let hop = system.flows[flow].hops().count().saturating_sub(1);
            Some((lowered.task_of(FlowId(flow as u32), hop as u32)?, flow))
        };
        let flows = (0..system.flows.len()).filter_map(last).collect();
        Observer { flows, arrivals: BTreeMap::new(), worst: vec![None; system.flows.len()], missed: 0 }
    }

    fn completed(&mut self, job: JobKey, now: Time) {
        let (Some(origin), Some(flow)) = (self.arrivals.remove(&job), self.flows.get(&job.task)) else { return };
        let response = now.saturating_since(origin);
        if self.worst[*flow].is_none_or(|(worst, _)| response > worst) {
            self.worst[*flow] = Some((response, job.number));
        }
    }
}

impl Sink for Observer {
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Release { job, arrival, parent } if self.flows.contains_key(&job.task) => {
                self.arrivals.insert(job, parent.map_or(arrival, |parent| parent.origin));
            }
            Event::Complete { job, .. } => self.completed(job, now),
            Event::Cancel { job, .. } => drop(self.arrivals.remove(&job)),
            Event::Miss { .. } => self.missed += 1,
            _ => {}
        }
    }
}
