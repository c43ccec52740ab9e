//! The least budget, the longest period, or both, of a component on several CPUs.
//!
//! For a given period, the least budget that [`mpr`] accepts. A larger budget is never less supply,
//! so bisection finds it.
//!
//! For both, the search tries every multiple of the quantum as a period, up to a cap. It keeps the
//! least bandwidth Θ / Π, and the longest period of equal bandwidths.
//!
//! **The cap.** A job of task k needs at least sbf(L_k) > m' (C_k - 1). For Π >= L_k this means m'
//! L_k - 2 (m' Π - Θ) > m' (C_k - 1), so Θ / Π > m' (1 - (L_k - C_k + 1) / (2 Π)). The right side
//! grows with Π. It exceeds the best bandwidth Θ* / Π* from Π > (L_k - C_k + 1) m' Π* / (2 (m' Π* -
//! Θ*)) on. So no longer period is better. If only whole CPUs serve, they do so at every period.
//! Then the cap is the longest period of a task.
//! A search ends without a result after [`PERIODS_MAX`] periods or [`SEARCH_TERMS_MAX`] terms.

use std::cell::Cell;

use takt_model::{Auto, ComponentId, Span};

use crate::carried::ChainBounds;
use crate::components::{Tree, on_several};
use crate::compositional::around::given;
use crate::compositional::rules::OuterOrder;
use crate::compositional::{Limit, Mpr, PERIODS_MAX, QUANTUM, SizeError, SizedComponent, mpr};
use crate::global::{self, Load, Rule, Sporadic, Terms};
use crate::scope::Unit;

/// Terms of [`mpr`] that one search may evaluate before it gives up. They take seconds.
pub(super) const SEARCH_TERMS_MAX: u64 = 400_000_000;

struct Search<'a> {
    tasks: &'a [Sporadic],
    rule: Rule,
    cpus: u32,
    quantum: u64,
    terms_left: Cell<u64>,
}

/// Sizes one component on several CPUs. All others of the System have values. Given values of the
/// component stay.
pub(super) fn size(
    tree: &Tree,
    unit: &Unit,
    above: OuterOrder,
    id: ComponentId,
    (period, budget): (Option<u64>, Option<u64>),
) -> Result<SizedComponent, SizeError> {
    let component = &tree.system.components[id.index()];
    let name = component.name.clone();
    let not_covered = |why: String| SizeError::NotCovered { component: name.clone(), why };
    let not_enough = |why: String| SizeError::NotEnough { component: name.clone(), why };
    let limit = |limit: Limit| SizeError::Limit { component: name.clone(), limit };
    let spec = &tree.system.nodes[component.node.index()];
    tree.mpr_supply(id, spec, above, 1, 1).map_err(not_covered)?;
    let late = unit.served.as_ref().map_or(0, |served| served.late);
    let (tasks, rule) = on_several(unit, &ChainBounds::by_deadlines(&tree.system), late).map_err(not_covered)?;
    let quantum = component.quantum.unwrap_or(QUANTUM).as_ns();
    let search = Search { tasks: &tasks, rule, cpus: component.cpus, quantum, terms_left: Cell::new(SEARCH_TERMS_MAX) };
    let cpus = component.cpus;
    let (period, budget) = match (period, budget) {
        (Some(period), Some(budget)) => (period, budget),
        (Some(period), None) => match search.least(period, None).map_err(limit)? {
            Some(budget) => (period, budget),
            None => {
                let period = Span::from_ns(period);
                return Err(not_enough(format!(
                    "not even {cpus} whole CPUs, given anew every {period}, are proven to serve its tasks in \
                     time; give it more cpus or less to do"
                )));
            }
        },
        (None, Some(budget)) => match search.longest(budget).map_err(limit)? {
            Some(period) => (period, budget),
            None => {
                let budget = Span::from_ns(budget);
                return Err(not_enough(format!(
                    "no period is short enough for its budget {budget} to be proven to serve its tasks in time; \
                     give it a larger budget"
                )));
            }
        },
        (None, None) => match search.best().map_err(limit)? {
            Some(best) => best,
            None => {
                return Err(not_enough(format!(
                    "not even {cpus} whole CPUs are proven to serve its tasks in time; give it more cpus or less to do"
                )));
            }
        },
    };
    let chosen = given(component.period).is_none() || component.budget == Auto::Auto;
    Ok(SizedComponent {
        id,
        component: name,
        period: Span::from_ns(period),
        budget: Span::from_ns(budget),
        chosen,
        supply: "mpr",
        loss: Span::ZERO,
        workload_utilization: unit.tasks.iter().map(|task| task.wcet as f64 / task.t as f64).sum(),
    })
}

impl Search<'_> {
    fn serves(&self, period: u64, budget: u64) -> Result<bool, Limit> {
        let Some(supply) = Mpr::new(period, budget, self.cpus) else { return Ok(false) };
        let most = self.terms_left.get().min(mpr::TERMS_MAX);
        let mut terms = Terms::new(most);
        let load = match self.rule {
            Rule::Edf => mpr::edf_within(self.tasks, &supply, &mut terms),
            Rule::Fp => mpr::fp_within(self.tasks, &supply, &mut terms).load,
        };
        self.terms_left.set(self.terms_left.get() - (most - terms.left()));
        match load {
            // The last of the whole search, not those of one analysis.
            Load::Undecided(global::Limit::Terms(_)) if self.terms_left.get() == 0 => {
                Err(Limit::Global(global::Limit::Terms(SEARCH_TERMS_MAX)))
            }
            Load::Undecided(limit) => Err(Limit::Global(limit)),
            load => Ok(load.is_met()),
        }
    }

    /// m' Π.
    fn most(&self, period: u64) -> Result<u64, Limit> {
        period.checked_mul(u64::from(self.cpus)).filter(|most| *most < 1 << 63).ok_or(Limit::TIME)
    }

    /// The least budget for a period, in quanta (or all of the CPUs), no more than `most`.
    fn least(&self, period: u64, most: Option<u64>) -> Result<Option<u64>, Limit> {
        let all = self.most(period)?;
        let most = most.unwrap_or(all).min(all);
        let quanta = |count: u64| count.saturating_mul(self.quantum).min(most);
        let (mut low, mut high) = (1, most.div_ceil(self.quantum));
        if high == 0 || !self.serves(period, quanta(high))? {
            return Ok(None);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.serves(period, quanta(middle))? { high = middle } else { low = middle + 1 }
        }
        Ok(Some(quanta(low)))
    }

    /// The longest period for a budget, in quanta.
    fn longest(&self, budget: u64) -> Result<Option<u64>, Limit> {
        // A job's window must see some budget: Π <= L + Θ.
        let window = self.tasks.iter().map(|task| task.d.saturating_sub(task.j)).min().unwrap_or(0);
        let shortest = budget.div_ceil(u64::from(self.cpus)).div_ceil(self.quantum).max(1);
        let (mut low, mut high) = (shortest, window.saturating_add(budget) / self.quantum);
        let mut found = None;
        while low <= high && high > 0 {
            let middle = low + (high - low) / 2;
            if self.serves(middle * self.quantum, budget)? {
                found = Some(middle * self.quantum);
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        Ok(found)
    }

    /// Both, for the least bandwidth.
    fn best(&self) -> Result<Option<(u64, u64)>, Limit> {
        let all = self.most(self.quantum)?;
        if !self.serves(self.quantum, all)? {
            return Ok(None);
        }
        let mut best = (self.quantum, all);
        let longest = self.tasks.iter().map(|task| task.t).max().unwrap_or(self.quantum);
        let mut tried = 0;
        for period in (1..).map(|count: u64| count.saturating_mul(self.quantum)) {
            let (most, left) = (u128::from(self.most(best.0)?), u128::from(self.most(best.0)? - best.1));
            let cap = |task: &Sporadic| {
                let window = u128::from(task.d - task.j);
                let cap = ((window + 1).saturating_sub(u128::from(task.c)) * most).checked_div(2 * left);
                cap.unwrap_or(longest.into()).max(window)
            };
            let cap = self.tasks.iter().map(cap).min().unwrap_or(0);
            if u128::from(period) > cap {
                break;
            }
            tried += 1;
            if tried > PERIODS_MAX {
                return Err(Limit::Periods);
            }
            // No more than the bandwidth of the best one.
            let affordable = u128::from(period) * u128::from(best.1) / u128::from(best.0);
            let affordable = u64::try_from(affordable).map_err(|_| Limit::TIME)?;
            let affordable = if left == 0 { self.most(period)? } else { affordable / self.quantum * self.quantum };
            if affordable > 0
                && let Some(budget) = self.least(period, Some(affordable))?
            {
                best = (period, budget);
            }
        }
        Ok(Some(best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(tasks: &[Sporadic], rule: Rule, terms: u64) -> Search<'_> {
        Search { tasks, rule, cpus: 2, quantum: 1, terms_left: Cell::new(terms) }
    }

    #[test]
    fn a_search_ends_when_its_terms_are_spent() {
        let task = |c, t, level| Sporadic { c, d: t, t, j: 0, level };
        let tasks = [task(3, 20, 0), task(9, 30, 1), task(8, 50, 2)];
        for rule in [Rule::Edf, Rule::Fp] {
            let whole = search(&tasks, rule, SEARCH_TERMS_MAX);
            let best = whole.best().ok().flatten().expect("two CPUs are enough");
            let spent = SEARCH_TERMS_MAX - whole.terms_left.get();
            assert!(spent > 100, "{spent} terms for {best:?}");
            assert!(matches!(search(&tasks, rule, spent).best(), Ok(found) if found == Some(best)));
            for terms in [0, 1, spent / 2, spent - 1] {
                let limit = Limit::Global(global::Limit::Terms(SEARCH_TERMS_MAX));
                assert_eq!(search(&tasks, rule, terms).best(), Err(limit), "{rule:?}: {terms} of {spent}");
            }
            let one = search(&tasks, rule, 2);
            assert!(one.least(10, None).is_err() && one.longest(15).is_err());
        }
    }
}
