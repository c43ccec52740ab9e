//! Messages in a trace: instants `sends` and `receives`, and an arrow from one to the other, and on
//! to the job that the message releases. The number of a Perfetto flow names the message.

use std::io;

use takt_log::{Event, JobKey};
use takt_model::{NodeId, TaskId, Time};

use super::PerfettoWriter;
use super::schema::{INSTANT, argument, event_name, field, node_track, task_track};

/// Bits of the message's number in that of a Perfetto flow.
const MESSAGE_BITS: u32 = 40;

fn flow(task: TaskId, message: u64) -> u64 {
    (u64::from(task.0) + 1) << MESSAGE_BITS | message & ((1 << MESSAGE_BITS) - 1)
}

impl<W: io::Write> PerfettoWriter<W> {
    pub(super) fn message(&mut self, stream: u32, now: Time, event: &Event) {
        match *event {
            Event::Send { job, message, .. } => {
                self.message_instant(now, task_track(job.task), "sends", job, flow(job.task, message));
            }
            Event::Receive { job, message, .. } => {
                let id = flow(job.task, message);
                let mut receiver = None;
                self.deliveries.taken(stream, now, job, |task| {
                    receiver = task;
                    id
                });
                let known = receiver.filter(|task| *task < self.scene.tasks.len());
                let track = known.map_or(node_track(NodeId(stream)), |task| task_track(TaskId(task as u32)));
                if known.is_some() || (stream as usize) < self.scene.nodes.len() {
                    self.message_instant(now, track, "receives", job, id);
                }
            }
            Event::Drop { job, message, .. } => {
                self.message_instant(now, task_track(job.task), "message lost", job, flow(job.task, message));
            }
            _ => {}
        }
    }

    fn message_instant(&mut self, now: Time, track: u64, name: &str, job: JobKey, id: u64) {
        if job.task.index() >= self.scene.tasks.len() {
            return;
        }
        let task = self.task_name_of(job.task).to_owned();
        self.emit(now, |event| {
            event.uint(field::EVENT_TYPE, INSTANT).uint(field::EVENT_TRACK, track);
            event.uint(field::EVENT_NAME_IID, event_name(name)).fixed(field::EVENT_FLOW, id);
            event.message(field::EVENT_ANNOTATION, |annotation| {
                annotation.uint(field::ANNOTATION_NAME_IID, argument("task")).text(field::ANNOTATION_TEXT, &task);
            });
            event.message(field::EVENT_ANNOTATION, |annotation| {
                annotation.uint(field::ANNOTATION_NAME_IID, argument("job"));
                annotation.uint(field::ANNOTATION_UINT, job.number);
            });
        });
    }

    /// A job is released: an instant, with the arrow of the message that releases it.
    pub(super) fn release_instant(&mut self, stream: u32, now: Time, job: JobKey) {
        let arrow = self.deliveries.released(&self.scene, stream, now, job);
        self.emit(now, |event| {
            event.uint(field::EVENT_TYPE, INSTANT).uint(field::EVENT_TRACK, task_track(job.task));
            event.uint(field::EVENT_NAME_IID, event_name("release"));
            if let Some(id) = arrow {
                event.fixed(field::EVENT_FLOW_END, id);
            }
            event.message(field::EVENT_ANNOTATION, |annotation| {
                annotation.uint(field::ANNOTATION_NAME_IID, argument("job"));
                annotation.uint(field::ANNOTATION_UINT, job.number);
            });
        });
    }

    fn task_name_of(&self, task: TaskId) -> &str {
        self.scene.tasks.get(task.index()).map_or("?", |task| task.name.as_str())
    }
}
