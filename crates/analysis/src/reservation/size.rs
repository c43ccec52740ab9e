//! The least budget of a reservation for a wanted probability.

use takt_model::{Arrival, Exec, Probability, Span, Task};
use thiserror::Error;

use super::costs::Charge;
use super::dropping::{DropError, drop_probability};
use super::stochastic::{Enclosure, Model, StochasticError};
use crate::pmf::Pmf;

/// Cells that a uniform execution time is cut into.
const CELLS: u64 = 1000;

/// The requirements of a reservation.
#[derive(Clone, Debug)]
pub struct Requirements<'a> {
    /// Execution times, in ns.
    pub exec: &'a Pmf,
    /// Times between arrivals, in ns.
    pub arrivals: &'a Pmf,
    /// T.
    pub period: Span,
    /// By when after its arrival a job should be done; counts in whole periods, rounded down.
    pub deadline: Span,
    /// The share of jobs that should be done by then, above 0.
    pub probability: Probability,
    /// The most jobs that can be pending; then also at least that share of jobs should not be lost.
    pub pending: Option<u32>,
    /// The granularity of budgets, to which execution times are rounded up.
    pub quantum: Span,
    /// The costs added to each job and taken from each budget.
    pub charge: Charge,
}

/// A reservation that does what is wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Reserved {
    /// T.
    pub period: Span,
    /// Q, with what costs take from it.
    pub budget: Span,
    /// Whole periods in the deadline.
    pub periods: u64,
    /// P(v <= k Q), a lower bound of P(response <= deadline); its `low` is at least what was wanted.
    pub probability: Enclosure,
    /// The same by the fast bound.
    pub fast: f64,
    /// The share of jobs that the queue loses, where it was asked for.
    pub lost: Option<Enclosure>,
    /// How well the equations hold: the largest residual.
    pub residual: f64,
    /// E\[c\] / E\[a\], to show.
    pub utilization: f64,
}

/// Why there is no such reservation, or none is found here.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ReserveError {
    /// The deadline holds no whole period.
    #[error(
        "a deadline of {deadline} holds no whole reservation period of {period}, so nothing is guaranteed by \
         then; take a period of at most the deadline"
    )]
    Deadline {
        /// As wanted.
        deadline: Span,
        /// As wanted.
        period: Span,
    },
    /// The quantum does not fit.
    #[error(
        "a quantum of {quantum} does not fit into a period of {period}; take one of at least 1ns and at most the period"
    )]
    Quantum {
        /// As wanted.
        quantum: Span,
        /// As wanted.
        period: Span,
    },
    /// No budget is enough.
    #[error("not even a whole CPU, given anew every {period}, is proven to be enough: {why}")]
    NotEnough {
        /// T.
        period: Span,
        /// By how much.
        why: String,
    },
    /// The distribution is not computed.
    #[error(transparent)]
    Stochastic(#[from] StochasticError),
    /// The drop probability is not computed.
    #[error(transparent)]
    Drop(#[from] DropError),
}

/// The requirements, with the execution times including costs.
struct Search<'a> {
    wanted: &'a Requirements<'a>,
    exec: Pmf,
}

struct TriedBudget {
    probability: Enclosure,
    fast: f64,
    lost: Option<Enclosure>,
    residual: f64,
}

impl Requirements<'_> {
    /// The budget that leaves so many quanta when costs have taken their part, in whole quanta
    /// where those fit; `None` above the period.
    fn budget(&self, quanta: u64) -> Option<Span> {
        let quantum = self.quantum.as_ns();
        let least = quanta.checked_mul(quantum)?.checked_add(self.charge.budget.as_ns())?;
        let whole = least.div_ceil(quantum).saturating_mul(quantum).min(self.period.as_ns());
        (least <= whole).then_some(Span::from_ns(whole))
    }

    fn periods(&self) -> u64 {
        self.deadline.as_ns() / self.period.as_ns()
    }

    /// Whether a proven lower bound is enough.
    fn is_met(&self, low: f64) -> bool {
        let billionths = f64::from(self.probability.billionths());
        // Both sides are exact but for the division, whose rounding goes against it.
        low >= 1.0 || (self.probability < Probability::ONE && low >= billionths / 1e9 * (1.0 + f64::EPSILON))
    }

    fn is_enough(&self, tried: &TriedBudget) -> bool {
        self.is_met(tried.probability.low) && tried.lost.is_none_or(|lost| self.is_met(1.0 - lost.high))
    }
}

impl Search<'_> {
    fn model(&self, quanta: u64) -> Result<Model, StochasticError> {
        let Requirements { arrivals, period, quantum, .. } = self.wanted;
        let quantum = quantum.as_ns();
        Model::new(&self.exec, arrivals, period.as_ns(), quanta * quantum, quantum)
    }

    /// Everything about a budget; `None` where responses grow without end, or so nearly that
    /// floating point cannot tell.
    fn look(&self, quanta: u64) -> Result<Option<TriedBudget>, ReserveError> {
        let model = match self.model(quanta) {
            Err(StochasticError::Unstable) => return Ok(None),
            model => model?,
        };
        let solution = match model.solve() {
            Err(StochasticError::Unstable | StochasticError::Singular) => return Ok(None),
            solution => solution?,
        };
        let k = self.wanted.periods();
        let lost = self.wanted.pending.map(|most| drop_probability(&model, most)).transpose()?;
        let probability = solution.within(k);
        let fast = model.fast().map_or(0.0, |fast| fast.within(k));
        Ok(Some(TriedBudget { probability, fast, lost, residual: solution.residual() }))
    }

    /// Whether the fast bound alone is enough.
    fn is_fast(&self, quanta: u64) -> bool {
        let fast = self.model(quanta).and_then(|model| model.fast());
        fast.is_ok_and(|fast| self.wanted.is_met(fast.within(self.wanted.periods())))
    }
}

/// The least Q, in quanta (or all of the period), with a proven P(v <= k Q) of at least the wanted
/// share. Costs are taken off Q; k is the number of whole periods in the deadline. If `pending` is
/// given, at most the rest of the jobs is lost.
///
/// By bisection, below the least budget for which the fast bound is enough: P(v <= k Q) rises with
/// Q, job by job. (Only the search assumes that the share of lost jobs falls with Q. The answer
/// does not: its values were computed for the returned Q.)
///
/// # Errors
/// [`ReserveError`].
pub fn reserve(wanted: &Requirements) -> Result<Reserved, ReserveError> {
    let (period, quantum) = (wanted.period, wanted.quantum);
    if quantum.is_zero() || quantum > period {
        return Err(ReserveError::Quantum { quantum, period });
    }
    if wanted.periods() == 0 {
        return Err(ReserveError::Deadline { deadline: wanted.deadline, period });
    }
    let Some(left) = period.checked_sub(wanted.charge.budget).filter(|left| *left >= quantum) else {
        let why = format!("costs take {} of each budget", wanted.charge.budget);
        return Err(ReserveError::NotEnough { period, why });
    };
    let all = left.as_ns() / quantum.as_ns();
    let job = wanted.charge.job.as_ns();
    let search = Search { wanted, exec: wanted.exec.map(|c| c.saturating_add(job)) };
    // Bracketed by what costs little.
    let (mut low, mut high) = (0, all);
    let mut best = None;
    if search.is_fast(all) {
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if search.is_fast(middle) { high = middle } else { low = middle }
        }
        low = 0;
    }
    // With a queue the fast bound says only half.
    let tried = search.look(high)?;
    match tried {
        Some(tried) if wanted.is_enough(&tried) => best = Some((high, tried)),
        _ if high < all => {
            low = high;
            high = all;
        }
        _ => {}
    }
    if best.is_none() {
        let tried = search.look(high)?;
        match tried {
            Some(tried) if wanted.is_enough(&tried) => best = Some((high, tried)),
            tried => return Err(not_enough(wanted, tried.as_ref())),
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match search.look(middle)? {
            Some(tried) if wanted.is_enough(&tried) => (high, best) = (middle, Some((middle, tried))),
            _ => low = middle,
        }
    }
    let found = best.and_then(|(quanta, tried)| Some((wanted.budget(quanta)?, tried)));
    let Some((budget, tried)) = found else { return Err(not_enough(wanted, None)) };
    let ((c, c_total), (a, a_total)) = (wanted.exec.mean(), wanted.arrivals.mean());
    Ok(Reserved {
        period,
        budget,
        periods: wanted.periods(),
        probability: tried.probability,
        fast: tried.fast,
        lost: tried.lost,
        residual: tried.residual,
        utilization: (c as f64 / c_total as f64) / (a as f64 / a_total as f64),
    })
}

fn not_enough(wanted: &Requirements, tried: Option<&TriedBudget>) -> ReserveError {
    let why = match tried {
        None => "jobs need more than it gives in whole periods between arrivals; take a shorter period".to_owned(),
        Some(TriedBudget { lost: Some(lost), probability, .. }) if wanted.is_met(probability.low) => {
            format!("a queue of {} loses {:.3e} of the jobs", wanted.pending.unwrap_or(0), lost.high)
        }
        Some(tried) => format!("{:.6} of the jobs are done within {}", tried.probability.low, wanted.deadline),
    };
    ReserveError::NotEnough { period: wanted.period, why }
}

/// The execution times that a System gives a task, in ns: a uniform one in cells, each at its upper end.
///
/// # Errors
/// A trace without values.
pub fn exec_of(task: &Task) -> Result<Pmf, String> {
    match &task.exec {
        Exec::Wcet => Ok(Pmf::certain(task.wcet.as_ns())),
        Exec::Uniform { min, max } => {
            let (min, width) = (min.as_ns(), max.as_ns().saturating_sub(min.as_ns()));
            let cells = CELLS.min(width + 1);
            let end = |i: u64| (u128::from(width) * u128::from(i)).div_ceil(u128::from(cells)) as u64;
            Ok(Pmf::new((1..=cells).map(|i| (min + end(i), 1))).expect("there is a cell"))
        }
        Exec::Pmf(pmf) => {
            let points = pmf.iter().map(|(value, probability)| (value.as_ns(), u64::from(probability.billionths())));
            Pmf::new(points).ok_or_else(|| format!("the execution times of \"{}\" have no probability", task.name))
        }
        Exec::Trace(trace) => {
            let samples: Vec<u64> = trace.values.iter().map(|value| value.as_ns()).collect();
            Pmf::of_samples(&samples).ok_or_else(|| format!("the execution trace of \"{}\" is empty", task.name))
        }
    }
}

/// The times between the arrivals that a System gives a task, in ns. A sporadic task may always
/// come after its least distance; jitter shortens every distance: (n - m) (P - J) is at most what
/// lies between any two.
///
/// # Errors
/// A successor of other tasks, jitter beyond the period, or a trace with fewer than two arrivals.
pub fn arrivals_of(task: &Task) -> Result<Pmf, String> {
    if !task.after.is_empty() {
        return Err(format!("\"{}\" is released by other tasks: nothing says when", task.name));
    }
    let jitter = task.jitter.as_ns();
    let pmf = match &task.arrival {
        Arrival::Periodic | Arrival::Sporadic => Some(Pmf::certain(task.period.as_ns())),
        Arrival::Pmf(pmf) => {
            Pmf::new(pmf.iter().map(|(value, probability)| (value.as_ns(), u64::from(probability.billionths()))))
        }
        Arrival::Trace(trace) => {
            let distances = trace.values.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_ns());
            Pmf::new(distances.map(|distance| (distance, 1)))
        }
    };
    let pmf = pmf.ok_or_else(|| format!("the arrivals of \"{}\" are fewer than two", task.name))?;
    if jitter > 0 && jitter >= pmf.min() {
        return Err(format!("\"{}\" has release jitter of at least the time between two arrivals", task.name));
    }
    Ok(pmf.map(|distance| distance - jitter))
}
