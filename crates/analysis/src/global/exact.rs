//! `exact`: small sets by exhausting the states that they can reach.
//!
//! T. P. Baker, M. Cirinei: Brute-Force Determination of Multiprocessor Schedulability for Sets of
//! Sporadic Hard-Deadline Tasks, OPODIS 2007. Whether sporadic tasks can miss a deadline is a
//! question of reachability. The state holds, per task, the execution left and the time since the
//! arrival. Every job executes for its C: under a fixed order of jobs, shorter jobs cause no
//! further miss (R. Ha, J. Liu: Validating Timing Constraints in Multiprocessor and Distributed
//! Real-Time Systems, ICDCS 1994).
//!
//! Time is counted in whole units, and so are arrivals: for times in ns the verdict is exact. A set
//! with all times divided by a common factor is *another* set. Its arrivals fall on multiples of
//! the factor only, and no theorem says that these are the worst on several CPUs. A miss of the
//! divided set is a miss of the real set; a yes does not carry over.
//!
//! # Periodic tasks
//! [`periodic`] answers another question: whether tasks that arrive exactly at their offsets and
//! every T from there miss. This is a single schedule. From the largest offset on arrivals repeat
//! every hyperperiod. If the same work is left at the start of two hyperperiods, the schedule
//! repeats (L. Cucu, J. Goossens: Feasibility Intervals for Multiprocessor Fixed-Priority
//! Scheduling of Arbitrary Deadline Periodic Systems, DATE 2007). It says nothing of other offsets.

use takt_model::gcd;

use super::{Rule, Sporadic, TIME_MAX};

/// Order of jobs that the rule leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ties {
    /// Any: every choice is tried, at every instant anew.
    Any,
    /// The earlier nominal arrival, then the earlier task: what takt does. Needs tasks without jitter.
    Takt,
}

/// The result of the search.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Reachability {
    /// No state that can be reached misses a deadline.
    Safe {
        /// How many states there are.
        states: usize,
    },
    /// A job of `task` cannot complete by its deadline.
    Miss {
        /// Its task.
        task: usize,
        /// The arrivals that lead there, in order: (time, task). Jitter is not told.
        arrivals: Vec<(u64, usize)>,
    },
    /// More states than the limit, or than the representation holds; or a set that is not covered.
    Undecided,
}

/// The most tasks that the search takes.
const TASKS_MAX: usize = 12;

/// Whether sporadic tasks with C <= D - J and D <= T can miss a deadline on `m` CPUs. The search visits at most
/// `states_max` states.
pub fn sporadic(tasks: &[Sporadic], m: u32, rule: Rule, ties: Ties, states_max: usize) -> Reachability {
    let limits: Vec<u64> = tasks.iter().map(|task| task.d).collect();
    respond(tasks, &limits, m, rule, ties, states_max)
}

/// Whether a job can respond later than its task's limit, one of at most D per task: [`Reachability::Miss`] if so.
pub fn respond(tasks: &[Sporadic], limits: &[u64], m: u32, rule: Rule, ties: Ties, states_max: usize) -> Reachability {
    let covered = |(task, limit): (&Sporadic, &u64)| {
        let fits = *limit <= task.d && task.d <= task.t && task.t > 0 && task.t < 1 << 32 && task.c < 1 << 32;
        fits && (task.j == 0 || ties == Ties::Any)
    };
    if tasks.len() > TASKS_MAX || tasks.len() != limits.len() || !tasks.iter().zip(limits).all(covered) {
        return Reachability::Undecided;
    }
    let hopeless = |(task, limit): (&Sporadic, &u64)| task.c > limit.saturating_sub(task.j);
    if let Some(task) = tasks.iter().zip(limits).position(hopeless) {
        return Reachability::Miss { task, arrivals: vec![(0, task)] };
    }
    if uncovered(tasks).is_some() {
        return Reachability::Undecided;
    }
    Search { tasks, limits, m: m as usize, rule, ties, states_max, seen: VisitedStates::new(), missed: None }.run()
}

/// Why the search cannot take these tasks, whose times fit.
pub(crate) fn uncovered(tasks: &[Sporadic]) -> Option<String> {
    if tasks.len() > TASKS_MAX {
        return Some(format!("the search takes at most {TASKS_MAX} tasks, here are {}", tasks.len()));
    }
    if tasks.iter().any(|task| task.t.max(task.c) >= 1 << 32) {
        return Some("a period has more than 2^32 steps of the grid".to_owned());
    }
    let radix = tasks.iter().try_fold(1u128, |all, task| all.checked_mul(state_count(task)));
    radix.is_none().then(|| "their states are too many to be told apart in 128 bits".to_owned())
}

/// The result of following one schedule of periodic tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Schedule {
    /// Every deadline is kept; from `repeats` on it repeats.
    Met {
        /// An instant, in ns.
        repeats: u64,
    },
    /// A job misses.
    Missed {
        /// Its task.
        task: usize,
        /// When it arrived, in ns.
        arrival: u64,
    },
    /// The limit was reached before the schedule repeated; or a set that is not covered.
    Undecided,
}

/// Follows the schedule on `m` CPUs, with takt's tie-breaks, for at most `jobs_max` jobs. The tasks
/// have no jitter and D <= T, and arrive at their offsets and every T from there.
pub fn periodic(tasks: &[Sporadic], offsets: &[u64], m: u32, rule: Rule, jobs_max: usize) -> Schedule {
    periodic_seen(tasks, offsets, m, rule, jobs_max, |_, _, _, _| {})
}

/// [`periodic`] that calls `observe` when a job completes or misses, with its task, its arrival, the
/// time and the execution left.
pub fn periodic_seen(
    tasks: &[Sporadic],
    offsets: &[u64],
    m: u32,
    rule: Rule,
    jobs_max: usize,
    mut observe: impl FnMut(usize, u64, u64, u64),
) -> Schedule {
    let covered = |task: &Sporadic| task.j == 0 && task.d <= task.t && task.t > 0 && task.t <= TIME_MAX;
    if tasks.len() != offsets.len() || !tasks.iter().all(covered) || offsets.iter().any(|offset| *offset > TIME_MAX) {
        return Schedule::Undecided;
    }
    // If it does not fit, the schedule is only followed to a miss.
    let hyperperiod = tasks.iter().try_fold(1u64, |all, task| (all / gcd(all, task.t)).checked_mul(task.t));
    let mut snapshot: Option<Vec<u64>> = None;
    let mut boundary = offsets.iter().copied().max().unwrap_or(0);
    let mut next = offsets.to_vec();
    let (mut arrival, mut left) = (vec![0u64; tasks.len()], vec![0u64; tasks.len()]);
    let (mut now, mut jobs) = (0u64, 0usize);
    let mut ready: Vec<usize> = Vec::with_capacity(tasks.len());
    loop {
        if now == boundary {
            if snapshot.as_ref() == Some(&left) {
                return Schedule::Met { repeats: boundary - hyperperiod.unwrap_or(0) };
            }
            snapshot = Some(left.clone());
            boundary = hyperperiod.and_then(|hyperperiod| boundary.checked_add(hyperperiod)).unwrap_or(u64::MAX);
        }
        for (i, task) in tasks.iter().enumerate().filter(|(i, _)| next[*i] == now).collect::<Vec<_>>() {
            (arrival[i], left[i]) = (now, task.c);
            next[i] = match now.checked_add(task.t) {
                Some(next) if jobs < jobs_max => next,
                _ => return Schedule::Undecided,
            };
            jobs += 1;
        }
        ready.clear();
        ready.extend((0..tasks.len()).filter(|i| left[*i] > 0));
        let key = |i: usize| match rule {
            Rule::Edf => arrival[i] + tasks[i].d,
            Rule::Fp => u64::from(tasks[i].level),
        };
        ready.sort_unstable_by_key(|i| (key(*i), arrival[*i], *i));
        let running = &ready[..ready.len().min(m as usize)];
        let completes = running.iter().map(|i| now.saturating_add(left[*i])).min();
        let Some(then) = next.iter().copied().chain(completes).chain([boundary]).min() else {
            return Schedule::Met { repeats: 0 };
        };
        for i in running {
            left[*i] -= then - now;
            if left[*i] == 0 {
                observe(*i, arrival[*i], then, 0);
            }
        }
        let deadline = |i: usize| arrival[i] + tasks[i].d;
        let late = ready.iter().filter(|i| then > deadline(**i) || (then == deadline(**i) && left[**i] > 0));
        if let Some(task) = late.min_by_key(|i| deadline(**i)) {
            observe(*task, arrival[*task], then, left[*task]);
            return Schedule::Missed { task: *task, arrival: arrival[*task] };
        }
        now = then;
    }
}

/// How many states one task has: its execution left (C + 1: arrived, not yet released) times the time since its arrival
/// (T: or longer).
fn state_count(task: &Sporadic) -> u128 {
    u128::from(task.c + 2) * u128::from(task.t + 1)
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    /// Execution left. C + 1: arrived, not yet released.
    left: u64,
    /// Time since the last arrival, at most T.
    since: u64,
}

type State = [TaskState; TASKS_MAX];

/// The states seen, and a hash table over them.
struct VisitedStates {
    /// Each with the index of its predecessor.
    states: Vec<(u128, u32)>,
    /// Indices of states, [`EMPTY`] where there is none.
    table: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl VisitedStates {
    fn new() -> VisitedStates {
        VisitedStates { states: Vec::new(), table: vec![EMPTY; 1 << 10] }
    }

    fn slot(table: &[u32], states: &[(u128, u32)], state: u128) -> usize {
        let mixed = (state as u64 ^ (state >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut at = (mixed >> 20) as usize & (table.len() - 1);
        while table[at] != EMPTY && states[table[at] as usize].0 != state {
            at = (at + 1) & (table.len() - 1);
        }
        at
    }

    fn insert(&mut self, state: u128, from: u32) {
        let at = Self::slot(&self.table, &self.states, state);
        if self.table[at] != EMPTY {
            return;
        }
        self.table[at] = self.states.len() as u32;
        self.states.push((state, from));
        if self.states.len() * 2 > self.table.len() {
            let mut table = vec![EMPTY; self.table.len() * 2];
            for (i, (state, _)) in self.states.iter().enumerate() {
                let at = Self::slot(&table, &self.states, *state);
                table[at] = i as u32;
            }
            self.table = table;
        }
    }
}

struct Search<'a> {
    tasks: &'a [Sporadic],
    limits: &'a [u64],
    m: usize,
    rule: Rule,
    ties: Ties,
    states_max: usize,
    seen: VisitedStates,
    /// The task that misses, the last state without a certain miss, and the state one unit later.
    missed: Option<(usize, u32, State)>,
}

impl Search<'_> {
    fn run(mut self) -> Reachability {
        let mut start = State::default();
        for (part, task) in start.iter_mut().zip(self.tasks) {
            part.since = task.t;
        }
        self.seen.insert(self.pack(&start), EMPTY);
        let mut next = 0;
        // Breadth first: the shortest way to a miss.
        while next < self.seen.states.len() {
            if self.seen.states.len() > self.states_max.min(EMPTY as usize / 2) {
                return Reachability::Undecided;
            }
            let state = self.unpack(self.seen.states[next].0);
            self.choose(state, 0, next as u32);
            if let Some((task, from, state)) = self.missed {
                return Reachability::Miss { task, arrivals: self.arrivals(from, &state) };
            }
            next += 1;
        }
        Reachability::Safe { states: self.seen.states.len() }
    }

    /// Tries every choice of arrivals and releases from task `i` on.
    fn choose(&mut self, state: State, i: usize, from: u32) {
        let Some(task) = self.tasks.get(i) else { return self.dispatch(&state, from) };
        let (c, j, t) = (task.c, task.j, task.t);
        let part = state[i];
        let mut with = |left, since| {
            let mut state = state;
            state[i] = TaskState { left, since };
            self.choose(state, i + 1, from);
        };
        if part.left == c + 1 {
            with(c, part.since);
            if part.since < j {
                with(c + 1, part.since);
            }
        } else {
            with(part.left, part.since);
            if part.left == 0 && part.since == t {
                with(c, 0);
                if j > 0 {
                    with(c + 1, 0);
                }
            }
        }
    }

    /// Runs one unit, for every choice of jobs that ties allow.
    fn dispatch(&mut self, state: &State, from: u32) {
        let key = |i: usize| match self.rule {
            Rule::Edf => self.tasks[i].d - state[i].since,
            Rule::Fp => u64::from(self.tasks[i].level),
        };
        let mut ready = [0usize; TASKS_MAX];
        let mut count = 0;
        for (i, task) in self.tasks.iter().enumerate() {
            if state[i].left > 0 && state[i].left <= task.c {
                ready[count] = i;
                count += 1;
            }
        }
        let ready = &mut ready[..count];
        ready.sort_unstable_by_key(|i| (key(*i), u64::MAX - state[*i].since, *i));
        if count <= self.m || self.ties == Ties::Takt {
            let run = ready.iter().take(self.m).fold(0u32, |run, i| run | 1 << i);
            return self.advance(state, run, from);
        }
        let last = key(ready[self.m - 1]);
        let sure = ready.iter().filter(|i| key(**i) < last).fold(0u32, |run, i| run | 1 << i);
        let tied = ready.iter().filter(|i| key(**i) == last).fold(0u32, |tied, i| tied | 1 << i);
        let wanted = self.m as u32 - sure.count_ones();
        // All subsets of `tied`.
        let mut some = tied;
        loop {
            if some.count_ones() == wanted {
                self.advance(state, sure | some, from);
            }
            if some == 0 {
                return;
            }
            some = (some - 1) & tied;
        }
    }

    /// Runs the jobs of `run`, a set of task bits, for one unit of time.
    fn advance(&mut self, state: &State, run: u32, from: u32) {
        let mut next = *state;
        for (i, (task, limit)) in self.tasks.iter().zip(self.limits).enumerate() {
            let part = &mut next[i];
            part.since = (part.since + 1).min(task.t);
            part.left -= u64::from(run >> i & 1);
            if part.left > 0 && part.left <= task.c && part.left > limit.saturating_sub(part.since) {
                self.missed.get_or_insert((i, from, *state));
                return;
            }
        }
        let packed = self.pack(&next);
        self.seen.insert(packed, from);
    }

    fn pack(&self, state: &State) -> u128 {
        self.tasks.iter().zip(state).fold(0, |packed, (task, part)| {
            packed * state_count(task) + u128::from(part.left) * u128::from(task.t + 1) + u128::from(part.since)
        })
    }

    fn unpack(&self, mut packed: u128) -> State {
        let mut state = State::default();
        for (i, task) in self.tasks.iter().enumerate().rev() {
            let own = packed % state_count(task);
            packed /= state_count(task);
            let width = u128::from(task.t + 1);
            state[i] = TaskState { left: (own / width) as u64, since: (own % width) as u64 };
        }
        state
    }

    /// The arrivals on the way to a state in which the unit after `from` begins.
    fn arrivals(&self, from: u32, last: &State) -> Vec<(u64, usize)> {
        let mut way = Vec::new();
        let mut at = from;
        while at != EMPTY {
            way.push(at);
            at = self.seen.states[at as usize].1;
        }
        way.reverse();
        let mut arrivals = Vec::new();
        // A state describes the instant one unit after its arrivals. The last state describes the
        // instant before the unit.
        for (time, at) in way.iter().enumerate().skip(1) {
            let state = self.unpack(self.seen.states[*at as usize].0);
            let new = (0..self.tasks.len()).filter(|i| state[*i].since == 1.min(self.tasks[*i].t));
            let fresh = |i: &usize| self.tasks[*i].t > 1 || state[*i].left > 0;
            arrivals.extend(new.filter(fresh).map(|i| (time as u64 - 1, i)));
        }
        let time = way.len() as u64 - 1;
        arrivals.extend((0..self.tasks.len()).filter(|i| last[*i].since == 0).map(|i| (time, i)));
        arrivals
    }
}
