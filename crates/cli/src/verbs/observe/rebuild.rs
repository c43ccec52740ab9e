//! How jobs are rebuilt, from a file or while the kernel is recorded.

use takt_model::Span;
use takt_trace::jobs::{Filter, Options};

use crate::args;

/// How much of a recording a crash can take from its log, and how long a reader of a pipe waits.
pub(super) const FLUSH: Span = Span::from_ms(250);

pub(super) fn rebuild(options: &args::Observe) -> Options {
    Options {
        suspensions: options.suspensions,
        filter: Filter {
            pids: options.pid.iter().chain(&options.tid).copied().collect(),
            names: options.comm.clone(),
            interrupts: options.irq.clone(),
        },
        ..Options::default()
    }
}
