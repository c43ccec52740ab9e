//! The options of `takt study`.

use clap::{Args, ValueHint};
use takt_analysis::portfolio::{CONTENDERS, STRATEGIES};
use takt_model::Builtin;

use super::generate::{Shape, range};
use super::seed;

/// Sweep tests over many random sets: acceptance ratios, weighted schedulability, contradictions.
///
/// Every combination of --cpus, --tasks and --utilization is a point; at each, --sets random sets
/// go through all tests. Works in parallel and resumes after an interruption; its output depends on
/// neither. Set k of a point is `takt gen --set k` with its options.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Exit status: 0 done; 1 two tests contradict each other (a bug: please report it); 2 bad options; 4 an I/O error.

Examples:
  takt study --cpus 4 --tasks 12 -o out
  takt study --cpus 1 --tasks 5,10,20 --utilization 0.6..1 --deadlines 0.5..1 --sets 10000 -o out
  takt study --cpus 4 --tasks 10 --strategy edf,dm --tests any,first-fit,worst-fit -o out
  takt study --cpus 2 --tasks 4 --range 3ns..9ns --periods uniform --grain 1ns --tests gfb,bar,exact,sim -o out
  takt study sweep.toml -o out              a file of the same options: `sets = 10000`"
)]
pub(crate) struct Study {
    /// A TOML file with a key for each option; options on the command line win.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<String>,

    /// CPUs, one or several numbers, separated by commas.
    #[arg(long, value_name = "N,...", default_value = "1", value_parser = numbers)]
    pub(crate) cpus: List<u32>,

    /// Tasks in a set, one or several numbers.
    #[arg(long = "tasks", value_name = "N,...", default_value = "10", value_parser = numbers)]
    pub(crate) counts: List<u32>,

    /// Utilization per CPU, from A to B: the total divided by the CPUs.
    #[arg(long, value_name = "A..B", default_value = "0.1..1", value_parser = millionths)]
    pub(crate) utilization: Sweep,

    /// The distance of two points.
    #[arg(long, value_name = "U", default_value = "0.05", value_parser = millionth)]
    pub(crate) step: u64,

    /// Random sets at each point.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..),
          allow_negative_numbers = true)]
    pub(crate) sets: u64,

    /// Strategies: edf, rm, dm, one or several.
    #[arg(long, value_name = "NAME,...", default_value = "edf", value_parser = strategies)]
    pub(crate) strategy: List<Builtin>,

    /// Tests, by name; or STRATEGY/TEST. Besides the tests of `takt check`: any (all but exact
    /// together), sim (a simulation; finds misses only), first-fit, best-fit, worst-fit and
    /// next-fit (partitioned, an exact test per CPU). Default: all applicable tests but exact, sim
    /// and the partitioned ones.
    #[arg(long, value_name = "NAME,...", value_parser = tests)]
    pub(crate) tests: Option<List<(Option<Builtin>, String)>>,

    /// Seed of all randomness.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) shape: Shape,

    /// Also write a line for each set.
    #[arg(long)]
    pub(crate) per_set: bool,

    /// Worker threads; default: one per CPU of this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    pub(crate) threads: Option<u16>,

    /// Forget the results of an earlier run in the folder, and start anew. Files of the same names are replaced.
    #[arg(long)]
    pub(crate) restart: bool,

    /// The folder to write to.
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) output: String,
}

/// Values separated by commas, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// From and to, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sweep(pub(crate) u64, pub(crate) u64);

fn list<T: PartialEq>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<List<T>, String> {
    let mut values = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let value = one(part)?;
        if values.contains(&value) {
            return Err(format!("has {part} twice"));
        }
        values.push(value);
    }
    Ok(List(values))
}

fn some<T>(list: List<T>) -> Result<List<T>, String> {
    if list.0.is_empty() { Err("names none".to_owned()) } else { Ok(list) }
}

fn numbers(text: &str) -> Result<List<u32>, String> {
    let number =
        |part: &str| part.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{part} is no number from 1 on"));
    some(list(text, number)?)
}

fn strategies(text: &str) -> Result<List<Builtin>, String> {
    some(list(text, strategy)?)
}

fn strategy(name: &str) -> Result<Builtin, String> {
    let known = Builtin::by_name(name).filter(|strategy| STRATEGIES.contains(strategy));
    known.ok_or_else(|| format!("{name} is none of edf, rm, dm"))
}

/// Contenders besides the tests of the catalogue.
pub(crate) const OTHERS: [&str; 5] = ["sim", "first-fit", "best-fit", "worst-fit", "next-fit"];

fn tests(text: &str) -> Result<List<(Option<Builtin>, String)>, String> {
    let tests = list(text, |part| {
        let (strategy, name) = match part.split_once('/') {
            Some((strategy_name, name)) => (Some(strategy(strategy_name)?), name),
            None => (None, part),
        };
        let known = || CONTENDERS.iter().map(|contender| contender.name).chain(OTHERS);
        match known().find(|other| *other == name) {
            Some(_) => Ok((strategy, name.to_owned())),
            None => Err(format!("{name} is none of {}", known().collect::<Vec<_>>().join(", "))),
        }
    });
    some(tests?)
}

/// A decimal fraction in millionths, exactly; at most 1000.
fn millionth(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is no number above 0 with at most six decimals");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    let part: u64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
    let all = whole.saturating_mul(1_000_000).saturating_add(part);
    if all == 0 || all > 1_000_000_000 { Err(wrong()) } else { Ok(all) }
}

fn millionths(text: &str) -> Result<Sweep, String> {
    let (from, to) = range(text);
    let (from, to) = (millionth(from.trim())?, millionth(to.trim())?);
    if from > to { Err("has the larger end first".to_owned()) } else { Ok(Sweep(from, to)) }
}
