//! The definition of a study: its points, its series, and their canonical text.

use std::fmt::Write as _;

use clap::{Parser as _, ValueEnum as _};
use takt_analysis::portfolio::{CONTENDERS, Contender, contender_by_name};
use takt_model::generate::{Generator, Spec};
use takt_model::{Builtin, CpuSet, Fit};

use crate::args::{List, OTHERS, Study, Takt, Verb};
use crate::failure::Failure;
use crate::input;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    Test(&'static Contender),
    /// Whether the set can be partitioned.
    Partition(Fit),
    Simulation,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Series {
    pub(crate) strategy: Builtin,
    pub(crate) name: &'static str,
    pub(crate) method: Method,
}

impl Series {
    /// Whether it says anything of `cpus` CPUs.
    pub(crate) fn takes(&self, cpus: u32) -> bool {
        match self.method {
            Method::Test(contender) => contender.cpus.takes(cpus),
            Method::Partition(_) => cpus > 1,
            Method::Simulation => true,
        }
    }

    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.strategy.name(), self.name)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) cpus: u32,
    pub(crate) tasks: u32,
    /// Per CPU, in millionths.
    pub(crate) load: u64,
}

impl Point {
    /// Per CPU.
    pub(crate) fn utilization(&self) -> f64 {
        self.load as f64 / 1e6
    }
}

pub(crate) struct Definition<'a> {
    pub(crate) options: &'a Study,
    pub(crate) points: Vec<Point>,
    pub(crate) series: Vec<Series>,
}

const POINTS_MAX: usize = 100_000;
/// Sets of a study, at most: their verdicts are held in memory at the end.
const SETS_MAX: u64 = 100_000_000;
/// Series of a study, at most: two bits each in 64.
const SERIES_MAX: usize = 32;

impl<'a> Definition<'a> {
    pub(crate) fn new(options: &'a Study) -> Result<Definition<'a>, Failure> {
        let mut points = Vec::new();
        for cpus in &options.cpus.0 {
            if *cpus > CpuSet::CPUS_MAX {
                return Err(Failure::input(format_args!("--cpus {cpus}: a node has 1 to {}", CpuSet::CPUS_MAX)));
            }
            for tasks in &options.counts.0 {
                let mut load = options.utilization.0;
                while load <= options.utilization.1 && points.len() < POINTS_MAX {
                    points.push(Point { cpus: *cpus, tasks: *tasks, load });
                    load += options.step;
                }
            }
        }
        let sets = options.sets.saturating_mul(points.len() as u64);
        if points.len() >= POINTS_MAX || sets > SETS_MAX {
            return Err(Failure::input(format_args!(
                "{} points with {} sets each: at most {POINTS_MAX} points and {SETS_MAX} sets; study parts of it",
                points.len(),
                options.sets
            )));
        }
        let definition = Definition { options, points, series: series(options)? };
        for point in &definition.points {
            Generator::new(&definition.spec(point)).map_err(|error| {
                let Point { cpus, tasks, .. } = point;
                Failure::input(format_args!("{cpus} CPUs, {tasks} tasks, {} per CPU: {error}", point.utilization()))
            })?;
        }
        Ok(definition)
    }

    pub(crate) fn spec(&self, point: &Point) -> Spec {
        // The product of integers first: 4 * 0.35 is 1.4, as one would write it.
        let total = (point.load * u64::from(point.cpus)) as f64 / 1e6;
        self.options.shape.spec(point.tasks as usize, total)
    }

    /// All that the results depend on, as a file of options.
    pub(crate) fn text(&self) -> String {
        let options = self.options;
        let shape = &options.shape;
        let ranged = |(from, to): (f64, f64)| if from == to { from.to_string() } else { format!("{from}..{to}") };
        let joined = |values: Vec<String>| values.join(",");
        let named =
            |value: Option<clap::builder::PossibleValue>| value.map_or(String::new(), |v| v.get_name().to_owned());
        let mut text = String::from("# A study of takt: takt study THIS -o FOLDER\n");
        let mut line = |key: &str, value: String| {
            let _ = writeln!(text, "{key} = \"{value}\"");
        };
        line("cpus", joined(options.cpus.0.iter().map(u32::to_string).collect()));
        line("tasks", joined(options.counts.0.iter().map(u32::to_string).collect()));
        let decimal = |millionths: u64| (millionths as f64 / 1e6).to_string();
        line("utilization", format!("{}..{}", decimal(options.utilization.0), decimal(options.utilization.1)));
        line("step", decimal(options.step));
        line("sets", options.sets.to_string());
        line("seed", options.seed.to_string());
        line("strategy", joined(options.strategy.0.iter().map(|strategy| strategy.name().to_owned()).collect()));
        line("tests", joined(self.series.iter().map(Series::full_name).collect()));
        line("method", named(shape.method.to_possible_value()));
        line("limits", joined(shape.limits.iter().map(|(least, most)| format!("{least}..{most}")).collect()));
        line("periods", named(shape.periods.to_possible_value()));
        line("range", format!("{}..{}", shape.range.0, shape.range.1));
        line("hyperperiod", shape.hyperperiod.to_string());
        line("deadlines", ranged(shape.deadlines));
        line("grain", shape.grain.to_string());
        text
    }
}

fn series(options: &Study) -> Result<Vec<Series>, Failure> {
    let cpus = &options.cpus.0;
    let method = |name: &str| -> Option<(&'static str, Method)> {
        let fit = |fit| Some(Method::Partition(fit));
        let other = match name {
            "sim" => Some(Method::Simulation),
            "first-fit" => fit(Fit::FirstFit),
            "best-fit" => fit(Fit::BestFit),
            "worst-fit" => fit(Fit::WorstFit),
            "next-fit" => fit(Fit::NextFit),
            _ => None,
        };
        let known = OTHERS.iter().find(|known| **known == name).copied();
        known.zip(other).or_else(|| contender_by_name(name).map(|test| (test.name, Method::Test(test))))
    };
    let knows = |method: &Method, strategy: Builtin| match method {
        Method::Test(contender) => contender.strategies.contains(&strategy),
        _ => true,
    };
    let wanted: &[(Option<Builtin>, String)] = options.tests.as_ref().map_or(&[], |List(tests)| tests);
    let mut found: Vec<Series> = Vec::new();
    if wanted.is_empty() {
        for strategy in &options.strategy.0 {
            for contender in
                CONTENDERS.iter().filter(|contender| !contender.costly && contender.strategies.contains(strategy))
            {
                let series = Series { strategy: *strategy, name: contender.name, method: Method::Test(contender) };
                if cpus.iter().any(|cpus| series.takes(*cpus)) {
                    found.push(series);
                }
            }
        }
    }
    for (own, name) in wanted {
        let Some((name, method)) = method(name) else { continue };
        let strategies = own.map_or_else(|| options.strategy.0.clone(), |own| vec![own]);
        let before = found.len();
        for strategy in strategies.into_iter().filter(|strategy| knows(&method, *strategy)) {
            let series = Series { strategy, name, method };
            if cpus.iter().any(|cpus| series.takes(*cpus)) {
                found.push(series);
            }
        }
        if found.len() == before {
            return Err(Failure::input(format_args!(
                "--tests {name}: this test does not apply to the chosen strategies and numbers of CPUs; leave it out"
            )));
        }
    }
    if found.is_empty() || found.len() > SERIES_MAX {
        return Err(Failure::input(format_args!(
            "{} tests: a study has 1 to {SERIES_MAX}; name them by --tests",
            found.len()
        )));
    }
    Ok(found)
}

/// The options of a file, with those of the command line over them.
pub(crate) fn with_file(path: &str) -> Result<Study, Failure> {
    let text = input::text(path, "TOML")?;
    let name = input::shown(path).into_owned();
    let document = toml_edit::Document::parse(text.as_str()).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Failure::located(format_args!("{}: {}", place(&name, &text, at), error.message()))
    })?;
    let mut given: Vec<String> = Vec::new();
    for (key, item) in document.iter() {
        let key_at = document.key(key).and_then(toml_edit::Key::span).map_or(0, |span| span.start);
        let at = item.span().map_or(key_at, |span| span.start);
        let fail =
            |at: usize, message: String| Failure::located(format_args!("{}: {message}", place(&name, &text, at)));
        let value =
            value(item).ok_or_else(|| fail(at, format!("\"{key}\" is a text, a number, a flag or a list of those")))?;
        let option = match value.as_str() {
            "true" => vec![format!("--{key}")],
            "false" => Vec::new(),
            _ => vec![format!("--{key}={value}")],
        };
        if ["output", "threads", "restart", "json", "help"].contains(&key) || key.len() < 2 {
            return Err(fail(key_at, format!("\"{key}\" belongs on the command line, not into the file")));
        }
        // Alone first, so that what is wrong can be told with its place.
        if let Err(error) = parse(&option, &["-o".to_owned(), "x".to_owned()]) {
            let unknown = error.kind() == clap::error::ErrorKind::UnknownArgument;
            let message = if unknown {
                format!("unknown key \"{key}\"; the keys are the options of takt study --help")
            } else {
                error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
            };
            return Err(fail(if unknown { key_at } else { at }, message));
        }
        given.extend(option);
    }
    let own: Vec<String> = std::env::args().skip(1).skip_while(|word| word != "study").skip(1).collect();
    parse(&given, &own).map_err(|error| Failure::input(error.to_string().trim_end().trim_start_matches("error: ")))
}

fn parse(first: &[String], then: &[String]) -> Result<Study, clap::Error> {
    let words = ["takt".to_owned(), "study".to_owned()];
    let takt = Takt::try_parse_from(words.iter().chain(first).chain(then))?;
    match takt.verb {
        Verb::Study(study) => Ok(*study),
        _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    }
}

/// As one would give it to the option.
fn value(item: &toml_edit::Item) -> Option<String> {
    fn one(value: &toml_edit::Value) -> Option<String> {
        match value {
            toml_edit::Value::String(text) => Some(text.value().clone()),
            toml_edit::Value::Integer(number) => Some(number.value().to_string()),
            toml_edit::Value::Float(number) => Some(number.value().to_string()),
            toml_edit::Value::Boolean(flag) => Some(flag.value().to_string()),
            toml_edit::Value::Array(values) => {
                let parts: Option<Vec<String>> = values.iter().map(one).collect();
                Some(parts?.join(","))
            }
            _ => None,
        }
    }
    one(item.as_value()?)
}

fn place(name: &str, text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{name}:{line}:{column}")
}
