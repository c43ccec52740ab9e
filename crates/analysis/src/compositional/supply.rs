//! Supply bound functions: the least time that a server gives within any interval.
//!
//! | model | paper | here |
//! |---|---|---|
//! | periodic (PRM): Θ in every period Π | I. Shin, I. Lee: Periodic Resource Model for Compositional Real-Time Guarantees, RTSS 2003, Eq. 5; [CSA Eq. 1, second case] | [`Supply::prm`] |
//! | explicit deadline (EDP): Θ within the first Δ of every period | A. Easwaran, M. Anand, I. Lee: Compositional Analysis Framework Using EDP Resource Models, RTSS 2007, Section 3.1 | [`Supply::edp`] |
//! | PRM for intervals that start with a period | [CSA Eq. 1, first case], where ERRATA allows it | [`Supply::aligned`] |
//! | polling server | below | [`Supply::polled`] |
//! | multiprocessor periodic (MPR): Θ in every Π on up to m' CPUs at once | I. Shin, A. Easwaran, I. Lee: Hierarchical Scheduling Framework for Virtual Clustering of Multiprocessors, ECRTS 2008 | [`Mpr`] |
//!
//! | paper | here |
//! |---|---|
//! | Π | `period` |
//! | Θ | `budget` |
//! | Δ | `deadline` |
//! | sbf(t) | [`Supply::sbf`] |
//! | t_Γ(x), the inverse | [`Supply::time_for`] |
//!
//! **One form for all but MPR.** From the start of a period on, the server gives at least
//!
//! g(s) = y Θ + min(Θ, max(0, s - y Π - (Δ - Θ))),  y = floor(s / Π),
//!
//! This is Θ in each period, as late as its deadline allows. An interval waits at most λ for the
//! start of a period whose whole budget lies in the interval. The models differ only in λ: sbf(t) =
//! g(t - λ).
//!
//! - PRM and EDP, any interval: λ = Π - Θ. The interval starts when the server has just given its
//!   Θ, at the earliest Θ after the start of its period. (An interval that starts u later misses no
//!   more: the rest of that period shrinks with u.)
//! - Polling server: λ = Π. It gives up its budget when it has no work, maybe right at the start.
//! - Aligned: λ = 0. The interval starts with a period.
//!
//! In PRM form g(t - (Π - Θ)) is \[CSA Eq. 1\]: y = floor((t - (Π - Θ)) / Π),
//! y Θ + max(0, t - 2 (Π - Θ) - y Π). Tests compare all of them with an enumeration of every
//! placement of budgets.
//!
//! **Time is continuous.** At whole arguments every value is whole, since all slopes are 0 or 1
//! (MPR: 0 or m').
//!
//! ```
//! use takt_analysis::compositional::Supply;
//!
//! let server = Supply::prm(5, 3).unwrap();
//! // Two gaps of 2, then 3 of every 5.
//! assert_eq!([4, 5, 7, 9, 10].map(|t| server.sbf(t)), [0, 1, 3, 3, 4]);
//! assert_eq!(server.time_for(4), Some(10));
//! ```

/// The worst case of a server on one CPU, in any unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Supply {
    period: u64,
    budget: u64,
    deadline: u64,
    delay: u64,
}

impl Supply {
    /// A CPU of its own: sbf(t) = t.
    pub const DEDICATED: Supply = Supply { period: 1, budget: 1, deadline: 1, delay: 0 };

    /// PRM: Θ in every period. `None` unless 0 < Θ <= Π.
    #[must_use]
    pub const fn prm(period: u64, budget: u64) -> Option<Supply> {
        Supply::edp(period, budget, period)
    }

    /// EDP: Θ within the first Δ of every period. `None` unless 0 < Θ <= Δ <= Π.
    #[must_use]
    pub const fn edp(period: u64, budget: u64, deadline: u64) -> Option<Supply> {
        if budget == 0 || budget > deadline || deadline > period {
            return None;
        }
        Some(Supply { period, budget, deadline, delay: period - budget })
    }

    /// PRM, for intervals that start with a period. `None` unless 0 < Θ <= Π.
    #[must_use]
    pub const fn aligned(period: u64, budget: u64) -> Option<Supply> {
        match Supply::prm(period, budget) {
            Some(prm) => Some(Supply { delay: 0, ..prm }),
            None => None,
        }
    }

    /// A server that loses its budget when it has nothing to do. `None` unless 0 < Θ <= Π.
    #[must_use]
    pub const fn polled(period: u64, budget: u64) -> Option<Supply> {
        match Supply::prm(period, budget) {
            Some(prm) => Some(Supply { delay: period, ..prm }),
            None => None,
        }
    }

    /// The same server, with Θ given by `deadline` in every period. `None` unless Θ <= `deadline`
    /// <= Π.
    #[must_use]
    pub const fn by(self, deadline: u64) -> Option<Supply> {
        if deadline < self.budget || deadline > self.period { None } else { Some(Supply { deadline, ..self }) }
    }

    /// The same supply, noticed up to `by` later: sbf(t - by).
    #[must_use]
    pub const fn delayed(self, by: u64) -> Supply {
        Supply { delay: self.delay.saturating_add(by), ..self }
    }

    /// Π.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Θ.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// λ + Δ - Θ: the longest time without any supply.
    #[must_use]
    pub const fn blackout(&self) -> u64 {
        self.delay.saturating_add(self.deadline - self.budget)
    }

    /// Whether sbf(t) < (Θ / Π) t for every t > 0. At the end of a budget sbf(t) = (Θ / Π) (t - λ +
    /// Π - Δ), and sbf is nowhere larger than this.
    ///
    /// If so, work of the load Θ / Π never completes: it is at least (Θ / Π) t in every busy window
    /// of length t.
    #[must_use]
    pub(crate) const fn lags(&self) -> bool {
        self.delay > self.period - self.deadline
    }

    /// Whether sbf(t) > (Θ / Π) t for some t: by the form above, where λ < Π - Δ.
    #[must_use]
    pub(crate) const fn leads(&self) -> bool {
        self.delay < self.period - self.deadline
    }

    /// The least supply in any interval of length t.
    #[inline]
    #[must_use]
    pub const fn sbf(&self, t: u64) -> u64 {
        let s = t.saturating_sub(self.delay);
        let (y, r) = (s / self.period, s % self.period);
        let started = r.saturating_sub(self.deadline - self.budget);
        // y Θ + Θ <= s + Π, and y Θ + min(Θ, r) <= s.
        y * self.budget + if started < self.budget { started } else { self.budget }
    }

    /// The least t with sbf(t) >= work; `None` where it exceeds `u64`.
    #[inline]
    #[must_use]
    pub const fn time_for(&self, work: u64) -> Option<u64> {
        if work == 0 {
            return Some(0);
        }
        let y = (work - 1) / self.budget;
        let rest = work - y * self.budget + (self.deadline - self.budget);
        match y.checked_mul(self.period) {
            Some(whole) => match whole.checked_add(rest) {
                Some(s) => s.checked_add(self.delay),
                None => None,
            },
            None => None,
        }
    }
}

/// The multiprocessor periodic resource: Θ in every period Π, on at most m' CPUs at once.
///
/// Take an interval that ends w after the start of a period. The worst server gives the rest of its
/// budget after the interval. So the least supply is `q(w) = max(0, Θ - m' (Π - w))`. The same
/// holds for an interval that starts w before the end of a period. Let an interval of length t have
/// k whole periods and the rest s = t - k Π at its ends. As q is convex, the worst case is s / 2 at
/// each end:
///
/// sbf(t) = min over k of k Θ + max(0, m' s - 2 (m' Π - Θ)),  0 <= s <= 2 Π.
///
/// The paper's form rounds budgets to whole slots and CPUs. So it is larger by up to m' - 1 if m'
/// does not divide Θ, and equal otherwise. The form here holds for supply that starts and stops at
/// any instant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mpr {
    period: u64,
    budget: u64,
    cpus: u32,
}

impl Mpr {
    /// `None` unless m' > 0 and 0 < Θ <= m' Π, all below 2^63.
    #[must_use]
    pub const fn new(period: u64, budget: u64, cpus: u32) -> Option<Mpr> {
        match period.checked_mul(cpus as u64) {
            Some(most) if budget > 0 && budget <= most && most < 1 << 63 => Some(Mpr { period, budget, cpus }),
            _ => None,
        }
    }

    /// Π.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Θ.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// m'.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The least supply, over all CPUs, in any interval of length t; `None` where it exceeds `u64`.
    #[must_use]
    pub fn sbf(&self, t: u64) -> Option<u64> {
        let (y, r) = (t / self.period, t % self.period);
        let m = u128::from(self.cpus);
        let missing = 2 * (m * u128::from(self.period) - u128::from(self.budget));
        let ends = |s: u128| (m * s).saturating_sub(missing);
        let whole = |k: u64| u128::from(k) * u128::from(self.budget);
        let near = whole(y) + ends(u128::from(r));
        let far = y.checked_sub(1).map(|k| whole(k) + ends(u128::from(r) + u128::from(self.period)));
        u64::try_from(far.map_or(near, |far| far.min(near))).ok()
    }

    /// The least t with sbf(t) >= work; `None` where it exceeds `u64`.
    ///
    /// For k Θ < work <= (k + 1) Θ, the term of k reaches `work` at s = (2 (m' Π - Θ) + work - k Θ)
    /// / m' < 2 Π. Before this s it is less than `work`. At this s the other terms are no less than
    /// `work`. The term of k + 1, if it counts, is at least (k + 1) Θ. The term of k - 1 is at
    /// least work + m' Π - Θ.
    #[must_use]
    pub fn time_for(&self, work: u64) -> Option<u64> {
        let Some(last) = work.checked_sub(1) else { return Some(0) };
        let (m, k) = (u128::from(self.cpus), last / self.budget);
        let rest = u128::from(work - k * self.budget);
        let missing = 2 * (m * u128::from(self.period) - u128::from(self.budget));
        let t = u128::from(k) * u128::from(self.period) + (missing + rest).div_ceil(m);
        u64::try_from(t).ok()
    }
}

#[cfg(test)]
#[path = "supply_tests.rs"]
mod tests;
