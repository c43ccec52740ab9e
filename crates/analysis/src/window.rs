//! The engine of response-time analysis on one CPU: the longest response of a task among jobs
//! ordered by keys.
//!
//! Every order that takt knows gives a job a *key*. While a job with a key up to X is pending, the
//! CPU runs only such jobs. Under EDF the key is the absolute deadline; first come first served,
//! the release. A job of a more important level has a key below all others. ([`crate::fp::levels`]
//! shows the keys of laxity.) Keys are counted so that they are above zero.
//!
//! **Window.** Let f be the completion of a job with key X, and 0 the last instant up to its
//! release before which no job with a key up to X is pending. In (0, f) the CPU runs such jobs
//! only, all released at or after 0, and at most one piece of other work that blocks. So f is at
//! most the least L > 0 with W(X, L) <= L:
//!
//! ```text
//! W(X, t) = B(X) + sum over k of min(floor((t - 1 + w_k) / T_k), floor((X - e_k + s_k) / T_k)) C_k +
//! C_k, over the k with e_k <= X
//! ```
//!
//! The first quotient counts the releases in [0, t): a release wanders by up to w_k after its place
//! on the period's grid. The second counts the jobs with keys up to X. The first job of the window
//! has a key of at least e_k. The others follow T_k apart, or up to s_k closer if keys wander. The
//! response is L(X) - (X - theta), with theta the distance from the instant that responses count
//! from to the key. W grows in X at e_k + m T_k - s_k and at e_k only. Between these the response
//! falls. So these are the X to look at, as long as X - theta lies in the longest window. (EDF: M.
//! Spuri: Analysis of Deadline Scheduled Real-Time Systems, INRIA RR-2772, 1996, Section 4.)
//!
//! **Where L is sought.** L is sought from X - theta + C, the earliest completion, on. This gives
//! the same or a larger L, so it is safe. If neither keys nor releases wander, L stays reachable.
//! Let all others release at 0 and then as densely as they may, and i so that it has a job at a = X -
//! theta. Until that job completes, at f, work of keys up to X is left. Suppose f < L. Then f
//! lies in [a + C, L), so W(X, f) > f. But all work counted in W(X, f) has been released by f and
//! would be done, in f time units: a contradiction. So f >= L. For the same reason L(X) may be
//! sought from L(X') on if X' <= X.
//!
//! **Few X.** With R the longest response so far: let w = W(X, X - theta + R). If w <= X - theta +
//! R, then X responds within R. So does each X' <= X with X' - theta + R >= w, for W is monotone in
//! both. The search goes down from X to the last candidate below w + theta - R, as QPA goes down
//! from t to h(t). Only an X that fails the test costs a fixed point. (N. Guan, W. Yi: General and
//! Efficient Response Time Analysis for EDF Scheduling, DATE 2014, prune by the slack t - dbf(t),
//! which this refines.)

use std::cmp::Ordering;

use crate::exact::compare_sum;
use crate::recip::{DIVIDEND_MAX, Recip};
use crate::verdict::spend;

/// A key that is below all others: the jobs of this task always come first.
pub(crate) const ALWAYS: u64 = 1 << 61;

/// Rounds before the search for the longest window checks whether that ends at all.
const ROUNDS_BEFORE_CHECK: u64 = 64;

/// A task that may delay the analysed one, or is it. All times in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// C.
    pub(crate) c: u64,
    /// T.
    pub(crate) period: Recip,
    /// w: how far releases wander.
    pub(crate) release_delay: u64,
    /// e: the least key of the window's first job; above 0, or 0 with `burst` [`ALWAYS`].
    pub(crate) first: u64,
    /// s: how much closer than T keys can come, once; [`ALWAYS`] counts every release.
    pub(crate) burst: u64,
}

/// The task whose response is asked for. All times in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnalysedTask {
    /// C.
    pub(crate) c: u64,
    /// e: the least key that a job of it can have, as in its [`Slot`].
    pub(crate) first: u64,
    /// theta: from the instant that responses count from to its key; at least `first`.
    pub(crate) theta: u64,
    /// The search looks at all X for which X - `reach` lies in the longest window. Theta, or more if responses count
    /// from before the release.
    pub(crate) reach: u64,
}

/// Keys at which the last responses were the longest: likely ones for the next, too.
const HINTS_MAX: usize = 4;

/// Tasks on one CPU whose responses can be asked for. All times in ns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// In any order until [`Window::prepare`], which sorts them by `first`.
    pub(crate) slots: Vec<Slot>,
    /// Blocking, as pairs (e, B): B(X) is the largest B with e <= X.
    pub(crate) blocking: Vec<(u64, u64)>,
    /// Jobs that keep the CPU once they have started, as pairs (k, C): one with k > X may have started before the
    /// window.
    pub(crate) started: Vec<(u64, u64)>,
    /// The longest window.
    length: u64,
    /// A completion after this counts as unbounded, since times beyond it may overflow.
    cap: u64,
    /// Whether some release or key wanders, or some task always comes first.
    any_release_delay: bool,
    /// Keys that are tried first. See [`HINTS_MAX`].
    hints: [u64; HINTS_MAX],
    /// The point of the longest last response.
    worst: Worst,
}

/// A key and the window that ends with its completion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    /// X.
    pub(crate) x: u64,
    /// Releases before this count.
    pub(crate) until: u64,
    /// The completion. Tasks that always come first count with their releases before this.
    pub(crate) end: u64,
}

impl Window {
    /// The window behind the last [`response`](Window::response).
    pub(crate) fn worst(&self) -> Worst {
        self.worst
    }

    /// The work of larger keys that delays a job with key X.
    pub(crate) fn blocking_by_larger_keys(&self, x: u64) -> u64 {
        self.blocking(x) + self.started_before(x)
    }

    /// The longest job of a key above X that may have started before the window.
    fn started_before(&self, x: u64) -> u64 {
        self.started.iter().filter(|(key, _)| *key > x).map(|(_, c)| *c).max().unwrap_or(0)
    }

    /// Finds the longest window. Must be called after each change of `slots`, `blocking` or `started`. `None` if the
    /// window does not end, the work limit is reached, or times exceed 64 bits.
    pub(crate) fn prepare(&mut self, terms_left: &mut u64) -> Option<()> {
        self.slots.sort_unstable_by_key(|slot| slot.first);
        self.any_release_delay = self.slots.iter().any(|slot| (slot.release_delay | slot.burst) > 0);
        self.hints = [0; HINTS_MAX];
        self.length = self.longest(terms_left)?;
        let keys = self.slots.last().map_or(0, |slot| slot.first);
        let work = self.slots.iter().try_fold(0u64, |sum, slot| sum.checked_add(slot.c))?;
        // No time in the search exceeds this: completions are at most half, and X - theta lies in the longest window.
        let release_delay = self.slots.iter().map(|slot| slot.release_delay).max().unwrap_or(0);
        let sum = self.length.checked_add(keys)?.checked_add(work)?.checked_add(release_delay)?;
        let most = sum.checked_mul(8).filter(|most| *most < ALWAYS)?;
        let blocking = self.blocking_max()?;
        self.slots.iter().try_fold(blocking, |sum, slot| {
            let until = most.checked_add(slot.release_delay).filter(|x| *x < DIVIDEND_MAX)?;
            sum.checked_add((until / slot.period.divisor + 1).checked_mul(slot.c)?)
        })?;
        self.cap = most / 2;
        Some(())
    }

    fn blocking_max(&self) -> Option<u64> {
        let most = |pairs: &[(u64, u64)]| pairs.iter().map(|(_, b)| *b).max().unwrap_or(0);
        most(&self.blocking).checked_add(most(&self.started))
    }

    /// The least L > 0 with B + sum of all that is released in [0, L) = L.
    fn longest(&self, terms_left: &mut u64) -> Option<u64> {
        let blocking = self.blocking_max()?;
        let mut length = self.slots.iter().try_fold(blocking, |sum, slot| sum.checked_add(slot.c))?;
        for round in 0u64.. {
            if round == ROUNDS_BEFORE_CHECK && self.never_ends(blocking) {
                return None;
            }
            spend(terms_left, self.slots.len() as u64 + 1)?;
            let mut next = blocking;
            for slot in &self.slots {
                let until = length.saturating_sub(1).checked_add(slot.release_delay).filter(|x| *x <= DIVIDEND_MAX)?;
                next = next.checked_add((slot.period.div(until) + 1).checked_mul(slot.c)?)?;
            }
            if next <= length {
                return Some(length);
            }
            length = next;
        }
        None
    }

    /// Whether what is released in [0, L) takes longer than L for every L: floor((L - 1 + w) / T) + 1 >= (L + w) / T.
    fn never_ends(&self, blocking: u64) -> bool {
        match compare_sum(self.slots.iter().map(|slot| (slot.c, slot.period.divisor)), 1) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => blocking > 0 || self.slots.iter().any(|slot| slot.c > 0 && slot.release_delay > 0),
            Some(Ordering::Less) | None => false,
        }
    }

    /// W(X, t), t > 0.
    #[inline]
    fn work<const PLAIN: bool>(&self, x: u64, t: u64) -> u64 {
        let mut sum = 0u64;
        for slot in &self.slots {
            if slot.first > x {
                break;
            }
            let last = if PLAIN {
                (t - 1).min(x - slot.first)
            } else {
                (t - 1 + slot.release_delay).min(x - slot.first + slot.burst)
            };
            sum = sum.wrapping_add((slot.period.div(last) + 1).wrapping_mul(slot.c));
        }
        if PLAIN { sum } else { sum + self.blocking(x) }
    }

    fn blocking(&self, x: u64) -> u64 {
        self.blocking.iter().filter(|(first, _)| *first <= x).map(|(_, b)| *b).max().unwrap_or(0)
    }

    /// The last X below `limit` at which W grows; 0 where there is none.
    #[inline]
    fn last_key_below(&self, limit: u64) -> u64 {
        let mut last = 0;
        for slot in &self.slots {
            if slot.first >= limit {
                break;
            }
            if slot.burst < ALWAYS {
                let steps = slot.period.div(limit - 1 - slot.first + slot.burst) * slot.period.divisor;
                last = last.max(slot.first + steps.saturating_sub(slot.burst));
            }
        }
        last
    }

    /// The longest response of `own`, in ns from X - theta. `None` if the work limit is reached or it has no bound.
    pub(crate) fn response(&mut self, own: AnalysedTask, terms_left: &mut u64) -> Option<u64> {
        debug_assert!(self.started.is_empty() && own.theta >= own.first && own.first > 0);
        if self.any_release_delay || !self.blocking.is_empty() {
            self.search::<false>(own, terms_left)
        } else {
            self.search::<true>(own, terms_left)
        }
    }

    fn search<const PLAIN: bool>(&mut self, own: AnalysedTask, terms_left: &mut u64) -> Option<u64> {
        let AnalysedTask { c, first, theta, reach } = own;
        let count = self.slots.len() as u64;
        // A job at X = theta: jobs of larger keys complete no earlier. And a job alone, released as late as possible.
        let earliest = self.completion::<PLAIN>(theta, c, terms_left)?;
        let (mut longest, mut worst) = (earliest.max(c + (theta - first)), theta);
        let limit = self.length.saturating_add(reach);
        for x in self.hints {
            if x > theta && x < limit && self.work::<PLAIN>(x, x - theta + longest) > x - theta + longest {
                let end = self.completion::<PLAIN>(x, (x - theta + c).max(earliest), terms_left)?;
                if end - (x - theta) > longest {
                    (longest, worst) = (end - (x - theta), x);
                }
            }
        }
        let mut x = self.last_key_below(limit);
        let mut aligned = true;
        while x >= first {
            spend(terms_left, 2 * count)?;
            let t = x + longest - theta;
            let w = self.work::<PLAIN>(x, t);
            if w < t {
                // Keys at or above this need no test.
                let Some(limit) = (w + theta).checked_sub(longest + 1) else { break };
                (x, aligned) = (limit, false);
            } else if w == t {
                (x, aligned) = (self.last_key_below(x), true);
            } else if !aligned {
                (x, aligned) = (self.last_key_below(x + 1), true);
            } else {
                let start = (x + c).saturating_sub(theta).max(c);
                let end =
                    self.completion::<PLAIN>(x, if x >= theta { start.max(earliest) } else { start }, terms_left)?;
                if end + theta - x > longest {
                    (longest, worst) = (end + theta - x, x);
                }
                (x, aligned) = (self.last_key_below(x), true);
            }
        }
        let end = (longest + worst).saturating_sub(theta);
        self.worst = Worst { x: worst, until: end, end };
        if !self.hints.contains(&worst) {
            self.hints.rotate_right(1);
            self.hints[0] = worst;
        }
        Some(longest)
    }

    /// The least t from `start` on with W(X, t) <= t.
    #[inline]
    fn completion<const PLAIN: bool>(&self, x: u64, start: u64, terms_left: &mut u64) -> Option<u64> {
        let mut t = start;
        loop {
            spend(terms_left, self.slots.len() as u64)?;
            let w = self.work::<PLAIN>(x, t);
            if w <= t {
                return Some(t);
            }
            if w > self.cap {
                return None;
            }
            t = w;
        }
    }

    /// [`Window::response`] if a job keeps the CPU from its start on, except from tasks that always come first.
    ///
    /// Let s be the least instant from X - theta on with B(X) + W(X, s + 1) - C <= s: all earlier
    /// work released up to s is done, so the job has started. From then on only work that always
    /// comes first delays the job.
    pub(crate) fn response_once_started(&mut self, own: AnalysedTask, terms_left: &mut u64) -> Option<u64> {
        let AnalysedTask { c, first, theta, reach } = own;
        self.worst = Worst::default();
        let mut longest = c + (theta - first);
        let mut x = self.last_key_below(self.length.saturating_add(reach));
        while x >= first {
            let started = self.started_before(x);
            let mut start = x.saturating_sub(theta);
            loop {
                spend(terms_left, self.slots.len() as u64)?;
                let next = started + self.work::<false>(x, start + 1) - c;
                if next <= start {
                    break;
                }
                if next > self.cap {
                    return None;
                }
                start = next;
            }
            let before = started + self.work::<false>(x, start + 1) - self.always_first(start + 1);
            let mut end = start + c;
            loop {
                spend(terms_left, self.slots.len() as u64)?;
                let next = before + self.always_first(end);
                if next <= end {
                    break;
                }
                if next > self.cap {
                    return None;
                }
                end = next;
            }
            if end + theta - x > longest || self.worst.x == 0 {
                self.worst = Worst { x, until: start + 1, end };
            }
            longest = longest.max(end + theta - x);
            x = self.last_key_below(x);
        }
        Some(longest)
    }

    /// The work of tasks that always come first, released in [0, t).
    fn always_first(&self, t: u64) -> u64 {
        let first = self.slots.iter().take_while(|slot| slot.first == 0);
        first
            .map(|slot| (slot.period.div(t - 1 + slot.release_delay) + 1).wrapping_mul(slot.c))
            .fold(0, u64::wrapping_add)
    }
}
