//! Types for figures on a kernel: the kernel, the settings that it runs, and its measurements.

use takt_model::{Costs, Span, System};

use super::measure::Responsiveness;
use super::workload::Domains;
use crate::context::Context;
use crate::failure::Failure;
use crate::findings::Findings;

/// A kernel that runs the domains.
pub(super) struct Kernel {
    /// The name in sentences.
    pub(super) name: &'static str,
    /// The name of its values in tables.
    pub(super) source: &'static str,
    /// All times of the paper are divided by this.
    pub(super) speed: u64,
    /// Whether it decides at multiples of a quantum, as in the paper.
    pub(super) has_quantum: bool,
    /// How long each measurement lasts: the usual length, and the length with `--short`.
    pub(super) duration: (Span, Span),
    pub(super) claims: Claims,
    pub(super) run: Runner,
    pub(super) difference: &'static str,
}

/// Runs Systems on a kernel, each for this time.
pub(super) type Runner = fn(&Context, &[System], Span, &mut Findings) -> Result<Vec<CsaRun>, Failure>;

pub(super) struct CsaRun {
    pub(super) found: Responsiveness,
    /// The measured costs, or `None`.
    pub(super) costs: Option<Costs>,
}

/// The names of the claims.
pub(super) struct Claims {
    pub(super) order: &'static str,
    /// By rule.
    pub(super) gains: [&'static str; 3],
    pub(super) overhead: &'static str,
    pub(super) nothing: &'static str,
    pub(super) far_less: &'static str,
    pub(super) alone: &'static str,
}

/// The names of the claims with this prefix.
macro_rules! claim_names {
    ($prefix:literal) => {
        $crate::csa::kernel::Claims {
            order: concat!($prefix, "_crps_misses_least_then_wcps"),
            gains: [
                concat!($prefix, "_ptps_gains_nothing_from_early_completions"),
                concat!($prefix, "_wcps_gains_from_early_completions"),
                concat!($prefix, "_crps_gains_from_early_completions"),
            ],
            overhead: concat!($prefix, "_much_overhead_gains_more"),
            nothing: concat!($prefix, "_crps_misses_nothing_with_much_overhead"),
            far_less: concat!($prefix, "_crps_misses_far_less_with_little_overhead"),
            alone: concat!($prefix, "_single_domains_behave_alike"),
        }
    };
}
pub(super) use claim_names;

/// The load of Fig. 6. The kernel gives real-time threads 95 % of a CPU, so it is not 1.0.
pub(super) const LOAD: f64 = 0.9;

#[derive(Default)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) domains: Domains,
    pub(super) etf: u64,
    pub(super) paper: [Option<f64>; 3],
}

/// The jobs of a setting by rule, from each source.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) simulated: Vec<Vec<f64>>,
    pub(super) live: Vec<Vec<f64>>,
    /// Empty without measured costs.
    pub(super) charged: Vec<Vec<f64>>,
}
