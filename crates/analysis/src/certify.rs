//! `check --certificate`: writes down what a verdict rests on, in the form that [`crate::verify`] accepts.
//!
//! All of the search happens here: fixed points, points of demand, slacks, placements, missed
//! deadlines. Each part gets the shortest proof that holds. The whole certificate is verified
//! before it is returned, so `takt verify` accepts every certificate.

use takt_model::plan::Order;
use takt_model::{Auto, NodeId, Placement, System, TaskId};

use crate::apply::SimultaneousRelease;
use crate::carried::ChainBounds;
use crate::check::decide;
use crate::components::{Enforced, Tree};
use crate::edf::qpa::{self, EdfTask};
use crate::global::{Bounds, Rule, Sporadic, ff_dbf, rta_global, rta_lc};
use crate::partition::place;
use crate::scope::{Unit, UnitTask, View};
use crate::verdict::Answer;
use crate::verify::{
    Certificate, Group, Keys, Part, Placed, Proof, Released, Responding, SporadicArrival, UnitProof, VERSION, Windows,
    Witness, Work, accept, first_miss, holds, part, work,
};

/// Rounds over the chains of a node before their releases are given up.
const ROUNDS_MAX: usize = 1_000;
/// Windows and points that a certificate holds at most.
pub const POINTS_MAX: usize = 1_000_000;
/// Hyperperiods after which a schedule is tried for its repetition.
const CYCLES_MAX: u64 = 4;
/// Horizons that are tried, each twice the one before.
const HORIZONS_MAX: u32 = 20;
/// Terms that the search for windows and points evaluates at most.
pub const TERMS_MAX: u64 = 1_000_000_000;

/// Why there is no certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Uncertified {
    /// Nothing is decided.
    #[error("there is nothing to certify: the system is neither proven nor refuted")]
    Undecided,
    /// A server's period or budget is yet to be found.
    #[error(
        "there is nothing to certify yet: the period or budget of component \"{0}\" is \"auto\"; \"takt size \
         SYSTEM -o FILE\" fills it in"
    )]
    Unsized(String),
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
        Answer::Unknown => {
            let open =
                |component: &&takt_model::Component| component.period == Auto::Auto || component.budget == Auto::Auto;
            let open = system.components.iter().find(open).map(|component| component.name.clone());
            return Err(open.map_or(Uncertified::Undecided, Uncertified::Unsized));
        }
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
    let plain = system.flows.is_empty() && system.modes.is_empty() && system.switches.is_empty();
    if !plain || system.nodes.iter().any(|node| node.receive.is_some() || node.send.is_some()) {
        return Err(no_proof("the system has flows, modes, or receiving and sending tasks"));
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
    let tree = Tree::new(placed);
    for index in 0..placed.nodes.len() {
        let node = NodeId(index as u32);
        let spec = &placed.nodes[index];
        let mut view = View::new(&tree.system, node, spec.strategy, spec.name.clone()).map_err(no_proof)?;
        tree.add_components(&mut view, node, Enforced::default());
        let prover = NodeProver { system: placed, tree: &tree, units: &view.units, node: &spec.name };
        prover.prove(&mut certificate)?;
    }
    Ok(certificate)
}

fn cpus_of(system: &System, unit: &Unit) -> Vec<u32> {
    let mut cpus = takt_model::CpuSet::default();
    for task in &unit.tasks {
        let task = &system.tasks[task.id.index()];
        cpus = cpus.union(&crate::scope::affinity(task, &system.nodes[task.node.index()]));
    }
    cpus.iter().collect()
}

/// A node whose units are to be proven.
struct NodeProver<'a> {
    system: &'a System,
    tree: &'a Tree,
    units: &'a [Unit],
    node: &'a str,
}

impl NodeProver<'_> {
    /// A proof of a unit, to be filled in.
    fn unit_proof(&self, unit: &Unit, proof: Proof) -> UnitProof {
        let component = unit.served.as_ref().map(|served| served.component);
        let component = component.map(|id| self.system.components[id.index()].name.clone());
        UnitProof { node: self.node.to_owned(), cpus: cpus_of(&self.tree.system, unit), component, proof }
    }

    fn prove(&self, certificate: &mut Certificate) -> Result<(), Uncertified> {
        let mut budget = Budget { points: POINTS_MAX, terms: TERMS_MAX };
        let count = self.tree.system.tasks.len();
        let mut release_delays = vec![0u64; count];
        let tasks = || self.units.iter().flat_map(|unit| &unit.tasks);
        let chains = tasks().any(|task| task.chained);
        // Responses and releases along chains depend on each other, and so does what servers give
        // and when they are done: the least fixed point.
        let mut proofs = Vec::new();
        for round in 0.. {
            let mut ends: Vec<Option<u128>> = vec![None; count];
            proofs.clear();
            for unit in self.units.iter().filter(|unit| !unit.tasks.is_empty()) {
                let mut filled = self.unit_proof(unit, Proof::Levels { tasks: Vec::new(), groups: Vec::new() });
                let part = part(self.system, certificate, &filled, &release_delays, &ends).map_err(no_proof)?;
                let (proof, found) = self.prove_unit(unit, &part, chains, &mut budget)?;
                for (task, end) in unit.tasks.iter().zip(found) {
                    ends[task.id.index()] = Some(end.into());
                }
                filled.proof = proof;
                proofs.push(filled);
            }
            let mut settled = true;
            for task in tasks().filter(|task| task.chained) {
                let after = &self.system.tasks[task.id.index()].after;
                let latest = after.iter().map(|before| ends[before.index()].unwrap_or(0)).max().unwrap_or(0);
                let latest = u64::try_from(latest).map_err(|_| no_proof("times exceed 64 bits"))?;
                settled &= latest <= release_delays[task.id.index()];
                release_delays[task.id.index()] = latest.max(release_delays[task.id.index()]);
            }
            if settled {
                break;
            }
            if round >= ROUNDS_MAX {
                return Err(no_proof("when chains' successors are released"));
            }
        }
        for task in tasks().filter(|task| task.chained) {
            let wander_ns = release_delays[task.id.index()];
            certificate.releases.push(Released { task: task.name.clone(), wander_ns });
        }
        certificate.proofs.append(&mut proofs);
        Ok(())
    }

    /// The first proof of a unit that holds, the shortest forms first; and the latest completions of its tasks after
    /// their sources' arrivals, in ns.
    fn prove_unit(
        &self,
        unit: &Unit,
        part: &Part,
        chains: bool,
        budget: &mut Budget,
    ) -> Result<(Proof, Vec<u64>), Uncertified> {
        let by_deadlines = || part.tasks.iter().map(|task| task.release_delay.saturating_add(task.d)).collect();
        let first_valid = |proofs: Vec<Proof>| proofs.into_iter().find(|proof| holds(part, proof));
        if unit.served.is_some() {
            return level_proof(part, budget)
                .ok_or_else(|| no_proof(format!("the deadlines of \"{}\" under its server's supply", unit.scope)));
        }
        if unit.m > 1 {
            let release_delays = part.tasks.iter().map(|task| (task.id, task.release_delay));
            let carried = ChainBounds::known(&self.tree.system, release_delays);
            let found = first_valid(vec![Proof::Gfb {}]).or_else(|| first_valid(global_proofs(unit, &carried)));
            let found = found.or_else(|| first_valid(cycle_proofs(unit)));
            let found = found.ok_or_else(|| no_proof(format!("the deadlines of \"{}\"", unit.scope)))?;
            let ends = match &found {
                // Bounds of responses release the successors of chains earlier than deadlines do.
                Proof::Global { tasks, .. } => {
                    let response = |work: &Work| tasks.iter().find(|claim| claim.task == work.name);
                    let within = |work: &Work| response(work).map_or(work.d, |claim| claim.response_ns);
                    part.tasks.iter().map(|work| work.release_delay.saturating_add(within(work))).collect()
                }
                _ => by_deadlines(),
            };
            return Ok((found, ends));
        }
        // These proofs bound no response. Chains under fixed priorities need bounds.
        let by_deadline = unit.edf().is_ok();
        if (by_deadline || !chains)
            && let Some(proof) = first_valid(vec![Proof::Hyperbolic {}, Proof::Density {}])
        {
            return Ok((proof, by_deadlines()));
        }
        let release_delays: Vec<u64> = part.tasks.iter().map(|task| task.release_delay).collect();
        if by_deadline
            && let Some(proof) = demand_proof(unit, &release_delays, budget).filter(|proof| holds(part, proof))
        {
            return Ok((proof, by_deadlines()));
        }
        level_proof(part, budget)
            .or_else(|| first_valid(cycle_proofs(unit)).map(|proof| (proof, by_deadlines())))
            .ok_or_else(|| no_proof(format!("the busy windows of \"{}\" do not end early enough", unit.scope)))
    }
}

/// Candidate proofs by a schedule that repeats every hyperperiod: from the largest offset on, or some hyperperiods
/// later. Only for units of periodic tasks.
fn cycle_proofs(unit: &Unit) -> Vec<Proof> {
    let lcm = |lcm: u64, task: &UnitTask| lcm.checked_mul(task.t / takt_model::gcd(lcm, task.t));
    let periodic = unit.tasks.iter().all(|task| task.periodic);
    let cycle = unit.tasks.iter().try_fold(1u64, lcm).filter(|_| periodic);
    let last = unit.tasks.iter().map(|task| task.o).max().unwrap_or(0);
    let from = |k: u64| last.checked_add(cycle?.checked_mul(k)?);
    let proofs = (0..CYCLES_MAX).map_while(from).zip(cycle.into_iter().cycle());
    proofs.map(|(from_ns, cycle_ns)| Proof::Repeats { from_ns, cycle_ns }).collect()
}

/// The work that is left.
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

/// Windows, and groups of keys where these show more; with each task's latest completion after its
/// source's arrival. `None` where a deadline is not kept or a limit is reached.
fn level_proof(part: &Part, budget: &mut Budget) -> Option<(Proof, Vec<u64>)> {
    let time_for = |work: u128| least_time_for(part, u64::try_from(work).ok()?);
    let (mut windows, mut groups) = (Vec::new(), Vec::new());
    let mut ends = vec![0u64; part.tasks.len()];
    for level in 0..part.levels.len() as u32 {
        let here: Vec<usize> = (0..part.tasks.len()).filter(|i| part.tasks[*i].level == level).collect();
        let by_keys = here.len() > 1 && part.levels[level as usize].order != Order::Fifo;
        let alike = |i: &usize| part.tasks[*i].shift == part.tasks[here[0]].shift;
        let together = by_keys && here.iter().all(alike);
        if together && let Some(group) = key_points(part, &here, &time_for, budget) {
            groups.push(group);
            here.iter().for_each(|i| ends[*i] = part.tasks[*i].release_delay.saturating_add(part.tasks[*i].d));
            continue;
        }
        for i in here {
            let task = &part.tasks[i];
            match by_keys.then(|| key_points(part, &[i], &time_for, budget)).flatten() {
                Some(group) => {
                    ends[i] = task.release_delay.saturating_add(task.d);
                    groups.push(group);
                }
                None => {
                    let (windows_ns, end) = response_windows(part, task, &time_for, budget)?;
                    windows.push(Windows { task: task.name.clone(), windows_ns });
                    ends[i] = end;
                }
            }
        }
    }
    let of_keys = groups.iter().map(|group| group.points_ns.len() + 1).sum::<usize>() > 0;
    let proof = match of_keys || part_needs_levels(part) {
        true => Proof::Levels { tasks: windows, groups },
        false => Proof::Responses { tasks: windows },
    };
    Some((proof, ends))
}

/// Whether some level with several tasks is not first come, first served.
fn part_needs_levels(part: &Part) -> bool {
    let several = |level: u32| part.tasks.iter().filter(|task| task.level == level).count() > 1;
    (0..part.levels.len() as u32).any(|level| several(level) && part.levels[level as usize].order != Order::Fifo)
}

/// The least time in ns in which the part gets `work` ns for sure. `None` above 64 bits.
fn least_time_for(part: &Part, work: u64) -> Option<u64> {
    let enough = |t: u64| part.given(t.into()) >= work.into();
    let mut most = work;
    while !enough(most) {
        most = most.checked_mul(2)?;
    }
    // No server gives more than the whole time, and the last doubling was needed.
    let mut few = work.max(most / 2);
    while few < most {
        let middle = few + (most - few) / 2;
        if enough(middle) { most = middle } else { few = middle + 1 }
    }
    Some(most)
}

/// The points of a proof by keys for these tasks, from the largest key down. `None` if a deadline is not kept, or a
/// limit is reached.
fn key_points(
    part: &Part,
    tasks: &[usize],
    time_for: &impl Fn(u128) -> Option<u64>,
    budget: &mut Budget,
) -> Option<Keys> {
    let names: Vec<String> = tasks.iter().map(|i| part.tasks[*i].name.clone()).collect();
    let group = Group::new(part, &names).ok()?;
    let count = 2 * part.tasks.len() + 1;
    let mut horizon_ns = 1;
    loop {
        budget.terms(count)?;
        let next = time_for(group.busy(horizon_ns.into())?)?;
        if next <= horizon_ns {
            break;
        }
        horizon_ns = next;
    }
    let mut points_ns = Vec::new();
    let mut open = group.largest(horizon_ns);
    let mut guess = 1;
    while let Some(x) = group.last(open) {
        budget.point()?;
        let until = u64::try_from(x.checked_add(group.sigma)?).ok()?;
        // First as if nothing below x had to hold, then with what more may have started then.
        let mut t = guess;
        for wide in [false, true] {
            loop {
                budget.terms(count)?;
                let low = if wide { i128::from(t) - group.sigma } else { x };
                let next = time_for(group.work(x, low, t.into())?)?;
                if next <= t {
                    break;
                }
                t = next;
                if t > until {
                    break;
                }
            }
            if t > until {
                break;
            }
        }
        if t > until {
            // Only x itself, at its last instant.
            t = until;
            if u128::from(time_for(group.work(x, x, t.into())?)?) > t.into() {
                return None;
            }
        }
        points_ns.push(t);
        open = i128::from(t) - group.sigma - 1;
        guess = 1;
    }
    Some(Keys { tasks: names, horizon_ns, points_ns })
}

/// The windows of a proof by responses for one task, and its latest completion after its source's arrival. `None` as
/// for [`key_points`].
fn response_windows(
    part: &Part,
    task: &Work,
    time_for: &impl Fn(u128) -> Option<u64>,
    budget: &mut Budget,
) -> Option<(Vec<u64>, u64)> {
    let spread = u64::try_from(task.spread()).ok()?;
    let last = part.last(task);
    let (mut windows, mut end, mut w) = (Vec::new(), 0u64, 1u64);
    let fixed = |q: u64, mut w: u64, last: u64, budget: &mut Budget| {
        loop {
            budget.terms(part.tasks.len() + 1)?;
            let next = time_for(work(part, task, q.into(), w.into(), last)?)?;
            if next <= w {
                return Some(w);
            }
            w = next;
        }
    };
    for q in 0u64.. {
        w = fixed(q, w, last, budget)?;
        budget.point()?;
        windows.push(w);
        let arrival = q.checked_mul(task.t)?;
        if w.checked_add(task.j)?.saturating_sub(arrival.saturating_sub(task.release_delay)) > task.d {
            return None;
        }
        end = end.max(w.checked_add(spread)?.saturating_sub(arrival));
        let close = fixed(q, w, 1, budget)?;
        if close.checked_add(spread)? <= arrival.checked_add(task.t)? {
            if last > 1 {
                windows.push(close);
            }
            return Some((windows, end));
        }
    }
    None
}

/// A proof by processor demand under EDF: a busy period, and points down from it. `None` as for [`key_points`].
fn demand_proof(unit: &Unit, release_delays: &[u64], budget: &mut Budget) -> Option<Proof> {
    let mut tasks = Vec::with_capacity(unit.tasks.len());
    for (task, release_delay) in unit.tasks.iter().zip(release_delays) {
        let d = task.d.checked_sub(task.j)?;
        let burst = if task.chained { release_delay.checked_add(task.j)? } else { 0 };
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
fn global_proofs(unit: &Unit, carried: &ChainBounds) -> Vec<Proof> {
    let rule = if unit.edf().is_ok() { Rule::Edf } else { Rule::Fp };
    let Some(tasks) = crate::apply::sporadic_tasks(unit, carried, rule) else { return Vec::new() };
    let mut found = vec![(false, rta_global::analyse(&tasks, unit.m, rule))];
    if rule == Rule::Fp {
        found.push((true, rta_lc::analyse(&tasks, unit.m)));
    }
    let mut proofs: Vec<Proof> =
        found.into_iter().filter_map(|(limited, bounds)| global_proof(unit, &tasks, limited, &bounds)).collect();
    if rule == Rule::Edf {
        proofs.push(Proof::Bak {});
        let longest = tasks.iter().map(|task| task.t).max().unwrap_or(1);
        let horizons = (0..HORIZONS_MAX).map_while(|k| longest.checked_mul(1 << k));
        proofs.extend(horizons.clone().map(|horizon_ns| Proof::Bar { horizon_ns }));
        if let Some(sigma) = ff_dbf::sigma(&tasks, unit.m) {
            proofs.extend(horizons.map(|horizon_ns| Proof::FfDbf { sigma, horizon_ns }));
        }
    }
    proofs
}

fn global_proof(unit: &Unit, tasks: &[Sporadic], limited: bool, bounds: &Bounds) -> Option<Proof> {
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

/// Candidate refutations of a system, the simplest first.
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
            let set = cpus.iter().copied().collect();
            let together =
                unit.tasks.iter().take(RELEASES_MAX).filter_map(|task| released_together(system, unit, task));
            for arrivals in std::iter::once(densest_arrivals(system, unit)).chain(together) {
                if let Ok((_, Some(task))) = first_miss(system, &name, &set, &arrivals) {
                    // Arrivals after the miss are left out.
                    let until = fewest_arrivals(system, &name, &set, &arrivals, &task);
                    found.push(Witness::Schedule { node: name, cpus, task, arrivals: until });
                    break;
                }
            }
        }
    }
    found
}

/// Tasks for which [`released_together`] is tried.
const RELEASES_MAX: usize = 64;
/// Jobs that it lists.
const RELEASED_MAX: u64 = 10_000;

/// The sporadic tasks up to the level of one arrive together, and then every period. If a less
/// important task can block them, it has started a section just before.
fn released_together(system: &System, unit: &Unit, task: &UnitTask) -> Option<Vec<SporadicArrival>> {
    let SimultaneousRelease { at, before } = SimultaneousRelease::new(unit, task)?;
    let name = |task: &UnitTask| system.tasks[task.id.index()].name.clone();
    let mut all: Vec<SporadicArrival> =
        before.into_iter().map(|(with, at_ns)| SporadicArrival { task: name(with), at_ns }).collect();
    let hep = || unit.tasks.iter().filter(|other| other.level <= task.level && other.sporadic);
    let each = RELEASED_MAX / (hep().count() as u64).max(1);
    let until = at.checked_add(hep().map(|other| other.t).min()?.checked_mul(each)?)?;
    for other in hep() {
        let arrivals = (0..each).map_while(|k| at.checked_add(k.checked_mul(other.t)?)).take_while(|at| *at < until);
        all.extend(arrivals.map(|at_ns| SporadicArrival { task: name(other), at_ns }));
    }
    all.sort_by_key(|arrived| arrived.at_ns);
    Some(all)
}

/// The arrivals of sporadic tasks, as dense as they may be, from their offsets on.
fn densest_arrivals(system: &System, unit: &Unit) -> Vec<SporadicArrival> {
    let sporadic: Vec<TaskId> = unit.tasks.iter().filter(|task| task.sporadic).map(|task| task.id).collect();
    let each = crate::verify::JOBS_MAX / unit.tasks.len().max(1) / 4;
    let longest = unit.tasks.iter().map(|task| task.t).min().unwrap_or(1).saturating_mul(each as u64);
    let mut all = Vec::new();
    for id in sporadic {
        let task = &system.tasks[id.index()];
        let (offset, period) = (task.offset.as_ns(), task.period.as_ns().max(1));
        let count = (longest / period).clamp(1, each.max(1) as u64);
        let at = (0..count).map_while(|k| offset.checked_add(k.checked_mul(period)?));
        all.extend(at.map(|at_ns| SporadicArrival { task: task.name.clone(), at_ns }));
    }
    all.sort_by_key(|arrived| arrived.at_ns);
    all
}

/// The shortest prefix of the arrivals that still ends in a miss of `task`, by bisection.
fn fewest_arrivals(
    system: &System,
    node: &str,
    cpus: &takt_model::CpuSet,
    arrivals: &[SporadicArrival],
    task: &str,
) -> Vec<SporadicArrival> {
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
