//! How a dispatcher's jobs find their workers.

use takt_log::{CancelCause, Event, JobKey};
use takt_model::Time;

use super::super::lane::{Job, Lane, Place};
use super::{FREES, Merge, TAKES};

impl Merge {
    /// The worker that has this CPU and no job.
    pub(super) fn free_worker(&self, cpu: u32) -> Option<usize> {
        let free = |lane: &Lane| {
            lane.worker.is_some_and(|worker| worker.works) && lane.open.is_none() && lane.place == Place::On { cpu }
        };
        self.lanes.iter().position(free)
    }

    /// The open jobs of workers.
    pub(super) fn worker_jobs(&mut self) -> impl Iterator<Item = &mut Option<Job>> {
        let workers = self.lanes.iter_mut().filter(|lane| lane.worker.is_some());
        workers.map(|lane| &mut lane.open).chain(self.unassigned.values_mut())
    }

    /// Whether the kernel's account says which of the dispatcher's threads has this CPU, or that
    /// none has.
    fn is_known(&self, cpu: u32) -> bool {
        let here = |lane: &&Lane| lane.worker.is_some_and(|worker| worker.cpu == cpu);
        self.lanes.iter().filter(here).all(|lane| lane.place != Place::Unknown)
    }

    /// A job starts on a CPU, and no worker without a job is known to have the CPU.
    pub(super) fn start_unassigned(&mut self, at: Time, job: JobKey, cpu: u32) {
        self.push_line(at, TAKES, Event::Start { job, cpu });
        let missing = self.is_known(cpu) && !self.unassigned.contains_key(&cpu);
        self.count_missing(u64::from(missing));
        self.evict_workers(at, cpu, None);
        self.unassigned.insert(cpu, Some(Job { key: job, cpu, is_waiting: false, agrees: false }));
        if self.open_losses > 0 {
            self.push_line(at, TAKES, Event::Gap { job });
        }
    }

    /// A dispatcher's job completes or is cancelled.
    pub(super) fn end_worker_job(&mut self, at: Time, job: JobKey, event: Event) {
        let is = |open: &Option<Job>| open.is_some_and(|open| open.key == job);
        if let Some(lane) = self.lanes.iter().position(|lane| is(&lane.open))
            && let Some(state) = self.lanes.get_mut(lane)
        {
            // A job that is dropped at its deadline need not have its CPU.
            let dropped = matches!(event, Event::Cancel { cause: CancelCause::Late, .. });
            let cpu = state.open.take().map_or(0, |open| open.cpu);
            if !dropped && !state.confirm_on_cpu(cpu) {
                self.push_lane_line(lane, at, FREES, Event::Gap { job });
            }
            self.push_lane_line(lane, at, FREES, event);
        } else {
            self.unassigned.values_mut().filter(|open| is(open)).for_each(|open| *open = None);
            self.push_line(at, FREES, event);
        }
    }

    /// Jobs of a task end in turn. So the end of an earlier job that is still open was lost.
    pub(super) fn forget_before(&mut self, job: JobKey) {
        let stale = |open: &mut Job| open.key.task == job.task && open.key.number < job.number;
        for open in self.worker_jobs() {
            open.take_if(stale);
        }
    }

    /// Takes a CPU from each of the dispatcher's threads but one. Returns the number of jobs that
    /// had the CPU by the log. No switch shows that they lost the CPU.
    fn evict_workers(&mut self, at: Time, cpu: u32, but: Option<usize>) -> u64 {
        let mut lost = 0;
        for lane in 0..self.lanes.len() {
            let on = |state: &&mut Lane| state.worker.is_some() && state.place == Place::On { cpu };
            let Some(state) = self.lanes.get_mut(lane).filter(on).filter(|_| but != Some(lane)) else { continue };
            state.place = Place::Ready;
            let open = state.open.map(|open| open.key);
            lost += u64::from(std::mem::take(&mut state.unconfirmed) || open.is_some());
            if let Some(job) = open {
                self.push_lane_line(lane, at, FREES, Event::Gap { job });
            }
        }
        if let Some(Job { key: job, .. }) = self.unassigned.remove(&cpu).flatten() {
            lost += 1;
            self.push_line(at, FREES, Event::Gap { job });
        }
        lost
    }

    /// A CPU goes to worker `to`, or to a thread of another program. No other worker has the CPU.
    pub(super) fn switch_cpu_to(&mut self, at: Time, cpu: u32, to: Option<usize>) {
        let known = self.is_known(cpu);
        let lost = self.evict_workers(at, cpu, to);
        self.count_missing(if known { lost } else { 0 });
        for (lane, state) in self.lanes.iter_mut().enumerate() {
            let here = state.worker.is_some_and(|worker| worker.cpu == cpu) && to != Some(lane);
            if here && state.place == Place::Unknown {
                state.place = Place::Ready;
            }
        }
    }

    /// A worker leaves a CPU. If the switch to the worker is missing, it gets the CPU's unassigned
    /// job.
    pub(super) fn assign_job(&mut self, lane: usize, cpu: u32) {
        let Some(state) = self.lanes.get_mut(lane) else { return };
        let works = state.worker.is_some_and(|worker| worker.works);
        if works
            && state.open.is_none()
            && state.place != (Place::On { cpu })
            && let Some(job) = self.unassigned.remove(&cpu)
        {
            (state.open, state.place) = (job, Place::On { cpu });
        }
    }
}
