//! Jobs as CSV, one line a job, in the order in which they ended.
//!
//! Columns: `node,task,job,arrival_ns,release_ns,start_ns,completion_ns,deadline_ns,response_ns,outcome`. Times
//! are nanoseconds since the start of the run; a field is empty where there is no such time. Outcomes are those
//! of [`Outcome::name`](crate::Outcome::name).

use std::io;

use takt_log::{Event, Sink};
use takt_model::Time;

use crate::jobs::{JobRecord, JobTracker};
use crate::scene::Scene;

/// Writes jobs as CSV while events come in.
#[derive(Debug)]
pub struct JobCsv<W: io::Write> {
    out: W,
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
        out.write_all(b"node,task,job,arrival_ns,release_ns,start_ns,completion_ns,deadline_ns,response_ns,outcome\n")?;
        let node =
            |task: &crate::scene::SceneTask| scene.nodes.get(task.node.index()).map_or("", |node| node.name.as_str());
        let prefixes = scene.tasks.iter().map(|task| format!("{},{}", field(node(task)), field(&task.name))).collect();
        Ok(JobCsv { out, tracker: JobTracker::new(scene), prefixes, error: None })
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
    fn event(&mut self, _stream: u32, now: Time, event: &Event) {
        if self.error.is_some() {
            return;
        }
        if let Some(record) = self.tracker.event(now, event) {
            self.error = line(&mut self.out, &self.prefixes, &record).err();
        }
    }

    fn wants_misses(&self) -> bool {
        false
    }
}

fn line(out: &mut impl io::Write, prefixes: &[String], record: &JobRecord) -> io::Result<()> {
    let or_empty = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{}",
        prefixes.get(record.job.task.index()).map_or(",", String::as_str),
        record.job.number,
        record.arrival.as_ns(),
        record.release.as_ns(),
        or_empty(record.start.map(Time::as_ns)),
        or_empty(record.completion.map(Time::as_ns)),
        or_empty(record.deadline.map(Time::as_ns)),
        or_empty(record.response().map(takt_model::Span::as_ns)),
        record.outcome.name(),
    )
}

/// A field, quoted where RFC 4180 asks for it.
#[must_use]
pub fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
