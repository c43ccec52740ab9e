//! A slow, obvious hierarchy of servers on several CPUs that all share, in units of 1 ns.

use std::cmp::Reverse;

use takt_model::{ComponentId, ServerRule, Span, System};

use super::jobs::{Contender, Job, compares, costs, release_all};
use super::servers::{Account, ONE, account, depth, grub_rate, place, quantum, value};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// By its task and its release.
    Job(usize, u64),
    Server(usize),
}

/// A component, or the node.
type Level = Option<usize>;

struct World<'a> {
    system: &'a System,
    /// The component of each server.
    homes: Vec<usize>,
    accounts: Vec<Account>,
    /// The rule, period and budget of each component that were asked for last.
    asked: Vec<(ServerRule, u64, u64)>,
    jobs: Vec<Job>,
    picks: Vec<Vec<Entry>>,
    now: u64,
    /// A job is complete or a budget used up since the last unit.
    news: bool,
    /// What was decided last.
    outcome: Outcome,
}

/// The tasks that run and the servers that pay, as far as they are chosen.
#[derive(Clone, Default)]
struct Outcome {
    run: Vec<usize>,
    payers: Vec<usize>,
    /// By level, the node first: how many CPUs it has, and which entries have one.
    cpus: Vec<usize>,
    served: Vec<Vec<Entry>>,
}

/// The budgets of a component's servers.
fn shares(system: &System, component: usize, period: u64, budget: u64) -> Vec<u64> {
    let component = &system.components[component];
    let quantum = component.quantum.map_or(1, Span::as_ns);
    let whole = period.is_multiple_of(quantum) && budget.is_multiple_of(quantum);
    let quantum = if whole { quantum } else { 1 };
    let mut shares = vec![0; component.cpus as usize];
    let cpus = u64::from(component.cpus);
    (0..budget / quantum).for_each(|k| shares[(k % cpus) as usize] += quantum);
    shares
}

/// Every unit of `duration`: the tasks that run, and a component for each of its servers that pays.
pub(crate) fn run(system: &System, duration: u64) -> Vec<(Vec<usize>, Vec<usize>)> {
    let (mut homes, mut accounts, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    for (i, component) in system.components.iter().enumerate() {
        let (period, budget) = (value(component.period), value(component.budget));
        asked.push((component.server, period, budget));
        for share in shares(system, i, period, budget) {
            homes.push(i);
            accounts.push(account((component.server, period, share), 0));
        }
    }
    let picks = vec![Vec::new(); system.components.len() + 1];
    let (jobs, outcome) = (Vec::new(), Outcome::default());
    let mut world = World { system, homes, accounts, asked, jobs, picks, now: 0, news: true, outcome };
    (0..duration).map(|now| world.unit(now)).collect()
}

impl World<'_> {
    fn unit(&mut self, now: u64) -> (Vec<usize>, Vec<usize>) {
        self.now = now;
        let mut news = std::mem::take(&mut self.news);
        news |= release_all(self.system, &mut self.jobs, now);
        self.switch();
        let mut inside_out: Vec<usize> = (0..self.system.components.len()).collect();
        inside_out.sort_by_key(|component| Reverse(depth(self.system, *component)));
        for component in inside_out {
            let demand = self.eligible(Some(component)).len().min(self.most(Some(component)));
            let mut with_budget = 0;
            for server in (0..self.accounts.len()).filter(|server| self.homes[*server] == component).collect::<Vec<_>>()
            {
                let before = self.accounts[server].state();
                self.accounts[server].update(now, demand > with_budget);
                news |= self.accounts[server].state() != before;
                with_budget += usize::from(self.accounts[server].left > 0);
            }
        }
        if news || compares(self.system, now) {
            self.outcome = self.decide();
        }
        let outcome = self.outcome.clone();
        let rates: Vec<u128> = outcome.payers.iter().map(|server| self.rate(*server)).collect();
        for (server, rate) in outcome.payers.iter().zip(rates) {
            self.accounts[*server].charge(rate);
            self.news |= self.accounts[*server].left == 0;
        }
        let mut payers: Vec<usize> = outcome.payers.iter().map(|server| self.homes[*server]).collect();
        payers.sort_unstable();
        let mut run = outcome.run;
        self.work(&run);
        run.sort_unstable();
        (run, payers)
    }

    /// The first jobs of these tasks have a CPU for one unit. A job keeps its CPU. In the order of the tasks, each
    /// other one gets its last CPU if that is free, else the first free one.
    fn work(&mut self, run: &[usize]) {
        let costs = costs(self.system);
        let first = |task: &usize| self.jobs.iter().position(|job| job.task == *task).expect("it has a job");
        let chosen: Vec<usize> = run.iter().map(first).collect();
        (0..self.jobs.len()).filter(|at| !chosen.contains(at)).for_each(|at| self.jobs[at].stop());
        for at in chosen {
            if self.jobs[at].cpu.is_none() {
                let is_free = |cpu: &usize| self.jobs.iter().all(|job| job.cpu != Some(*cpu));
                let last = self.jobs[at].last_cpu.filter(is_free);
                let cpu = last.or_else(|| (0..self.most(None)).find(is_free)).expect("a CPU is free");
                self.jobs[at].start(cpu, &costs);
            }
            self.jobs[at].work(self.now, &costs);
            self.news |= self.jobs[at].left == 0;
        }
        self.jobs.retain(|job| job.left > 0);
    }

    /// The last terms asked for hold.
    fn switch(&mut self) {
        for switch in self.system.switches.iter().filter(|switch| switch.at.as_ns() == self.now) {
            let component = switch.component.index();
            let (rule, period, budget) = self.asked[component];
            let [period, budget] =
                [(switch.period, period), (switch.budget, budget)].map(|(new, old)| new.map_or(old, Span::as_ns));
            self.asked[component] = (switch.server.unwrap_or(rule), period, budget);
            let servers = (0..self.accounts.len()).filter(|server| self.homes[*server] == component);
            for (server, share) in servers.zip(shares(self.system, component, period, budget)) {
                self.accounts[server].pending = Some((self.asked[component].0, period, share));
            }
        }
    }

    /// The most CPUs of a level.
    fn most(&self, level: Level) -> usize {
        level.map_or(self.system.nodes[0].cpus, |at| self.system.components[at].cpus) as usize
    }

    fn around(&self, server: usize) -> Level {
        self.system.components[self.homes[server]].parent.map(|id| id.index())
    }

    fn is_eligible(&self, entry: Entry) -> bool {
        match entry {
            Entry::Job(..) => true,
            Entry::Server(server) => self.accounts[server].is_eligible(|| self.accounts[server].had_work),
        }
    }

    fn eligible(&self, level: Level) -> Vec<Entry> {
        self.entries(level).into_iter().filter(|entry| self.is_eligible(*entry)).collect()
    }

    /// All jobs and servers, the most important first.
    fn entries(&self, level: Level) -> Vec<Entry> {
        let inside = |of: Option<ComponentId>| of.map(|id| id.index()) == level;
        let strategy = level.map_or(self.system.nodes[0].strategy, |at| self.system.components[at].strategy);
        let mut entries = Vec::new();
        for (i, _) in self.system.tasks.iter().enumerate().filter(|(_, task)| inside(task.component)) {
            if let Some(job) = self.jobs.iter().find(|job| job.task == i) {
                let key = (Contender::of_job(self.system, job).standing(self.system, strategy), job.release);
                entries.push((key, false, i, Entry::Job(i, job.release)));
            }
        }
        for (server, account) in self.accounts.iter().enumerate() {
            let component = &self.system.components[self.homes[server]];
            if inside(component.parent) {
                let contender = account.contender(component.priority);
                let key = (contender.standing(self.system, strategy), account.release);
                entries.push((key, true, server, Entry::Server(server)));
            }
        }
        entries.sort_by_key(|(key, is_server, at, _)| (*key, *is_server, *at));
        entries.into_iter().map(|(.., entry)| entry).collect()
    }

    fn decide(&mut self) -> Outcome {
        let levels = self.system.components.len() + 1;
        let mut outcome = Outcome { cpus: vec![0; levels], served: vec![Vec::new(); levels], ..Outcome::default() };
        outcome.cpus[0] = self.most(None);
        let mut outside_in: Vec<Level> = (0..self.system.components.len()).map(Some).collect();
        outside_in.sort_by_key(|level| level.map(|at| depth(self.system, at)));
        outside_in.insert(0, None);
        // For each server with a CPU: the outer server that gave it the CPU.
        let mut via: Vec<Option<usize>> = vec![None; self.accounts.len()];
        let mut brought: Vec<Vec<Option<usize>>> = vec![Vec::new(); levels];
        brought[0] = vec![None; self.most(None)];
        let mut idle: Vec<usize> = Vec::new();
        for level in &outside_in {
            let at = place(*level);
            if quantum(self.system, *level).is_none_or(|quantum| self.now.is_multiple_of(quantum)) {
                self.picks[at] = self.eligible(*level).into_iter().take(self.most(*level)).collect();
            }
            let mut wasted = Vec::new();
            let cpus = brought[at].clone();
            for (i, from) in cpus.iter().enumerate() {
                let entry = self.picks[at].get(i).copied();
                outcome.served[at].extend(entry);
                match entry {
                    Some(Entry::Job(task, release)) if self.has_job(task, release) => outcome.run.push(task),
                    Some(Entry::Server(server)) if self.accounts[server].left > 0 => {
                        via[server] = *from;
                        outcome.payers.push(server);
                        outcome.cpus[place(Some(self.homes[server]))] += 1;
                        brought[place(Some(self.homes[server]))].push(Some(server));
                    }
                    Some(_) => wasted.push(*from),
                    None => {}
                }
            }
            idle.extend(cpus.iter().skip(self.picks[at].len()).copied().chain(wasted).flatten());
        }
        idle.sort_by_key(|server| Reverse(depth(self.system, self.homes[*server])));
        for server in idle {
            let mut lender = Some(server);
            while let Some(at) = lender {
                if let Some(better) = self.lend(at, &outcome) {
                    outcome = better;
                    break;
                }
                lender = via[at];
            }
        }
        outcome
    }

    fn has_job(&self, task: usize, release: u64) -> bool {
        self.jobs.iter().find(|job| job.task == task).is_some_and(|job| job.release == release)
    }

    /// The outcome with a job on the CPU that a server has no use for.
    fn lend(&self, lender: usize, outcome: &Outcome) -> Option<Outcome> {
        let level = self.around(lender);
        let pays = match self.accounts[lender].rule {
            ServerRule::Wcps => true,
            ServerRule::Crps => false,
            _ => return None,
        };
        if quantum(self.system, level).is_some() {
            return None;
        }
        for entry in self.entries(level) {
            if outcome.served[place(level)].contains(&entry) {
                continue;
            }
            let mut next = outcome.clone();
            next.served[place(level)].push(entry);
            match entry {
                Entry::Job(task, _) => {
                    next.run.push(task);
                    return Some(next);
                }
                Entry::Server(server) => {
                    let inner = Some(self.homes[server]);
                    if pays && !self.is_eligible(entry) || !pays && self.eligible(inner).is_empty() {
                        continue;
                    }
                    if pays {
                        next.payers.push(server);
                    }
                    if self.accept(inner, &mut next) {
                        return Some(next);
                    }
                }
            }
        }
        None
    }

    /// A level gets one CPU more. True if a job runs on it.
    fn accept(&self, level: Level, outcome: &mut Outcome) -> bool {
        let at = place(level);
        if outcome.cpus[at] >= self.most(level) {
            return false;
        }
        let next = match quantum(self.system, level) {
            Some(_) => self.picks[at].get(outcome.cpus[at]).copied(),
            None => self.eligible(level).into_iter().find(|entry| !outcome.served[at].contains(entry)),
        };
        outcome.cpus[at] += 1;
        let Some(entry) = next else { return false };
        outcome.served[at].push(entry);
        match entry {
            Entry::Job(task, release) => {
                let there = self.has_job(task, release);
                if there {
                    outcome.run.push(task);
                }
                there
            }
            Entry::Server(server) if self.accounts[server].left == 0 => false,
            Entry::Server(server) => {
                outcome.payers.push(server);
                if self.accept(Some(self.homes[server]), outcome) {
                    return true;
                }
                if let Some(better) = self.lend(server, outcome) {
                    *outcome = better;
                    return true;
                }
                false
            }
        }
    }

    /// `grub` reclaims among others on one CPU.
    fn rate(&self, server: usize) -> u128 {
        let level = self.around(server);
        if self.accounts[server].rule != ServerRule::Grub || self.most(level) > 1 {
            return ONE;
        }
        let beside = (0..self.accounts.len()).filter(|at| self.around(*at) == level).map(|at| &self.accounts[at]);
        grub_rate(self.system, level, beside, self.now)
    }
}
