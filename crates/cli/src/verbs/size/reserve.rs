//! `takt size --reserve`: the least budget of a reservation for a wanted probability.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use takt_analysis::reservation::costs::{Charge, charge};
use takt_analysis::reservation::independence::Independence;
use takt_analysis::reservation::stochastic::{Enclosure, StochasticError};
use takt_analysis::reservation::{Pmf, Requirements, ReserveError, Reserved, arrivals_of, exec_of, reserve};
use takt_log::Event;
use takt_model::file::{Document, Edit};
use takt_model::{Arrival, Auto, ComponentId, Exec, Probability, ServerRule, Span, System, Task, TaskId, Time};

use crate::args;
use crate::failure::{Failure, Outcome, Status};
use crate::input;
use crate::output::{note, print, print_json};
use crate::table::{Table, time};

pub(crate) fn execute(options: &args::Size, name: &str, json: bool) -> Outcome {
    let (system, text) = input::system_and_text(&options.file)?;
    let Some(id) = system.task_by_name(name) else {
        return Err(Failure::input(format_args!("no task is called \"{name}\"")));
    };
    let task = &system.tasks[id.index()];
    let component = home(&system, task, id);
    let given = component.and_then(|id| system.components[id.index()].period.given());
    let Some(period) = options.period.or(given) else {
        return Err(Failure::input("--reserve wants a --period, that of the reservation"));
    };
    if options.output.is_some() && component.is_none() {
        return Err(Failure::input(format_args!(
            "-o needs a component with server \"cbs\" or \"cbs-hard\" that holds only the task, and writes the \
             budget into it; \"{name}\" has none"
        )));
    }
    let quantum = component.and_then(|id| system.components[id.index()].quantum);
    let probability = options.probability.unwrap_or(Probability::ONE);
    let observed = options.log.as_ref().map(|log| Observed::read(log, name)).transpose()?;
    let samples = Samples::of(task, observed);
    // Deadlines count from nominal arrivals, what is computed from releases.
    let jitter = system.release_jitter(id);
    let (exec, arrivals) = samples.distributions(&Task { jitter, ..task.clone() })?;
    let charge = charge(&system, id, period)
        .map_err(|why| Failure::cannot(format_args!("a reservation for \"{name}\" {why}")))?;
    let wanted = Requirements {
        exec: &exec,
        arrivals: &arrivals,
        period,
        deadline: options.deadline.unwrap_or(task.deadline).saturating_sub(jitter),
        probability,
        pending: options.pending,
        quantum: options.quantum.or(quantum).unwrap_or_else(|| hundredth(period)),
        charge,
    };
    let reserved = reserve(&wanted).map_err(|error| match error {
        ReserveError::Deadline { .. } | ReserveError::Quantum { .. } => Failure::input(error),
        ReserveError::NotEnough { .. } => Failure::no(format_args!("task \"{name}\": {error}")),
        ReserveError::Stochastic(StochasticError::Unstable) => Failure::no(format_args!("task \"{name}\": {error}")),
        _ => Failure::trouble(format_args!("task \"{name}\": {error} (--quantum)")),
    })?;
    let notes = samples.notes(name, period);
    for text in &notes {
        note(format_args!("warning: {text}"));
    }
    if let (Some(target), Some(id)) = (&options.output, component) {
        let mut document = Document::parse(&text, &input::shown(&options.file)).map_err(Failure::located)?;
        let (period, budget) = (Auto::Value(reserved.period), Auto::Value(reserved.budget));
        document.apply(&[Edit::Component { component: id, period, budget }]).map_err(Failure::located)?;
        target.write(document.text().as_bytes())?;
    }
    if json {
        print_json(&json!({
            "system": system.name,
            "reservations": [entry(name, &wanted, &reserved, &samples)],
            "notes": notes,
        }))?;
    } else if !options.output.as_ref().is_some_and(crate::output::Target::is_stdout) {
        print(&describe(name, &wanted, &reserved))?;
    }
    Ok(Status::Yes)
}

/// The component in which the task stands alone, if its server is a constant-bandwidth server.
fn home(system: &System, task: &Task, id: TaskId) -> Option<ComponentId> {
    let home = task.component?;
    let rule = system.components[home.index()].server;
    let others = system.tasks.iter().enumerate().any(|(i, other)| other.component == Some(home) && i != id.index());
    let inner = system.components.iter().any(|component| component.parent == Some(home));
    (matches!(rule, ServerRule::Cbs | ServerRule::CbsHard) && !others && !inner).then_some(home)
}

/// A hundredth of the period, in whole microseconds where it has some.
fn hundredth(period: Span) -> Span {
    let ns = (period.as_ns() / 100).max(1);
    Span::from_ns(if ns > 1000 { ns / 1000 * 1000 } else { ns })
}

#[derive(Clone, Default)]
struct Observed {
    exec: Vec<u64>,
    distances: Vec<u64>,
}

impl Observed {
    /// Execution times of completed jobs and distances of nominal arrivals.
    fn read(path: &str, name: &str) -> Result<Observed, Failure> {
        let mut log = input::log(path)?;
        let Some(id) = log.definitions().tasks.iter().position(|task| task.name == name) else {
            return Err(Failure::input(format_args!("{}: no task is called \"{name}\" there", input::shown(path))));
        };
        let mut found = Observed::default();
        let mut last: Option<(u64, Time)> = None;
        // For each pending job: its execution so far, and the start of its current run.
        let mut open: BTreeMap<u64, (u64, Option<Time>)> = BTreeMap::new();
        for record in &mut log {
            let record = record.map_err(|error| input::log_failure(path, &error))?;
            let own = |job: &takt_log::JobKey| job.task.index() == id;
            let now = record.time;
            match &record.event {
                Event::Release { job, arrival, .. } if own(job) => {
                    if let Some((number, before)) = last
                        && job.number == number + 1
                    {
                        found.distances.push(arrival.saturating_since(before).as_ns());
                    }
                    last = Some((job.number, *arrival));
                    open.insert(job.number, (0, None));
                }
                Event::Start { job, .. } | Event::Resume { job, .. } if own(job) => {
                    if let Some((_, since)) = open.get_mut(&job.number) {
                        *since = Some(now);
                    }
                }
                Event::Preempt { job, .. } | Event::Block { job, .. } if own(job) => {
                    if let Some((executed, since)) = open.get_mut(&job.number) {
                        *executed += since.take().map_or(0, |since| now.saturating_since(since).as_ns());
                    }
                }
                Event::Complete { job, .. } if own(job) => {
                    if let Some((executed, Some(since))) = open.remove(&job.number) {
                        found.exec.push(executed + now.saturating_since(since).as_ns());
                    }
                }
                Event::Cancel { job, .. } if own(job) => {
                    open.remove(&job.number);
                }
                Event::Gap { job } if !own(job) => {}
                Event::Gap { .. } | Event::Lost { .. } => {
                    open.clear();
                    last = None;
                }
                _ => {}
            }
        }
        input::warn_of_damage(path, &log.damage());
        if found.exec.is_empty() || found.distances.is_empty() {
            return Err(Failure::input(format_args!(
                "{}: \"{name}\" has {} completed jobs and {} pairs of arrivals there; at least one of each is needed",
                input::shown(path),
                found.exec.len(),
                found.distances.len()
            )));
        }
        Ok(found)
    }
}

struct Samples {
    exec: Option<Vec<u64>>,
    distances: Option<Vec<u64>>,
}

impl Samples {
    fn of(task: &Task, observed: Option<Observed>) -> Samples {
        if let Some(observed) = observed {
            return Samples { exec: Some(observed.exec), distances: Some(observed.distances) };
        }
        let exec = match &task.exec {
            Exec::Trace(trace) => Some(trace.values.iter().map(|value| value.as_ns()).collect()),
            _ => None,
        };
        let distances = match &task.arrival {
            Arrival::Trace(trace) => {
                Some(trace.values.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_ns()).collect())
            }
            _ => None,
        };
        Samples { exec, distances }
    }

    fn distributions(&self, task: &Task) -> Result<(Pmf, Pmf), Failure> {
        let of = |samples: &Option<Vec<u64>>, otherwise: Result<Pmf, String>| {
            samples.as_ref().and_then(|samples| Pmf::of_samples(samples)).map_or(otherwise, Ok)
        };
        // Nominal arrivals, in a log, a trace and a file alike: jitter shortens what lies between them.
        let jitter = task.jitter.as_ns();
        let arrivals = if self.exec.is_some() && self.distances.is_some() {
            of(&self.distances, arrivals_of(task)).and_then(|distances| match distances.min() {
                least if jitter > 0 && jitter >= least => {
                    Err(format!("\"{}\" has release jitter of at least the time between two arrivals", task.name))
                }
                _ => Ok(distances.map(|distance| distance - jitter)),
            })
        } else {
            arrivals_of(task)
        };
        let exec = of(&self.exec, exec_of(task));
        exec.and_then(|exec| arrivals.map(|arrivals| (exec, arrivals))).map_err(Failure::input)
    }

    /// Tests what the model is made of: of the times between arrivals it knows the whole periods.
    fn tests(&self, period: Span) -> [(&'static str, Option<Independence>); 2] {
        let periods = self.distances.as_ref().map(|distances| -> Vec<u64> {
            distances.iter().map(|distance| distance / period.as_ns().max(1)).collect()
        });
        let test = |samples: Option<&Vec<u64>>| samples.map(|samples| Independence::of(samples));
        [("execution times", test(self.exec.as_ref())), ("times between arrivals", test(periods.as_ref()))]
    }

    fn notes(&self, name: &str, period: Span) -> Vec<String> {
        let mut notes = Vec::new();
        for (what, test) in self.tests(period) {
            let Some(test) = test else { continue };
            if test.is_doubtful() {
                notes.push(format!(
                    "task \"{name}\": its {what} depend on each other (correlation {:.2} of neighbours); the \
                     probabilities assume independence and may be too high",
                    test.lag_1
                ));
            } else if test.samples < 1000 {
                notes.push(format!(
                    "task \"{name}\": {} samples of its {what}; rarer values are not among them",
                    test.samples
                ));
            }
        }
        notes
    }
}

fn enclosure(of: Enclosure) -> Value {
    json!({ "low": of.low, "estimate": of.estimate, "high": of.high })
}

fn entry(name: &str, wanted: &Requirements, reserved: &Reserved, samples: &Samples) -> Value {
    let [exec, arrivals] = samples.tests(reserved.period).map(|(_, test)| {
        test.map(|test| {
            json!({
                "samples": test.samples, "lag_1": test.lag_1, "ljung_box_p": test.ljung_box, "runs_p": test.runs,
                "doubtful": test.is_doubtful(),
            })
        })
    });
    json!({
        "task": name,
        "period_ns": reserved.period.as_ns(),
        "budget_ns": reserved.budget.as_ns(),
        "loss_ns": wanted.charge.budget.as_ns(),
        "job_costs_ns": wanted.charge.job.as_ns(),
        "bandwidth": bandwidth(reserved),
        "utilization": reserved.utilization,
        "deadline_ns": wanted.deadline.as_ns(),
        "probability": f64::from(wanted.probability.billionths()) / 1e9,
        "in_time": enclosure(reserved.probability),
        "fast_bound": reserved.fast,
        "pending": wanted.pending,
        "lost": reserved.lost.map(enclosure),
        "residual": reserved.residual,
        "independence": { "exec": exec, "arrivals": arrivals },
    })
}

fn bandwidth(reserved: &Reserved) -> f64 {
    reserved.budget.as_ns() as f64 / reserved.period.as_ns() as f64
}

fn describe(name: &str, wanted: &Requirements, reserved: &Reserved) -> String {
    let down = |share: f64| format!("{:.4}%", (share * 1e6).floor() / 1e4);
    let up = |share: f64| format!("{:.4}%", (share * 1e6).ceil() / 1e4);
    let mut table = Table::headed("TASK|PERIOD|BUDGET|BANDWIDTH|LOAD|DEADLINE|IN TIME|PENDING|LOST");
    table.row(vec![
        name.to_owned(),
        time(reserved.period),
        time(reserved.budget),
        format!("{:.3}%", 100.0 * bandwidth(reserved)),
        format!("{:.3}%", 100.0 * reserved.utilization),
        time(wanted.deadline),
        down(reserved.probability.low),
        wanted.pending.map_or(String::new(), |pending| pending.to_string()),
        reserved.lost.map_or(String::new(), |lost| up(lost.high)),
    ]);
    let mut text = table.without_empty_columns().render("");
    text.push_str("\nIN TIME is at least this share of the jobs in the long run");
    if reserved.lost.is_some() {
        text.push_str(", were none lost; LOST is at most the share that is");
    }
    text.push_str(".\nThis assumes that execution times and times between arrivals are independent, and as given.\n");
    let Charge { job, budget } = wanted.charge;
    if !job.is_zero() || !budget.is_zero() {
        text.push_str(&format!(
            "Costs and blocking, charged: {} for each job, {} of each budget.\n",
            time(job),
            time(budget)
        ));
    }
    text
}
