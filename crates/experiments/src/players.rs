//! Code for the experiments with players: films of 25 frames per second, and the charts, numbers
//! and files of inter-frame times.

use takt_log::stats::{Histogram, Summary};
use takt_model::draw::Draw;
use takt_model::{Exec, Span, Task};
use takt_report::{Figure, Form, Series};
use takt_run::load::{FrameSequence, ShowTimes};

use super::context::Context;
use super::findings::{Findings, in_us};
use crate::failure::Failure;

pub(super) const PERIOD: Span = Span::from_ms(40);
const FRAMES_MAX: usize = 100_000;

/// Frames that take from `min` to `max` ms of CPU time to decode, spread evenly.
pub(super) fn frames_of(name: &str, (min, max): (u64, u64)) -> Task {
    let mut task = Task::periodic(name, PERIOD, Span::from_ms(max));
    task.exec = Exec::Uniform { min: Span::from_ms(min), max: Span::from_ms(max) };
    task
}

/// A film of that length. `kind` returns the kind of each frame.
pub(super) fn film<'a>(seed: u64, length: Span, kind: impl Fn(usize) -> &'a Task) -> FrameSequence {
    let draw = Draw::new(seed, "film");
    let count = usize::try_from(length.as_ns() / PERIOD.as_ns()).unwrap_or(0).clamp(2, FRAMES_MAX);
    let frames = (0..count).map(|k| draw.exec(kind(k), k as u64)).collect();
    FrameSequence { frames, period: PERIOD, refresh: Span::from_ms(10) }
}

#[derive(Default)]
pub(super) struct Played {
    pub(super) shown: ShowTimes,
    /// Its inter-frame times in ns.
    pub(super) times: Option<Summary<u64>>,
}

impl Played {
    pub(super) fn new(shown: ShowTimes) -> Played {
        let mut histogram = Histogram::default();
        between(&shown).for_each(|ns| histogram.record(ns));
        Played { times: histogram.summary(), shown }
    }

    /// Its inter-frame times in ms, frame by frame, as a line.
    pub(super) fn line(&self, name: &str, colour: usize) -> Series {
        let points = between(&self.shown).enumerate().map(|(k, ns)| (k as f64 + 1.0, ns as f64 / 1e6)).collect();
        Series { name: name.to_owned(), points, form: Form::Line, colour }
    }
}

fn between(shown: &ShowTimes) -> impl Iterator<Item = u64> + '_ {
    shown.windows(2).map(|pair| pair[1].saturating_since(pair[0]).as_ns())
}

/// Times in periods of a frame.
pub(super) fn periods(ns: u64) -> f64 {
    ns as f64 / PERIOD.as_ns() as f64
}

pub(super) const NUMBERS: [&str; 4] = ["avg", "dev", "p99", "max"];

pub(super) fn numbers(times: Option<&Summary<u64>>) -> Vec<Option<f64>> {
    times.map_or(vec![None; NUMBERS.len()], |s| in_us([s.mean, s.deviation, s.p99, s.max]))
}

pub(super) fn figure(title: String, series: Vec<Series>, y_max: Option<f64>) -> Figure {
    Figure {
        rules: vec![("40 ms, as filmed".to_owned(), 40.0)],
        y_max,
        ..Figure::new(title, "frame", "inter-frame time in ms", series)
    }
}

/// Writes a column for each player: when each frame was shown, in ns since the start.
pub(super) fn write(context: &Context, findings: &mut Findings, players: &[(&str, &ShowTimes)]) -> Result<(), Failure> {
    const FILE: &str = "frames.csv";
    let names: Vec<String> = players.iter().map(|(name, _)| takt_report::csv::field(name)).collect();
    let mut text = format!("frame,{}\n", names.join(","));
    let most = players.iter().map(|(_, shown)| shown.len()).max().unwrap_or(0);
    for k in 0..most {
        let at = |(_, shown): &(&str, &ShowTimes)| shown.get(k).map_or(String::new(), |at| at.as_ns().to_string());
        let cells: Vec<String> = players.iter().map(at).collect();
        text.push_str(&format!("{k},{}\n", cells.join(",")));
    }
    context.write(FILE, text.as_bytes())?;
    findings.files.push(FILE.to_owned());
    Ok(())
}
