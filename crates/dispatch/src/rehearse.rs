//! A plan in virtual time: the dispatcher's own queues, chains and rules, on CPUs that do nothing
//! else. The log equals that of a simulation of the plan's System; tests compare the two.

use std::sync::Arc;

use takt_log::Sink;
use takt_model::draw::Draw;
use takt_model::{Span, System, Task, Time};
use takt_policy::{DeadlineEffect, PolicyError};

use super::adaptive::{Adaptive, Controller};
use super::build::{Places, core, followers, operation_infos, places, tasks};
use super::core::{Core, Counts, End, Upcall};
use super::error::StartError;
use super::fact_log::{FactWriter, Merger};
use super::plan::{Plan, Row};
use super::source::{Overtaken, Source, release};
use crate::ring::Ring;

/// The most facts of one instant on one CPU. Further facts are lost and counted.
const RECORDS: usize = 1 << 14;

struct Started {
    upcall: Upcall,
    /// The CPU time that it still needs.
    left: Span,
}

struct Cpu<'a> {
    core: Core<FactWriter>,
    tasks: Vec<&'a Task>,
    sources: Vec<Source<'a>>,
    /// Started jobs that have not ended.
    started: Vec<Started>,
    /// The slot of the running job, and since when it runs.
    running: Option<(u32, Time)>,
    draws: Vec<Draw>,
    changes: Vec<(u32, DeadlineEffect)>,
}

impl Plan {
    /// Runs the plan in virtual time until `duration` and writes the log to `sink`. Arrivals and
    /// execution times are drawn as by `sim` and `run` with this seed. Each level has one thread,
    /// whatever the plan says. Returns the outcomes of the jobs, by operation.
    ///
    /// # Errors
    /// The plan's tasks cannot be queued.
    pub fn rehearse(
        &self,
        duration: Span,
        seed: u64,
        sink: &mut (impl Sink + ?Sized),
    ) -> Result<Vec<(String, Counts)>, PolicyError> {
        let at = self.modes.iter().zip(1..).filter_map(|(mode, plan)| Some((mode.at?, plan)));
        self.rehearse_with(None, &at.collect::<Vec<_>>(), duration, seed, sink)
    }

    /// As [`Plan::rehearse`] with these switches, in order of time, in place of a System's modes. Each is
    /// a time and a plan (0: of the start, k: of the k-th mode).
    ///
    /// # Errors
    /// The plan's tasks cannot be queued.
    pub fn rehearse_switched(
        &self,
        switches: &[(Time, usize)],
        duration: Span,
        seed: u64,
        sink: &mut (impl Sink + ?Sized),
    ) -> Result<Vec<(String, Counts)>, PolicyError> {
        self.rehearse_with(None, switches, duration, seed, sink)
    }

    /// As [`Plan::rehearse`] with a controller that moves between two plans, and without the modes'
    /// times.
    ///
    /// # Errors
    /// The plan's tasks cannot be queued, or the controller does not fit the plan.
    pub fn rehearse_adaptive(
        &self,
        law: &Adaptive,
        duration: Span,
        seed: u64,
        sink: &mut (impl Sink + ?Sized),
    ) -> Result<Vec<(String, Counts)>, StartError> {
        match law.wrong(self) {
            Some(wrong) => Err(StartError::Adaptive(wrong)),
            None => Ok(self.rehearse_with(Some(law), &[], duration, seed, sink)?),
        }
    }

    fn rehearse_with(
        &self,
        law: Option<&Adaptive>,
        switches: &[(Time, usize)],
        duration: Span,
        seed: u64,
        sink: &mut (impl Sink + ?Sized),
    ) -> Result<Vec<(String, Counts)>, PolicyError> {
        let released = self.released_by_ends();
        let plan: &Plan = &released;
        let end = Time::ZERO.saturating_add(duration);
        let nodes = plan.system.nodes.get(plan.node.index());
        let places = places(plan);
        let (mut cpus, mut fact_logs) = (Vec::new(), Vec::new());
        let rates = |cpu| plan.rows.iter().filter(move |row| row.cpu == cpu).map(|row| tasks(plan, row.task)).collect();
        let rates: Vec<Vec<_>> = (0..nodes.map_or(1, |node| node.cpus)).map(rates).collect();
        for cpu in 0..nodes.map_or(1, |node| node.cpus) {
            let ring = Arc::new(Ring::new(RECORDS));
            let mut core = core(plan, &places, cpu, FactWriter::new(ring.clone()))?;
            if let Some(law) = law {
                core.watch(law.calm, law.dangers(plan, cpu));
            }
            fact_logs.push((ring, operation_infos(plan, cpu)));
            let here = plan.rows.iter().filter(|row| row.cpu == cpu);
            cpus.push(Cpu::new(
                core,
                &plan.system,
                here,
                rates.get(cpu as usize).map_or(&[], Vec::as_slice),
                seed,
                end,
            ));
        }
        let mut merger = Merger::new(plan.node.0, fact_logs);
        let mut controller = law.map(|law| Controller::new(law.clone(), cpus.len()));
        let mut switches = switches.iter().copied().peekable();
        let mut now = Time::ZERO;
        loop {
            cpus.iter_mut().for_each(|cpu| cpu.core.advance(now));
            let mut first = true;
            loop {
                let mut quiet = true;
                for cpu in &mut cpus {
                    quiet &= !cpu.complete(now);
                }
                quiet &= !release_followers(&mut cpus, plan, &places, now);
                for cpu in &mut cpus {
                    if first {
                        cpu.core.pass_deadlines(now);
                        cpu.stop_dropped();
                    }
                }
                for cpu in &mut cpus {
                    quiet &= !cpu.release(now);
                }
                while first && let Some((_, plan)) = switches.next_if(|(at, _)| *at <= now) {
                    switch(&mut cpus, plan, now);
                    // Arrivals at this instant may differ from those before.
                    for cpu in &mut cpus {
                        cpu.release(now);
                    }
                }
                if let Some(plan) = controller.as_mut().and_then(|controller| control(controller, &cpus, now)) {
                    switch(&mut cpus, plan, now);
                }
                quiet &= !release_followers(&mut cpus, plan, &places, now);
                for cpu in &mut cpus {
                    quiet &= !cpu.dispatch(now);
                }
                quiet &= !release_followers(&mut cpus, plan, &places, now);
                first = false;
                if quiet {
                    break;
                }
            }
            merger.drain(|_| now, sink);
            let next = cpus.iter().filter_map(|cpu| cpu.next(now)).chain(switches.peek().map(|(at, _)| *at));
            let next = next.chain(controller.as_ref().map(Controller::window_end)).min();
            let Some(next) = next.filter(|next| *next < end) else { break };
            now = next;
        }
        // A job that completes exactly at the end is complete.
        for cpu in &mut cpus {
            cpu.complete(end);
        }
        merger.finish(end, sink);
        let of = |row: &Row| {
            let place = places.get(&row.task)?;
            Some((row.name.clone(), cpus.get(place.cpu as usize)?.core.counts(place.slot, end)?))
        };
        Ok(plan.rows.iter().filter_map(of).collect())
    }
}

fn switch(cpus: &mut [Cpu<'_>], plan: usize, now: Time) {
    for cpu in cpus {
        cpu.core.switch(plan, now, &mut cpu.changes);
        cpu.stop_dropped();
    }
}

/// The plan that the controller asks for now.
fn control(controller: &mut Controller, cpus: &[Cpu<'_>], now: Time) -> Option<usize> {
    let danger = cpus.iter().filter_map(|cpu| cpu.core.first_danger()).any(|danger| danger <= now);
    let over = controller.window_end() <= now;
    let guard = if danger { controller.endangered(now) } else { None };
    guard.or_else(|| over.then(|| controller.window(now, danger, cpus.iter().map(|cpu| cpu.core.busy(now))))?)
}

/// Notifies followers of ended jobs. Returns whether any were on other CPUs.
fn release_followers(cpus: &mut [Cpu<'_>], plan: &Plan, places: &Places, now: Time) -> bool {
    let mut any = false;
    loop {
        for cpu in cpus.iter_mut() {
            while cpu.core.release_followers(now) {}
        }
        let ended = cpus.iter_mut().enumerate().find_map(|(cpu, at)| Some((cpu, at.core.take_ended()?)));
        let Some((cpu, ended)) = ended else { return any };
        any = true;
        let Some(task) = cpus.get(cpu).and_then(|cpu| cpu.core.task(ended.slot)) else { continue };
        for place in followers(plan, places, task).iter().filter(|place| place.cpu as usize != cpu) {
            if let Some(cpu) = cpus.get_mut(place.cpu as usize) {
                cpu.core.follow(place.slot, ended);
            }
        }
    }
}

impl<'a> Cpu<'a> {
    fn new<'r>(
        core: Core<FactWriter>,
        system: &'a System,
        rows: impl Iterator<Item = &'r Row>,
        rates: &'a [Vec<Option<Arc<Task>>>],
        seed: u64,
        end: Time,
    ) -> Cpu<'a> {
        let tasks: Vec<&Task> = rows.filter_map(|row| system.tasks.get(row.task.index())).collect();
        let draws: Vec<Draw> = tasks.iter().map(|task| Draw::new(seed, &task.name)).collect();
        let sources = rates.iter().zip(&draws).zip(0..);
        let sources = sources.filter_map(|((tasks, draw), slot)| Source::new(slot, tasks, *draw, end)).collect();
        Cpu { core, tasks, sources, started: Vec::new(), running: None, draws, changes: Vec::new() }
    }

    fn at(&self, slot: u32) -> Option<usize> {
        self.started.iter().position(|started| started.upcall.slot == slot)
    }

    /// Ends the running job if it is complete. Returns whether it was.
    fn complete(&mut self, now: Time) -> bool {
        let Some((slot, since)) = self.running else { return false };
        let Some((at, started)) = self.at(slot).and_then(|at| Some((at, self.started.get_mut(at)?))) else {
            return false;
        };
        started.left = started.left.saturating_sub(now.saturating_since(since));
        self.running = Some((slot, now));
        if !started.left.is_zero() {
            return false;
        }
        let over = self.started.swap_remove(at);
        self.core.end(over.upcall, End::Completed, now);
        self.running = None;
        true
    }

    fn stop_dropped(&mut self) {
        while let Some((slot, number)) = self.core.take_stopped() {
            self.started.retain(|started| started.upcall.slot != slot || started.upcall.number != number);
            self.running = self.running.filter(|(running, _)| *running != slot);
        }
    }

    fn release(&mut self, now: Time) -> bool {
        let mut any = false;
        loop {
            let (count, next) = release(&mut self.core, &mut self.sources, now, Overtaken::Queued);
            any |= count > 0;
            if next > now {
                return any;
            }
        }
    }

    /// Runs the job of the most important seat that has one: a started job, or else the first
    /// waiting job. Returns whether a job started.
    fn dispatch(&mut self, now: Time) -> bool {
        self.core.compare(now);
        for seat in 0..self.core.seat_count() as u32 {
            let is_here = |slot: u32| self.core.seat(slot) == Some(seat);
            let here = |started: &&Started| is_here(started.upcall.slot);
            if self.running.is_some_and(|(slot, _)| is_here(slot)) {
                return false;
            }
            if let Some(started) = self.started.iter().find(here) {
                self.running = Some((started.upcall.slot, now));
                return false;
            }
            let Some(upcall) = self.core.next(seat, now) else { continue };
            let slot = upcall.slot as usize;
            let drawn = self.tasks.get(slot).zip(self.draws.get(slot));
            let left = drawn.map_or(Span::ZERO, |(task, draw)| draw.exec(task, upcall.number));
            self.started.push(Started { upcall, left });
            self.running = Some((upcall.slot, now));
            return true;
        }
        self.running = None;
        false
    }

    fn next(&self, now: Time) -> Option<Time> {
        let runs = self.running.and_then(|(slot, since)| since.checked_add(self.started.get(self.at(slot)?)?.left));
        let releases = self.sources.iter().filter_map(|source| Some(source.peek()?.release)).min();
        let deadline = self.core.next_deadline().filter(|deadline| *deadline > now);
        let danger = self.core.next_danger().filter(|danger| *danger > now);
        let comparison = self.core.next_comparison().filter(|at| *at > now);
        runs.into_iter().chain(releases).chain(deadline).chain(danger).chain(comparison).min()
    }
}

#[cfg(test)]
mod tests {
    use takt_log::Event;
    use takt_model::{Builtin, NodeId, StrategyRef};

    use super::super::{Limits, Operation, Operations};
    use super::*;

    /// The switches of a controller within 400 ms: when, in ms, and to which plan. One of two CPUs
    /// has all the work. A critical operation gets 5 of 20 ms in calm, and needs 90 ms.
    fn changes(cpu: u32, law: Adaptive) -> Vec<(u64, u32)> {
        let ms = Span::from_ms;
        let set = Operations::new("two")
            .cpus(2)
            .with(Operation::periodic("critical", ms(200)).wcet(ms(90)).on_cpu(cpu))
            .with(Operation::periodic("quick", ms(20)).wcet(ms(15)).noncritical().on_cpu(cpu))
            .with(Operation::periodic("elsewhere", ms(200)).wcet(ms(1)).on_cpu(1 - cpu));
        let system = set.to_system(&Builtin::Rm.strategy()).unwrap();
        let guard = StrategyRef::Builtin(Builtin::RmsMlf);
        let (plan, _) = Plan::compute_adaptive(&system, NodeId(0), guard, &Limits::default()).unwrap();
        let mut told: Vec<(u32, Time, Event)> = Vec::new();
        plan.rehearse_adaptive(&law.response("critical", ms(90)), ms(400), 0, &mut told).unwrap();
        let change = |(_, at, event): &(u32, Time, Event)| match event {
            Event::ModeChange { mode } => Some((at.as_ns() / 1_000_000, *mode)),
            _ => None,
        };
        told.iter().filter_map(change).collect()
    }

    fn law() -> Adaptive {
        Adaptive { margin: Span::ZERO, ..Adaptive::between(0, 1).reclaiming(Span::from_ms(20)) }
    }

    #[test]
    fn a_controller_looks_at_all_cpus() {
        for cpu in [0, 1] {
            // In danger from 110 ms on, and complete at 175 ms. Calm does not return at the ends of
            // windows in between.
            assert_eq!(changes(cpu, law()), [(110, 1), (180, 0), (310, 1), (380, 0)], "CPU {cpu}");
            // Its CPU is busy for more than half of each window until 300 ms. A quick job waited
            // until 290 ms and completes at 305 ms. The next quick job found no room.
            assert_eq!(changes(cpu, Adaptive { load_ppm: 500_000, ..law() }), [(110, 1), (320, 0)], "CPU {cpu}");
        }
    }
}
