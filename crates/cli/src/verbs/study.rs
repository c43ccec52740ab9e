//! `takt study`: many random sets through many tests, in parallel.

mod definition;
mod journal;
mod results;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use serde_json::json;
use takt_analysis::portfolio::Set;
use takt_analysis::{Answer, place};
use takt_log::{Definitions, stats::Collector};
use takt_model::generate::{Buffer, Drawn, GenerateError, Generator, utilization};
use takt_model::{Builtin, Fit, Placement, Span, System, Task};
use takt_sim::{SimOptions, simulate};

use crate::args::Study;
use crate::failure::{Failure, Outcome, Status};
use crate::output::{note, print, print_json};
use crate::progress;
use definition::{Definition, Method, Point};
use journal::{Journal, Place, Verdicts};

/// Sets that a worker takes at a time; a line of the journal holds as many.
const CHUNK: u64 = 250;
/// Chunks that wait to be written, at most, per thread.
const AHEAD_MAX: usize = 8;
/// A simulation of a set ends here at the latest, in jobs.
const SIMULATED_JOBS: u64 = 20_000;

pub(crate) fn execute(options: &Study, json: bool) -> Outcome {
    let merged = options.file.as_deref().map(definition::with_file).transpose()?;
    let options = merged.as_ref().unwrap_or(options);
    let definition = Definition::new(options)?;
    let folder = PathBuf::from(&options.output);
    let shown = takt_model::file::one_line(&options.output).into_owned();
    let trouble = |error: std::io::Error| Failure::trouble(format_args!("cannot write in {shown}: {error}"));
    if folder.is_file() {
        return Err(Failure::input(format_args!("{shown} is a file; give a folder as --output")));
    }
    fs::create_dir_all(&folder).map_err(trouble)?;
    let (text, kept) = (definition.text(), folder.join("study.toml"));
    let journal = folder.join("journal");
    if options.restart && journal.exists() {
        fs::remove_file(&journal).map_err(trouble)?;
    }
    if journal.exists() && fs::read_to_string(&kept).ok().as_deref() != Some(&text) {
        return Err(Failure::input(format_args!(
            "{shown} holds another study; name another folder, or give --restart to replace it"
        )));
    }
    fs::write(&kept, &text).map_err(trouble)?;
    let mut journal = Journal::open(&journal).map_err(trouble)?;
    complete(&definition, &mut journal, &trouble)?;
    let results = results::Results::new(&definition, &journal.done);
    let files = results.write(&folder, &text).map_err(trouble)?;
    let refused = results.refused();
    if refused > 0 {
        note(format_args!(
            "warning: {refused} sets are left out: with a wcet of one grain ({}) for each task they exceed their \
             utilization; \
             take a finer --grain, longer periods or fewer tasks",
            options.shape.grain
        ));
    }
    let findings = results.findings();
    for finding in &findings {
        note(format_args!("finding: {finding}"));
    }
    if json {
        print_json(&json!({
            "points": definition.points.len(),
            "sets": definition.points.len() as u64 * options.sets,
            "refused": refused,
            "series": results.weighted_json(),
            "findings": findings,
            "folder": options.output,
            "files": files,
        }))?;
    } else {
        print(&results.text(&shown))?;
    }
    Ok(if findings.is_empty() { Status::Yes } else { Status::No })
}

fn complete(
    definition: &Definition<'_>,
    journal: &mut Journal,
    trouble: &dyn Fn(std::io::Error) -> Failure,
) -> Result<(), Failure> {
    let options = definition.options;
    let chunks = options.sets.div_ceil(CHUNK) as u32;
    let missing: Vec<Place> = (0..definition.points.len() as u32)
        .flat_map(|point| (0..chunks).map(move |chunk| (point, chunk)))
        .filter(|place| !journal.done.contains_key(place))
        .collect();
    let threads = options.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let threads = threads.clamp(1, missing.len().max(1));
    let bar = progress::bar("studying", u64::from(chunks) * definition.points.len() as u64);
    bar.set_position(journal.done.len() as u64);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<(Place, Result<Vec<Verdicts>, GenerateError>)>(threads * AHEAD_MAX);
        for _ in 0..threads {
            let (send, next, stop, missing) = (send.clone(), &next, &stop, &missing);
            scope.spawn(move || {
                let mut worker = Worker::new(definition);
                while let Some(place) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) || send.send((*place, worker.chunk(*place))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (place, sets) in receive {
            let written = sets.map_err(Failure::input).and_then(|sets| {
                journal.append(&journal::line(place, &sets)).map_err(trouble)?;
                journal.done.insert(place, sets);
                Ok(())
            });
            if written.is_err() {
                stop.store(true, Ordering::Relaxed);
                return written;
            }
            bar.inc(1);
        }
        Ok(())
    });
    bar.finish_and_clear();
    outcome
}

struct Worker<'a> {
    definition: &'a Definition<'a>,
    generator: Option<(u32, Generator)>,
    buffer: Buffer,
    set: Set,
}

impl<'a> Worker<'a> {
    fn new(definition: &'a Definition<'a>) -> Worker<'a> {
        Worker { definition, generator: None, buffer: Buffer::default(), set: Set::default() }
    }

    fn chunk(&mut self, (point, chunk): Place) -> Result<Vec<Verdicts>, GenerateError> {
        let Worker { definition, generator, buffer, set } = self;
        let here = &definition.points[point as usize];
        if generator.as_ref().is_none_or(|(of, _)| *of != point) {
            *generator = Some((point, Generator::new(&definition.spec(here))?));
        }
        let Some((_, generator)) = generator else { return Ok(Vec::new()) };
        let first = u64::from(chunk) * CHUNK;
        let numbers = first..(first + CHUNK).min(definition.options.sets);
        let one = |number| {
            match generator.set(definition.options.seed, number, buffer) {
                Err(GenerateError::Grain { .. }) => return Ok(Verdicts::REFUSED),
                drawn => drawn?,
            }
            let mut bits = 0;
            let mut loaded = None;
            for (i, series) in definition.series.iter().enumerate().filter(|(_, series)| series.takes(here.cpus)) {
                let answer = match series.method {
                    Method::Test(contender) => {
                        if loaded != Some(series.strategy) {
                            set.load(
                                buffer.tasks.iter().map(|task| (task.c, task.d, task.t)),
                                here.cpus,
                                series.strategy,
                            );
                            loaded = Some(series.strategy);
                        }
                        contender.decide(set)
                    }
                    Method::Partition(fit) => partitioned(&buffer.tasks, here, series.strategy, fit),
                    Method::Simulation => simulated(&buffer.tasks, here, series.strategy),
                };
                bits |= code(answer) << (2 * i);
            }
            Ok(Verdicts { bits, utilization: ((utilization(&buffer.tasks) * 1e9 + 0.5) as u64).max(1) })
        };
        numbers.map(one).collect()
    }
}

const fn code(answer: Answer) -> u64 {
    match answer {
        Answer::Unknown => 0,
        Answer::Yes => 1,
        Answer::No => 2,
    }
}

fn system(tasks: &[Drawn], point: &Point, strategy: Builtin) -> System {
    let task = |(i, drawn): (usize, &Drawn)| Task {
        deadline: Span::from_ns(drawn.d),
        ..Task::periodic(&format!("t{}", i + 1), Span::from_ns(drawn.t), Span::from_ns(drawn.c))
    };
    System::local(point.cpus, strategy, tasks.iter().enumerate().map(task).collect())
}

/// With a priority for each task, as the tests have it: of equally urgent tasks the first is more important.
fn ordered(tasks: &[Drawn], point: &Point, strategy: Builtin) -> System {
    if strategy == Builtin::Edf {
        return system(tasks, point, strategy);
    }
    let mut system = system(tasks, point, Builtin::Fp);
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|i| match strategy {
        Builtin::Rm => (tasks[*i].t, tasks[*i].d),
        _ => (tasks[*i].d, tasks[*i].t),
    });
    for (place, i) in order.into_iter().enumerate() {
        system.tasks[i].priority = Some(place as u32 + 1);
    }
    system
}

/// Whether every task finds a CPU whose exact test accepts it.
fn partitioned(tasks: &[Drawn], point: &Point, strategy: Builtin, fit: Fit) -> Answer {
    let mut system = system(tasks, point, strategy);
    system.nodes[0].placement = Placement::Partitioned;
    system.nodes[0].fit = fit;
    match place(&system) {
        Ok(_) => Answer::Yes,
        Err(_) => Answer::Unknown,
    }
}

/// "No" where the synchronous periodic schedule misses within two hyperperiods and a limit of jobs;
/// it never proves a yes.
fn simulated(tasks: &[Drawn], point: &Point, strategy: Builtin) -> Answer {
    let system = ordered(tasks, point, strategy);
    let shortest = tasks.iter().map(|task| task.t).min().unwrap_or(1);
    let limit = Span::from_ns(shortest.saturating_mul(SIMULATED_JOBS / tasks.len().max(1) as u64));
    let duration = system.hyperperiod().map_or(limit, |all| Span::from_ns(all.as_ns().saturating_mul(2))).min(limit);
    let mut collector = Collector::new(&Definitions::of(&system), takt_sim::KINDS).brief();
    match simulate(&system, &SimOptions { duration, seed: 0, node: None }, &mut collector) {
        Ok(summary) if collector.finish(summary.end).missed() > 0 => Answer::No,
        _ => Answer::Unknown,
    }
}
