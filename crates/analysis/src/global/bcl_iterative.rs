//! `bcl-iterative`: [`bcl`](super::bcl) with slack fed back.
//!
//! M. Bertogna, M. Cirinei, G. Lipari: Schedulability Analysis of Global Scheduling Algorithms on
//! Multiprocessor Platforms, TPDS 20(4), 2009, Theorems 6 and 9, algorithm of Figure 5. A task that
//! surely completes S_i before its deadline carries less work into the windows of others:
//!
//! S_k = D_k - C_k - floor(sum over i != k of min(W_i(S_i), D_k - C_k + 1) / m)
//!
//! EDF: W_i = floor(D_k / T_i) C_i + min(C_i, max(0, D_k mod T_i - S_i)). FP: as in `bcl` with D_i -
//! S_i for D_i. From S = 0, until all S_k >= 0 were found or nothing grows. The first round is
//! `bcl` (floor(x / m) <= w - 1 where and only where x < m w), so all that `bcl` accepts is
//! accepted.
//!
//! [`schedulable`] also goes from S_i = D_i - C_i down. Slack that grows from 0 never passes the
//! slack found from above, because more slack of others never gives less slack of one's own. A task
//! that fails from above is never proven, and mostly fails early. Neither result depends on the
//! order of the tasks. See the module `table`.

use super::slack::{self, SlackResult, Step};
use super::{Bounds, Excess, Load, Rule, Slot, Sporadic, Terms, interference, prepared};

pub use super::slack::ROUNDS_MAX;

mod table;

/// Whether every deadline is kept on `m` CPUs: stops as soon as that is certain. Does not allocate for up to 32 tasks.
#[inline]
pub fn schedulable(tasks: &[Sporadic], m: u32, rule: Rule) -> Load {
    if rule == Rule::Edf
        && let Some(load) = table::edf(tasks, m)
    {
        return load;
    }
    prepared(tasks, m, |slots| {
        slack::raise(slots, true, &mut [], &mut Windows { m, rule, terms: Terms::new(TERMS_MAX) })
    })
}

/// The same verdict, with bounds of the response times: iterates until no slack grows.
#[must_use]
pub fn analyse(tasks: &[Sporadic], m: u32, rule: Rule) -> Bounds {
    analyse_within(tasks, m, rule, &mut Terms::new(TERMS_MAX))
}

/// The same from what is left of `terms`.
pub(crate) fn analyse_within(tasks: &[Sporadic], m: u32, rule: Rule, terms: &mut Terms) -> Bounds {
    let mut step = Windows { m, rule, terms: *terms };
    let bounds = slack::analyse(tasks, m, rule, &mut step);
    *terms = step.terms;
    bounds
}

/// Terms (one work each) evaluated by one analysis at most.
pub const TERMS_MAX: u64 = 200_000_000;

struct Windows {
    m: u32,
    rule: Rule,
    terms: Terms,
}

impl Step for Windows {
    #[inline]
    fn slack(&mut self, slots: &[Slot], k: usize) -> SlackResult {
        if let Err(limit) = self.terms.spend(slots.len()) {
            return SlackResult::Limit(limit);
        }
        let (work, room) = interference(slots, k, self.m, self.rule);
        if work >= room {
            return SlackResult::Over;
        }
        // Below the wait: it fits.
        let waits = match u64::try_from(work) {
            Ok(work) => work / u64::from(self.m),
            Err(_) => u64::try_from(work / u128::from(self.m)).unwrap_or(u64::MAX),
        };
        SlackResult::Slack((slots[k].window - slots[k].c).saturating_sub(waits))
    }

    fn excess(&mut self, slots: &[Slot], k: usize) -> Excess {
        let (work, room) = interference(slots, k, self.m, self.rule);
        Excess { task: Some(k), window: slots[k].window, work, room }
    }
}
