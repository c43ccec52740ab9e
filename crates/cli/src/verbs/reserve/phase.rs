//! One look at a thread: the kernel recorded for a while, and its jobs.

use takt_linux::clock;
use takt_linux::{Epoch, process::Identity};
use takt_model::{Span, Time};
use takt_trace::infer::{InferredTask, JobSeen, Kind};

use crate::args;
use crate::failure::Failure;
use crate::live::Live;
use crate::verbs::observe::beside::Beside;

const LOOK: Span = Span::from_ms(20);
const COUNT: Span = Span::from_ms(500);

/// How long to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopRule {
    /// So long.
    Time(Span),
    /// So many jobs have completed, or so long.
    Jobs { enough: usize, most: Span },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    pub(super) duration: Span,
    /// Jobs of the thread, in the order of their arrivals.
    pub(super) jobs: Vec<JobSeen>,
    /// What they tell; `None` where there were none.
    pub(super) task: Option<InferredTask>,
    /// Other periodic threads that were recorded: their names with ids, their periods.
    pub(super) others: Vec<(String, Span)>,
    pub(super) defects: Vec<String>,
    /// When the recording ended, on its own clock.
    pub(super) end: Time,
    /// CPU time that the hypervisor took meanwhile, over all CPUs.
    pub(super) steal: Option<Span>,
}

/// Looks at a thread, with the others of its process and what they start, until it is enough, the
/// thread has ended, or `stop` says so.
pub(super) fn look(
    thread: Identity,
    process: u32,
    until: StopRule,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Phase, Failure> {
    let mut options = args::Observe::everything();
    options.pid = vec![process];
    let live = Live::keeping_jobs();
    let before = clock::steal();
    let recording = Beside::start(options, Some(live.clone()))?;
    let suffix = format!("-{}", thread.pid);
    let duration = wait(&recording, thread, &suffix, until, &live, stop);
    let (stats, recording) = recording.finish()?;
    let steal = before.zip(clock::steal()).map(|(before, after)| after.saturating_sub(before));
    let mut phase = Phase { duration, defects: recording.defects(), steal, ..Phase::default() };
    phase.end = Time::from_ns(stats.duration_ns);
    let Some(jobs) = live.jobs() else { return Ok(phase) };
    let (samples, inferred, definitions) = jobs.infer();
    for (task, sample) in definitions.tasks.iter().zip(samples) {
        let known = inferred.tasks.iter().find(|inferred| inferred.name == task.name);
        if task.name.ends_with(&suffix) {
            phase.jobs.extend(sample.jobs);
            phase.task = known.cloned().or(phase.task);
        } else if let Some(period) =
            known.filter(|known| known.arrivals.kind == Kind::Periodic).and_then(InferredTask::period)
        {
            phase.others.push((task.name.clone(), period));
        }
    }
    Ok(phase)
}

fn wait(
    recording: &Beside,
    thread: Identity,
    suffix: &str,
    until: StopRule,
    live: &Live,
    stop: &mut dyn FnMut() -> bool,
) -> Span {
    let epoch = Epoch::now_is_zero();
    let so_far = || epoch.now().saturating_since(Time::ZERO);
    let (most, enough) = match until {
        StopRule::Time(time) => (time, usize::MAX),
        StopRule::Jobs { enough, most } => (most, enough),
    };
    let mut counted = Span::ZERO;
    while so_far() < most && !recording.has_ended() && !stop() && thread.is_alive() {
        clock::pause(LOOK.min(most.saturating_sub(so_far())));
        if enough < usize::MAX && so_far() >= counted.saturating_add(COUNT) {
            counted = so_far();
            if live.completed(suffix) >= enough {
                break;
            }
        }
    }
    so_far()
}
