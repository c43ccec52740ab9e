//! Messages of a picture: from their send to their receive.
//!
//! A receiving job takes several messages and releases a job for each, at the end of its own. So the
//! job that a message releases has the number of its instance, on a hop of the same flow, in the
//! same stream and at the same instant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use takt_log::{Event, JobKey};
use takt_model::Time;

use crate::scene::Scene;

/// The most messages on their way whose send is kept.
const OPEN_MAX: usize = 1 << 16;

/// A message of a chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrow {
    /// The task that left it: index into [`Scene::tasks`].
    pub task: usize,
    /// The number of that task's job.
    pub job: u64,
    /// When it was sent. A message that was dropped before its send has the time of the drop.
    pub sent: Time,
    /// When it was received or dropped; the end of the chart if it was still on its way.
    pub until: Time,
    /// Its outcome.
    pub fate: Fate,
}

/// The outcome of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was received, and released a job of this task. A message that releases no job has the
    /// receiving task here.
    Received(usize),
    /// It was lost or dropped.
    Dropped,
    /// It was on its way when the chart ended.
    OnItsWay,
}

impl Fate {
    /// The task at which it was received.
    #[must_use]
    pub const fn receiver(self) -> Option<usize> {
        match self {
            Fate::Received(task) => Some(task),
            Fate::Dropped | Fate::OnItsWay => None,
        }
    }
}

/// Finds the job that each received message releases. `T` is what the caller keeps of a message.
#[derive(Clone, Debug)]
pub(crate) struct Deliveries<T> {
    streams: BTreeMap<u32, Stream<T>>,
}

#[derive(Clone, Debug)]
struct Stream<T> {
    /// The task whose job completed last: the receiving task, when a message is received.
    completed: Option<usize>,
    at: Time,
    taken: Vec<(JobKey, T)>,
}

impl<T> Default for Deliveries<T> {
    fn default() -> Self {
        Deliveries { streams: BTreeMap::new() }
    }
}

impl<T> Deliveries<T> {
    fn stream(&mut self, stream: u32) -> &mut Stream<T> {
        self.streams.entry(stream).or_insert_with(|| Stream { completed: None, at: Time::ZERO, taken: Vec::new() })
    }

    pub(crate) fn completed(&mut self, stream: u32, task: usize) {
        self.stream(stream).completed = Some(task);
    }

    /// A message of `job` was received. `make` gets the receiving task, if it is known. Returns the
    /// messages of earlier instants that released no job.
    pub(crate) fn taken(
        &mut self,
        stream: u32,
        now: Time,
        job: JobKey,
        make: impl FnOnce(Option<usize>) -> T,
    ) -> Vec<T> {
        let stream = self.stream(stream);
        let mut before = Vec::new();
        if stream.at != now {
            before.extend(stream.taken.drain(..).map(|(_, kept)| kept));
            stream.at = now;
        }
        stream.taken.push((job, make(stream.completed)));
        before
    }

    pub(crate) fn released(&mut self, scene: &Scene, stream: u32, now: Time, job: JobKey) -> Option<T> {
        let stream = self.streams.get_mut(&stream).filter(|stream| stream.at == now)?;
        let flow = |job: JobKey| flow_of(&scene.tasks.get(job.task.index())?.name);
        let of = flow(job)?;
        let at = stream.taken.iter().position(|(sent, _)| sent.number == job.number && flow(*sent) == Some(of))?;
        Some(stream.taken.remove(at).1)
    }

    pub(crate) fn finish(self) -> impl Iterator<Item = T> {
        self.streams.into_values().flat_map(|stream| stream.taken.into_iter().map(|(_, kept)| kept))
    }
}

fn flow_of(name: &str) -> Option<&str> {
    Some(name.rsplit_once('/')?.0)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ArrowKeeper {
    /// By task and message: the time of the send, and the sending job.
    open: BTreeMap<(usize, u64), (Time, u64)>,
    sends: BTreeSet<(Time, usize, u64)>,
    deliveries: Deliveries<Arrow>,
    arrows: VecDeque<Arrow>,
}

impl ArrowKeeper {
    pub(crate) fn event(&mut self, scene: &Scene, stream: u32, now: Time, event: &Event) -> usize {
        let before = self.arrows.len();
        match *event {
            Event::Complete { job, .. } => self.deliveries.completed(stream, job.task.index()),
            Event::Send { job, message, .. } => {
                let task = job.task.index();
                self.take(task, message);
                self.open.insert((task, message), (now, job.number));
                self.sends.insert((now, task, message));
                if self.sends.len() > OPEN_MAX
                    && let Some((_, task, message)) = self.sends.pop_first()
                {
                    self.open.remove(&(task, message));
                }
            }
            Event::Receive { job, message, .. } => {
                let task = job.task.index();
                let Some((sent, number)) = self.take(task, message) else { return 0 };
                let arrow = |to: Option<usize>| {
                    let fate = to.map_or(Fate::OnItsWay, Fate::Received);
                    Arrow { task, job: number, sent, until: now, fate }
                };
                self.arrows.extend(self.deliveries.taken(stream, now, job, arrow));
            }
            Event::Release { job, parent: Some(_), .. } => {
                if let Some(arrow) = self.deliveries.released(scene, stream, now, job) {
                    self.arrows.push_back(Arrow { fate: Fate::Received(job.task.index()), ..arrow });
                }
            }
            Event::Drop { job, message, .. } => {
                let task = job.task.index();
                let (sent, number) = self.take(task, message).unwrap_or((now, job.number));
                self.arrows.push_back(Arrow { task, job: number, sent, until: now, fate: Fate::Dropped });
            }
            _ => {}
        }
        self.arrows.len() - before
    }

    fn take(&mut self, task: usize, message: u64) -> Option<(Time, u64)> {
        let (sent, number) = self.open.remove(&(task, message))?;
        self.sends.remove(&(sent, task, message));
        Some((sent, number))
    }

    pub(crate) fn len(&self) -> usize {
        self.arrows.len()
    }

    pub(crate) fn forget_before(&mut self, since: Time) {
        self.arrows.retain(|arrow| arrow.until >= since);
    }

    /// The arrows that touch the window, in the order of their sends.
    pub(crate) fn arrows(self, from: Time, to: Time) -> Vec<Arrow> {
        let open = self.open.into_iter().map(|((task, _), (sent, job))| Arrow {
            task,
            job,
            sent,
            until: to,
            fate: Fate::OnItsWay,
        });
        let mut arrows: Vec<Arrow> = self.arrows.into_iter().chain(self.deliveries.finish()).chain(open).collect();
        arrows.retain(|arrow| arrow.sent <= to && arrow.until >= from && arrow.sent <= arrow.until);
        arrows.sort_by_key(|arrow| (arrow.sent, arrow.until, arrow.task));
        arrows
    }
}
