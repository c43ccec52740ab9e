//! Time on CPUs: of jobs, and of interrupts and softirqs, which nest.

use super::Histogram;
use super::open::{Job, NONE};

/// The most nested handlers on one CPU. Deeper handlers are treated as lost exits.
const NESTED_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt {
    pub(super) count: u64,
    /// The time of ended handlers, without the time of handlers nested in them.
    pub(super) busy: u64,
    /// When its handler last began; `NONE` where that is unknown.
    last: u64,
    seen: bool,
    pub(super) inter_arrivals: Histogram,
    /// From enter to exit, without the handlers in between.
    pub(super) executions: Histogram,
    /// From enter to exit.
    pub(super) totals: Histogram,
}

impl Interrupt {
    fn enter(&mut self, now: u64) {
        self.count += 1;
        if self.seen {
            self.inter_arrivals.record(now.saturating_sub(self.last));
        }
        (self.last, self.seen) = (now, true);
    }

    fn exit(&mut self, total: u64, nested: u64) {
        let own = total.saturating_sub(nested);
        self.busy = self.busy.saturating_add(own);
        self.executions.record(own);
        self.totals.record(total);
    }

    /// The next one's distance is unknown.
    pub(super) fn lose(&mut self) {
        self.seen = false;
    }

    pub(super) fn reset(&mut self) {
        *self = Interrupt { last: self.last, seen: self.seen, ..Interrupt::default() };
    }
}

#[derive(Clone, Debug)]
pub(super) struct Cpu {
    /// Time for which earlier jobs occupied this CPU. The present job is not included.
    pub(super) busy: u64,
    /// Made by the first interrupt.
    nest: Option<Box<InterruptStack>>,
}

#[derive(Clone, Debug)]
struct InterruptStack {
    /// Handlers that have begun and not ended, the innermost last.
    stack: Vec<Frame>,
    /// How long any handler ran, before `since`.
    covered: u64,
    /// Since when the outermost handler has been running; `NONE` where there is none.
    since: u64,
    /// The time of interrupts while jobs held the CPU, before its present holders got it.
    stolen: u64,
    /// `covered` at the end of the interval before.
    reported: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    irq: u32,
    entered: u64,
    nested: u64,
}

impl InterruptStack {
    #[inline]
    fn covered(&self, now: u64) -> u64 {
        if self.since == NONE { self.covered } else { self.covered.saturating_add(now.saturating_sub(self.since)) }
    }
}

impl Cpu {
    pub(super) const IDLE: Cpu = Cpu { busy: 0, nest: None };

    /// How long any handler has run until `now`.
    #[inline]
    pub(super) fn covered(&self, now: u64) -> u64 {
        self.nest.as_ref().map_or(0, |nest| nest.covered(now))
    }

    /// Counts the time since the job got this CPU.
    #[inline]
    pub(super) fn leave(&mut self, job: &mut Job, now: u64) {
        self.busy = self.busy.saturating_add(now.saturating_sub(job.since));
        if let Some(nest) = &mut self.nest {
            let stolen = nest.covered(now).saturating_sub(job.covered);
            nest.stolen = nest.stolen.saturating_add(stolen);
            job.stolen = job.stolen.saturating_add(stolen);
        }
    }

    /// How long interrupts ran in this interval, and how much of it while jobs held the CPU.
    pub(super) fn interrupts(&self, now: u64) -> (u64, u64) {
        self.nest.as_ref().map_or((0, 0), |nest| (nest.covered(now).saturating_sub(nest.reported), nest.stolen))
    }

    pub(super) fn reset(&mut self, now: u64) {
        self.busy = 0;
        if let Some(nest) = &mut self.nest {
            (nest.stolen, nest.reported) = (0, nest.covered(now));
        }
    }

    pub(super) fn enter(&mut self, now: u64, irq: u32, interrupt: &mut Interrupt) {
        interrupt.enter(now);
        let idle = || Box::new(InterruptStack { stack: Vec::new(), covered: 0, since: NONE, stolen: 0, reported: 0 });
        let nest = self.nest.get_or_insert_with(idle);
        if nest.stack.is_empty() {
            nest.since = now;
        }
        if nest.stack.len() == NESTED_MAX {
            nest.stack.remove(0);
        }
        nest.stack.push(Frame { irq, entered: now, nested: 0 });
    }

    /// Ends a handler, and all handlers nested in it whose ends are missing. Ignores a handler that
    /// never began.
    pub(super) fn exit(&mut self, now: u64, irq: u32, interrupt: &mut Interrupt) {
        let Some(nest) = &mut self.nest else { return };
        let Some(at) = nest.stack.iter().rposition(|frame| frame.irq == irq) else { return };
        let frame = nest.stack[at];
        let whole = at + 1 == nest.stack.len();
        nest.stack.truncate(at);
        let total = now.saturating_sub(frame.entered);
        // If an end is missing, the share of nested handlers is unknown.
        if whole {
            interrupt.exit(total, frame.nested);
        }
        match nest.stack.last_mut() {
            Some(outer) => outer.nested = outer.nested.saturating_add(total),
            None => {
                nest.covered = nest.covered(now);
                nest.since = NONE;
            }
        }
    }

    /// Events of this CPU were lost: how long what ran on it did so is unknown.
    pub(super) fn lose(&mut self) {
        if let Some(nest) = &mut self.nest {
            nest.since = NONE;
            nest.stack.clear();
        }
    }
}
