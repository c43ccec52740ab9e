//! Measures the cost of recording on this machine, with a load of its own.
//!
//! Two threads on one CPU wake each other through pipes, in rounds of a fixed number of handovers.
//! The CPU time of both threads in the median round is compared, with and without recording. The
//! difference holds the whole cost for the traced threads: entries written, filters that reject,
//! and the slower entry into system calls.

use std::io::{Read as _, Write as _};
use std::thread::ScopedJoinHandle;

use takt_model::{Bytes, Span};

use super::error::RecorderError;
use super::options::{Options, Threads};
use super::recorder::Recorder;
use crate::clock::thread_cpu;
use crate::sched::{affinity, set_affinity};

/// The cost of an event, in nanoseconds of CPU time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Cost of a recorded event for the traced threads. Negative where noise exceeds the cost.
    pub traced_ns: f64,
    /// Cost of reading an event out of the kernel, without decoding.
    pub reader_ns: f64,
    /// A handover (two switches, two wake-ups, four system calls) without recording.
    pub handover_ns: f64,
    /// Events of a handover.
    pub events_per_handover: f64,
    /// Events that were recorded for this.
    pub events: u64,
}

/// Handovers per round, and rounds: a twentieth of a second in all.
const HANDOVERS: u32 = 200;
const ROUNDS: usize = 40;

/// Measures the cost of recording the events of `options`, with an instance of its own. It takes
/// about a fifth of a second. Call it before or after another recording, which would otherwise be
/// part of the result.
///
/// # Errors
/// As [`Recorder::start`]; also where threads or pipes cannot be had.
pub fn cost(options: &Options) -> Result<Cost, RecorderError> {
    let options = Options { threads: Threads::All, buffer: Some(BUFFER), ..options.clone() };
    let cpu = affinity().last().copied().unwrap_or(0);
    let mut without = handovers(cpu)?;
    let recorder = Recorder::start(&options)?;
    let count = || Ok(recorder.counts()?.iter().find(|count| count.cpu == cpu).map_or(0, |count| count.waiting));
    let before = count()?;
    let recorded = handovers(cpu);
    let events = count()?.saturating_sub(before);
    let (with, total) = (recorded?, HANDOVERS as usize * ROUNDS);
    let (counts, reader_cpu) = recorder.finish_timed(&mut |_, _| {})?;
    // Measure before and after, so that a change of the machine's speed cancels out.
    without.extend(handovers(cpu)?);
    let read: u64 = counts.iter().map(|count| count.read).sum();
    let (with_ns, without_ns) = (median_ns(with), median_ns(without));
    let events_per_handover = events as f64 / total as f64;
    Ok(Cost {
        traced_ns: (with_ns - without_ns) / events_per_handover.max(f64::MIN_POSITIVE),
        reader_ns: reader_cpu.as_ns() as f64 / read.max(1) as f64,
        handover_ns: without_ns,
        events_per_handover,
        events,
    })
}

/// CPU time, in nanoseconds, of a handover as it is now: two threads on one CPU wake each other
/// through pipes (two switches, two wake-ups, four system calls). The median of rounds, over a
/// twentieth of a second.
///
/// # Errors
/// Threads or pipes cannot be had.
pub fn handover_ns() -> Result<f64, RecorderError> {
    Ok(median_ns(handovers(affinity().last().copied().unwrap_or(0))?))
}

/// Includes interference from the rest of the machine.
const BUFFER: Bytes = Bytes::new(16 << 20);

/// Nanoseconds per handover in the median round.
fn median_ns(mut rounds: Vec<Span>) -> f64 {
    rounds.sort_unstable();
    rounds.get(rounds.len() / 2).map_or(0.0, |round| round.as_ns() as f64 / f64::from(HANDOVERS))
}

/// CPU time of each round.
fn handovers(cpu: u32) -> Result<Vec<Span>, RecorderError> {
    let failed = |cause: std::io::Error| RecorderError::File {
        path: "the load that is measured".to_owned(),
        cause: cause.to_string(),
    };
    let (there_in, there_out) = std::io::pipe().map_err(failed)?;
    let (back_in, back_out) = std::io::pipe().map_err(failed)?;
    std::thread::scope(|scope| {
        // Each thread ends with the other one, whose end closes the pipes.
        let spawn = |mut first: Option<std::io::PipeWriter>,
                     mut input: std::io::PipeReader,
                     mut output: Option<std::io::PipeWriter>| {
            std::thread::Builder::new().spawn_scoped(scope, move || -> Vec<Span> {
                let _ = set_affinity(&[cpu]);
                let mut times = Vec::with_capacity(ROUNDS);
                let mut byte = [0];
                for _ in 0..ROUNDS {
                    let began = thread_cpu();
                    for _ in 0..HANDOVERS {
                        let done = match (&mut first, &mut output) {
                            (Some(first), _) => first.write_all(&byte).and_then(|()| input.read_exact(&mut byte)),
                            (None, Some(output)) => input.read_exact(&mut byte).and_then(|()| output.write_all(&byte)),
                            (None, None) => return times,
                        };
                        if done.is_err() {
                            return times;
                        }
                    }
                    times.push(Span::from_ns(thread_cpu().as_ns().saturating_sub(began.as_ns())));
                }
                times
            })
        };
        let one = spawn(Some(there_out), back_in, None).map_err(failed)?;
        let two = spawn(None, there_in, Some(back_out)).map_err(failed)?;
        let join = |handle: ScopedJoinHandle<Vec<Span>>| handle.join().unwrap_or_default();
        let (one, two) = (join(one), join(two));
        Ok(one.iter().zip(&two).map(|(one, two)| one.saturating_add(*two)).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_measured() {
        let rounds = handovers(affinity()[0]).unwrap();
        assert_eq!(rounds.len(), ROUNDS);
        assert!(rounds.iter().all(|round| *round > Span::ZERO) && median_ns(rounds) > 0.0);
    }
}
