//! The server of a component, as its tasks see it.

use takt_model::{ComponentId, TaskId};

use crate::compositional::{Mpr, Supply};
use crate::pmf::Pmf;

/// Q every T, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    period: u64,
    budget: u64,
    delay: u64,
}

impl Reservation {
    /// A constant-bandwidth server, hard or soft, among servers by deadline that fit on their CPU.
    /// `None` unless 0 < Q <= T.
    #[must_use]
    pub const fn cbs(period: u64, budget: u64) -> Option<Reservation> {
        if budget == 0 || budget > period { None } else { Some(Reservation { period, budget, delay: 0 }) }
    }

    /// Anything that gives Q somewhere in every period: gaps up to 2 (T - Q). `None` unless 0 < Q <= T.
    #[must_use]
    pub const fn periodic(period: u64, budget: u64) -> Option<Reservation> {
        if budget == 0 || budget > period { None } else { Some(Reservation { period, budget, delay: period - budget }) }
    }

    /// The same where each budget may come up to `by` after its deadline, at most T.
    #[must_use]
    pub(crate) const fn late(self, by: u64) -> Reservation {
        Reservation { delay: self.delay.saturating_add(by), ..self }
    }

    /// By how much a job may be done later than by the deadlines of the budgets that it needs.
    pub(crate) const fn delay(&self) -> u64 {
        self.delay
    }

    /// T.
    #[must_use]
    pub const fn period(&self) -> u64 {
        self.period
    }

    /// Q.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// The longest time without any of it for a task that has work: T - Q, or 2 (T - Q).
    #[must_use]
    pub const fn gap(&self) -> u64 {
        (self.period - self.budget).saturating_add(self.delay)
    }

    /// Its least supply from the start of a busy window on.
    #[must_use]
    pub fn supply(&self) -> Supply {
        let aligned = Supply::aligned(self.period, self.budget).expect("0 < Q <= T holds by construction");
        aligned.delayed(self.delay)
    }
}

/// The server of a unit's tasks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ServerSupply {
    pub(crate) component: ComponentId,
    /// Its supply, or why there is none.
    pub(crate) supply: Result<Supply, String>,
    /// Π and Θ, if they are given.
    pub(crate) interface: Option<(u64, u64)>,
    /// "prm", "polled" or "aligned".
    pub(crate) form: &'static str,
    /// The longest time from the arrival of work until it is noticed.
    pub(crate) late: u64,
    /// The part of each budget that costs take.
    pub(crate) loss: u64,
    /// Whether it gives no more than Θ in Π.
    pub(crate) capped: bool,
    /// The tasks that stand for the servers in the level above: one for each CPU.
    pub(crate) servers: Vec<TaskId>,
    /// The supply of a component on several CPUs, or why there is none. Then `supply` is an error.
    pub(crate) wide: Option<Result<Mpr, String>>,
    /// Whether a response of that task bounds each budget.
    pub(crate) bounded: bool,
    /// The guarantee to a task alone in it, or why it guarantees no more than the supply.
    pub(crate) reservation: Result<Reservation, String>,
    /// Actual execution times and times between arrivals of a task alone in it, in ns, if the file
    /// has any.
    pub(crate) random: Option<(Pmf, Pmf)>,
}

impl ServerSupply {
    /// Whether there is a supply, on one CPU or several.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn given(&self) -> Result<(), String> {
        match &self.wide {
            Some(wide) => wide.as_ref().map(|_| ()).map_err(String::clone),
            None => self.supply.as_ref().map(|_| ()).map_err(String::clone),
        }
    }

    /// The task that stands for the server of a component on one CPU.
    pub(crate) fn server(&self) -> Option<TaskId> {
        self.servers.first().copied().filter(|_| self.wide.is_none())
    }
}
