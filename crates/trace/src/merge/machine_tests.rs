//! The merge against made-up machines. A machine plays threads at random and writes down three
//! things: the threads' stamps, the kernel's events, and the log that should follow from them.

use proptest::prelude::*;
use takt_log::Parent;
use takt_log::stats::Histogram;
use takt_model::TaskId;

use super::*;

const NS: fn(u64) -> Time = Time::from_ns;

/// Random choices; when they have run out, always the first one.
struct Tape(std::vec::IntoIter<u8>);

impl Tape {
    fn below(&mut self, n: u8) -> u8 {
        self.0.next().unwrap_or(0) % n
    }
    fn one_in(&mut self, n: u8) -> bool {
        self.below(n) == n - 1
    }
}

/// Both accounts, and the truth by lane.
#[derive(Clone, Default)]
struct Play {
    stamps: Vec<Stamp>,
    seen: Vec<RunEvent>,
    truth: Vec<Vec<(Time, Event)>>,
    misses: Vec<(Time, Event)>,
    /// By lane: jobs checked, distances of starts and completions.
    checked: Vec<(u64, Vec<u64>, Vec<u64>)>,
}

struct Player<'a> {
    tape: &'a mut Tape,
    play: &'a mut Play,
    lane: usize,
    now: u64,
    cpu: u32,
}

impl Player<'_> {
    fn pass(&mut self) -> Time {
        self.now += 1 + u64::from(self.tape.below(20));
        NS(self.now)
    }
    fn see(&mut self, at: Time, what: Kind) {
        self.play.seen.push(RunEvent { at, what });
    }
    fn get_cpu(&mut self, at: Time) {
        self.cpu = u32::from(self.tape.below(3));
        self.see(at, Kind::SwitchIn { lane: self.lane, cpu: self.cpu });
    }
    fn leave(&mut self, at: Time, why: SwitchOutReason) {
        self.see(at, Kind::SwitchOut { lane: self.lane, cpu: self.cpu, why });
    }
    fn stamp(&mut self, at: Time, due: Time, event: Event) {
        self.play.stamps.push(Stamp { at, due, lane: Some(self.lane), event });
    }
    fn expect(&mut self, at: Time, event: Event) {
        self.play.truth[self.lane].push((at, event));
    }

    /// Something takes the CPU from the job, or the job gives it up. `told`: the log should say so.
    /// Between jobs there is only the sleep to the next one.
    fn interruption(&mut self, job: JobKey, told: bool, within: bool) {
        let from = self.cpu;
        let (why, is_block) = match self.tape.below(4) {
            0 => (SwitchOutReason::Taken, false),
            1 => (SwitchOutReason::Stopped, true),
            2 => (SwitchOutReason::Held, true),
            _ if within => (SwitchOutReason::Asleep, true),
            _ => (SwitchOutReason::Taken, false),
        };
        let left = self.pass();
        self.leave(left, why);
        let waits = matches!(why, SwitchOutReason::Held | SwitchOutReason::Asleep);
        let woken = (waits && !self.tape.one_in(4)).then(|| self.pass());
        if let Some(woken) = woken {
            self.see(woken, Kind::Woken { lane: self.lane });
        }
        let back = self.pass();
        self.get_cpu(back);
        if !told {
            return;
        }
        self.expect(left, if is_block { Event::Block { job, cpu: from } } else { Event::Preempt { job, cpu: from } });
        if waits {
            self.expect(woken.unwrap_or(back), Event::Wake { job });
        }
        if self.cpu != from {
            self.expect(back, Event::Migrate { job, from, to: self.cpu });
        }
        self.expect(back, Event::Resume { job, cpu: self.cpu });
    }

    /// A thread's whole life: jobs, each after a sleep or at once.
    fn live(&mut self, jobs: u64) {
        let task = TaskId(self.lane as u32);
        // Before its first job it waits for the others, some threads still run when the recording
        // begins.
        if self.tape.one_in(2) {
            let at = self.pass();
            self.leave(at, SwitchOutReason::Asleep);
            let at = self.pass();
            self.see(at, Kind::Woken { lane: self.lane });
            let at = self.pass();
            self.get_cpu(at);
            let at = self.pass();
            self.leave(at, SwitchOutReason::Asleep);
        }
        let mut completed: Option<Time> = None;
        for number in 0..jobs {
            let job = JobKey { task, number };
            let slept = completed.is_none() || self.tape.below(3) > 0;
            let arrival = NS(self.now);
            let release = |at| Event::Release { job, arrival: arrival.min(at), parent: None };
            let mut first = None;
            let released;
            if slept {
                if completed.is_some() {
                    let mut woken = None;
                    let roused = self.tape.one_in(4);
                    if let Some(completed) = completed {
                        let epilogue = self.tape.one_in(4);
                        let before = self.play.seen.len();
                        if epilogue {
                            self.interruption(job, false, false);
                        }
                        if roused {
                            // On its way to sleep.
                            let at = self.pass();
                            self.see(at, Kind::Woken { lane: self.lane });
                            woken = Some(at);
                        }
                        let at = self.pass();
                        self.leave(at, SwitchOutReason::Asleep);
                        let out = |seen: &&RunEvent| matches!(seen.what, Kind::SwitchOut { .. });
                        let left = self.play.seen[before..].iter().find(out).unwrap().at;
                        self.play.checked[self.lane].2.push(left.as_ns() - completed.as_ns());
                    }
                    released = self.wake_up(woken);
                } else {
                    released = self.wake_up(None);
                }
                first = Some((NS(self.now), self.cpu));
            } else {
                released = None;
            }
            let mut before = Vec::new();
            std::mem::swap(&mut before, &mut self.play.truth[self.lane]);
            let seen = self.play.seen.len();
            while self.tape.one_in(5) {
                self.interruption(job, slept && released.is_some(), false);
            }
            std::mem::swap(&mut before, &mut self.play.truth[self.lane]);
            let stamp = self.pass();
            let told = released.unwrap_or(stamp);
            self.stamp(stamp, stamp, release(told));
            self.expect(told, release(told));
            // A deadline that may have passed before the thread knew of its job.
            if self.tape.one_in(3) {
                let due = NS(stamp.as_ns().saturating_sub(u64::from(self.tape.below(30))));
                self.stamp(stamp, due, Event::Miss { job });
                self.play.misses.push((told.max(due), Event::Miss { job }));
            }
            let (prologue, mut after) = (before, Vec::new());
            std::mem::swap(&mut after, &mut self.play.truth[self.lane]);
            while self.tape.one_in(5) {
                // Without a recorded wake-up the job has the CPU from its release on, and may lose
                // it before its stamp.
                self.interruption(job, slept, false);
            }
            std::mem::swap(&mut after, &mut self.play.truth[self.lane]);
            let out = self.play.seen[seen..].iter().find(|seen| matches!(seen.what, Kind::SwitchOut { .. }));
            if let Some((completed, left)) = completed.zip(out).filter(|_| !slept) {
                self.play.checked[self.lane].2.push(left.at.as_ns() - completed.as_ns());
            }
            let start = self.pass();
            self.stamp(start, start, Event::Start { job, cpu: self.cpu });
            let begun = match (first, released) {
                (Some(first), Some(_)) => Some(first),
                (Some(_), None) => Some((told, self.cpu_at(told))),
                (None, _) => None,
            };
            let (at, cpu) = begun.unwrap_or((start, self.cpu));
            if begun.is_some() {
                self.play.checked[self.lane].1.push(start.as_ns() - at.as_ns());
            }
            self.expect(at, Event::Start { job, cpu });
            self.play.truth[self.lane].extend(prologue);
            self.play.truth[self.lane].extend(after);
            while self.tape.one_in(2) {
                self.interruption(job, true, true);
            }
            let end = self.pass();
            self.stamp(end, end, Event::Complete { job, cpu: self.cpu });
            self.expect(end, Event::Complete { job, cpu: self.cpu });
            self.play.checked[self.lane].0 += 1;
            completed = Some(end);
        }
    }

    /// Wakes the thread, or has woken it already; when, if the kernel told.
    fn wake_up(&mut self, woken: Option<Time>) -> Option<Time> {
        let woken = woken.or_else(|| {
            (!self.tape.one_in(6)).then(|| {
                let at = self.pass();
                self.see(at, Kind::Woken { lane: self.lane });
                at
            })
        });
        let at = self.pass();
        self.get_cpu(at);
        woken
    }

    /// The CPU that this thread had at a moment.
    fn cpu_at(&self, at: Time) -> u32 {
        let mine =
            |seen: &&RunEvent| matches!(seen.what, Kind::SwitchIn { lane, .. } if lane == self.lane) && seen.at <= at;
        match self.play.seen.iter().rev().find(mine).map(|seen| seen.what) {
            Some(Kind::SwitchIn { cpu, .. }) => cpu,
            _ => unreachable!("it has stamped"),
        }
    }
}

fn play(tape: Vec<u8>) -> Play {
    let mut tape = Tape(tape.into_iter());
    let lanes = 1 + usize::from(tape.below(3));
    let mut play = Play { truth: vec![Vec::new(); lanes], ..Play::default() };
    play.checked.resize_with(lanes, Default::default);
    for lane in 0..lanes {
        let jobs = u64::from(tape.below(6));
        Player { tape: &mut tape, play: &mut play, lane, now: 0, cpu: 0 }.live(jobs);
    }
    play.stamps.sort_by_key(|stamp| stamp.at);
    play.seen.sort_by_key(|seen| seen.at);
    play
}

type Log = Vec<(u32, Time, Event)>;

fn witness(play: &Play) -> Merge {
    Merge::of_tasks(0, vec![None; play.truth.len()])
}

/// All at once.
fn whole(play: &Play) -> (Log, Vec<Stamped>) {
    let (mut witness, mut log) = (witness(play), Log::new());
    play.seen.iter().for_each(|seen| witness.run_event(*seen));
    play.stamps.iter().for_each(|stamp| witness.stamp(*stamp));
    let stamped = witness.finish(Time::MAX, &mut log).stamped;
    (log, stamped)
}

/// In pieces: either account runs ahead of the other by turns.
fn pieces(play: &Play, steps: &[(u8, u8)]) -> Log {
    let (mut witness, mut log) = (witness(play), Log::new());
    let (mut stamps, mut seen) = (play.stamps.iter().peekable(), play.seen.iter().peekable());
    let (mut stamped_until, mut seen_until) = (0, 0);
    for (ahead, behind) in steps {
        (stamped_until, seen_until) = (stamped_until + u64::from(*ahead), seen_until + u64::from(*behind));
        while let Some(stamp) = stamps.next_if(|stamp| stamp.at < NS(stamped_until)) {
            witness.stamp(*stamp);
        }
        witness.until(NS(stamped_until));
        while let Some(one) = seen.next_if(|seen| seen.at < NS(seen_until)) {
            witness.run_event(*one);
        }
        witness.advance(NS(seen_until), Time::MAX, &mut log);
    }
    stamps.for_each(|stamp| witness.stamp(*stamp));
    seen.for_each(|seen| witness.run_event(*seen));
    witness.finish(Time::MAX, &mut log);
    log
}

/// The events of a lane's jobs, misses apart.
fn of_lane(log: &Log, lane: usize) -> Vec<(Time, Event)> {
    let mine = |event: &Event| job_of(event).is_some_and(|job| job.task.index() == lane);
    let told = log.iter().filter(|(_, _, event)| mine(event) && !matches!(event, Event::Miss { .. }));
    told.map(|(_, at, event)| (*at, *event)).collect()
}

fn job_of(event: &Event) -> Option<JobKey> {
    match *event {
        Event::Release { job, .. }
        | Event::Start { job, .. }
        | Event::Preempt { job, .. }
        | Event::Resume { job, .. }
        | Event::Block { job, .. }
        | Event::Wake { job }
        | Event::Gap { job }
        | Event::Migrate { job, .. }
        | Event::Complete { job, .. }
        | Event::Miss { job } => Some(job),
        _ => None,
    }
}

fn tape() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..400)
}

proptest! {
    #[test]
    fn the_log_says_what_happened(tape in tape()) {
        let play = play(tape);
        let (log, stamped) = whole(&play);
        prop_assert!(log.windows(2).all(|pair| pair[0].1 <= pair[1].1), "in the order of time");
        for (lane, truth) in play.truth.iter().enumerate() {
            prop_assert_eq!(&of_lane(&log, lane), truth, "lane {}", lane);
            let (checked, starts, ends) = &play.checked[lane];
            prop_assert_eq!((stamped[lane].checked, stamped[lane].contradicted), (*checked, 0));
            prop_assert_eq!(sum(&stamped[lane].start), (starts.len() as u64, starts.iter().sum()));
            prop_assert_eq!(sum(&stamped[lane].complete), (ends.len() as u64, ends.iter().sum()));
        }
        let mut misses: Vec<(Time, Event)> = Vec::new();
        misses.extend(log.iter().filter(|line| matches!(line.2, Event::Miss { .. })).map(|line| (line.1, line.2)));
        let mut expected = play.misses.clone();
        let key = |miss: &(Time, Event)| (miss.0, job_of(&miss.1));
        misses.sort_by_key(key);
        expected.sort_by_key(key);
        prop_assert_eq!(misses, expected);
        let is_loss = |event: &Event| matches!(event, Event::Lost { .. } | Event::Gap { .. });
        prop_assert!(!log.iter().any(|line| is_loss(&line.2)), "nothing was lost");
    }

    #[test]
    fn it_says_the_same_however_the_accounts_come(
        tape in tape(),
        steps in proptest::collection::vec(any::<(u8, u8)>(), 0..40),
    ) {
        let play = play(tape);
        let (log, _) = whole(&play);
        prop_assert_eq!(pieces(&play, &steps), log);
    }

    /// After a loss each job that was open meanwhile is marked, and no other job changes.
    #[test]
    fn a_gap_is_told_of_every_job_it_touches(tape in tape(), from in 0_u64..3000, length in 1_u64..600) {
        let mut play = play(tape);
        let (from, to) = (NS(from), NS(from + length));
        play.seen.retain(|seen| seen.at <= from || seen.at > to);
        play.seen.push(RunEvent { at: from, what: Kind::LossBegins { count: 7 } });
        play.seen.push(RunEvent { at: to, what: Kind::LossEnds });
        play.seen.sort_by_key(|seen| (seen.at, matches!(seen.what, Kind::LossBegins { .. } | Kind::LossEnds)));
        let (log, stamped) = whole(&play);
        prop_assert!(log.windows(2).all(|pair| pair[0].1 <= pair[1].1), "in the order of time");
        let place = |wanted: &dyn Fn(&Event) -> bool| log.iter().position(|(_, _, event)| wanted(event));
        for (lane, truth) in play.truth.iter().enumerate() {
            prop_assert_eq!(stamped[lane].contradicted, 0, "what was not seen contradicts nothing");
            let told = of_lane(&log, lane);
            // The events of a thread since its last job decide how the next one begins.
            let mut since = NS(0);
            for number in 0.. {
                let is_mine = |job: JobKey| job.task.index() == lane && job.number == number;
                let mine = |event: &Event| job_of(event).is_some_and(is_mine);
                let of_job = |events: &[(Time, Event)]| -> Vec<(Time, Event)> {
                    events.iter().copied().filter(|(_, event)| mine(event)).collect()
                };
                let (was, is) = (of_job(truth), of_job(&told));
                let Some((ended, _)) = was.last().copied() else { break };
                let start = place(&|event| mine(event) && matches!(event, Event::Start { .. })).unwrap();
                let end = place(&|event| mine(event) && matches!(event, Event::Complete { .. })).unwrap();
                let doubtful = log[start..=end].iter().any(|(_, _, event)| is_doubt(event, &mine));
                if was != is {
                    let counts = |events: &[(Time, Event)]| events.iter().filter(|(_, event)| {
                        matches!(event, Event::Preempt { .. } | Event::Migrate { .. })
                    }).count();
                    prop_assert!(
                        since <= to && ended >= from,
                        "job {} of lane {} is far from the gap {} to {}: {:?} {:?}",
                        number, lane, from, to, was, is
                    );
                    let seen = play.seen.iter().filter(|seen| seen.at <= ended && seen.at > since);
                    prop_assert!(
                        doubtful || counts(&was) == counts(&is),
                        "job {} of lane {}, gap {} to {}: {:?} {:?} {:?}",
                        number, lane, from, to, was, is, seen.collect::<Vec<_>>()
                    );
                }
                since = ended;
            }
        }
    }

    /// The kernel records each switch away from a thread, but not each switch to it. Then a job is
    /// marked, or all its preemptions and migrations are in the log.
    #[test]
    fn counts_with_missing_switches_are_correct_or_marked(
        tape in tape(),
        kept in proptest::collection::vec(any::<bool>(), 1..40),
    ) {
        let mut play = play(tape);
        let mut next = 0;
        play.seen.retain(|seen| {
            let hidden = matches!(seen.what, Kind::SwitchIn { .. }) && kept[next % kept.len()];
            next += 1;
            !hidden
        });
        let (log, _) = whole(&play);
        prop_assert!(log.windows(2).all(|pair| pair[0].1 <= pair[1].1), "in the order of time");
        for (lane, truth) in play.truth.iter().enumerate() {
            let told = of_lane(&log, lane);
            for number in 0.. {
                let is_mine = |job: JobKey| job.task.index() == lane && job.number == number;
                let mine = |event: &Event| job_of(event).is_some_and(is_mine);
                let count = |events: &[(Time, Event)]| {
                    let counted = |event: &Event| matches!(event, Event::Preempt { .. } | Event::Migrate { .. });
                    events.iter().filter(|(_, event)| mine(event) && counted(event)).count()
                };
                let place = |wanted: &dyn Fn(&Event) -> bool| {
                    log.iter().position(|(_, _, event)| mine(event) && wanted(event))
                };
                let Some(start) = place(&|event| matches!(event, Event::Start { .. })) else { break };
                let end = place(&|event| matches!(event, Event::Complete { .. })).unwrap();
                let doubtful = log[start..=end].iter().any(|(_, _, event)| is_doubt(event, &mine));
                prop_assert!(
                    doubtful || count(truth) == count(&told),
                    "job {} of lane {}: {:?} {:?}", number, lane, truth, told
                );
            }
        }
    }
}

/// Whether nothing can be counted any more of the job whose events are `mine`.
fn is_doubt(event: &Event, mine: &impl Fn(&Event) -> bool) -> bool {
    matches!(event, Event::Lost { .. }) || (matches!(event, Event::Gap { .. }) && mine(event))
}

fn sum(histogram: &Histogram) -> (u64, u64) {
    (histogram.count(), histogram.sum() as u64)
}

/// `time word` of each line.
fn words(log: &Log) -> Vec<String> {
    let word = |event: &Event| format!("{event:?}").split(' ').next().unwrap().to_lowercase();
    log.iter().map(|(_, at, event)| format!("{} {}", at.as_ns(), word(event))).collect()
}

/// One thread; each step is a time, and what is seen or stamped.
struct MergeScenario {
    witness: Merge,
    log: Log,
}

const JOB: JobKey = JobKey { task: TaskId(0), number: 0 };

impl MergeScenario {
    fn of(budget: Option<u64>, steps: &str) -> MergeScenario {
        let mut one = MergeScenario { witness: Merge::of_tasks(0, [budget.map(Span::from_ns)]), log: Log::new() };
        one.play(steps);
        one
    }
    /// Times, each with what happens then: a switch has its CPU, a release its arrival.
    fn play(&mut self, steps: &str) {
        for step in steps.split(", ") {
            let words: Vec<&str> = step.split(' ').collect();
            let [at, of] = [0, 2].map(|place| words.get(place).map_or(0, |word| word.parse().unwrap()));
            let (lane, cpu) = (0, of as u32);
            match words[1] {
                "woken" => self.see(at, Kind::Woken { lane }),
                "on" => self.see(at, Kind::SwitchIn { lane, cpu }),
                "taken" => self.see(at, Kind::SwitchOut { lane, cpu, why: SwitchOutReason::Taken }),
                "asleep" => self.see(at, Kind::SwitchOut { lane, cpu, why: SwitchOutReason::Asleep }),
                "release" => self.stamp(at, Event::Release { job: JOB, arrival: NS(of), parent: None }),
                "start" => self.stamp(at, Event::Start { job: JOB, cpu }),
                "complete" => self.stamp(at, Event::Complete { job: JOB, cpu }),
                other => panic!("{other}"),
            }
        }
    }
    fn see(&mut self, at: u64, what: Kind) {
        self.witness.run_event(RunEvent { at: NS(at), what });
    }
    fn stamp(&mut self, at: u64, event: Event) {
        self.witness.stamp(Stamp { at: NS(at), due: NS(at), lane: Some(0), event });
    }
    fn log_text(mut self) -> (String, Stamped) {
        let mut stamped = self.witness.finish(NS(1000), &mut self.log).stamped;
        (words(&self.log).join(", "), stamped.remove(0))
    }
}

#[test]
fn a_budget_that_is_used_up_is_no_preemption() {
    let mut one = MergeScenario::of(Some(100), "10 woken, 20 on 0, 21 release 10, 22 start");
    // Another reservation takes the CPU: 30 of 100 are used.
    one.play("50 taken 0, 60 on 0");
    // 105 of 100, and another reservation's turn again.
    one.play("135 taken 0, 200 on 0");
    // A second budget, less five: 95 more.
    one.play("250 taken 0, 260 on 0, 305 taken 0, 400 on 0, 410 complete");
    let (log, stamped) = one.log_text();
    let expected = "10 release, 20 start, 50 preempt, 60 resume, 135 block, 200 resume, 250 preempt, 260 resume, \
                    305 block, 400 resume, 410 complete";
    assert_eq!(log, expected);
    assert_eq!((stamped.checked, stamped.contradicted), (1, 0));
}

#[test]
fn a_stamp_without_a_cpu_is_a_contradiction_and_said() {
    let one = MergeScenario::of(None, "10 woken, 20 on 0, 21 release 10, 22 start, 30 taken 0, 35 complete, 40 on 0");
    let (log, stamped) = one.log_text();
    assert_eq!(log, "10 release, 20 start, 30 preempt, 35 gap, 35 complete");
    assert_eq!((stamped.checked, stamped.contradicted), (1, 1));
}

#[test]
fn a_switch_that_the_kernel_keeps_to_itself_is_no_contradiction_and_said() {
    let one = MergeScenario::of(None, "10 woken, 21 release 10, 22 start, 35 complete, 40 asleep 0");
    let (log, stamped) = one.log_text();
    assert_eq!(log, "10 release, 22 start, 35 complete");
    assert_eq!((stamped.checked, stamped.contradicted), (0, 0));
}

#[test]
fn a_job_that_began_by_a_switch_kept_back_is_preempted_as_seen() {
    let one =
        MergeScenario::of(None, "10 woken, 21 release 10, 22 start, 30 taken 0, 40 on 0, 50 complete, 60 asleep 0");
    let (log, _) = one.log_text();
    assert_eq!(log, "10 release, 22 start, 30 preempt, 40 resume, 50 complete");
}

#[test]
fn a_switch_kept_back_within_a_job_leaves_its_time_unknown() {
    let one =
        MergeScenario::of(None, "10 woken, 20 on 0, 21 release 10, 22 start, 30 taken 0, 50 complete, 60 asleep 0");
    let (log, _) = one.log_text();
    assert_eq!(log, "10 release, 20 start, 30 preempt, 50 gap, 50 complete");
}

#[test]
fn a_job_that_begins_before_its_thread_gets_a_cpu_is_doubted() {
    let one = MergeScenario::of(None, "10 woken, 21 release 10, 22 start, 30 on 0, 50 complete, 60 asleep 0");
    let (log, stamped) = one.log_text();
    assert_eq!(log, "10 release, 22 start, 30 gap, 30 resume, 50 complete");
    assert_eq!(stamped.contradicted, 1);
}

#[test]
fn a_switch_that_does_not_fit_is_a_loss() {
    // It left CPU 0 unseen.
    let one = MergeScenario::of(None, "10 woken, 20 on 0, 21 release 10, 22 start, 30 on 1, 35 complete");
    let (log, _) = one.log_text();
    assert_eq!(log, "10 release, 20 start, 30 gap, 30 migrate, 30 resume, 35 complete");
}

#[test]
fn a_successor_starts_no_earlier_than_it_is_released() {
    // Woken by the first of two predecessors; the second completes while it looks.
    let mut one = MergeScenario::of(None, "10 woken, 20 on 0");
    one.stamp(25, Event::Release { job: JOB, arrival: NS(25), parent: Some(Parent { hop: 1, origin: NS(5) }) });
    one.play("30 start, 35 complete");
    let (log, stamped) = one.log_text();
    assert_eq!(log, "25 release, 25 start, 35 complete");
    assert_eq!(stamped.start.count(), 1);
}

#[test]
fn kernel_events_after_the_end_are_omitted() {
    let one = MergeScenario::of(None, "10 woken, 20 on 0, 21 release 10, 22 start, 1001 taken 0, 1002 on 0");
    let (log, _) = one.log_text();
    assert_eq!(log, "10 release, 20 start");
}

#[test]
fn the_log_names_other_holders_of_the_cpu_and_the_last_one_before_a_job() {
    let mut one = MergeScenario::of(None, "5 asleep 0");
    let thread = |pid, comm: &str| crate::Thread { pid, comm: crate::Comm::new(comm.as_bytes()), prio: Some(39) };
    let other = |pid, comm| Kind::OtherIn { cpu: 0, thread: thread(pid, comm) };
    let gave = |pid, comm| Kind::OtherOut { cpu: 0, thread: thread(pid, comm) };
    one.see(5, other(0, "swapper/0"));
    one.play("10 woken");
    one.see(12, gave(7, "hog"));
    one.play("12 on 0, 13 release 10, 14 start");
    one.see(
        20,
        Kind::Interrupt {
            cpu: 0,
            kind: takt_log::InterruptKind::Hard,
            number: 24,
            name: crate::Comm::new(b"eth0"),
            begins: true,
        },
    );
    one.play("30 taken 0");
    one.see(30, other(7, "hog"));
    one.see(40, gave(7, "hog"));
    one.play("40 on 0");
    one.see(45, Kind::Stolen { cpu: 0, span: Span::from_ns(3), within: Span::from_ns(20) });
    one.play("50 complete");
    let (log, _) = one.log_text();
    let expected = "5 occupy, 10 release, 12 occupy, 12 start, 20 irqenter, 30 preempt, 30 occupy, 40 resume, \
                    45 steal, 50 complete";
    assert_eq!(log, expected);
}

/// Two workers of a dispatcher on one CPU: the log, and how many switches are missing.
fn worked(stamps: &[(u64, Event)], seen: &[(u64, Kind)]) -> (Vec<String>, u64) {
    let mut merge = Merge::of_workers(0, [Worker { cpu: 0, works: true }; 2]);
    stamps.iter().for_each(|(at, event)| merge.event(0, NS(*at), event));
    seen.iter().for_each(|(at, what)| merge.run_event(RunEvent { at: NS(*at), what: *what }));
    let mut log = Log::new();
    let missing = merge.finish(NS(1000), &mut log).missing;
    (words(&log), missing)
}

const LATER: JobKey = JobKey { task: TaskId(1), number: 0 };

fn idle() -> Kind {
    Kind::OtherIn { cpu: 0, thread: crate::Thread { pid: 0, comm: crate::Comm::NONE, prio: Some(120) } }
}

#[test]
fn a_worker_that_comes_by_a_switch_kept_back_has_the_job_that_began() {
    let stamps = [(10, Event::Start { job: JOB, cpu: 0 }), (40, Event::Complete { job: JOB, cpu: 0 })];
    let seen = [
        (5, idle()),
        (20, Kind::SwitchOut { lane: 0, cpu: 0, why: SwitchOutReason::Taken }),
        (20, idle()),
        (30, Kind::SwitchIn { lane: 0, cpu: 0 }),
    ];
    let expected = ["5 occupy", "10 start", "20 preempt", "20 occupy", "30 resume", "40 complete"];
    assert_eq!(worked(&stamps, &seen), (expected.map(str::to_owned).to_vec(), 1));
}

#[test]
fn a_worker_loses_its_cpu_where_another_one_gets_it() {
    let start = |job| Event::Start { job, cpu: 0 };
    let complete = |job| Event::Complete { job, cpu: 0 };
    let stamps = [(2, start(JOB)), (12, start(LATER)), (20, complete(LATER)), (30, complete(JOB))];
    let seen = [
        (1, Kind::SwitchIn { lane: 0, cpu: 0 }),
        // The switch from the first worker is missing.
        (10, Kind::SwitchIn { lane: 1, cpu: 0 }),
        (20, Kind::SwitchOut { lane: 1, cpu: 0, why: SwitchOutReason::Asleep }),
        (20, Kind::SwitchIn { lane: 0, cpu: 0 }),
    ];
    let expected =
        ["1 occupy", "2 start", "10 gap", "10 occupy", "12 start", "20 complete", "20 resume", "30 complete"];
    assert_eq!(worked(&stamps, &seen), (expected.map(str::to_owned).to_vec(), 1));
}
