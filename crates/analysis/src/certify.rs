//! `check --certificate`: writes down what a verdict rests on, in the form that [`crate::verify`] accepts.
//!
//! Here is all the search: fixed points, points of demand, slacks, placements, missed deadlines. Each part gets the shortest proof that holds, and the whole is
//! verified before it is handed out, so a certificate that is written is one that is accepted.

use takt_model::{NodeId, Placement, System, TaskId};

use crate::chains::Carried;
use crate::check::decide;
use crate::edf::qpa::{self, EdfTask};
use crate::global::{Bounds, Rule, Sporadic, rta_global, rta_lc};
use crate::partition::place;
use crate::scope::{Unit, UnitTask, View};
use crate::verdict::Answer;
use crate::verify::{
    Arrived, Certificate, Placed, Proof, Released, Responding, UnitProof, VERSION, Windows, Witness, accept,
    first_miss, holds,
};

/// Rounds over the chains of a node before their releases are given up.
const ROUNDS_MAX: usize = 1_000;
/// Windows and points that a certificate holds at most.
pub const POINTS_MAX: usize = 1_000_000;
/// Terms that the search for windows and points evaluates at most.
pub const TERMS_MAX: u64 = 1_000_000_000;

/// Why there is no certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Uncertified {
    /// Nothing is decided.
    #[error("there is nothing to certify: the system is neither proven nor refuted")]
    Undecided,
    /// The form has no proof of this kind.
    #[error("not certified: {0}; certificates of this version hold no proof of that")]
    NoProof(String),
}

/// The certificate of what [`check`](crate::check()) says of a System.
///
/// # Errors
/// Why there is none.
pub fn certify(system: &System) -> Result<Certificate, Uncertified> {
    let certificate = match decide(system) {
        Answer::Unknown => return Err(Uncertified::Undecided),
        Answer::Yes => proven(system)?,
        Answer::No => refuted(system)?,
    };
    match accept(system, &certificate) {
        Ok(_) => Ok(certificate),
        Err(error) => Err(Uncertified::NoProof(error.to_string())),
    }
}

fn empty(system: &System, schedulable: bool) -> Certificate {
    let text = takt_model::file::write(system);
    let (placement, releases, proofs) = (Vec::new(), Vec::new(), Vec::new());
    Certificate { version: VERSION, system: text, schedulable, placement, releases, proofs, witness: None }
}

fn no_proof(why: impl ToString) -> Uncertified {
    Uncertified::NoProof(why.to_string())
}

fn proven(system: &System) -> Result<Certificate, Uncertified> {
    let plain = system.components.is_empty() && system.flows.is_empty() && system.modes.is_empty();
    if !plain || system.nodes.iter().any(|node| node.receive.is_some() || node.send.is_some()) {
        return Err(no_proof("the system has components, flows, modes, or receiving and sending tasks"));
    }
    let mut certificate = empty(system, true);
    let bound = |index: usize| {
        let clusters = system.nodes[index].clusters();
        let within = |cpus: takt_model::CpuSet| clusters.iter().any(|cluster| cpus.is_subset(cluster));
        system.tasks_of(NodeId(index as u32)).all(|(_, task)| task.cpus.is_some_and(within))
    };
    let open = (0..system.nodes.len()).any(|i| system.nodes[i].placement != Placement::Global && !bound(i));
    let placed = if open { Some(place(system).map_err(no_proof)?.system) } else { None };
    let placed = placed.as_ref().unwrap_or(system);
    for (before, after) in system.tasks.iter().zip(&placed.tasks).filter(|(before, after)| before.cpus != after.cpus) {
        let cpus = after.cpus.iter().flat_map(takt_model::CpuSet::iter).collect();
        certificate.placement.push(Placed { task: before.name.clone(), cpus });
    }
    for index in 0..placed.nodes.len() {
        let node = NodeId(index as u32);
        let spec = &placed.nodes[index];
        let view = View::new(placed, node, spec.strategy, spec.name.clone()).map_err(no_proof)?;
        of_node(placed, &view, &spec.name, &mut certificate)?;
    }
    Ok(certificate)
}

/// The CPUs of a unit.
fn cpus_of(system: &System, unit: &Unit) -> Vec<u32> {
    let mut cpus = takt_model::CpuSet::default();
    for task in &unit.tasks {
        let task = &system.tasks[task.id.index()];
        cpus = cpus.union(&crate::scope::affinity(task, &system.nodes[task.node.index()]));
    }
    cpus.iter().collect()
}

fn of_node(system: &System, view: &View, node: &str, certificate: &mut Certificate) -> Result<(), Uncertified> {
    let fixed: Vec<bool> =
        view.units.iter().map(|unit| unit.m == 1 && unit.served_levels() as usize == unit.levels.len()).collect();
    let mut budget = Budget { points: POINTS_MAX, terms: TERMS_MAX };
    let mut wanders = vec![0u64; system.tasks.len()];
    let chains = view.units.iter().flat_map(|unit| &unit.tasks).any(|task| task.chained);
    // Responses and releases along chains depend on each other: the least fixed point.
    let mut windows = Vec::new();
    for round in 0.. {
        let mut ends = vec![0u64; system.tasks.len()];
        windows.clear();
        for (unit, fixed) in view.units.iter().zip(&fixed) {
            // Without chains a shorter proof may do.
            if *fixed && (chains || !certified_by_sums(system, certificate, node, unit)) {
                let found = responses(unit, &wanders, &mut budget).ok_or_else(|| {
                    no_proof(format!("the busy windows of \"{}\" do not end early enough", unit.scope))
                })?;
                for (task, (_, end)) in unit.tasks.iter().zip(&found) {
                    ends[task.id.index()] = *end;
                }
                windows.push(Some(found.into_iter().map(|(windows, _)| windows).collect::<Vec<_>>()));
            } else {
                for task in &unit.tasks {
                    ends[task.id.index()] = wanders[task.id.index()].saturating_add(task.d);
                }
                windows.push(None);
            }
        }
        let mut settled = true;
        for task in view.units.iter().flat_map(|unit| &unit.tasks).filter(|task| task.chained) {
            let after = &system.tasks[task.id.index()].after;
            let latest = after.iter().map(|before| ends[before.index()]).max().unwrap_or(0);
            settled &= latest <= wanders[task.id.index()];
            wanders[task.id.index()] = latest.max(wanders[task.id.index()]);
        }
        if settled {
            break;
        }
        if round >= ROUNDS_MAX {
            return Err(no_proof("when chains' successors are released"));
        }
    }
    for task in view.units.iter().flat_map(|unit| &unit.tasks).filter(|task| task.chained) {
        let wander_ns = wanders[task.id.index()];
        certificate.releases.push(Released { task: task.name.clone(), wander_ns });
    }
    for (unit, windows) in view.units.iter().zip(windows) {
        let cpus = cpus_of(system, unit);
        let each = |windows: Vec<Vec<u64>>| {
            let named = unit.tasks.iter().zip(windows);
            let tasks = named.map(|(task, windows_ns)| Windows { task: task.name.clone(), windows_ns }).collect();
            Proof::Responses { tasks }
        };
        let mut candidates: Vec<Proof> = vec![Proof::Hyperbolic {}, Proof::Density {}];
        if unit.m > 1 {
            candidates = vec![Proof::Gfb {}];
        }
        let mut found = first_held(system, certificate, node, &cpus, candidates);
        if found.is_none() {
            let rest = match windows {
                Some(windows) => vec![each(windows)],
                None if unit.m == 1 => demand(unit, &wanders, &mut budget).into_iter().collect(),
                None => global(system, unit),
            };
            found = first_held(system, certificate, node, &cpus, rest);
        }
        let unit = found.ok_or_else(|| no_proof(format!("the deadlines of \"{}\"", unit.scope)))?;
        certificate.proofs.push(unit);
    }
    Ok(())
}

fn certified_by_sums(system: &System, certificate: &Certificate, node: &str, unit: &Unit) -> bool {
    let cpus = cpus_of(system, unit);
    first_held(system, certificate, node, &cpus, vec![Proof::Hyperbolic {}, Proof::Density {}]).is_some()
}

fn first_held(
    system: &System,
    certificate: &Certificate,
    node: &str,
    cpus: &[u32],
    proofs: Vec<Proof>,
) -> Option<UnitProof> {
    let units = proofs.into_iter().map(|proof| UnitProof { node: node.to_owned(), cpus: cpus.to_vec(), proof });
    units.into_iter().find(|unit| holds(system, certificate, unit))
}

/// What may still be spent.
struct Budget {
    points: usize,
    terms: u64,
}

impl Budget {
    fn terms(&mut self, terms: usize) -> Option<()> {
        self.terms = self.terms.checked_sub(terms as u64)?;
        Some(())
    }

    fn point(&mut self) -> Option<()> {
        self.points = self.points.checked_sub(1)?;
        Some(())
    }
}

/// Per task its windows, and its latest completion after its source's arrival; `None` where one passes its deadline or a limit is reached.
fn responses(unit: &Unit, wanders: &[u64], budget: &mut Budget) -> Option<Vec<(Vec<u64>, u64)>> {
    let spread = |task: &UnitTask| wanders[task.id.index()].checked_add(task.j);
    let mut all = Vec::with_capacity(unit.tasks.len());
    for this in &unit.tasks {
        let others: Vec<(u64, u64, u64)> = unit
            .tasks
            .iter()
            .filter(|other| other.id != this.id && other.level <= this.level)
            .map(|other| Some((unit.charged(other)?, other.t, spread(other)?)))
            .chain(unit.thefts().map(|theft| Some((theft.c, theft.t, 0))))
            .collect::<Option<_>>()?;
        let blocking = unit.tasks.iter().filter(|other| other.level == this.level).map(|other| other.b).max()?;
        let (c, wander, own_spread) = (unit.charged(this)?, wanders[this.id.index()], spread(this)?);
        let (mut windows, mut end) = (Vec::new(), 0u64);
        let mut w = blocking;
        for q in 0u64.. {
            let own = c.checked_mul(q + 1)?.checked_add(blocking)?;
            w = w.max(1).checked_add(c)?.max(own);
            loop {
                budget.terms(others.len() + 1)?;
                let mut work = own;
                for (c, t, spread) in &others {
                    work = work.checked_add(w.checked_add(*spread)?.div_ceil(*t).checked_mul(*c)?)?;
                }
                if work <= w {
                    break;
                }
                w = work;
            }
            budget.point()?;
            windows.push(w);
            let arrival = q.checked_mul(this.t)?;
            if w.checked_add(this.j)?.saturating_sub(arrival.saturating_sub(wander)) > this.d {
                return None;
            }
            end = end.max(w.checked_add(own_spread)?.saturating_sub(arrival));
            if w.checked_add(own_spread)? <= arrival.checked_add(this.t)? {
                break;
            }
        }
        all.push((windows, end));
    }
    Some(all)
}

/// A busy period and points down from it.
fn demand(unit: &Unit, wanders: &[u64], budget: &mut Budget) -> Option<Proof> {
    let mut tasks = Vec::with_capacity(unit.tasks.len());
    for task in &unit.tasks {
        let d = task.d.checked_sub(task.j)?;
        let burst = if task.chained { wanders[task.id.index()].checked_add(task.j)? } else { 0 };
        tasks.push(EdfTask { c: unit.charged(task)?, t: task.t, d, burst, b: task.b });
    }
    let tick = unit.tick();
    let blocking = tasks.iter().map(|task| task.b).max()?;
    let mut horizon = tasks.iter().try_fold(blocking, |sum, task| sum.checked_add(task.c))?;
    loop {
        budget.terms(tasks.len() + 1)?;
        let mut work = blocking;
        for task in &tasks {
            let releases = horizon.checked_add(task.burst)?.div_ceil(task.t);
            work = work.checked_add(releases.checked_mul(task.c)?)?;
        }
        if let Some(tick) = tick {
            work = work.checked_add(horizon.div_ceil(tick.t).checked_mul(tick.c)?)?;
        }
        if work <= horizon {
            break;
        }
        horizon = work;
    }
    let mut points_ns = Vec::new();
    let mut below = horizon.checked_add(1)?;
    while let Some(t) = qpa::deadline_below(&tasks, below) {
        budget.terms(2 * tasks.len())?;
        budget.point()?;
        let h = qpa::demand(&tasks, tick, t)?;
        if h > t {
            return None;
        }
        points_ns.push(t);
        below = h.min(t);
    }
    Some(Proof::Demand { horizon_ns: horizon, points_ns })
}

/// Bounds of the responses on several CPUs, if some test finds them.
fn global(system: &System, unit: &Unit) -> Vec<Proof> {
    let carried = Carried::by_deadlines(system);
    let rule = if unit.edf().is_ok() { Rule::Edf } else { Rule::Fp };
    let Some(tasks) = crate::apply::sporadic_tasks(unit, &carried, rule) else { return Vec::new() };
    let mut found = vec![(false, rta_global::analyse(&tasks, unit.m, rule))];
    if rule == Rule::Fp {
        found.push((true, rta_lc::analyse(&tasks, unit.m)));
    }
    found.into_iter().filter_map(|(limited, bounds)| bounded(unit, &tasks, limited, &bounds)).collect()
}

fn bounded(unit: &Unit, tasks: &[Sporadic], limited: bool, bounds: &Bounds) -> Option<Proof> {
    let each = unit.tasks.iter().zip(tasks).zip(&bounds.responses);
    let tasks = each.map(|((task, sporadic), response)| {
        let response_ns = (*response)?.max(sporadic.j.checked_add(sporadic.c)?);
        Some(Responding { task: task.name.clone(), response_ns })
    });
    Some(Proof::Global { limited, tasks: tasks.collect::<Option<_>>()? })
}

fn refuted(system: &System) -> Result<Certificate, Uncertified> {
    let mut certificate = empty(system, false);
    let mut last = "no witness was found".to_owned();
    for witness in witnesses(system) {
        certificate.witness = Some(witness);
        match accept(system, &certificate) {
            Ok(_) => return Ok(certificate),
            Err(error) => last = error.to_string(),
        }
    }
    Err(no_proof(last))
}

/// What may be wrong with a system, the simplest first.
fn witnesses(system: &System) -> Vec<Witness> {
    let mut found = Vec::new();
    for (i, task) in system.tasks.iter().enumerate() {
        let jitter = system.release_jitter(takt_model::TaskId(i as u32));
        if jitter.checked_add(task.wcet).is_none_or(|need| need > task.deadline) {
            found.push(Witness::TooLong { task: task.name.clone() });
        }
    }
    for (index, spec) in system.nodes.iter().enumerate() {
        let node = NodeId(index as u32);
        let Ok(view) = View::new(system, node, spec.strategy, spec.name.clone()) else { continue };
        found.push(Witness::Overload { node: spec.name.clone(), cpus: (0..spec.cpus).collect() });
        for unit in &view.units {
            let (name, cpus) = (spec.name.clone(), cpus_of(system, unit));
            found.push(Witness::Overload { node: name.clone(), cpus: cpus.clone() });
            let arrivals = arrivals(system, unit);
            let set = cpus.iter().copied().collect();
            if let Ok((_, Some(task))) = first_miss(system, &name, &set, &arrivals) {
                // Later arrivals are no part of it.
                let until = last_before_miss(system, &name, &set, &arrivals, &task);
                found.push(Witness::Schedule { node: name, cpus, task, arrivals: until });
            }
        }
    }
    found
}

/// Sporadic tasks as dense as they may be, from their offsets on.
fn arrivals(system: &System, unit: &Unit) -> Vec<Arrived> {
    let sporadic: Vec<TaskId> = unit.tasks.iter().filter(|task| task.sporadic).map(|task| task.id).collect();
    let each = crate::verify::JOBS_MAX / unit.tasks.len().max(1) / 4;
    let longest = unit.tasks.iter().map(|task| task.t).min().unwrap_or(1).saturating_mul(each as u64);
    let mut all = Vec::new();
    for id in sporadic {
        let task = &system.tasks[id.index()];
        let (offset, period) = (task.offset.as_ns(), task.period.as_ns().max(1));
        let count = (longest / period).clamp(1, each.max(1) as u64);
        let at = (0..count).map_while(|k| offset.checked_add(k.checked_mul(period)?));
        all.extend(at.map(|at_ns| Arrived { task: task.name.clone(), at_ns }));
    }
    all.sort_by_key(|arrived| arrived.at_ns);
    all
}

/// The fewest of the first arrivals that still end in this miss.
fn last_before_miss(
    system: &System,
    node: &str,
    cpus: &takt_model::CpuSet,
    arrivals: &[Arrived],
    task: &str,
) -> Vec<Arrived> {
    let misses = |count: usize| {
        first_miss(system, node, cpus, &arrivals[..count]).is_ok_and(|(_, missed)| missed.as_deref() == Some(task))
    };
    let (mut few, mut enough) = (0, arrivals.len());
    while few < enough {
        let middle = few + (enough - few) / 2;
        if misses(middle) { enough = middle } else { few = middle + 1 }
    }
    if misses(enough) { arrivals[..enough].to_vec() } else { arrivals.to_vec() }
}

#[cfg(test)]
mod tests;
