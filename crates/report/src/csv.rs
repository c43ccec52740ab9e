//! Jobs as CSV, one line a job, in the order in which they ended.
//!
//! Columns:
//! `node,task,job,arrival_ns,release_ns,start_ns,completion_ns,deadline_ns,response_ns,outcome,earliest_ns`.
//! Times are nanoseconds since the start of the run; a field is empty where there is no such time.
//! `earliest_ns` is there where the nominal arrival is known no better than to lie between it and
//! `arrival_ns`. Outcomes are those of [`Outcome::name`](crate::Outcome::name). Tasks may be
//! defined while the log is read.

use std::io;

use takt_log::{Definition, Event, Sink};
use takt_model::{NodeId, Time};

use crate::jobs::{JobRecord, JobTracker};
use crate::scene::{Scene, SceneTask};

const HEAD: &[u8] =
    b"node,task,job,arrival_ns,release_ns,start_ns,completion_ns,deadline_ns,response_ns,outcome,earliest_ns\n";

/// Writes jobs as CSV while events come in.
#[derive(Debug)]
pub struct JobCsv<W: io::Write> {
    out: W,
    scene: Scene,
    tracker: JobTracker,
    /// Node and task of each task as the first two fields.
    prefixes: Vec<String>,
    error: Option<io::Error>,
}

impl<W: io::Write> JobCsv<W> {
    /// Writes the header line.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, scene: &Scene) -> io::Result<Self> {
        out.write_all(HEAD)?;
        let prefixes = scene.tasks.iter().map(|task| prefix(scene, task)).collect();
        Ok(JobCsv { out, scene: scene.clone(), tracker: JobTracker::new(scene), prefixes, error: None })
    }

    /// Writes the jobs that are open at `end`, and gives the output back.
    ///
    /// # Errors
    /// The first that `out` gave since the header.
    pub fn finish(mut self, end: Time) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        for record in self.tracker.finish(end) {
            line(&mut self.out, &self.prefixes, &record)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: io::Write> Sink for JobCsv<W> {
    fn event(&mut self, stream: u32, now: Time, event: &Event) {
        if self.error.is_some() {
            return;
        }
        if let Event::Lost { .. } = event {
            self.tracker.lose(NodeId(stream));
        }
        while let Some(over) = self.tracker.overtaken(event) {
            self.error = line(&mut self.out, &self.prefixes, &over).err();
        }
        if let Some(record) = self.tracker.event(now, event) {
            self.error = line(&mut self.out, &self.prefixes, &record).err();
        }
    }

    fn define(&mut self, _stream: u32, _now: Time, definition: &Definition) {
        self.scene.define(definition);
        self.tracker.define(definition);
        match definition {
            Definition::Task(id, _) => {
                let Some(task) = self.scene.tasks.get(id.index()) else { return };
                let prefix = prefix(&self.scene, task);
                match self.prefixes.get_mut(id.index()) {
                    Some(old) => *old = prefix,
                    None => self.prefixes.push(prefix),
                }
            }
            Definition::Node(..) => {
                self.prefixes = self.scene.tasks.iter().map(|task| prefix(&self.scene, task)).collect();
            }
            _ => {}
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

fn prefix(scene: &Scene, task: &SceneTask) -> String {
    let node = scene.nodes.get(task.node.index()).map_or("", |node| node.name.as_str());
    format!("{},{}", field(node), field(&task.name))
}

fn line(out: &mut impl io::Write, prefixes: &[String], record: &JobRecord) -> io::Result<()> {
    let or_empty = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{}",
        prefixes.get(record.job.task.index()).map_or(",", String::as_str),
        record.job.number,
        record.arrival.as_ns(),
        record.release.as_ns(),
        or_empty(record.start.map(Time::as_ns)),
        or_empty(record.completion.map(Time::as_ns)),
        or_empty(record.deadline.map(Time::as_ns)),
        or_empty(record.response().map(takt_model::Span::as_ns)),
        record.outcome.name(),
        or_empty(record.earliest.map(Time::as_ns)),
    )
}

/// A field, quoted where RFC 4180 asks for it.
#[must_use]
pub fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
