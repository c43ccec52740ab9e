//! Loading the files that traces of `exec`, `arrival` and `actual-delay` name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::check::{Owner, Part};
use super::error::{FileError, FileErrors, Found};
use super::quantity::{DURATION, QuantityError};
use crate::system::{ActualDelay, Arrival, Exec, System, Trace};
use crate::time::Span;

/// How many errors of one trace file are told apart; a file in a wrong format has one on every line.
const ERRORS_MAX: usize = 10;

/// The quantity of a trace's values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// Execution times, each above zero.
    Exec,
    /// Ascending instants; the first becomes zero.
    Arrival,
    /// Delays of messages, from the first to the second.
    Delay(Span, Span),
}

/// A trace that the System names.
struct Named {
    owner: Part,
    key: &'static str,
    path: String,
    purpose: Use,
}

/// Fills in the values of all traces of `system`; `read` gives the text of the file at a path, or why it cannot.
///
/// A trace file holds one value a line: the first cell of a comma-separated line, so that recorded
/// tables load as they are. `#` starts a comment, a first line that is no number is a header, and a
/// number without a unit counts nanoseconds. Instants of an arrival trace ascend and count from the
/// first one, which stands for the task's offset: timestamps of any clock will do. `read` is called
/// once per path.
///
/// # Errors
/// Every file that cannot be read and every bad line (of each file the first ten). The System is then unchanged.
pub fn load_traces(
    system: &mut System,
    mut read: impl FnMut(&str) -> Result<String, String>,
) -> Result<(), FileErrors> {
    let mut texts: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut loaded: BTreeMap<(String, Use), Arc<[Span]>> = BTreeMap::new();
    let mut errors = Vec::new();
    let named = named(system);
    for Named { owner, key, path, purpose } in &named {
        let text = texts.entry(path.clone()).or_insert_with(|| {
            read(path)
                .map_err(|why| {
                    let message = format!("{key} of {} cannot be read: {why}", Owner(system, *owner));
                    errors.push(FileError { file: path.clone(), position: None, message });
                })
                .ok()
        });
        let Some(text) = text else { continue };
        let wanted = (path.clone(), *purpose);
        if loaded.contains_key(&wanted) {
            continue;
        }
        let values = parse(text, path, *purpose).unwrap_or_else(|found| {
            errors.extend(found.iter().cloned());
            Arc::default()
        });
        loaded.insert(wanted, values);
    }
    if !errors.is_empty() {
        return Err(FileErrors::of(errors));
    }
    let mut values = named.into_iter().map(|one| loaded.get(&(one.path, one.purpose)).cloned().unwrap_or_default());
    for trace in traces_mut(system) {
        trace.values = values.next().unwrap_or_default();
    }
    Ok(())
}

/// All traces of a System, in the order of [`traces_mut`].
fn named(system: &System) -> Vec<Named> {
    let mut named = Vec::new();
    let mut name = |owner, key, trace: &Trace, purpose| {
        named.push(Named { owner, key, path: trace.path.clone(), purpose });
    };
    for (i, task) in system.tasks.iter().enumerate() {
        if let Exec::Trace(trace) = &task.exec {
            name(Part::Task(i), "exec.trace", trace, Use::Exec);
        }
        if let Arrival::Trace(trace) = &task.arrival {
            name(Part::Task(i), "arrival.trace", trace, Use::Arrival);
        }
    }
    for (i, network) in system.networks.iter().enumerate() {
        if let ActualDelay::Trace(trace) = &network.actual_delay {
            let (min, max) = network.delay.given().unwrap_or((Span::ZERO, Span::FILE_MAX));
            name(Part::Network(i), "actual-delay.trace", trace, Use::Delay(min, max));
        }
    }
    named
}

fn traces_mut(system: &mut System) -> impl Iterator<Item = &mut Trace> {
    let of_tasks = system.tasks.iter_mut().flat_map(|task| {
        let exec = if let Exec::Trace(trace) = &mut task.exec { Some(trace) } else { None };
        let arrival = if let Arrival::Trace(trace) = &mut task.arrival { Some(trace) } else { None };
        exec.into_iter().chain(arrival)
    });
    let of_networks = system.networks.iter_mut().filter_map(|network| match &mut network.actual_delay {
        ActualDelay::Trace(trace) => Some(trace),
        _ => None,
    });
    of_tasks.chain(of_networks)
}

fn parse(text: &str, path: &str, purpose: Use) -> Result<Arc<[Span]>, FileErrors> {
    let mut values: Vec<Span> = Vec::new();
    let mut found = Vec::new();
    let mut more = 0usize;
    let mut first = None;
    let mut last_raw = 0u64;
    let mut lines_seen = 0usize;
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let at = line_start;
        line_start += line.len();
        let line = line.trim_start_matches('\u{feff}');
        let cell =
            line.split(['#', '\n', '\r']).next().unwrap_or_default().split([',', ';']).next().unwrap_or_default();
        let cell = cell.trim().trim_matches('"').trim();
        if line.split('#').next().unwrap_or_default().trim().is_empty() {
            continue;
        }
        lines_seen += 1;
        let result = match number(cell) {
            Ok(raw) => take(raw, purpose, &mut first, &mut last_raw),
            Err(QuantityError::Malformed) if lines_seen == 1 => continue,
            Err(error) => Err(error.explain(&DURATION).to_string()),
        };
        match result {
            Ok(span) => values.push(span),
            Err(_) if found.len() == ERRORS_MAX => more += 1,
            Err(fault) => found.push(Found { at: Some(at), message: format!("value \"{cell}\" {fault}") }),
        }
    }
    if more > 0 {
        found.push(Found { at: Some(text.len()), message: format!("... and {more} more lines with errors") });
    }
    if found.is_empty() && values.is_empty() {
        found.push(Found { at: None, message: "the trace holds no value; write one a line, such as 250us".to_owned() });
    }
    FileErrors::none_or(path, text, found)?;
    Ok(values.into())
}

/// A cell in nanoseconds: bare, or with a unit.
fn number(cell: &str) -> Result<u64, QuantityError> {
    match DURATION.parse(cell) {
        Err(QuantityError::NoUnit) => DURATION.parse(&format!("{cell}ns")),
        result => result,
    }
}

/// The value that a line stands for; the error is the rest of a sentence.
fn take(raw: u64, purpose: Use, first: &mut Option<u64>, last_raw: &mut u64) -> Result<Span, String> {
    let value = match purpose {
        Use::Exec if raw == 0 => return Err("is zero; an execution time is above zero".to_owned()),
        Use::Exec => raw,
        Use::Delay(min, max) if raw < min.as_ns() || raw > max.as_ns() => {
            return Err(format!("is outside the delay of its network, from {min} to {max}; widen delay"));
        }
        Use::Delay(..) => raw,
        Use::Arrival => {
            let origin = *first.get_or_insert(raw);
            if raw < *last_raw {
                let last = Span::from_ns(*last_raw);
                return Err(format!("comes before the arrival at {last} above it; arrivals ascend"));
            }
            *last_raw = raw;
            raw - origin
        }
    };
    let value = Span::from_ns(value);
    if value > Span::FILE_MAX {
        return Err(QuantityError::TooLarge.explain(&DURATION).to_string());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builtin, Network, Task, Trace};

    #[test]
    fn delays_are_within_that_of_their_network() {
        let load = |text: &str| {
            let mut system = System::local(1, Builtin::Edf, vec![]);
            let trace = Trace { path: "t.csv".to_owned(), ..Trace::default() };
            let network = Network::any(Span::ZERO, Span::from_us(9));
            system.networks = vec![Network { actual_delay: ActualDelay::Trace(trace), ..network }];
            load_traces(&mut system, |_| Ok(text.to_owned())).map_err(|errors| errors.to_string())?;
            let ActualDelay::Trace(trace) = &system.networks[0].actual_delay else { unreachable!("as made above") };
            Ok::<_, String>(trace.values.to_vec())
        };
        assert_eq!(load("delay\n0\n9us\n"), Ok(vec![Span::ZERO, Span::from_us(9)]));
        let expected = "t.csv:2:1: value \"9.001us\" is outside the delay of its network, from 0ns to 9us; widen delay";
        assert_eq!(load("1us\n9.001us\n").unwrap_err(), expected);
    }

    fn load(text: &str, arrival: bool) -> Result<Vec<u64>, String> {
        let trace = Trace { path: "t.csv".to_owned(), ..Trace::default() };
        let mut task = Task::periodic("a", Span::from_ms(10), Span::from_ms(1));
        if arrival {
            task.arrival = Arrival::Trace(trace);
        } else {
            task.exec = Exec::Trace(trace);
        }
        let mut system = System::local(1, Builtin::Edf, vec![task]);
        load_traces(&mut system, |_| Ok(text.to_owned())).map_err(|errors| errors.to_string())?;
        let values = match (&system.tasks[0].exec, &system.tasks[0].arrival) {
            (Exec::Trace(trace), _) | (_, Arrival::Trace(trace)) => trace.values.clone(),
            _ => unreachable!("one of them is the trace"),
        };
        Ok(values.iter().map(|span| span.as_ns()).collect())
    }

    #[test]
    fn values_are_the_first_cells_with_or_without_units() {
        let text = "\u{feff}exec_ns, cpu\r\n# measured\n1200,0\n\n 1.5us , 1 # slow\n\"7\"\n";
        assert_eq!(load(text, false), Ok(vec![1200, 1500, 7]));
    }

    #[test]
    fn arrivals_count_from_the_first() {
        // The form of recorded release tables: absolute nanoseconds, then a window.
        let text = "73257257024168,73257253461052,73257260726618\n73257274260858,73257273999709,73257274262339\n";
        assert_eq!(load(text, true), Ok(vec![0, 17_236_690]));
        // Timestamps since 1970 exceed what a file's duration may be; their distances do not.
        assert_eq!(load("1700000000000000000\n1700000000000000000\n1700000000000000005\n", true), Ok(vec![0, 0, 5]));
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(
            load("5us\n0\nx\n3.5\n-1ms\n9s 9", false).unwrap_err(),
            "t.csv:2:1: value \"0\" is zero; an execution time is above zero\n\
             t.csv:3:1: value \"x\" is not a duration; write a number and its unit, such as \"10ms\" (ns, us, \
             ms, s, min, h)\n\
             t.csv:4:1: value \"3.5\" is no whole number of nanoseconds, and takt does not round; use fewer decimals\n\
             t.csv:5:1: value \"-1ms\" is negative; it must be zero or more\n\
             t.csv:6:1: value \"9s 9\" has the unknown unit \"s 9\"; units are ns, us, ms, s, min, h"
        );
        assert_eq!(
            load("5ms\n4ms\n", true).unwrap_err(),
            "t.csv:2:1: value \"4ms\" comes before the arrival at 5ms above it; arrivals ascend"
        );
        assert_eq!(
            load("# nothing\n", true).unwrap_err(),
            "t.csv: the trace holds no value; write one a line, such as 250us"
        );
        let many = load(&format!("1\n{}", "x\n".repeat(30)), false).unwrap_err();
        assert_eq!(many.lines().count(), 11);
        assert!(many.ends_with("... and 20 more lines with errors"), "{many}");
    }

    #[test]
    fn unreadable_files_are_named_with_the_reason() {
        let trace = Trace { path: "gone.csv".to_owned(), ..Trace::default() };
        let task = Task { exec: Exec::Trace(trace), ..Task::periodic("a", Span::from_ms(1), Span::from_ms(1)) };
        let mut system = System::local(1, Builtin::Edf, vec![task]);
        let errors = load_traces(&mut system, |_| Err("no such file".to_owned())).unwrap_err();
        assert_eq!(errors.to_string(), "gone.csv: exec.trace of task \"a\" cannot be read: no such file");
    }
}
