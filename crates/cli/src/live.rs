//! Statistics of a log that is still growing, shared between the reader and the display.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use takt_log::stats::{Collector, Stats};
use takt_log::{Definition, Definitions, Event, Header, KindSet, Sink};
use takt_model::Time;
use takt_trace::infer::{Inferred, JobSeen, Sample, Sampler};

use crate::failure::Failure;
use crate::input;

/// A [`Sink`] that others look at while it counts.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// From the log's head on.
    collector: Option<Collector>,
    keeps_jobs: bool,
    jobs: Option<Jobs>,
    latest: Time,
    /// The log has ended, well or not.
    ended: Option<Result<(), Failure>>,
}

/// The events, job by job, with the head and the definitions of the log.
#[derive(Clone)]
pub(crate) struct Jobs {
    header: Header,
    definitions: Definitions,
    sampler: Sampler,
}

impl Jobs {
    /// The jobs of each task, and the inferred parameters. Inference leaves out jobs that arrived
    /// before the log began: their timers' expiries stand at the log's beginning.
    pub(crate) fn infer(self) -> (Vec<Sample>, Inferred, Definitions) {
        let samples = self.sampler.finish(&self.definitions);
        let mut known = samples.clone();
        known.iter_mut().for_each(|sample| sample.jobs.retain(|job| job.arrival > Time::ZERO));
        let inferred = Inferred::of_log(&known, &self.header, &self.definitions);
        (samples, inferred, self.definitions)
    }
}

impl Live {
    /// One that also keeps every job.
    pub(crate) fn keeping_jobs() -> Live {
        let live = Live::default();
        live.state().keeps_jobs = true;
        live
    }

    /// The jobs so far; `None` where they are not kept, or the log has not begun.
    pub(crate) fn jobs(&self) -> Option<Jobs> {
        self.state().jobs.clone()
    }

    /// How many jobs of the task with this end of a name have completed so far, and how long they
    /// took was seen; none where jobs are not kept.
    pub(crate) fn completed(&self, suffix: &str) -> usize {
        let state = self.state();
        let Some(jobs) = &state.jobs else { return 0 };
        let tasks = jobs.definitions.tasks.iter().zip(jobs.sampler.so_far());
        let of_it = tasks.filter(|(task, _)| task.name.ends_with(suffix));
        let counts = |job: &&JobSeen| job.exec.is_some() && job.arrival > Time::ZERO;
        of_it.map(|(_, sample)| sample.jobs.iter().filter(counts).count()).sum()
    }

    pub(crate) fn begin(&self, header: &Header, definitions: &Definitions) {
        let mut state = self.state();
        state.collector = Some(Collector::for_log(header, definitions));
        if state.keeps_jobs {
            let (header, definitions) = (header.clone(), definitions.clone());
            let sampler = Sampler::new(&header, true);
            state.jobs = Some(Jobs { header, definitions, sampler });
        }
    }

    /// Reads a log in a thread of its own, which ends with the log or the process.
    pub(crate) fn follow(path: &str) -> Result<Live, Failure> {
        let live = Live::default();
        let (reader, path) = (live.clone(), path.to_owned());
        let started = std::thread::Builder::new().name("takt-reader".to_owned()).spawn(move || {
            let result = reader.read(&path);
            reader.state().ended = Some(result);
        });
        match started {
            Ok(_) => Ok(live),
            Err(error) => Err(Failure::trouble(format_args!("cannot start a thread to read the log: {error}"))),
        }
    }

    /// Counts the events of `work` in a thread of its own. The thread ends with `work` or the
    /// process.
    pub(crate) fn count(
        work: impl FnOnce(Live) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(Live, JoinHandle<()>), Failure> {
        let live = Live::default();
        let counted = live.clone();
        let started = std::thread::Builder::new().name("takt-recorder".to_owned()).spawn(move || {
            let result = work(counted.clone());
            counted.state().ended = Some(result);
        });
        match started {
            Ok(thread) => Ok((live, thread)),
            Err(error) => Err(Failure::trouble(format_args!("cannot start a thread to record: {error}"))),
        }
    }

    fn read(&self, path: &str) -> Result<(), Failure> {
        let mut log = input::log(path)?;
        self.begin(log.header(), log.definitions());
        let end = log.copy_to(&mut self.clone()).map_err(|error| input::log_failure(path, &error))?;
        self.state().latest = end;
        Ok(())
    }

    /// How far the log has come, and whether it has ended. The failure of the reader is told once.
    pub(crate) fn progress(&self) -> Result<(Time, bool), Failure> {
        let mut state = self.state();
        if let Some(Err(failure)) = &state.ended {
            let failure = failure.clone();
            state.ended = Some(Ok(()));
            return Err(failure);
        }
        Ok((state.latest, state.ended.is_some()))
    }

    /// All numbers so far; `None` before the log's head has come.
    pub(crate) fn stats(&self) -> Option<Stats> {
        let (collector, latest) = {
            let state = self.state();
            (state.collector.clone()?, state.latest)
        };
        Some(collector.finish(latest))
    }

    /// The log reaches to `end`: all numbers, none where it never began.
    pub(crate) fn finish(&self, end: Time) -> Stats {
        self.state().latest = end;
        self.stats().unwrap_or_else(|| Collector::new(&Definitions::default(), KindSet::EMPTY).finish(end))
    }

    /// The statistics since the last cut, and their end.
    pub(crate) fn cut(&self) -> Option<(Time, Stats)> {
        let mut state = self.state();
        let latest = state.latest;
        Some((latest, state.collector.as_mut()?.cut(latest)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The numbers are whole after every event, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Live {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        let mut state = self.state();
        state.latest = state.latest.max(now);
        if let Some(collector) = &mut state.collector {
            collector.event(stream, now, event);
        }
        if let Some(jobs) = &mut state.jobs {
            jobs.sampler.event(stream, now, event);
        }
    }

    fn define(&mut self, stream: u32, now: Time, definition: &Definition) {
        let mut state = self.state();
        if let Some(collector) = &mut state.collector {
            collector.define(stream, now, definition);
        }
        if let Some(jobs) = &mut state.jobs {
            // Definitions with gaps do not come from a rebuilder.
            let _ = jobs.definitions.apply(definition.clone());
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}
