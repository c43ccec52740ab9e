//! Shared parts of the tests on threads of this kernel.

#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_dispatch::event::Subscription;
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, Plan, StartError};
use takt_linux::{Epoch, clock};
use takt_model::{Builtin, Span, Time};

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

/// One test at a time, because they share CPUs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan for any load.
pub(crate) fn plan(operations: &Operations, strategy: Builtin) -> Plan {
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    operations.compute(&strategy.strategy(), &limits).unwrap_or_else(|anomalies| panic!("{anomalies}"))
}

/// An operation that may be pushed at any time.
pub(crate) fn sporadic(name: &str) -> Operation {
    Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).backlog(16)
}

/// A running dispatcher; `None` with the reason on the screen if this user or machine cannot.
pub(crate) fn started(dispatcher: Dispatcher) -> Option<Dispatching> {
    match dispatcher.start() {
        Ok(dispatching) => Some(dispatching),
        Err(error @ (StartError::Privilege { .. } | StartError::Cpus { .. })) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Works for this much CPU time.
pub(crate) fn work(span: Span) {
    let until = clock::thread_cpu().saturating_add(span);
    while clock::thread_cpu() < until {
        std::hint::spin_loop();
    }
}

/// Waits for a condition, for at most 20 s.
pub(crate) fn until(so: impl Fn() -> bool) {
    let epoch = Epoch::now_is_zero();
    while !so() && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(Span::from_ms(1));
    }
    assert!(so(), "it never came");
}

/// Every complete set of a subscription is accounted for.
pub(crate) fn check(subscription: &Subscription) {
    let counts = subscription.counts();
    let known = counts.handled + counts.expired + counts.rejected + counts.omitted + counts.replaced;
    assert!(known <= counts.complete && counts.complete - known <= 24, "{counts:?}");
}
