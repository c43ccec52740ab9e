//! Least executions and best periods of receiving and sending tasks, from what a message costs: the
//! open question of [HEDF IV-C].
//!
//! A job that handles N messages takes N times their cost, rounded up to the quantum. More messages
//! a job mean fewer left-overs, but less CPU time for all other jobs. So neither "as much as can
//! wait" nor "as little as the rate needs" is the least sufficient size. [`least`] starts without
//! left-overs. Task by task, it then seeks the least N with which the whole system passes
//! [`analyse`]. It ends when no N can be less. Then every task with a quantum less fails the test.
//! [`best`] also tries other periods, and takes the period of least bandwidth; in a tie, the
//! longest.

use super::{FlowBound, Net, SystemBounds, Transport, analyse};

/// The most messages per job that are tried.
pub const MESSAGES_MAX: u64 = 1_000;
/// The most rounds over all tasks in [`best`].
pub const ROUNDS_MAX: u32 = 8;
/// The most periods that are tried for a task. Each is about four fifths of the one before.
pub const PERIODS_MAX: usize = 80;

/// Costs of messages, in ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Price {
    /// Execution per message received.
    pub receive: u64,
    /// Execution per message sent.
    pub send: u64,
    /// Executions are multiples of this.
    pub quantum: u64,
    /// Costs of switches and releases of a table job, by node.
    pub fixed: Vec<u64>,
}

/// A table task: its node, and whether it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableTaskId {
    /// Index of the node.
    pub node: usize,
    /// Whether it is the receiving task.
    pub receives: bool,
}

impl Price {
    /// Execution for so many messages in ns, without fixed costs. `None` above 64 bits.
    #[must_use]
    pub fn wcet(&self, which: TableTaskId, messages: u64) -> Option<u64> {
        let quantum = self.quantum.max(1);
        messages.checked_mul(self.each(which))?.checked_next_multiple_of(quantum)
    }

    /// Cost of a message in ns, at least 1.
    #[must_use]
    pub fn each(&self, which: TableTaskId) -> u64 {
        if which.receives { self.receive.max(1) } else { self.send.max(1) }
    }

    /// A table task for so many messages per job, with fixed costs. `None` if it exceeds its period.
    fn sized(&self, which: TableTaskId, period: u64, messages: u64) -> Option<Transport> {
        let wcet = self.wcet(which, messages)?;
        let c = wcet.checked_add(self.fixed.get(which.node).copied().unwrap_or(0))?;
        (c <= period).then_some(Transport { t: period, c, most: Some(wcet / self.each(which)) })
    }
}

/// The table tasks that the flows need, on nodes that messages do not interrupt.
#[must_use]
pub fn needed(net: &Net) -> Vec<TableTaskId> {
    let mut all: Vec<TableTaskId> = Vec::new();
    for pair in net.flows.iter().flat_map(|flow| flow.hops.windows(2)) {
        let two =
            [TableTaskId { node: pair[0].node, receives: false }, TableTaskId { node: pair[1].node, receives: true }];
        all.extend(two);
    }
    all.retain(|which| net.nodes[which.node].interrupt.is_none());
    all.sort_by_key(|which| (which.node, !which.receives));
    all.dedup();
    all
}

fn task_mut(net: &mut Net, which: TableTaskId) -> &mut Option<Transport> {
    let node = &mut net.nodes[which.node];
    if which.receives { &mut node.receive } else { &mut node.send }
}

fn task(net: &Net, which: TableTaskId) -> Option<Transport> {
    let node = &net.nodes[which.node];
    if which.receives { node.receive } else { node.send }
}

fn passes(net: &Net) -> bool {
    analyse(net, false).schedulable()
}

/// Sets the least executions for the periods that the tasks have. False if none was found. The values in `net` then
/// mean nothing.
#[must_use]
pub fn least(net: &mut Net, price: &Price) -> bool {
    let tasks = needed(net);
    without_leftovers(net, price, &tasks) && passes(net) && shrink(net, price, &tasks)
}

/// Sizes every job for all waiting messages. It goes up from one message, since longer table jobs
/// let more messages wait. False if some count exceeds [`MESSAGES_MAX`] or some flow has no bound.
fn without_leftovers(net: &mut Net, price: &Price, tasks: &[TableTaskId]) -> bool {
    let mut messages: Vec<u64> = vec![1; tasks.len()];
    for _ in 0..MESSAGES_MAX {
        for (which, count) in tasks.iter().zip(&messages) {
            let Some(task) = task(net, *which).and_then(|task| price.sized(*which, task.t, *count)) else {
                return false;
            };
            *task_mut(net, *which) = Some(Transport { most: None, ..task });
        }
        let found = analyse(net, false);
        let mut grown = false;
        for (which, count) in tasks.iter().zip(&mut messages) {
            let wants = if which.receives { found.nodes[which.node].waiting } else { sent_messages(net, which.node) };
            let Some(wants) = wants.filter(|wants| *wants <= MESSAGES_MAX) else { return false };
            grown |= wants > *count;
            *count = (*count).max(wants);
        }
        if !grown {
            if !all_bounded(&found) {
                return false;
            }
            for (which, count) in tasks.iter().zip(&messages) {
                let task = task(net, *which).and_then(|task| price.sized(*which, task.t, *count));
                *task_mut(net, *which) = task;
            }
            return true;
        }
    }
    false
}

fn all_bounded(found: &SystemBounds) -> bool {
    found.flows.iter().all(|flow| matches!(flow, FlowBound::Bounded(_)))
}

/// The most messages that one sending job may find.
fn sent_messages(net: &Net, node: usize) -> Option<u64> {
    let hops = net.flows.iter().flat_map(|flow| flow.hops.split_last().map_or(&[][..], |(_, but)| but));
    let hops = hops.filter(|hop| hop.node == node).count() as u64;
    let turn = net.drift.most(net.nodes[node].send?.t)?.checked_add(net.response(node, &[])?)?;
    hops.checked_add(net.sync_messages(node, turn)?)
}

/// Reduces one task after the other, until none can be less. The net passes before and after.
fn shrink(net: &mut Net, price: &Price, tasks: &[TableTaskId]) -> bool {
    // Every change makes some task less, so this ends.
    loop {
        let mut changed = false;
        for which in tasks {
            let Some(now) = task(net, *which) else { return false };
            let period = now.t;
            let Some(found) = fewest_messages(net, price, *which, period, now.most.unwrap_or(MESSAGES_MAX)) else {
                return false;
            };
            changed |= found.c < now.c;
            *task_mut(net, *which) = Some(found);
        }
        if !changed {
            return true;
        }
    }
}

/// The task of that period with the fewest messages, up to `most`, with which the net passes.
fn fewest_messages(net: &Net, price: &Price, which: TableTaskId, period: u64, most: u64) -> Option<Transport> {
    let mut tried = net.clone();
    let mut before = 0;
    for count in 1..=most.min(MESSAGES_MAX) {
        let task = price.sized(which, period, count)?;
        if task.c == before {
            continue;
        }
        before = task.c;
        *task_mut(&mut tried, which) = Some(task);
        if passes(&tried) {
            return Some(task);
        }
    }
    None
}

/// Chooses periods too: multiples of the quantum, and those that the tasks have. False if nothing was found.
#[must_use]
pub fn best(net: &mut Net, price: &Price) -> bool {
    let tasks = needed(net);
    let periods = periods(net, price.quantum.max(1));
    let mut start = net.clone();
    let given = tasks.iter().all(|which| task(net, *which).is_some());
    let found = (given && least(&mut start, price))
        || periods.iter().any(|period| {
            start = net.clone();
            for which in &tasks {
                *task_mut(&mut start, *which) = Some(Transport { t: *period, c: 1, most: None });
            }
            least(&mut start, price)
        });
    if !found {
        return false;
    }
    *net = start;
    for _ in 0..ROUNDS_MAX {
        let mut changed = false;
        for which in &tasks {
            let Some(mut chosen) = task(net, *which) else { return false };
            for period in &periods {
                let Some(task) = fewest_messages(net, price, *which, *period, MESSAGES_MAX.min(64)) else { continue };
                // c / t, and of equal ones the longest.
                let load = |task: &Transport, other: &Transport| u128::from(task.c) * u128::from(other.t);
                let (ours, theirs) = (load(&task, &chosen), load(&chosen, &task));
                if ours < theirs || (ours == theirs && task.t > chosen.t) {
                    (chosen, changed) = (task, true);
                }
            }
            *task_mut(net, *which) = Some(chosen);
        }
        if !changed {
            break;
        }
    }
    passes(net) && shrink(net, price, &tasks)
}

/// Periods to try, the longest first.
fn periods(net: &Net, quantum: u64) -> Vec<u64> {
    let longest = net.flows.iter().map(|flow| flow.d.min(flow.t)).min().unwrap_or(0) / quantum;
    let mut found = Vec::new();
    let mut at = longest;
    while at > 0 && found.len() < PERIODS_MAX {
        found.push(at * quantum);
        at = if at >= 5 { at - at / 5 } else { at - 1 };
    }
    found
}

#[cfg(test)]
mod tests {
    use takt_model::generate::Random;

    use super::super::tests::small;
    use super::*;
    use crate::brute::cases;

    fn price(net: &Net, random: &mut Random) -> Price {
        let quantum = random.between(1, 2);
        Price { receive: random.between(1, 2), send: 1, quantum, fixed: vec![random.between(0, 1); net.nodes.len()] }
    }

    /// A task with a quantum less: as many messages as then fit.
    fn less(net: &Net, price: &Price, which: TableTaskId) -> Option<Net> {
        let now = task(net, which)?;
        let wcet = (now.c - price.fixed[which.node]).checked_sub(price.quantum).filter(|wcet| *wcet > 0)?;
        let mut tried = net.clone();
        let most = wcet / price.each(which);
        *task_mut(&mut tried, which) =
            Some(Transport { t: now.t, c: wcet + price.fixed[which.node], most: Some(most) });
        Some(tried)
    }

    #[test]
    fn a_sized_budget_passes_and_one_quantum_less_fails() {
        let (mut sized, mut leftover, mut better) = (0, 0, 0);
        for seed in 0..cases(3_000) / 5 {
            let mut random = Random::new(seed);
            let mut net = small(&mut random);
            net.flows.iter_mut().for_each(|flow| flow.d = 1_000);
            let price = price(&net, &mut random);
            if !least(&mut net, &price) {
                continue;
            }
            sized += 1;
            let found = analyse(&net, false);
            assert!(found.schedulable(), "seed {seed}");
            leftover += u64::from(found.nodes.iter().any(|node| node.leftover > 0));
            for which in needed(&net) {
                let less = less(&net, &price, which);
                assert!(less.is_none_or(|less| !passes(&less)), "seed {seed}: {which:?} {net:?}");
            }
            if seed % 4 > 0 {
                continue;
            }
            let load = |net: &Net| -> f64 {
                needed(net).iter().filter_map(|which| task(net, *which)).map(|task| task.c as f64 / task.t as f64).sum()
            };
            let mut chosen = net.clone();
            assert!(best(&mut chosen, &price) && passes(&chosen), "seed {seed}");
            assert!(load(&chosen) <= load(&net) + 1e-9, "seed {seed}");
            better += u64::from(load(&chosen) < load(&net) - 1e-9);
            for which in needed(&chosen) {
                let less = less(&chosen, &price, which);
                assert!(less.is_none_or(|less| !passes(&less)), "seed {seed}: {which:?} {chosen:?}");
            }
        }
        assert!(sized * 50 > cases(3_000) / 5 && leftover > 0 && better > 0, "{sized} {leftover} {better}");
    }
}
