//! Budgets that suffice because the level above gives them early, and the least of these.
//!
//! [`edp`](crate::components::edp) proves more than [`prm`](crate::components::prm) if the level
//! above bounds the server's response. But this response depends on the budget that is sought. So
//! the search goes from below. With budget Θ the server responds by R(Θ). Other tasks take
//! R(Θ) - Θ before it, and this wait never shrinks as Θ grows. So the least budget for that wait is
//! a lower bound of the result. It is the result once it is no more than Θ.
//!
//! The search does not see chains inside, rules whose releases depend on the budget, and CPUs of
//! several levels. For these, [`improve`] asks `check`.

use std::collections::BTreeMap;

use takt_model::{Auto, Component, ComponentId, NodeId, ServerRule, Span, System};

use crate::carried::ChainBounds;
use crate::catalogue::TestId;
use crate::check::proof;
use crate::components::Tree;
use crate::compositional::around::given;
use crate::compositional::rules::{bounded, on_time};
use crate::compositional::{Guarantee, Limit, QUANTUM, Search};
use crate::report::TestReport;
use crate::verdict::Answer;

use super::view_of;

/// Waits that one search from below tries before it takes the budget that `prm` proves.
const WAITS_MAX: u32 = 100;
/// Rounds over all components in which budgets may shrink and periods grow.
const ROUNDS_MAX: u32 = 100;

/// The tests' reports of each node. They prove the System as it stands.
pub(super) type Proofs = BTreeMap<NodeId, Vec<TestReport>>;

/// How long other tasks make the server of a component wait for its budget.
pub(super) struct Neighbours {
    /// All other components have values.
    pub(super) system: System,
    pub(super) id: ComponentId,
}

impl Neighbours {
    /// R - Θ, and the loss of the budget; `None` where no response below Π is known.
    pub(super) fn wait(&mut self, period: u64, budget: u64, charge: u64) -> Option<u64> {
        let component = &mut self.system.components[self.id.index()];
        if !bounded(component.server) {
            return None;
        }
        component.period = Auto::Value(Span::from_ns(period));
        component.budget = Auto::Value(Span::from_ns(budget));
        let node = component.node;
        let tree = Tree::new(&self.system);
        let view = view_of(&tree, node).ok()?;
        let server = *tree.servers(self.id).first()?;
        let end = ChainBounds::holistic(&tree.system, &view.units).end(server)?;
        // The part of the budget that costs take comes late too.
        end.checked_sub(budget).filter(|_| end < period)?.checked_add(charge)
    }

    /// How much a wait may shrink if budgets are whole quanta of decisions. `None` if it may shrink
    /// by more.
    fn slack(&self) -> Option<u64> {
        let component = &self.system.components[self.id.index()];
        let grows = on_time(component.server) || component.server == ServerRule::Polling;
        let quanta = self.system.components.iter().filter_map(|component| component.quantum);
        grows.then(|| quanta.map(Span::as_ns).max().unwrap_or(0).saturating_mul(2))
    }

    /// The least budget for a period by [`least`], if it starts as early as the others let it.
    pub(super) fn least(
        &mut self,
        search: &Search,
        guarantee: Guarantee,
        period: u64,
        least: impl Fn(Guarantee) -> Result<Option<u64>, Limit>,
    ) -> Result<Option<u64>, Limit> {
        let by_period = least(guarantee)?;
        let Some(slack) = self.slack() else { return Ok(by_period) };
        let charge = (search.charge)(period).ok_or(Limit::Costs)?;
        let Some(mut budget) = least(Guarantee { wait: Some(0), ..guarantee })? else { return Ok(None) };
        for _ in 0..WAITS_MAX {
            let wait = self.wait(period, budget, charge);
            let Some(wait) = wait.filter(|_| by_period.is_none_or(|most| budget < most)) else { return Ok(by_period) };
            let Some(enough) = least(Guarantee { wait: Some(wait), ..guarantee })? else { return Ok(None) };
            if enough <= budget {
                return Ok(Some(budget));
            }
            let low = if slack == 0 {
                Some(enough)
            } else {
                least(Guarantee { wait: Some(wait.saturating_sub(slack)), ..guarantee })?
            };
            budget = low.unwrap_or(enough).max(budget.saturating_add(search.quantum));
            if budget > period {
                return Ok(None);
            }
        }
        Ok(by_period)
    }
}

/// Whether `edp` proves a component: then its budget depends on the tasks beside the server.
pub(super) fn by_edp(component: &Component, proofs: &Proofs) -> bool {
    let end = format!("/{}", component.name);
    let of_component = |test: &&TestReport| test.test == TestId::Edp && test.scope.ends_with(&end);
    let tests = proofs.get(&component.node).into_iter().flatten();
    tests.filter(of_component).any(|test| test.verdict.answer() == Answer::Yes)
}

/// Shrinks the chosen budgets and lengthens the chosen periods, until `check` proves none of them
/// with a quantum less or more. The System is proven before and after.
///
/// It bisects between a proven value and one that is not proven. If a smaller budget is proven and
/// a larger one is not, it finds one such step.
pub(super) fn improve(system: &mut System, proofs: &mut Proofs, budgets: &[ComponentId], periods: &[ComponentId]) {
    for _ in 0..ROUNDS_MAX {
        let mut changed = false;
        for id in budgets {
            changed |= shrink(system, proofs, *id);
        }
        for id in periods {
            changed |= lengthen(system, proofs, *id);
        }
        if !changed {
            return;
        }
    }
}

/// Whether a node is proven. If so, its reports replace those in `proofs`.
fn prove(system: &System, node: NodeId, proofs: &mut Proofs) -> bool {
    let found = proof(system, node);
    let proven = found.is_some();
    proofs.extend(found.map(|reports| (node, reports)));
    proven
}

/// Whether it could be shrunk.
fn shrink(system: &mut System, proofs: &mut Proofs, id: ComponentId) -> bool {
    let component = &system.components[id.index()];
    let (node, quantum) = (component.node, component.quantum.unwrap_or(QUANTUM).as_ns());
    let Some(budget) = given(component.budget) else { return false };
    let mut proven = |quanta: u64| {
        system.components[id.index()].budget = Auto::Value(Span::from_ns(quanta * quantum));
        prove(system, node, proofs)
    };
    let all = budget.div_ceil(quantum);
    let (mut low, mut high, mut middle) = (0, all, all.saturating_sub(1));
    while low < middle {
        if proven(middle) {
            high = middle
        } else {
            low = middle
        }
        middle = low + (high - low) / 2;
    }
    let least = if high < all { high * quantum } else { budget };
    system.components[id.index()].budget = Auto::Value(Span::from_ns(least));
    high < all
}

/// Whether it could be lengthened.
fn lengthen(system: &mut System, proofs: &mut Proofs, id: ComponentId) -> bool {
    let component = &system.components[id.index()];
    let (node, quantum) = (component.node, component.quantum.unwrap_or(QUANTUM).as_ns());
    let Some(period) = given(component.period) else { return false };
    let most = Span::FILE_MAX.as_ns().saturating_sub(period) / quantum;
    let mut proven = |quanta: u64| {
        system.components[id.index()].period = Auto::Value(Span::from_ns(period + quanta * quantum));
        quanta <= most && prove(system, node, proofs)
    };
    let (mut low, mut high) = (0, 1);
    while high <= most && proven(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if proven(middle) { low = middle } else { high = middle }
    }
    system.components[id.index()].period = Auto::Value(Span::from_ns(period + low * quantum));
    low > 0
}
