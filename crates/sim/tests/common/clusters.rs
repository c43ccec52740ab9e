//! A slow, obvious hierarchy of servers on several CPUs, in units of 1 ns.

use std::cmp::Reverse;

use takt_model::{Builtin, ComponentId, Span, StrategyRef, System};

use super::servers::{Account, ONE, account, value};

struct Job {
    task: usize,
    release: u64,
    left: u64,
    deadline: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// By its task and its release.
    Job(usize, u64),
    Server(usize),
}

struct World<'a> {
    system: &'a System,
    /// Of each server, the component.
    homes: Vec<usize>,
    accounts: Vec<Account>,
    jobs: Vec<Job>,
    picks: Vec<Vec<Entry>>,
    now: u64,
}

/// Every unit of `duration`: the tasks that run, and a component for each of its servers that pays.
pub(crate) fn run(system: &System, duration: u64) -> Vec<(Vec<usize>, Vec<usize>)> {
    let (mut homes, mut accounts) = (Vec::new(), Vec::new());
    for (i, component) in system.components.iter().enumerate() {
        let (period, budget, cpus) = (value(component.period), value(component.budget), u64::from(component.cpus));
        let quantum = component.quantum.map_or(1, Span::as_ns);
        let whole = period.is_multiple_of(quantum) && budget.is_multiple_of(quantum);
        let quantum = if whole { quantum } else { 1 };
        let mut shares = vec![0; cpus as usize];
        (0..budget / quantum).for_each(|k| shares[(k % cpus) as usize] += quantum);
        for share in shares.into_iter().filter(|share| *share > 0) {
            homes.push(i);
            accounts.push(account((component.server, period, share), 0));
        }
    }
    let picks = vec![Vec::new(); system.components.len() + 1];
    let mut world = World { system, homes, accounts, jobs: Vec::new(), picks, now: 0 };
    (0..duration).map(|now| world.unit(now)).collect()
}

impl World<'_> {
    fn unit(&mut self, now: u64) -> (Vec<usize>, Vec<usize>) {
        self.now = now;
        for (i, task) in self.system.tasks.iter().enumerate() {
            let (offset, period) = (task.offset.as_ns(), task.period.as_ns());
            if now >= offset && (now - offset).is_multiple_of(period) {
                let deadline = now + task.deadline.as_ns();
                self.jobs.push(Job { task: i, release: now, left: task.wcet.as_ns(), deadline });
            }
        }
        let outer = |id: &ComponentId| self.system.components[id.index()].parent;
        let depth = |at: usize| std::iter::successors(self.system.components[at].parent, outer).count();
        let mut inside_out: Vec<usize> = (0..self.accounts.len()).collect();
        inside_out.sort_by_key(|server| Reverse(depth(self.homes[*server])));
        for server in inside_out {
            let work = self.wants(Some(self.homes[server]));
            self.accounts[server].update(now, work);
        }
        let (mut run, mut payers) = (Vec::new(), Vec::new());
        self.give(None, self.system.nodes[0].cpus as usize, &mut run, &mut payers);
        let mut levels: Vec<usize> = (0..self.system.components.len()).collect();
        levels.sort_by_key(|level| depth(*level));
        for level in levels {
            let cpus = payers.iter().filter(|server| self.homes[**server] == level).count();
            self.give(Some(level), cpus, &mut run, &mut payers);
        }
        payers.iter().for_each(|server| self.accounts[*server].pay(ONE));
        let mut components: Vec<usize> = payers.iter().map(|server| self.homes[*server]).collect();
        components.sort_unstable();
        run.sort_unstable();
        for task in &run {
            let job = self.jobs.iter().position(|job| job.task == *task).expect("it has a job");
            self.jobs[job].left -= 1;
        }
        self.jobs.retain(|job| job.left > 0);
        (run, components)
    }

    fn wants(&self, level: Option<usize>) -> bool {
        !self.entries(level).is_empty()
    }

    /// All that would use a CPU, the most important first.
    fn entries(&self, level: Option<usize>) -> Vec<Entry> {
        let inside = |of: Option<ComponentId>| of.map(|id| id.index()) == level;
        let strategy = level.map_or(self.system.nodes[0].strategy, |at| self.system.components[at].strategy);
        let StrategyRef::Builtin(strategy) = strategy else { panic!("a named strategy") };
        let key = |release: u64, deadline: u64, period: u64, priority: Option<u32>| match strategy {
            Builtin::Edf => (deadline, release),
            Builtin::Rm => (period, release),
            Builtin::Fp => (u64::from(priority.expect("a priority")), release),
            Builtin::Fifo => (release, release),
            other => panic!("{other:?}"),
        };
        let mut entries = Vec::new();
        for (i, task) in self.system.tasks.iter().enumerate().filter(|(_, task)| inside(task.component)) {
            if let Some(job) = self.jobs.iter().find(|job| job.task == i) {
                let key = key(job.release, job.deadline, task.period.as_ns(), task.priority);
                entries.push((key, false, i, Entry::Job(i, job.release)));
            }
        }
        for (server, account) in self.accounts.iter().enumerate() {
            let component = &self.system.components[self.homes[server]];
            if inside(component.parent) && account.is_eligible(|| self.wants(Some(self.homes[server]))) {
                let key = key(account.release, account.deadline, value(component.period), component.priority);
                entries.push((key, true, server, Entry::Server(server)));
            }
        }
        entries.sort_by_key(|(key, is_server, at, _)| (*key, *is_server, *at));
        entries.into_iter().map(|(.., entry)| entry).collect()
    }

    /// Gives a level CPUs.
    fn give(&mut self, level: Option<usize>, cpus: usize, run: &mut Vec<usize>, payers: &mut Vec<usize>) {
        let place = level.map_or(0, |at| at + 1);
        let inner = self.system.components.iter().filter(|one| one.parent.map(|id| id.index()) == level);
        let quantum = inner.filter_map(|component| component.quantum).max();
        if quantum.is_none_or(|quantum| self.now.is_multiple_of(quantum.as_ns())) {
            let most = level.map_or(self.system.nodes[0].cpus, |at| self.system.components[at].cpus);
            self.picks[place] = self.entries(level).into_iter().take(most as usize).collect();
        }
        for entry in self.picks[place].iter().take(cpus) {
            match *entry {
                Entry::Job(task, release) => {
                    let job = self.jobs.iter().find(|job| job.task == task);
                    run.extend(job.filter(|job| job.release == release).map(|job| job.task));
                }
                Entry::Server(server) if self.accounts[server].left > 0 => payers.push(server),
                Entry::Server(_) => {}
            }
        }
    }
}
