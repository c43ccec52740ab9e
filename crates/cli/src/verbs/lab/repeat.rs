//! `takt lab repeat`: boots in pairs, compared byte by byte.

use serde_json::json;
use takt_lab::machine::Devices;
use takt_run::lab::Boot;

use super::boot::{Bench, failures};
use crate::args;
use crate::failure::{Outcome, Status};
use crate::output::{note, print, print_json};

pub(super) fn execute(options: &args::LabRepeat, json: bool) -> Outcome {
    let bench = Bench::prepare(&options.experiments)?;
    let (mut equal, mut differences, mut failed) = (0, Vec::new(), Vec::new());
    for pair in 1..=options.pairs {
        let [one, other] = [bench.boot(&options.experiments)?, bench.boot(&options.experiments)?];
        for failure in [&one, &other].into_iter().flat_map(|boot| failures(&bench.names, boot)) {
            if !failed.contains(&failure) {
                note(&failure);
                failed.push(failure);
            }
        }
        match difference(&bench.names, &one, &other) {
            None => equal += 1,
            Some(difference) => {
                note(format_args!("pair {pair} differs: {difference}"));
                differences.push(difference);
            }
        }
    }
    let verdict = bench.verdict(options.pairs, equal);
    bench.store(&verdict)?;
    if json {
        print_json(&json!({ "verdict": verdict, "differences": differences }))?;
    } else {
        print(&format!("{}, {} devices: {}\n", bench.kernel(), verdict.devices, verdict.text()))?;
    }
    let exact = options.experiments.devices.devices() == Devices::Exact;
    let differs = exact && equal < options.pairs;
    Ok(if differs || !failed.is_empty() { Status::No } else { Status::Yes })
}

fn difference(names: &[String], one: &Boot, other: &Boot) -> Option<String> {
    for (name, (one, other)) in names.iter().zip(one.results.experiments.iter().zip(&other.results.experiments)) {
        if one.status != other.status {
            return Some(format!("the exit status of {name}"));
        }
        let empty = Vec::new();
        let log = |log: &Option<Vec<u8>>| log.clone().unwrap_or_else(|| empty.clone());
        for (part, one, other) in [
            ("the log", &log(&one.log), &log(&other.log)),
            ("the output", &one.stdout, &other.stdout),
            ("the errors", &one.stderr, &other.stderr),
        ] {
            if one != other {
                return Some(format!("{part} of {name}, from byte {}", first(one, other)));
            }
        }
    }
    let rest = [("the frames", &one.frames, &other.frames), ("the console", &one.console, &other.console)];
    let found = rest.into_iter().find(|(_, one, other)| one != other);
    found.map(|(part, one, other)| format!("{part}, from byte {}", first(one, other)))
}

fn first(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use takt_lab::frames::Results;
    use takt_model::Span;

    use super::*;

    #[test]
    fn the_first_difference_names_experiment_and_place() {
        let names = ["a".to_owned(), "b".to_owned()];
        let mut results = Results::of(2);
        results.experiments[1].stdout = b"12 ms".to_vec();
        let one = Boot { results, frames: vec![1], console: vec![], lost: 0, took: Span::ZERO };
        assert_eq!(difference(&names, &one, &Boot { took: Span::from_s(1), ..one.clone() }), None);
        let mut other = one.clone();
        other.results.experiments[1].stdout = b"13 ms".to_vec();
        assert_eq!(difference(&names, &one, &other).as_deref(), Some("the output of b, from byte 1"));
        let other = Boot { console: b"x".to_vec(), ..one.clone() };
        assert_eq!(difference(&names, &one, &other).as_deref(), Some("the console, from byte 0"));
    }
}
