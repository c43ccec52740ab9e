//! The merge against made-up CPUs. A CPU plays managers' decisions and other threads at random and
//! writes down three things: the managers' events, the kernel's events, and the log that follows.

use proptest::prelude::*;

use super::*;
use crate::event::{Comm, Thread};

const NS: fn(u64) -> Time = Time::from_ns;
/// The lanes: two threads with a task each, and a manager with a task of its own.
const MANAGER: usize = 2;

/// Random choices; when they have run out, always the first one.
struct Tape(std::vec::IntoIter<u8>);

impl Tape {
    fn below(&mut self, n: u8) -> u8 {
        self.0.next().unwrap_or(0) % n
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    Back,
    Lost,
    Asleep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Lane(usize),
    Other(u32),
}

struct Play {
    tape: Tape,
    now: u64,
    holder: Holder,
    decided: Vec<(Time, Event)>,
    seen: Vec<RunEvent>,
    truth: Vec<(Time, Event)>,
}

fn thread(pid: u32) -> Thread {
    Thread { pid, comm: Comm::new(format!("t{pid}").as_bytes()), prio: Some(120) }
}

impl Play {
    fn pass(&mut self) -> Time {
        self.now += 1 + u64::from(self.tape.below(20));
        NS(self.now)
    }

    fn decide(&mut self, at: Time, event: Event, in_log: bool) {
        self.decided.push((at, event));
        if in_log {
            self.truth.push((at, event));
        }
    }

    /// The CPU goes to another thread. What the log says of it.
    fn switch(&mut self, at: Time, why: SwitchOutReason, to: Holder) {
        let mut see = |what| self.seen.push(RunEvent { at, what });
        match self.holder {
            Holder::Lane(lane) => see(Kind::SwitchOut { lane, cpu: 0, why }),
            Holder::Other(pid) if matches!(to, Holder::Lane(_)) => see(Kind::OtherOut { cpu: 0, thread: thread(pid) }),
            Holder::Other(_) => {}
        }
        match to {
            Holder::Lane(lane) => see(Kind::SwitchIn { lane, cpu: 0 }),
            Holder::Other(pid) => see(Kind::OtherIn { cpu: 0, thread: thread(pid) }),
        }
        self.holder = to;
    }

    /// Something other than the job has the CPU for a while.
    fn interruption(&mut self, lane: usize, job: JobKey) -> After {
        let cpu = 0;
        match self.tape.below(4) {
            // A manager decides nothing.
            0 if lane != MANAGER => {
                let at = self.pass();
                self.switch(at, SwitchOutReason::Taken, Holder::Lane(MANAGER));
                let at = self.pass();
                self.switch(at, SwitchOutReason::Asleep, Holder::Lane(lane));
                return After::Back;
            }
            // Another thread has the CPU, perhaps behind a manager.
            0 | 1 => {
                let at = self.pass();
                if lane != MANAGER && self.tape.below(2) == 1 {
                    self.switch(at, SwitchOutReason::Taken, Holder::Lane(MANAGER));
                }
                let at = self.pass();
                self.switch(at, SwitchOutReason::Taken, Holder::Other(7));
                self.truth.push((at, Event::Preempt { job, cpu }));
                if self.tape.below(2) == 1 {
                    let at = self.pass();
                    self.switch(at, SwitchOutReason::Taken, Holder::Other(8));
                }
            }
            // Its thread sleeps, and nobody has the CPU.
            2 => {
                let at = self.pass();
                self.switch(at, SwitchOutReason::Held, Holder::Other(0));
                self.truth.push((at, Event::Block { job, cpu }));
                if lane != MANAGER && self.tape.below(4) == 3 {
                    return After::Asleep;
                }
                let woken = self.pass();
                if self.tape.below(2) == 1 {
                    self.seen.push(RunEvent { at: woken, what: Kind::Woken { lane } });
                    self.truth.push((woken, Event::Wake { job }));
                } else {
                    let at = self.pass();
                    self.switch(at, SwitchOutReason::Taken, Holder::Lane(lane));
                    self.truth.extend([(at, Event::Wake { job }), (at, Event::Resume { job, cpu })]);
                    return After::Back;
                }
            }
            _ => {
                let at = self.pass();
                self.switch(at, SwitchOutReason::Stopped, Holder::Other(0));
                self.truth.push((at, Event::Block { job, cpu }));
            }
        }
        // The manager may take the CPU from the job of another thread while that has lost it.
        if lane != MANAGER && self.tape.below(3) == 2 {
            return After::Lost;
        }
        let at = self.pass();
        self.switch(at, SwitchOutReason::Taken, Holder::Lane(lane));
        self.truth.push((at, Event::Resume { job, cpu }));
        After::Back
    }

    /// The manager takes the CPU from the job, and gives it back.
    fn preemption(&mut self, lane: usize, job: JobKey, had: After) {
        let cpu = 0;
        let at = self.pass();
        if self.holder != Holder::Lane(MANAGER) {
            self.switch(at, SwitchOutReason::Taken, Holder::Lane(MANAGER));
        }
        let at = self.pass();
        self.decide(at, Event::Preempt { job, cpu }, had == After::Back);
        if had == After::Asleep {
            self.truth.push((at, Event::Wake { job }));
        }
        let at = self.pass();
        self.decide(at, Event::Resume { job, cpu }, true);
        if lane == MANAGER {
            return;
        }
        let at = self.pass();
        if had == After::Asleep {
            self.switch(at, SwitchOutReason::Asleep, Holder::Other(0));
            self.truth.push((at, Event::Block { job, cpu }));
            let at = self.pass();
            self.seen.push(RunEvent { at, what: Kind::Woken { lane } });
            self.truth.push((at, Event::Wake { job }));
            let at = self.pass();
            self.switch(at, SwitchOutReason::Taken, Holder::Lane(lane));
            self.truth.push((at, Event::Resume { job, cpu }));
        } else {
            self.switch(at, SwitchOutReason::Asleep, Holder::Lane(lane));
        }
    }

    fn job(&mut self, lane: usize, number: u64) {
        let (job, cpu) = (JobKey { task: TaskId(lane as u32), number }, 0);
        let at = self.pass();
        if self.holder != Holder::Lane(MANAGER) {
            self.switch(at, SwitchOutReason::Asleep, Holder::Lane(MANAGER));
        }
        if lane != MANAGER {
            let at = self.pass();
            self.switch(at, SwitchOutReason::Asleep, Holder::Lane(lane));
        }
        let at = self.pass();
        self.decide(at, Event::Start { job, cpu }, true);
        for _ in 0..self.tape.below(4) {
            let had = self.interruption(lane, job);
            if had != After::Back || (lane != MANAGER && self.tape.below(3) == 2) {
                self.preemption(lane, job, had);
            }
        }
        let at = self.pass();
        let dropped = self.tape.below(4) == 3;
        let cause = takt_log::CancelCause::Late;
        self.decide(at, if dropped { Event::Cancel { job, cause } } else { Event::Complete { job, cpu } }, true);
        let at = self.pass();
        if self.tape.below(2) == 1 {
            self.switch(at, SwitchOutReason::Asleep, Holder::Other(0));
        }
    }
}

fn played(choices: Vec<u8>) -> Play {
    let mut play = Play {
        tape: Tape(choices.into_iter()),
        now: 0,
        holder: Holder::Other(0),
        decided: Vec::new(),
        seen: Vec::new(),
        truth: Vec::new(),
    };
    for number in 0..6 {
        let lane = usize::from(play.tape.below(3));
        play.job(lane, number);
    }
    play
}

fn tasks() -> [Vec<TaskId>; 3] {
    [vec![TaskId(0)], vec![TaskId(1)], vec![TaskId(2)]]
}

/// The merge's events of jobs, and how many switches are missing. Both accounts come in parts.
fn merged(play: &Play, part: u64) -> (Vec<(Time, Event)>, u64) {
    let mut merge = ManagedMerge::new(0, tasks());
    let mut log: Vec<(u32, Time, Event)> = Vec::new();
    let end = NS(play.now + 1);
    let (mut decided, mut seen) = (play.decided.iter().peekable(), play.seen.iter().peekable());
    let mut until = 0;
    while until <= play.now {
        until += part;
        while let Some((at, event)) = decided.next_if(|(at, _)| *at < NS(until)) {
            merge.event(0, *at, event);
        }
        merge.until(NS(until));
        // The kernel's account is behind.
        let kernel = until.saturating_sub(part / 2);
        while let Some(event) = seen.next_if(|event| event.at < NS(kernel)) {
            merge.run_event(*event);
        }
        merge.advance(NS(kernel), end, &mut log);
    }
    decided.for_each(|(at, event)| merge.event(0, *at, event));
    seen.for_each(|event| merge.run_event(*event));
    let merged = merge.finish(end, &mut log);
    assert!(log.is_sorted_by_key(|(_, at, _)| *at));
    log.retain(|(_, _, event)| !matches!(event, Event::Occupy { .. }));
    (log.into_iter().map(|(_, at, event)| (at, event)).collect(), merged.missing)
}

proptest! {
    #[test]
    fn the_log_says_who_had_the_cpu(choices in prop::collection::vec(any::<u8>(), 0..200), part in 1u64..80) {
        let play = played(choices);
        let (log, missing) = merged(&play, part);
        prop_assert_eq!(&log, &play.truth);
        prop_assert_eq!(missing, 0);
    }
}

/// A job from 5 to 30 beside what the kernel saw: the log, and how many switches are missing.
fn with_job(job: JobKey, seen: &[(u64, Kind)]) -> (Vec<(u32, Time, Event)>, u64) {
    let mut merge = ManagedMerge::new(0, tasks());
    merge.event(0, NS(5), &Event::Start { job, cpu: 0 });
    merge.event(0, NS(30), &Event::Complete { job, cpu: 0 });
    seen.iter().for_each(|(at, what)| merge.run_event(RunEvent { at: NS(*at), what: *what }));
    let mut log: Vec<(u32, Time, Event)> = Vec::new();
    let missing = merge.finish(NS(40), &mut log).missing;
    (log, missing)
}

#[test]
fn the_log_says_which_thread_took_the_cpu() {
    let job = JobKey { task: TaskId(0), number: 0 };
    let back = Kind::SwitchIn { lane: 0, cpu: 0 };
    let (log, _) = with_job(
        job,
        &[
            (2, Kind::SwitchIn { lane: MANAGER, cpu: 0 }),
            (4, back),
            (10, Kind::SwitchOut { lane: 0, cpu: 0, why: SwitchOutReason::Taken }),
            (10, Kind::OtherIn { cpu: 0, thread: thread(7) }),
            (20, Kind::OtherOut { cpu: 0, thread: thread(7) }),
            (20, back),
        ],
    );
    let told: Vec<(u64, Event)> = log.into_iter().map(|(_, at, event)| (at.as_ns(), event)).collect();
    let wanted = [
        (2, Event::Occupy { cpu: 0, thread: Some(0) }),
        (5, Event::Start { job, cpu: 0 }),
        (10, Event::Preempt { job, cpu: 0 }),
        (10, Event::Occupy { cpu: 0, thread: Some(1) }),
        (20, Event::Resume { job, cpu: 0 }),
        (30, Event::Complete { job, cpu: 0 }),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn a_job_that_ends_without_its_cpu_has_a_gap() {
    let job = JobKey { task: TaskId(1), number: 3 };
    let (log, missing) = with_job(job, &[(10, Kind::OtherIn { cpu: 0, thread: thread(7) })]);
    assert_eq!(missing, 1);
    assert!(log.contains(&(0, NS(30), Event::Gap { job })), "{log:?}");

    // After a loss of events nobody knows who has the CPU, and that is no missing switch.
    let (log, missing) = with_job(job, &[(9, Kind::LossBegins { count: 4 }), (20, Kind::LossEnds)]);
    assert_eq!(missing, 0);
    assert!(log.contains(&(0, NS(9), Event::Gap { job })) && log.contains(&(0, NS(9), Event::Lost { count: 4 })));
}
