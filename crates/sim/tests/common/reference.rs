//! The slow, obvious simulator. It advances by one nanosecond at a time and sorts all jobs anew at
//! every decision. It shares only the model (strategies as levels, draws) with the code under test.
//! It determines the level of a task by itself.

use std::collections::VecDeque;

use takt_log::{CancelCause, Event, JobKey, Parent};
use takt_model::*;

#[derive(Clone, Debug)]
struct Job {
    key: JobKey,
    arrival: u64,
    release: u64,
    deadline: u64,
    origin: u64,
    /// Work left, overheads included.
    left: u64,
    /// CPU time had, which laxity counts.
    received: u64,
    /// Rest of a tick that the job suffers now.
    stolen: u64,
    started: bool,
    demoted: bool,
    missed: bool,
    /// Known to the scheduler (it is its task's head).
    known: bool,
    cpu: Option<u32>,
    last_cpu: Option<u32>,
}

/// How an instance of a successor stands: how many predecessors are awaited, whether one did not complete, origin.
type Instance = (usize, bool, u64);

struct Reference<'a> {
    system: &'a System,
    node: NodeId,
    /// The node's strategy in each mode.
    strategies: Vec<Strategy>,
    mode: usize,
    now: u64,
    jobs: Vec<VecDeque<Job>>,
    arrivals: Vec<std::iter::Peekable<std::iter::Take<Arrivals<'a>>>>,
    instances: Vec<VecDeque<Instance>>,
    next_instance: Vec<u64>,
    group_of: Vec<usize>,
    groups: Vec<CpuSet>,
    touched: Vec<bool>,
    events: Vec<(u64, Event)>,
    /// Tasks whose head was omitted in the dispatch under way.
    omitted: Vec<usize>,
    seed: u64,
}

/// Simulates one node of the system for `duration` nanoseconds.
pub(crate) fn reference(system: &System, id: NodeId, seed: u64, duration: u64) -> Vec<(u64, Event)> {
    let node = &system.nodes[id.index()];
    let mut modes: Vec<Mode> = system.modes.iter().filter(|mode| mode.node == id).cloned().collect();
    modes.sort_by_key(|mode| mode.at);
    let strategies = std::iter::once(node.strategy)
        .chain(modes.iter().map(|mode| mode.strategy))
        .map(|strategy| system.strategy(strategy))
        .collect();
    let (groups, group_of) = groups(system, id);
    let count = system.tasks.len();
    // Tasks of other nodes never arrive.
    let most = |task: &Task| if task.node == id { usize::MAX } else { 0 };
    let mut world = Reference {
        system,
        node: id,
        strategies,
        mode: 0,
        now: 0,
        jobs: vec![VecDeque::new(); count],
        arrivals: (system.tasks.iter().enumerate())
            .map(|(i, task)| {
                let jitter = system.release_jitter(TaskId(i as u32));
                Arrivals::with_jitter(task, jitter, Draw::new(seed, &task.name)).take(most(task)).peekable()
            })
            .collect(),
        instances: vec![VecDeque::new(); count],
        next_instance: vec![0; count],
        touched: vec![false; groups.len()],
        group_of,
        groups,
        events: Vec::new(),
        omitted: Vec::new(),
        seed,
    };
    for now in 0..=duration {
        world.now = now;
        loop {
            let before = world.events.len();
            world.complete();
            world.miss();
            if now == duration {
                break;
            }
            world.release(duration);
            while modes.first().is_some_and(|mode| mode.at.as_ns() <= now) {
                modes.remove(0);
                world.switch();
            }
            if node.laxity_quantum.is_some_and(|quantum| now % quantum.as_ns() == 0) {
                world.touched.fill(true);
            }
            world.end_sections();
            world.dispatch();
            if world.events.len() == before {
                break;
            }
        }
        world.work();
    }
    world.events
}

/// The level that takes a task, and its place within a split level. Smaller is more important.
fn place(strategy: &Strategy, task: &Task) -> (usize, i64) {
    let takes = |level: &Level| match &level.filter {
        Filter::Rest => true,
        Filter::Named(names) => names.contains(&task.name),
        Filter::Where { criticality, importance, priority } => {
            (criticality.is_none() || *criticality == Some(task.criticality))
                && (importance.is_none() || *importance == Some(task.importance))
                && (priority.is_none() || *priority == task.priority)
        }
    };
    let level = (0..strategy.levels.len()).find(|level| takes(&strategy.levels[*level])).unwrap();
    let within = match strategy.levels[level].split {
        Split::None => 0,
        Split::Priority => i64::from(task.priority.unwrap()),
        Split::Period => task.period.as_ns() as i64,
        Split::Deadline => task.deadline.as_ns() as i64,
        Split::Criticality => i64::from(task.criticality == Criticality::Low),
        Split::Importance => -i64::from(task.importance),
    };
    (level, within)
}

/// CPUs that share jobs, directly or through others; tasks of other nodes stand in the first group.
fn groups(system: &System, node: NodeId) -> (Vec<CpuSet>, Vec<usize>) {
    let cpus = system.nodes[node.index()].cpus;
    let allowed = |task: &Task| task.cpus.unwrap_or(CpuSet::first(cpus));
    let mut groups: Vec<CpuSet> = (0..cpus).map(|cpu| CpuSet::range(cpu, cpu + 1)).collect();
    loop {
        let joined = system.tasks.iter().filter(|task| task.node == node).find_map(|task| {
            let mut touching = (0..groups.len()).filter(|i| !groups[*i].intersection(&allowed(task)).is_empty());
            Some((touching.next()?, touching.next()?))
        });
        let Some((a, b)) = joined else { break };
        let gone = groups.remove(b);
        groups[a] = groups[a].union(&gone);
    }
    let home = |task: &Task| groups.iter().position(|group| allowed(task).is_subset(group)).unwrap();
    let of = |task: &Task| if task.node == node { home(task) } else { 0 };
    let group_of = system.tasks.iter().map(of).collect();
    (groups, group_of)
}

impl<'a> Reference<'a> {
    fn say(&mut self, event: Event) {
        self.events.push((self.now, event));
    }

    fn complete(&mut self) {
        for task in 0..self.jobs.len() {
            let Some(job) = self.jobs[task].front().filter(|job| job.left == 0).cloned() else { continue };
            let Some(cpu) = job.cpu else { continue };
            self.say(Event::Complete { job: job.key, cpu });
            self.end(task, true);
        }
    }

    /// The head of a task goes; the next moves up; successors learn.
    fn end(&mut self, task: usize, completed: bool) {
        let job = self.jobs[task].pop_front().unwrap();
        self.touched[self.group_of[task]] = true;
        self.release_successors(task, job.key.number, completed, job.origin);
        self.move_up(task);
    }

    fn release_successors(&mut self, task: usize, number: u64, completed: bool, origin: u64) {
        for (id, successor) in self.system.tasks.iter().enumerate() {
            if !successor.after.contains(&TaskId(task as u32)) {
                continue;
            }
            let at = (number - self.next_instance[id]) as usize;
            while self.instances[id].len() <= at {
                self.instances[id].push_back((successor.after.len(), false, u64::MAX));
            }
            let instance = &mut self.instances[id][at];
            instance.0 -= 1;
            instance.1 |= !completed;
            instance.2 = instance.2.min(origin);
        }
    }

    /// Makes the front job of a task known to the scheduler.
    fn move_up(&mut self, task: usize) {
        let now = self.now;
        let late_rule = self.late_rule(task);
        let Some(job) = self.jobs[task].front_mut() else { return };
        if job.known {
            return;
        }
        job.known = true;
        let late = job.deadline <= now;
        job.demoted = late && late_rule == Late::Demote;
        if late && late_rule == Late::Drop {
            self.drop_late(task);
        } else {
            self.touched[self.group_of[task]] = true;
        }
    }

    fn spec(&self) -> &'a NodeSpec {
        &self.system.nodes[self.node.index()]
    }

    fn late_rule(&self, task: usize) -> Late {
        let (strategy, task) = (&self.strategies[self.mode], &self.system.tasks[task]);
        task.late.unwrap_or(strategy.levels[place(strategy, task).0].late)
    }

    /// Whether the head has started on a level that is not preemptive.
    fn keeps_level(&self, task: usize) -> bool {
        let (strategy, spec) = (&self.strategies[self.mode], &self.system.tasks[task]);
        let (head, level) = (&self.jobs[task][0], &strategy.levels[place(strategy, spec).0]);
        head.started && !head.demoted && !level.preemptive
    }

    fn drop_late(&mut self, task: usize) {
        let job = self.jobs[task][0].key;
        if !std::mem::replace(&mut self.jobs[task][0].missed, true) {
            self.say(Event::Miss { job });
        }
        self.say(Event::Cancel { job, cause: CancelCause::Late });
        self.end(task, false);
    }

    fn miss(&mut self) {
        for task in 0..self.jobs.len() {
            let now = self.now;
            let late: Vec<JobKey> = self.jobs[task]
                .iter_mut()
                .filter(|job| !job.missed && job.deadline <= now)
                .map(|job| {
                    job.missed = true;
                    job.key
                })
                .collect();
            late.iter().for_each(|job| self.say(Event::Miss { job: *job }));
            for job in late {
                if self.jobs[task].front().is_some_and(|head| head.key == job) {
                    match self.late_rule(task) {
                        Late::Continue => {}
                        Late::Drop => self.drop_late(task),
                        Late::Demote => {
                            self.jobs[task][0].demoted = !self.keeps_level(task);
                            self.touched[self.group_of[task]] = true;
                        }
                    }
                }
            }
        }
    }

    fn release(&mut self, duration: u64) {
        for task in 0..self.jobs.len() {
            if self.system.tasks[task].after.is_empty() {
                let now = Time::from_ns(self.now);
                while let Some(next) = self.arrivals[task].next_if(|job| job.release <= now) {
                    let arrival = next.arrival.as_ns();
                    self.add(task, next.number, arrival, arrival);
                }
            }
        }
        // Shedding makes further instances due, in any order of the file.
        while let Some(task) = (0..self.jobs.len()).find(|t| self.instances[*t].front().is_some_and(|i| i.0 == 0)) {
            let (_, shed, origin) = self.instances[task].pop_front().unwrap();
            let number = self.next_instance[task];
            self.next_instance[task] += 1;
            if shed {
                let job = JobKey { task: TaskId(task as u32), number };
                let parent = Some(Parent { hop: self.hop(task), origin: Time::from_ns(origin) });
                self.say(Event::Release { job, arrival: Time::from_ns(self.now), parent });
                self.say(Event::Cancel { job, cause: CancelCause::Shed });
                self.release_successors(task, number, false, origin);
            } else {
                self.add(task, number, self.now, origin);
            }
        }
        assert!(self.now < duration);
    }

    fn hop(&self, task: usize) -> u32 {
        self.system.tasks[task].after.iter().map(|before| self.hop(before.index()) + 1).max().unwrap_or(0)
    }

    fn add(&mut self, task: usize, number: u64, arrival: u64, origin: u64) {
        let spec = &self.system.tasks[task];
        let key = JobKey { task: TaskId(task as u32), number };
        let parent = (!spec.after.is_empty()).then(|| Parent { hop: self.hop(task), origin: Time::from_ns(origin) });
        self.say(Event::Release { job: key, arrival: Time::from_ns(arrival), parent });
        let exec = Draw::new(self.seed, &spec.name).exec(spec, number).as_ns();
        let deadline = arrival + spec.deadline.as_ns();
        let missed = deadline <= self.now;
        if missed {
            self.say(Event::Miss { job: key });
        }
        let overhead = self.spec().costs.map_or(0, |costs| costs.release.as_ns());
        self.jobs[task].push_back(Job {
            key,
            arrival,
            release: self.now,
            deadline,
            origin,
            left: exec + overhead,
            received: 0,
            stolen: 0,
            started: false,
            demoted: false,
            missed,
            known: false,
            cpu: None,
            last_cpu: None,
        });
        self.move_up(task);
    }

    fn switch(&mut self) {
        self.mode += 1;
        self.say(Event::ModeChange { mode: self.mode as u32 });
        for task in (0..self.jobs.len()).filter(|task| self.system.tasks[*task].node == self.node).collect::<Vec<_>>() {
            let rule = self.late_rule(task);
            let now = self.now;
            let keeps = !self.jobs[task].is_empty() && self.keeps_level(task);
            if let Some(job) = self.jobs[task].front_mut() {
                let late = job.deadline <= now;
                job.demoted = late && rule == Late::Demote && !keeps;
                if late && rule == Late::Drop {
                    self.drop_late(task);
                }
            }
        }
        self.touched.fill(true);
    }

    /// Whether the head of a task is within a non-preemptive section, and whether it is at the end of
    /// a section but not of its job.
    fn section(&self, task: usize) -> (bool, bool) {
        let (spec, job) = (&self.system.tasks[task], &self.jobs[task][0]);
        let (had, wcet) = (job.received, spec.wcet.as_ns());
        if job.cpu.is_none() {
            return (false, false);
        }
        match &spec.preemption {
            Preemption::Anywhere => (false, false),
            Preemption::Until(last) => (had + last.as_ns() > wcet, false),
            Preemption::Between(lengths) => {
                let mut ends: Vec<u64> = vec![0];
                lengths.iter().for_each(|length| ends.push(ends[ends.len() - 1] + length.as_ns()));
                let between = ends[..ends.len() - 1].contains(&had);
                (!between, between && had > 0)
            }
        }
    }

    fn end_sections(&mut self) {
        for task in 0..self.jobs.len() {
            if !self.jobs[task].is_empty() && self.section(task).1 {
                self.touched[self.group_of[task]] = true;
            }
        }
    }

    fn importance(&self, task: usize) -> (bool, bool, (usize, i64), u32, i64, i64, u64, usize) {
        let strategy = &self.strategies[self.mode];
        let (spec, job) = (&self.system.tasks[task], &self.jobs[task][0]);
        let place = place(strategy, spec);
        let level = &strategy.levels[place.0];
        let phase = match (level.preemptive, job.cpu, job.started) {
            (false, Some(_), _) => 0,
            (false, None, true) => 1,
            _ => 2,
        };
        let deadline = job.deadline as i64;
        let key = match &level.discipline {
            Discipline::Fifo => job.release as i64,
            Discipline::Deadline => deadline,
            Discipline::Gel { shift } => deadline + shift.get(&spec.name).map_or(0, |shift| shift.as_ns()),
            Discipline::Laxity => deadline - spec.wcet.as_ns().saturating_sub(job.received) as i64,
        };
        let tie = if level.importance_ties { -i64::from(spec.importance) } else { 0 };
        // Kept, it goes before all that is not.
        if self.section(task).0 {
            return (false, false, (0, 0), 0, 0, 0, job.arrival, task);
        }
        (true, job.demoted, place, phase, key, tie, job.arrival, task)
    }

    fn dispatch(&mut self) {
        for group in 0..self.groups.len() {
            if std::mem::take(&mut self.touched[group]) {
                self.dispatch_group(group);
            }
        }
    }

    /// CPUs by the rule: running jobs keep theirs, the others in order take their last or the lowest free one.
    fn assign(&self, chosen: &[usize]) -> Option<Vec<u32>> {
        let mut taken: Vec<u32> = chosen.iter().filter_map(|task| self.jobs[*task][0].cpu).collect();
        let mut cpus = Vec::new();
        for task in chosen {
            let job = &self.jobs[*task][0];
            let cpu = match job.cpu {
                Some(cpu) => cpu,
                None => {
                    let allowed = self.system.tasks[*task].cpus.unwrap_or(self.groups[self.group_of[*task]]);
                    let free: Vec<u32> = allowed.iter().filter(|cpu| !taken.contains(cpu)).collect();
                    let cpu = job.last_cpu.filter(|last| free.contains(last)).or(free.first().copied())?;
                    taken.push(cpu);
                    cpu
                }
            };
            cpus.push(cpu);
        }
        Some(cpus)
    }

    /// Decides until nothing changes.
    fn dispatch_group(&mut self, group: usize) {
        loop {
            let before = self.events.len();
            self.decide(group);
            if self.events.len() == before {
                break;
            }
        }
        // The successors of omitted jobs come into play after completions of this instant.
        for task in std::mem::take(&mut self.omitted) {
            self.end(task, false);
        }
    }

    fn decide(&mut self, group: usize) {
        let mut order: Vec<usize> = (0..self.jobs.len())
            .filter(|t| self.group_of[*t] == group && self.jobs[*t].front().is_some_and(|j| j.known))
            .collect();
        order.sort_by_key(|task| self.importance(*task));
        let mut chosen: Vec<usize> = Vec::new();
        let mut omitted: Vec<usize> = Vec::new();
        for task in order.iter().copied() {
            let mut more = chosen.clone();
            more.push(task);
            if self.assign(&more).is_none() {
                continue;
            }
            let (spec, job) = (&self.system.tasks[task], &self.jobs[task][0]);
            let left = job.deadline.saturating_sub(self.now);
            let may_cancel =
                spec.criticality == Criticality::Low && spec.cancel.unwrap_or(self.spec().cancel) && !job.started;
            if may_cancel && spec.wcet.as_ns() > left {
                omitted.push(task);
            } else {
                chosen = more;
            }
        }
        let cpus = self.assign(&chosen).unwrap();
        for task in order.iter().copied().filter(|task| !chosen.contains(task)) {
            let job = &mut self.jobs[task][0];
            if let Some(cpu) = job.cpu.take() {
                job.last_cpu = Some(cpu);
                job.stolen = 0;
                let job = job.key;
                self.say(Event::Preempt { job, cpu });
            }
        }
        for (task, cpu) in chosen.into_iter().zip(cpus) {
            let costs = self.spec().costs;
            let job = &mut self.jobs[task][0];
            if job.cpu.is_some() {
                continue;
            }
            let moved = job.last_cpu.filter(|last| *last != cpu);
            job.left += costs.map_or(0, |c| c.switch.as_ns() + moved.map_or(0, |_| c.migrate.as_ns()));
            job.cpu = Some(cpu);
            let resumed = std::mem::replace(&mut job.started, true);
            let job = job.key;
            if let Some(from) = moved {
                self.say(Event::Migrate { job, from, to: cpu });
            }
            self.say(if resumed { Event::Resume { job, cpu } } else { Event::Start { job, cpu } });
        }
        for task in omitted {
            let job = self.jobs[task][0].key;
            self.say(Event::Cancel { job, cause: CancelCause::Omitted });
            self.jobs[task][0].known = false;
            self.omitted.push(task);
        }
    }

    /// One nanosecond passes.
    fn work(&mut self) {
        let costs = self.spec().costs.unwrap_or(Costs::NONE);
        for job in self.jobs.iter_mut().filter_map(VecDeque::front_mut).filter(|job| job.cpu.is_some()) {
            work(&costs, self.now, &mut job.received, &mut job.stolen, &mut job.left);
        }
    }
}

/// A job has its CPU for one nanosecond.
pub(crate) fn work(costs: &Costs, now: u64, received: &mut u64, stolen: &mut u64, left: &mut u64) {
    for (cost, period) in [(costs.tick, costs.tick_period), (costs.interrupt, costs.interrupt_period)] {
        if now.is_multiple_of(period.as_ns()) {
            *stolen += cost.as_ns();
        }
    }
    *received += 1;
    if ordinary_threads_run(costs, now) {
        // No job gets anything done.
    } else if *stolen > 0 {
        *stolen -= 1;
    } else {
        *left -= 1;
    }
}

/// Whether ordinary threads have the CPUs: at the end of even periods and at the start of odd ones.
fn ordinary_threads_run(costs: &Costs, now: u64) -> bool {
    let (amount, period) = (costs.ordinary.as_ns(), costs.ordinary_period.as_ns());
    let rest = now % period;
    if (now / period).is_multiple_of(2) { rest >= period - amount } else { rest < amount }
}
