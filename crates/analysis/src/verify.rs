//! `takt verify`: an independent checker of certificates.
//!
//! `takt check` searches; this module only checks the result. It shares no code with the tests. It
//! uses `takt_model` (the System, its file, the resolution of a strategy into levels), `serde` and
//! nothing else of this crate; tests/verifier.rs checks this. It contains no search. Every number
//! that was sought stands in the certificate. Each check is an inequality between whole numbers of
//! ns, or the replay of a schedule.
//!
//! | proof | what is checked | file |
//! |---|---|---|
//! | `hyperbolic`, `density`, `gfb` | a sum or product of fractions, rounded up, against its limit | one_cpu, global |
//! | `responses` | windows that hold all work, job by job until the busy window closes | one_cpu |
//! | `levels` | the same, and for jobs by deadline or laxity points that hold all with smaller keys; under the supply of a server, too | keys, component |
//! | `demand` | a busy period that closes, and a chain of points that covers it | one_cpu |
//! | `repeats` | a schedule, replayed until it repeats | schedule |
//! | `bak`, `bar`, `ff-dbf` | global EDF: the work before a miss, within all windows that there are | global |
//! | `global` | response bounds that imply each other | global |
//! | `too-long`, `overload` | a job that cannot fit; more work than CPUs | here |
//! | `schedule` | arrivals that are legal and end in a miss, replayed | schedule |
//!
//! **Why bounds may imply each other.** Bounds of responses, deadlines and the spread of releases
//! along chains are claims about jobs. Suppose the inequality of each claim holds under all others,
//! and look at the first instant at which a claim fails. Its inequality is about a window that ends
//! at this instant, and uses the other claims at earlier instants only. These hold, so the claim
//! holds: contradiction.
//!
//! The following are trusted: the file as the user's intent, `takt_model`'s parser and level
//! resolution, and this module.

mod component;
mod form;
mod global;
mod keys;
mod one_cpu;
mod schedule;

use takt_model::plan::Order;
use takt_model::{Arrival, ComponentId, Costs, CpuSet, NodeId, Plan, PlanLevel, System, TaskId};

use component::Supply;

pub use form::{
    AnyVersion, Certificate, Keys, Placed, Proof, Released, Responding, SporadicArrival, UnitProof, VERSION, Windows,
    Witness,
};
pub(crate) use keys::Group;
pub(crate) use one_cpu::work;
pub use schedule::{JOBS_MAX, first_miss};

/// The statement of an accepted certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Whether every deadline is kept; otherwise some legal behaviour misses one.
    pub schedulable: bool,
    /// Per part: the scope ("n1/cpu0") and the kind of proof.
    pub proofs: Vec<(String, &'static str)>,
    /// The certificate's CPUs for tasks that the file leaves open. The proofs hold for this
    /// placement. Any legal placement is accepted.
    pub placement: Vec<Placed>,
}

/// Why a certificate is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejected {
    /// Not a certificate.
    #[error("this is no certificate: {0}; \"takt check SYSTEM --certificate FILE\" writes one")]
    Form(String),
    /// A certificate of another version.
    #[error("this certificate is of version {0}, and this takt reads version {VERSION}")]
    Version(u64),
    /// About another system.
    #[error("the certificate is about another system: {0}")]
    System(String),
    /// A claim that does not hold, or a part that no claim covers.
    #[error("{0}")]
    Claim(String),
}

/// A claim that does not hold.
type Claim = Result<(), String>;

/// Reads a certificate and checks it against a System.
///
/// # Errors
/// Why it is rejected.
pub fn verify(system: &System, certificate: &str) -> Result<Accepted, Rejected> {
    let version: AnyVersion = serde_json::from_str(certificate).map_err(|error| Rejected::Form(error.to_string()))?;
    if version.version != VERSION {
        return Err(Rejected::Version(version.version));
    }
    let certificate: Certificate =
        serde_json::from_str(certificate).map_err(|error| Rejected::Form(error.to_string()))?;
    accept(system, &certificate)
}

/// Checks a certificate against a System.
///
/// # Errors
/// Why it is rejected.
pub fn accept(system: &System, certificate: &Certificate) -> Result<Accepted, Rejected> {
    let text = takt_model::file::write(system);
    if text != certificate.system {
        let line = text.lines().zip(certificate.system.lines()).position(|(a, b)| a != b);
        let line = line.unwrap_or_else(|| text.lines().count().min(certificate.system.lines().count())) + 1;
        return Err(Rejected::System(format!("they differ from line {line} of the canonical text on")));
    }
    match (&certificate.witness, certificate.schedulable) {
        (None, true) => proven(system, certificate).map_err(Rejected::Claim),
        (Some(witness), false) if certificate.proofs.is_empty() => {
            let (scope, kind) = refuted(system, witness).map_err(Rejected::Claim)?;
            Ok(Accepted { schedulable: false, proofs: vec![(scope, kind)], placement: Vec::new() })
        }
        _ => Err(Rejected::Form("a yes has proofs and no witness, a no a witness and no proofs".to_owned())),
    }
}

/// A task as the proofs see it; times in ns.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) id: TaskId,
    pub(crate) name: String,
    c: u64,
    pub(crate) t: u64,
    pub(crate) d: u64,
    pub(crate) j: u64,
    b: u64,
    /// How far its nominal arrivals wander after their places on the period's grid (a chain's successor).
    pub(crate) release_delay: u64,
    chained: bool,
    /// The first arrival, if it arrives exactly every period from there.
    every: Option<u64>,
    pub(crate) level: u32,
    pub(crate) shift: i64,
    /// Its sections without preemption: first and last CPU time had.
    sections: Vec<(u64, u64)>,
}

impl Work {
    /// By how much its releases are off the period's grid.
    pub(crate) fn spread(&self) -> u128 {
        u128::from(self.release_delay) + u128::from(self.j)
    }
}

/// CPUs with the tasks that run there, and nowhere else.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    scope: String,
    m: u32,
    pub(crate) levels: Vec<PlanLevel>,
    pub(crate) tasks: Vec<Work>,
    costs: Option<Costs>,
    /// Grid of further comparisons of laxities.
    grid: Option<u64>,
    /// The supply of its server; `None`: the CPUs are its own.
    supply: Option<Supply>,
    /// Whether it stands in a component.
    inside: bool,
    /// Decisions fall on this grid; 0: anywhere.
    quantum: u64,
    /// Whether jobs may be omitted.
    cancel: bool,
    /// Whether it holds a server that takes bandwidth, not jobs.
    has_cbs: bool,
    /// How many parts of the certificate are replayed or walked through, and share the time for that.
    replays: usize,
}

impl Part {
    /// Every used level goes first come, first served, or holds one task, so each is a fixed
    /// priority.
    fn fixed(&self) -> Claim {
        let alone = |level: u32| self.tasks.iter().filter(|task| task.level == level).count() == 1;
        let fifo = |level: u32| self.levels[level as usize].order == Order::Fifo;
        match self.tasks.iter().find(|task| !fifo(task.level) && !alone(task.level)) {
            Some(task) => Err(format!("{}: the level of \"{}\" is not fifo", self.scope, task.name)),
            None => Ok(()),
        }
    }

    /// All tasks on one preemptive level by deadline.
    fn edf(&self) -> Claim {
        let first = self.tasks.first();
        let level = first.map(|task| self.levels[task.level as usize]);
        let order = level.is_none_or(|level| level.order == Order::Deadline && level.preemptive);
        let same = |task: &Work| first.is_none_or(|first| task.level == first.level && task.shift == first.shift);
        if order && self.tasks.iter().all(same) { Ok(()) } else { Err(format!("{}: does not run by edf", self.scope)) }
    }

    /// C with the switches and the release of a job on one CPU: its start, and the resumption of
    /// the preempted job. The rest of its last quantum is lost.
    pub(crate) fn charged(&self, task: &Work) -> u128 {
        let costs = self.costs.unwrap_or(Costs::NONE);
        let c = u128::from(task.c) + u128::from(costs.release.as_ns()) + 2 * u128::from(costs.switch.as_ns());
        let quantum = u128::from(self.quantum.max(1));
        if free(&costs) && !self.inside { c.next_multiple_of(quantum) } else { c + quantum - 1 }
    }

    /// CPU time besides jobs. In a server it was charged to the budget.
    pub(crate) fn overheads(&self) -> impl Iterator<Item = (u128, u128, u128)> {
        overheads(self.costs.as_ref().filter(|_| self.supply.is_none()).unwrap_or(&Costs::NONE))
    }

    /// All overheads as one, as often as the most frequent: no less than they take.
    fn tick(&self) -> Result<Option<(u128, u128)>, String> {
        if self.overheads().any(|(_, _, late)| late > 0) {
            return Err(format!("{}: this proof does not count what ordinary threads take", self.scope));
        }
        Ok(self.overheads().map(|(c, t, _)| (c, t)).reduce(|(c, t), (more, often)| (c + more, t.min(often))))
    }

    /// Blocking: work without preemption that delays more important jobs, or jobs of its level with
    /// smaller keys.
    ///
    /// It has run for 1 ns of it. With costs more of it may be left than the section is long, up to all of it.
    fn block(&mut self, servers: bool) -> Claim {
        let with = self.tasks.iter().find(|task| !task.sections.is_empty());
        let Some(Work { name, .. }) = with else { return Ok(()) };
        let laxity = self.tasks.iter().any(|task| self.levels[task.level as usize].order == Order::Laxity);
        if self.m > 1 || self.inside || servers || laxity {
            return Err(format!("certificates do not cover the sections of \"{name}\" there"));
        }
        let key = |task: &Work| i128::from(task.d) + i128::from(task.shift);
        let may_block = |task: &Work, of: &Work| {
            let by_keys = self.levels[of.level as usize].order != Order::Fifo;
            task.level > of.level
                || (task.level == of.level && task.id != of.id && by_keys && key(task) > key(of) - i128::from(of.j))
        };
        let longest = |task: &Work| task.sections.iter().map(|(from, to)| to - from).max().unwrap_or(0);
        let length = |task: &Work| match (longest(task), self.costs.as_ref().is_none_or(free)) {
            (0, _) => 0,
            (section, true) => section.into(),
            (section, false) => self.charged(task).max(section.into()) + 1,
        };
        let blocking: Vec<u128> = (self.tasks.iter())
            .map(|of| self.tasks.iter().filter(|task| may_block(task, of)).map(length).max().unwrap_or(0))
            .collect();
        for (task, section) in self.tasks.iter_mut().zip(blocking) {
            task.b =
                u64::try_from(u128::from(task.b) + section.saturating_sub(1)).map_err(|_| "a time exceeds 64 bits")?;
        }
        Ok(())
    }

    /// The least time on the CPU within t.
    pub(crate) fn given(&self, t: u128) -> u128 {
        self.supply.map_or(t, |supply| supply.within(t))
    }

    fn find(&self, name: &str) -> Result<&Work, String> {
        let found = self.tasks.iter().find(|task| task.name == name);
        found.ok_or_else(|| format!("{}: has no task \"{name}\"", self.scope))
    }
}

/// Whether jobs cost nothing but their WCET.
fn free(costs: &Costs) -> bool {
    let all = [costs.switch, costs.migrate, costs.release, costs.tick, costs.interrupt, costs.ordinary];
    all.iter().all(|cost| cost.is_zero())
}

/// CPU time besides jobs: (amount, period, distance from the grid). Ordinary threads run anywhere
/// in each period: at its end, and from the begin of the next on.
fn overheads(costs: &Costs) -> impl Iterator<Item = (u128, u128, u128)> + use<> {
    let (tick, interrupt) = ((costs.tick, costs.tick_period), (costs.interrupt, costs.interrupt_period));
    let all = [tick, interrupt, (costs.ordinary, costs.ordinary_period)].into_iter().enumerate();
    let numbers = all.map(|(i, (c, t))| (i, u128::from(c.as_ns()), u128::from(t.as_ns().max(1))));
    numbers.filter(|(_, c, _)| *c > 0).map(|(i, c, t)| (c, t, if i == 2 { t.saturating_sub(c) } else { 0 }))
}

/// Sums that do not fit.
fn fits(value: Option<u128>) -> Result<u128, String> {
    value.ok_or_else(|| "a number exceeds 128 bits".to_owned())
}

/// The sum of fractions, in 2^-64, each rounded up.
fn sum_up(fractions: impl Iterator<Item = (u128, u64)>) -> Result<u128, String> {
    fractions.into_iter().try_fold(0u128, |sum, (c, t)| {
        let c = u64::try_from(c).map_err(|_| "a time exceeds 64 bits".to_owned())?;
        fits(sum.checked_add((u128::from(c) << 64).div_ceil(t.max(1).into())))
    })
}

fn proven(system: &System, certificate: &Certificate) -> Result<Accepted, String> {
    if !(system.flows.is_empty() && system.modes.is_empty() && system.switches.is_empty()) {
        return Err("certificates do not cover flows and modes".to_owned());
    }
    if system.nodes.iter().any(|node| node.receive.is_some() || node.send.is_some()) {
        return Err("certificates do not cover receiving and sending tasks".to_owned());
    }
    let release_delays = release_delays(system, certificate)?;
    for (i, placed) in certificate.placement.iter().enumerate() {
        let twice = certificate.placement[..i].iter().any(|before| before.task == placed.task);
        if twice || system.task_by_name(&placed.task).is_none() {
            return Err(format!("\"{}\" is placed twice, or is no task", placed.task));
        }
    }
    let long = |proof: &Proof| matches!(proof, Proof::Repeats { .. } | Proof::Bar { .. } | Proof::FfDbf { .. });
    let replays = certificate.proofs.iter().filter(|unit| long(&unit.proof)).count();
    // By task: the latest completion after the source's nominal arrival, once its part is checked.
    // Servers stand behind the file's tasks.
    let mut ends: Vec<Option<u128>> = vec![None; system.tasks.len() + system.components.len()];
    let mut proofs = Vec::with_capacity(certificate.proofs.len());
    for unit in &certificate.proofs {
        let part = Part { replays, ..part(system, certificate, unit, &release_delays, &ends)? };
        for (id, end) in check_part(&part, &unit.proof)? {
            if ends[id.index()].replace(end).is_some() {
                return Err(format!("{}: a task stands in two parts", part.scope));
            }
        }
        proofs.push((part.scope, unit.proof.kind()));
    }
    disjoint(certificate)?;
    let names = system.tasks.iter().map(|task| &task.name).chain(system.components.iter().map(|server| &server.name));
    for (name, end) in names.zip(&ends) {
        if end.is_none() {
            return Err(format!("nothing is shown of \"{name}\""));
        }
    }
    for (task, release_delay) in system.tasks.iter().zip(&release_delays) {
        for before in &task.after {
            let end = ends[before.index()].unwrap_or(u128::MAX);
            if end > u128::from(*release_delay) {
                let before = &system.tasks[before.index()].name;
                return Err(format!(
                    "\"{}\" may be released {end} ns after its source arrives, when \"{before}\" completes",
                    task.name
                ));
            }
        }
    }
    Ok(Accepted { schedulable: true, proofs, placement: certificate.placement.clone() })
}

/// The claimed delay of releases; zero for tasks without predecessor.
fn release_delays(system: &System, certificate: &Certificate) -> Result<Vec<u64>, String> {
    let mut release_delays = vec![0; system.tasks.len()];
    for released in &certificate.releases {
        let id =
            system.task_by_name(&released.task).ok_or_else(|| format!("there is no task \"{}\"", released.task))?;
        release_delays[id.index()] = released.wander_ns;
    }
    Ok(release_delays)
}

/// No CPU stands in two parts of one level.
fn disjoint(certificate: &Certificate) -> Claim {
    for (i, a) in certificate.proofs.iter().enumerate() {
        for b in &certificate.proofs[..i] {
            if a.node == b.node && a.component == b.component && a.cpus.iter().any(|cpu| b.cpus.contains(cpu)) {
                return Err(format!("a CPU of node \"{}\" stands in two parts", a.node));
            }
        }
    }
    Ok(())
}

/// The CPUs that a task may use: as the file says, or as the certificate places it within these.
fn allowed(system: &System, certificate: Option<&Certificate>, id: TaskId) -> Result<CpuSet, String> {
    let task = &system.tasks[id.index()];
    let node = &system.nodes[task.node.index()];
    let all = CpuSet::first(node.cpus);
    let own = task.cpus.map_or(all, |cpus| cpus.intersection(&all));
    let placed =
        certificate.and_then(|certificate| certificate.placement.iter().find(|placed| placed.task == task.name));
    let Some(placed) = placed else { return Ok(own) };
    let cpus = set(&placed.cpus)?;
    // All of a cluster that the task may use: a node that is not partitioned leaves nothing open,
    // for its scheduler may use every CPU.
    let open = node.clusters().iter().any(|cluster| cpus == own.intersection(cluster));
    if cpus.is_empty() || !open {
        return Err(format!("\"{}\" cannot be placed there", task.name));
    }
    Ok(cpus)
}

fn set(cpus: &[u32]) -> Result<CpuSet, String> {
    match cpus.iter().find(|cpu| **cpu >= CpuSet::CPUS_MAX) {
        Some(cpu) => Err(format!("there is no CPU {cpu}")),
        None => Ok(cpus.iter().copied().collect()),
    }
}

/// The tasks that run on the CPUs of a part: on all of them and on no other. `ends`: what is shown so far.
pub(crate) fn part(
    system: &System,
    certificate: &Certificate,
    unit: &UnitProof,
    release_delays: &[u64],
    ends: &[Option<u128>],
) -> Result<Part, String> {
    let node = system.node_by_name(&unit.node).ok_or_else(|| format!("there is no node \"{}\"", unit.node))?;
    let cpus = set(&unit.cpus)?;
    if cpus.is_empty() || !cpus.is_subset(&CpuSet::first(system.nodes[node.index()].cpus)) {
        return Err(format!("node \"{}\" has no such CPUs", unit.node));
    }
    let named = |name: &String| {
        let id = system.components.iter().position(|component| component.node == node && component.name == *name);
        let id = id.ok_or_else(|| format!("node \"{}\" has no component \"{name}\"", unit.node))?;
        Ok::<_, String>(ComponentId(id as u32))
    };
    let component = unit.component.as_ref().map(named).transpose()?;
    let mut part = whole_part(system, Some(certificate), node, component, &cpus, release_delays)?;
    if let Some(id) = component {
        let parent = system.components[id.index()].parent;
        let above = whole_part(system, Some(certificate), node, parent, &cpus, release_delays)?;
        let end = ends[system.tasks.len() + id.index()];
        part.supply = Some(component::supply(system, id, &above, end, release_delays)?);
    }
    Ok(part)
}

fn whole_part(
    system: &System,
    certificate: Option<&Certificate>,
    node: NodeId,
    component: Option<ComponentId>,
    cpus: &CpuSet,
    release_delays: &[u64],
) -> Result<Part, String> {
    let spec = &system.nodes[node.index()];
    let (servers, quantum) = component::servers(system, node, component, release_delays)?;
    let own = || system.tasks_of(node).filter(|(_, task)| task.component == component);
    let all = || own().chain(servers.iter().map(|(id, task)| (*id, task)));
    let strategy = component.map_or(spec.strategy, |id| system.components[id.index()].strategy);
    let plan = Plan::of_tasks(all(), &system.strategy(strategy)).map_err(|error| error.to_string())?;
    let named: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
    let mut scope = format!("{}/cpu{}", spec.name, named.join(","));
    if let Some(id) = component {
        scope = format!("{}/{}", spec.name, system.components[id.index()].name);
    }
    if !spec.clusters().iter().any(|cluster| cpus.is_subset(cluster)) {
        return Err(format!("{scope}: these CPUs do not lie in one cluster of the placement"));
    }
    let mut tasks = Vec::new();
    for ((id, task), planned) in all().zip(&plan.tasks) {
        let file = id.index() < system.tasks.len();
        let own = if file { allowed(system, certificate, id)? } else { CpuSet::first(spec.cpus) };
        if own.intersection(cpus).is_empty() {
            continue;
        }
        if own != *cpus {
            return Err(format!("{scope}: \"{}\" may run on other CPUs than all of these", task.name));
        }
        tasks.push(Work {
            id,
            name: task.name.clone(),
            c: task.wcet.as_ns(),
            t: task.period.as_ns().max(1),
            d: task.deadline.as_ns(),
            j: if file { system.release_jitter(id) } else { task.jitter }.as_ns(),
            b: task.blocking.as_ns().saturating_add(quantum),
            release_delay: if file { release_delays[id.index()] } else { 0 },
            chained: !task.after.is_empty(),
            every: Some(task.offset.as_ns()).filter(|_| file && task.arrival == Arrival::Periodic),
            level: planned.level,
            shift: planned.shift_ns,
            sections: task.sections().iter().map(|(from, to)| (from.as_ns(), to.as_ns())).collect(),
        });
    }
    let has_cbs = tasks.iter().any(|task| {
        let server = task.id.index().checked_sub(system.tasks.len()).map(|i| system.components[i].server);
        server.is_some_and(component::is_cbs)
    });
    let grid = spec.laxity_quantum.map(|grid| grid.as_ns().max(1));
    let m = cpus.len();
    let mut part = Part {
        scope,
        m,
        levels: plan.levels,
        tasks,
        costs: spec.costs,
        grid,
        supply: None,
        inside: component.is_some(),
        quantum,
        cancel: system.cancels(node),
        has_cbs,
        replays: 1,
    };
    part.block(!servers.is_empty())?;
    Ok(part)
}

/// Checks one part; gives the latest completions of its tasks after their sources' arrivals.
fn check_part(part: &Part, proof: &Proof) -> Result<Vec<(TaskId, u128)>, String> {
    let one = || match part.m {
        1 => Ok(()),
        m => Err(format!("{}: this proof is for one CPU, and here are {m}", part.scope)),
    };
    let of_keys = matches!(proof, Proof::Responses { .. } | Proof::Levels { .. });
    if part.supply.is_some() && !of_keys {
        return Err(format!("{}: this proof is for CPUs, and here is a server", part.scope));
    }
    if part.has_cbs && !matches!(proof, Proof::Density {}) {
        return Err(format!("{}: constant-bandwidth servers take bandwidth, not jobs", part.scope));
    }
    match proof {
        Proof::Hyperbolic {} => one().and_then(|()| one_cpu::hyperbolic(part))?,
        Proof::Density {} => one().and_then(|()| one_cpu::density(part))?,
        Proof::Demand { horizon_ns, points_ns } => {
            one().and_then(|()| one_cpu::demand(part, *horizon_ns, points_ns))?;
        }
        Proof::Responses { tasks } => {
            one().and_then(|()| part.fixed())?;
            return one_cpu::responses(part, tasks, &[]);
        }
        Proof::Levels { tasks, groups } => return one().and_then(|()| one_cpu::responses(part, tasks, groups)),
        Proof::Repeats { from_ns, cycle_ns } => schedule::repeats(part, *from_ns, *cycle_ns)?,
        Proof::Gfb {} => global::gfb(part)?,
        Proof::Bak {} => global::bak(part)?,
        Proof::Bar { horizon_ns } => global::bar(part, *horizon_ns)?,
        Proof::FfDbf { sigma, horizon_ns } => global::forced(part, *sigma, *horizon_ns)?,
        Proof::Global { limited, tasks } => return global::responses(part, *limited, tasks),
    }
    // Deadlines are kept, and count from nominal arrivals.
    Ok(part.tasks.iter().map(|task| (task.id, u128::from(task.release_delay) + u128::from(task.d))).collect())
}

/// Checks a witness; gives its scope and kind.
fn refuted(system: &System, witness: &Witness) -> Result<(String, &'static str), String> {
    match witness {
        Witness::TooLong { task } => {
            let id = system.task_by_name(task).ok_or_else(|| format!("there is no task \"{task}\""))?;
            let task = &system.tasks[id.index()];
            let node = &system.nodes[task.node.index()];
            let (c, j) = (u128::from(task.wcet.as_ns()), u128::from(system.release_jitter(id).as_ns()));
            let must = !system.may_cancel(task);
            if must && c + j > task.deadline.as_ns().into() {
                return Ok((node.name.clone(), "too-long"));
            }
            Err(format!("a job of \"{}\" fits between its release and its deadline", task.name))
        }
        Witness::Overload { node, cpus } => {
            let id = system.node_by_name(node).ok_or_else(|| format!("there is no node \"{node}\""))?;
            let (spec, cpus) = (&system.nodes[id.index()], set(cpus)?);
            let mut sum = 0u128;
            for (id, task) in system.tasks_of(id) {
                let must = !system.may_cancel(task);
                let dense = matches!(task.arrival, Arrival::Periodic | Arrival::Sporadic);
                if must && dense && allowed(system, None, id)?.is_subset(&cpus) {
                    // Rounded down: above the limit here is above it.
                    let share = (u128::from(task.wcet.as_ns()) << 64) / u128::from(task.period.as_ns().max(1));
                    sum = fits(sum.checked_add(share))?;
                }
            }
            if !cpus.is_empty() && sum > u128::from(cpus.len()) << 64 {
                return Ok((spec.name.clone(), "overload"));
            }
            Err(format!("the tasks that are bound to these CPUs of \"{node}\" do not need more than they have"))
        }
        Witness::Schedule { node, cpus, task, arrivals } => {
            schedule::replay(system, node, &set(cpus)?, task, arrivals).map(|scope| (scope, "schedule"))
        }
    }
}

/// Whether this proof holds, given the other claims of the certificate. For makers of certificates.
pub(crate) fn holds(part: &Part, proof: &Proof) -> bool {
    check_part(part, proof).is_ok()
}
