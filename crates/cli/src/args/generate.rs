//! The options of `takt gen`, some of them shared with `takt study`.

use clap::{Args, ValueEnum, ValueHint};
use takt_model::generate::{Method, Periods, Spec};
use takt_model::{Builtin, Span};

use super::{seed, span, target};
use crate::output::Target;

/// Generate random systems: task sets of a given utilization, engine control, or synthetic partitions.
///
/// Deterministic by seed, on every machine. Set k of a seed is the same alone and among others.
/// docs/reference/generators.md describes the random distributions and their sources.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status: 0 written, 2 options that no system fits, 4 an I/O error.

Examples:
  takt gen --tasks 10 --utilization 0.8 -o set.toml
  takt gen --tasks 12 --utilization 2.4 --cpus 4 --seed 7 | takt check -
  takt gen --method cfs --limits 0..0.2,0..0.5,0.1..1 --tasks 3 --utilization 0.9
  takt gen --periods harmonic --range 5ms..500ms --deadlines 0.5..1 --strategy dm
  takt gen --count 1000 -o sets              sets/set-0.toml, sets/set-1.toml, ...
  takt gen --profile automotive --utilization 0.6
  takt gen --profile arinc | takt size -")]
pub(crate) struct Gen {
    /// Tasks in a set.
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(crate) tasks: usize,

    /// Total utilization, in CPUs. Default: 0.7 of each CPU; 0.45 with --profile arinc.
    #[arg(long, value_name = "U", allow_negative_numbers = true)]
    pub(crate) utilization: Option<f64>,

    #[command(flatten)]
    pub(crate) shape: Shape,

    /// Kind of system: a task set; engine control as published by Kramer, Ziegenbein and Hamann; or
    /// synthetic partitions in the manner of ARINC 653.
    #[arg(long, value_enum, default_value_t = Profile::Tasks)]
    pub(crate) profile: Profile,

    /// CPUs of the node.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) cpus: u32,

    /// The node's strategy; default edf for task sets. fp: priorities in the order of deadlines.
    #[arg(long, value_name = "NAME", value_parser = builtins())]
    pub(crate) strategy: Option<String>,

    /// Bind each task to a CPU (when the system is checked, simulated or run) instead of letting it use all.
    #[arg(long)]
    pub(crate) partitioned: bool,

    /// Partitions, with --profile arinc.
    #[arg(long, value_name = "N", default_value_t = 6, allow_negative_numbers = true)]
    pub(crate) partitions: usize,

    /// The largest speed of the engine, with --profile automotive. The angle-synchronous task comes
    /// at most every 120 s / (RPM * 4 cylinders).
    #[arg(long, value_name = "RPM", default_value_t = 6000, value_parser = clap::value_parser!(u32).range(1..),
          allow_negative_numbers = true)]
    pub(crate) rpm: u32,

    /// Seed of all randomness.
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// The number of the (first) set.
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) set: u64,

    /// The number of sets. Several sets go to a folder.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..),
          allow_negative_numbers = true)]
    pub(crate) count: u64,

    /// Write the system here; - is standard output. With --count: the folder.
    #[arg(short, long, value_name = "FILE", default_value = "-", value_parser = target,
          value_hint = ValueHint::AnyPath)]
    pub(crate) output: Target,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    /// A set of independent tasks.
    Tasks,
    /// Engine control: periods, shares and execution times as published.
    Automotive,
    /// Synthetic partitions with budgets to be sized.
    Arinc,
}

/// Parameters of random sets.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shape {
    /// How the utilization is shared out. Each method is uniform over all vectors within the
    /// limits.
    #[arg(long, value_enum, default_value_t = MethodName::Randfixedsum)]
    pub(crate) method: MethodName,

    /// Least and most utilization of a task: one range for all, or one for each, separated by commas.
    #[arg(long, value_name = "A..B,...", default_value = "0..1", value_delimiter = ',',
          value_parser = range_of_numbers, allow_hyphen_values = true)]
    pub(crate) limits: Vec<(f64, f64)>,

    /// How periods are drawn.
    #[arg(long, value_enum, default_value_t = PeriodsName::LogUniform)]
    pub(crate) periods: PeriodsName,

    /// The shortest and the longest period.
    #[arg(long, value_name = "A..B", default_value = "10ms..1s", value_parser = range_of_spans,
          allow_hyphen_values = true)]
    pub(crate) range: (Span, Span),

    /// With --periods divisors: a common multiple of all periods.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span, allow_hyphen_values = true)]
    pub(crate) hyperperiod: Span,

    /// The range of a uniform factor f. The deadline is C + f (T - C) if f <= 1, and f T above. 1:
    /// deadlines equal periods.
    #[arg(long, value_name = "A..B", default_value = "1", value_parser = range_of_numbers, allow_hyphen_values = true)]
    pub(crate) deadlines: (f64, f64),

    /// All times are multiples of this.
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = span, allow_hyphen_values = true)]
    pub(crate) grain: Span,
}

impl Shape {
    /// As the generators take it.
    pub(crate) fn spec(&self, tasks: usize, utilization: f64) -> Spec {
        let (min, max) = self.range;
        Spec {
            tasks,
            utilization,
            method: match self.method {
                MethodName::UunifastDiscard => Method::UUniFastDiscard,
                MethodName::Randfixedsum => Method::RandFixedSum,
                MethodName::Cfs => Method::ConvolutionalFixedSum,
            },
            limits: self.limits.clone(),
            periods: match self.periods {
                PeriodsName::LogUniform => Periods::LogUniform { min, max },
                PeriodsName::Uniform => Periods::Uniform { min, max },
                PeriodsName::Harmonic => Periods::Harmonic { min, max },
                PeriodsName::Divisors => Periods::Divisors { min, max, hyperperiod: self.hyperperiod },
                PeriodsName::Automotive => Periods::Automotive,
            },
            deadlines: self.deadlines,
            grain: self.grain,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MethodName {
    /// UUniFast; vectors outside the limits are discarded.
    UunifastDiscard,
    /// Stafford's; one range of limits for all tasks.
    Randfixedsum,
    /// Griffin and Davis's ConvolutionalFixedSum; any limits.
    Cfs,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeriodsName {
    /// All orders of magnitude are equally likely.
    LogUniform,
    /// All periods are equally likely.
    Uniform,
    /// Each divides all longer ones: the shortest, times factors 2 to 4.
    Harmonic,
    /// Divisors of --hyperperiod.
    Divisors,
    /// 1 ms to 1 s with the shares of engine control; --range does not count.
    Automotive,
}

fn builtins() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(Builtin::ALL.map(Builtin::name))
}

/// `A..B`, or `A` for both.
pub(super) fn range(text: &str) -> (&str, &str) {
    text.split_once("..").unwrap_or((text, text))
}

fn range_of_numbers(text: &str) -> Result<(f64, f64), String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let (from, to) = range(text);
    number(from).zip(number(to)).ok_or_else(|| "is no range of numbers like 0.5..1".to_owned())
}

fn range_of_spans(text: &str) -> Result<(Span, Span), String> {
    let (from, to) = range(text);
    let (from, to) = (span(from.trim())?, span(to.trim())?);
    if from.is_zero() || from > to {
        Err("is no range like 10ms..1s: the shorter one first, not zero".to_owned())
    } else {
        Ok((from, to))
    }
}
