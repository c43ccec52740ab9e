//! The same numbers of two looks at a thread, side by side.

use serde_json::{Value, json};
use takt_log::stats::{Histogram, Summary};
use takt_model::{Span, Time};
use takt_trace::infer::holds_for;

use super::phase::Phase;
use crate::numbers::cell;
use crate::table::Table;

fn spread_json(of: Option<Summary<u64>>) -> Value {
    of.map_or(Value::Null, |of| {
        json!({
            "count": of.count, "mean_ns": of.mean, "deviation_ns": of.deviation, "min_ns": of.min,
            "p50_ns": of.p50, "p99_ns": of.p99, "max_ns": of.max,
        })
    })
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Numbers {
    duration: Span,
    pub(super) jobs: u64,
    pub(super) missed: u64,
    /// At most this share of such jobs misses, at 95 % confidence.
    miss_at_most: f64,
    /// Between completions of neighbours.
    frames: Option<Summary<u64>>,
    response: Option<Summary<u64>>,
    exec: Option<Summary<u64>>,
    steal: Option<Span>,
}

impl Numbers {
    /// Numbers of jobs that should be done within `deadline` of their arrivals.
    pub(super) fn of(phase: &Phase, deadline: Span) -> Numbers {
        let (mut frames, mut response, mut exec) = (Histogram::default(), Histogram::default(), Histogram::default());
        let (mut jobs, mut missed) = (0, 0);
        let mut before = None;
        for job in &phase.jobs {
            let due = job.arrival.saturating_add(deadline);
            match job.complete {
                Some(complete) => {
                    jobs += 1;
                    missed += u64::from(complete > due);
                    // A job that arrived before the recording stands at its beginning; it counts as
                    // late all the same.
                    if job.arrival > Time::ZERO {
                        response.record(complete.saturating_since(job.arrival).as_ns());
                    }
                    job.exec.iter().for_each(|took| exec.record(took.as_ns()));
                    if let Some((number, at)) = before
                        && job.number == number + 1
                        && !job.gap
                    {
                        frames.record(complete.saturating_since(at).as_ns());
                    }
                    before = Some((job.number, complete));
                }
                // Open when the recording ended, or when events were lost: of the first kind those
                // are late whose deadline had passed.
                None => {
                    let is_last = phase.jobs.last().is_some_and(|last| last.number == job.number);
                    let late = u64::from(is_last && due < phase.end);
                    (jobs, missed) = (jobs + late, missed + late);
                    before = None;
                }
            }
        }
        Numbers {
            duration: phase.duration,
            jobs,
            missed,
            miss_at_most: 1.0 - holds_for(jobs, missed),
            frames: frames.summary(),
            response: response.summary(),
            exec: exec.summary(),
            steal: phase.steal,
        }
    }

    fn share(&self) -> f64 {
        self.missed as f64 / self.jobs.max(1) as f64
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "duration_ns": self.duration.as_ns(), "jobs": self.jobs, "missed": self.missed,
            "miss_ratio_at_most": self.miss_at_most,
            "inter_frame_ns": spread_json(self.frames), "response_ns": spread_json(self.response),
            "execution_ns": spread_json(self.exec),
            "steal_ns": self.steal.map(Span::as_ns),
        })
    }
}

/// Before and after, a line a number.
pub(super) fn table(before: &Numbers, after: &Numbers) -> String {
    let mut table = Table::new(&["", "BEFORE", "AFTER"]);
    let mut row = |name: &str, tell: &dyn Fn(&Numbers) -> String| {
        table.row(vec![name.to_owned(), tell(before), tell(after)]);
    };
    let spread = |of: Option<Summary<u64>>, which: fn(&Summary<u64>) -> u64| cell(&of, which);
    row("jobs", &|of| of.jobs.to_string());
    row("missed", &|of| of.missed.to_string());
    row("missed, share", &|of| format!("{:.1}%", 100.0 * of.share()));
    row("at most, 95% sure", &|of| format!("{:.1}%", (1000.0 * of.miss_at_most).ceil() / 10.0));
    type Quantity = fn(&Numbers) -> Option<Summary<u64>>;
    let quantities: [Quantity; 3] = [|of| of.frames, |of| of.response, |of| of.exec];
    for (name, of) in ["inter-frame", "response", "execution"].into_iter().zip(quantities) {
        row(&format!("{name}, mean"), &|numbers| spread(of(numbers), |spread| spread.mean));
        row(&format!("{name}, deviation"), &|numbers| spread(of(numbers), |spread| spread.deviation));
        row(&format!("{name}, p99"), &|numbers| spread(of(numbers), |spread| spread.p99));
        row(&format!("{name}, max"), &|numbers| spread(of(numbers), |spread| spread.max));
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_trace::infer::JobSeen;

    fn job(number: u64, arrival: u64, complete: Option<u64>) -> JobSeen {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        JobSeen {
            number,
            arrival: at(arrival),
            window: Span::ZERO,
            release: at(arrival),
            complete: complete.map(at),
            exec: complete.map(|_| Span::from_ms(3)),
            gap: false,
        }
    }

    #[test]
    fn frames_are_between_completions_of_neighbours_and_misses_count_what_ended_late_or_not_at_all() {
        let jobs = vec![
            job(1, 1, Some(5)),
            job(2, 10, Some(17)),
            job(3, 20, Some(31)),
            job(5, 40, Some(50)),
            job(6, 50, None),
        ];
        let phase = Phase { jobs, end: Time::from_ns(61_000_000), duration: Span::from_ms(61), ..Phase::default() };
        let numbers = Numbers::of(&phase, Span::from_ms(10));
        assert_eq!((numbers.jobs, numbers.missed), (5, 2), "done at the deadline is in time; the open one was due");
        let frames = numbers.frames.unwrap();
        assert_eq!((frames.count, frames.min, frames.max), (2, 12_000_000, 14_000_000));
        assert_eq!(numbers.response.unwrap().max, 11_000_000);
        let open = Phase { end: Time::from_ns(59_000_000), ..phase };
        assert_eq!(Numbers::of(&open, Span::from_ms(10)).missed, 1, "not yet due");
        let nothing = Numbers::of(&Phase::default(), Span::from_ms(10));
        assert!(
            table(&numbers, &nothing).contains("missed, share             40.0%    0.0%"),
            "{}",
            table(&numbers, &nothing)
        );
        assert_eq!(nothing.json()["miss_ratio_at_most"], 1.0, "nothing is known");
    }
}
