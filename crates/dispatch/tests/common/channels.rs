//! Channels on threads of this kernel: what their tests share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use takt_dispatch::event::Subscription;
use takt_dispatch::{Dispatcher, Dispatching, Limits, Operation, Operations, Plan, StartError};
use takt_linux::{Epoch, clock};
use takt_model::{Builtin, Span, Time};

/// One after the other: they share CPUs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whatever the load.
pub(crate) fn plan(operations: &Operations, strategy: Builtin) -> Plan {
    let limits = Limits { critical_utilization_ppm: u32::MAX, ..Limits::default() };
    operations.compute(&strategy.strategy(), &limits).unwrap_or_else(|anomalies| panic!("{anomalies}"))
}

/// That may be pushed at any time.
pub(crate) fn sporadic(name: &str) -> Operation {
    Operation::sporadic(name, Span::from_ns(1)).wcet(Span::from_ns(1)).deadline(Span::from_s(1)).backlog(16)
}

/// `None`, and why on the screen, where this user cannot.
pub(crate) fn started(dispatcher: Dispatcher) -> Option<Dispatching> {
    match dispatcher.start() {
        Ok(dispatching) => Some(dispatching),
        Err(StartError::Privilege { missing }) => {
            println!("skipped: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until something is so, for 20 s at most.
pub(crate) fn until(so: impl Fn() -> bool) {
    let epoch = Epoch::now_is_zero();
    while !so() && epoch.now() < Time::ZERO + Span::from_s(20) {
        clock::pause(Span::from_ms(1));
    }
    assert!(so(), "it never came");
}

/// All that a subscription completed is somewhere.
pub(crate) fn check(subscription: &Subscription) {
    let counts = subscription.counts();
    let known = counts.handled + counts.expired + counts.rejected + counts.omitted + counts.replaced;
    assert!(known <= counts.complete && counts.complete - known <= 24, "{counts:?}");
}
