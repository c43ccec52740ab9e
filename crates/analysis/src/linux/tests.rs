//! The fair server, nanosecond by nanosecond, against what is charged for it.

use takt_model::generate::Random;

use super::*;
use crate::brute::cases;
use crate::check::{CheckOptions, check};

/// The server of one CPU, by the rules of the kernel; what kernels differ in is drawn.
pub(crate) struct Server {
    pub(crate) q: i64,
    pub(crate) p: i64,
    pub(crate) deadline: i64,
    pub(crate) runtime: i64,
    pub(crate) state: State,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum State {
    Stopped,
    Armed,
    Running,
    Throttled,
}

impl Server {
    fn overflows(&self, now: i64) -> bool {
        self.runtime * self.p > (self.deadline - now) * self.q
    }

    pub(crate) fn begin(&mut self, now: i64) {
        (self.deadline, self.runtime) = (now + self.p, self.q);
    }

    /// Before the nanosecond at `now`; whether it runs then is for the caller to say.
    pub(crate) fn advance(&mut self, now: i64, wants: bool, random: &mut Random) {
        if !wants && matches!(self.state, State::Armed | State::Running) {
            self.state = State::Stopped;
        }
        if self.state == State::Throttled && now >= self.deadline {
            while self.runtime <= 0 {
                (self.deadline, self.runtime) = (self.deadline + self.p, self.runtime + self.q);
            }
            self.state = State::Running;
        }
        if wants && self.state == State::Stopped {
            let defers = random.between(0, 3) > 0;
            let mut direct = false;
            if now >= self.deadline {
                self.begin(now);
            } else if self.overflows(now) {
                if random.between(0, 1) == 0 {
                    self.runtime = (self.deadline - now) * self.q / self.p;
                    direct = true;
                } else {
                    self.begin(now);
                }
            }
            self.state = if direct || !defers { State::Running } else { State::Armed };
        }
        if self.state == State::Armed && now >= self.deadline - self.runtime {
            if self.overflows(now) {
                self.begin(now);
            }
            self.state = State::Running;
        }
    }
}

/// Whether jobs keep their deadlines beside such a server: (C, T, D), by priority or by deadline,
/// released at random, often as early as they may.
fn meets(tasks: &[(u64, u64, u64)], edf: bool, server: &mut Server, tick: i64, random: &mut Random) -> bool {
    let mut next: Vec<i64> = tasks.iter().map(|_| random.between(0, 12) as i64).collect();
    // (task, deadline, left)
    let mut jobs: Vec<(usize, i64, u64)> = Vec::new();
    let (mut wants, phase) = (random.between(0, 1) == 0, random.between(0, tick as u64 - 1) as i64);
    for now in 0..400 {
        for (task, (c, t, d)) in tasks.iter().enumerate() {
            if next[task] == now {
                jobs.push((task, now + *d as i64, *c));
                let late = if random.between(0, 3) == 0 { random.between(0, 5) } else { 0 };
                next[task] += (*t + late) as i64;
            }
        }
        if random.between(0, 31) == 0 {
            wants = !wants;
        }
        if server.state == State::Running && (now + phase) % tick == 0 && server.runtime <= 0 {
            server.state = State::Throttled;
        }
        server.advance(now, wants, random);
        let job = jobs.iter().enumerate().min_by_key(|(_, job)| if edf { job.1 } else { job.0 as i64 });
        let job = job.map(|(at, job)| (at, job.1));
        let serves = server.state == State::Running
            && job.is_none_or(|(_, deadline)| {
                !edf || server.deadline < deadline || server.deadline == deadline && random.between(0, 1) == 0
            });
        match job {
            _ if serves => server.runtime -= 1,
            Some((at, _)) => {
                jobs[at].2 -= 1;
                if jobs[at].2 == 0 {
                    jobs.remove(at);
                }
            }
            // In the background, or idle.
            None if server.state == State::Armed => server.runtime -= 1,
            None => {}
        }
        if server.state == State::Armed && server.runtime <= 0 {
            server.begin(now + 1);
        }
        if jobs.iter().any(|job| job.1 <= now) {
            return false;
        }
    }
    true
}

#[test]
fn nothing_that_the_fair_server_does_breaks_a_proof() {
    let cases = cases(4_000);
    let (mut proven, mut shaken) = ([0u64; 2], [0u64; 2]);
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let edf = random.between(0, 1) == 0;
        let tasks: Vec<(u64, u64, u64)> = (0..random.between(1, 3))
            .map(|_| {
                let t = random.between(12, 60);
                let c = random.between(1, 1 + t / if edf { 2 } else { 4 });
                (c, t, random.between(if edf { c.max(t - 6) } else { c }, t))
            })
            .collect();
        let tick = random.between(1, 9);
        let (q, p) = (random.between(1, 6), random.between(20, 90));
        let ns = Span::from_ns;
        let strategy = if edf { Builtin::Edf } else { Builtin::Fp };
        let named = tasks.iter().enumerate().map(|(i, (c, t, d))| Task {
            deadline: ns(*d),
            priority: Some(i as u32 + 1),
            ..Task::periodic(&format!("t{i}"), ns(*t), ns(*c))
        });
        let mut system = System::local(1, strategy, named.collect());
        system.nodes[0].costs = Some(Costs { tick_period: ns(tick), ..Costs::NONE });
        let machine = LinuxMachine { fair_server: Some((ns(q), ns(p))), ..LinuxMachine::stock(1) };
        let without = check(&system, &CheckOptions::default()).schedulable == Answer::Yes;
        let report = check(&system, &CheckOptions { linux: Some(machine), ..CheckOptions::default() });
        let yes = report.schedulable == Answer::Yes;
        assert!(without || !yes, "seed {seed}: {system:#?}");
        proven[usize::from(edf)] += u64::from(yes);
        for _ in 0..if without { 8 } else { 0 } {
            let mut server = Server { q: q as i64, p: p as i64, deadline: 0, runtime: 0, state: State::Stopped };
            let met = meets(&tasks, edf, &mut server, tick as i64, &mut random);
            assert!(met || !yes, "seed {seed}: proven, and the server ({q}, {p}), tick {tick}, breaks it: {system:#?}");
            shaken[usize::from(edf)] += u64::from(!met);
        }
    }
    if cases >= 4_000 {
        assert!(proven.iter().chain(&shaken).all(|count| *count > 100), "{proven:?} proven, {shaken:?} runs broken");
    }
}
