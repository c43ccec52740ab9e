//! Verdicts alone, for many sets: the tests of one node as functions from plain tasks to an [`Answer`], by name.
//!
//! `takt study` and the soak run use it. A set is loaded once and tested many times, without
//! allocation for sets of usual size. A yes and a no are proofs, as everywhere. So if two
//! contenders under the same strategy answer yes and no, one of them has a bug.

use takt_model::{Builtin, gcd};

use crate::edf::density;
use crate::edf::qpa::{self, EdfTask};
use crate::fp::rta::{self, FpTask};
use crate::fp::{hyperbolic, ll_bound};
use crate::global::exact::{self, Reachability, Ties};
use crate::global::{Load, Rule, Sporadic, bak, bar, bcl, bcl_iterative, da_lc, ff_dbf, gfb, rta_global, rta_lc};
use crate::verdict::Answer;

/// States that `exact` may look at for one set.
pub const STATES_MAX: usize = 200_000;

/// The strategies of contenders.
pub const STRATEGIES: [Builtin; 3] = [Builtin::Edf, Builtin::Rm, Builtin::Dm];

const EDF: &[Builtin] = &[Builtin::Edf];
const RM: &[Builtin] = &[Builtin::Rm];
const FP: &[Builtin] = &[Builtin::Rm, Builtin::Dm];
const ALL: &[Builtin] = &STRATEGIES;

/// How many CPUs a test takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cpus {
    /// One.
    One,
    /// Two or more, which every task may use.
    Several,
    /// Either.
    Any,
}

impl Cpus {
    /// Whether `m` CPUs will do.
    #[must_use]
    pub const fn takes(self, m: u32) -> bool {
        match self {
            Cpus::One => m == 1,
            Cpus::Several => m > 1,
            Cpus::Any => true,
        }
    }
}

/// A test that can be asked.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// As in the catalogue, where it stands there.
    pub name: &'static str,
    /// The strategies that it knows.
    pub strategies: &'static [Builtin],
    /// How many CPUs it takes.
    pub cpus: Cpus,
    /// Exponential: for small sets of small numbers, and only where it is asked for by name.
    pub costly: bool,
    decide: fn(&Set) -> Answer,
}

impl Contender {
    /// Its answer for a set; "unknown" if it does not apply.
    #[inline]
    pub fn decide(&self, set: &Set) -> Answer {
        if !self.cpus.takes(set.m) || !self.strategies.contains(&set.strategy) {
            return Answer::Unknown;
        }
        (self.decide)(set)
    }
}

const fn contender(
    name: &'static str,
    strategies: &'static [Builtin],
    cpus: Cpus,
    decide: fn(&Set) -> Answer,
) -> Contender {
    Contender { name, strategies, cpus, costly: false, decide }
}

/// All of them, the cheapest first.
pub const CONTENDERS: [Contender; 16] = [
    contender("ll-bound", RM, Cpus::One, |set| set.implicit(ll_bound::schedulable)),
    contender("hyperbolic", RM, Cpus::One, |set| set.implicit(hyperbolic::schedulable)),
    contender("rta", FP, Cpus::One, |set| rta::schedulable(&set.fp)),
    contender("density", EDF, Cpus::One, |set| density::schedulable(&set.triples)),
    contender("qpa", EDF, Cpus::One, |set| qpa::schedulable(&set.edf)),
    contender("gfb", EDF, Cpus::Several, |set| gfb::schedulable(&set.windows, set.m)),
    contender("bak", EDF, Cpus::Several, |set| met(bak::schedulable(&set.sporadic, set.m))),
    contender("bcl", ALL, Cpus::Several, |set| met(bcl::schedulable(&set.sporadic, set.m, set.rule()))),
    contender("bcl-iterative", ALL, Cpus::Several, |set| {
        met(bcl_iterative::schedulable(&set.sporadic, set.m, set.rule()))
    }),
    contender("da-lc", FP, Cpus::Several, |set| met(da_lc::schedulable(&set.sporadic, set.m))),
    contender("rta-global", ALL, Cpus::Several, |set| met(rta_global::schedulable(&set.sporadic, set.m, set.rule()))),
    contender("rta-lc", FP, Cpus::Several, |set| met(rta_lc::schedulable(&set.sporadic, set.m))),
    contender("bar", EDF, Cpus::Several, |set| met(bar::schedulable(&set.sporadic, set.m))),
    contender("ff-dbf", EDF, Cpus::Several, |set| met(ff_dbf::schedulable(&set.sporadic, set.m))),
    contender("any", ALL, Cpus::Any, any),
    Contender { name: "exact", strategies: ALL, cpus: Cpus::Any, costly: true, decide: search },
];

/// The contender of that name.
#[must_use]
pub fn contender_by_name(name: &str) -> Option<&'static Contender> {
    const LIST: &[Contender] = &CONTENDERS;
    LIST.iter().find(|contender| contender.name == name)
}

/// A theorem: if `weak` says yes, so does `strong`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dominance {
    /// Under these strategies.
    pub strategies: &'static [Builtin],
    /// Accepts less.
    pub weak: &'static str,
    /// Accepts all of that.
    pub strong: &'static str,
    /// The source of the proof.
    pub source: &'static str,
}

const fn dominates(
    strategies: &'static [Builtin],
    weak: &'static str,
    strong: &'static str,
    source: &'static str,
) -> Dominance {
    Dominance { strategies, weak, strong, source }
}

/// The dominance relations that are theorems. (That `bak` accepts what `gfb` does is none: neither
/// dominates the other.)
pub const THEOREMS: [Dominance; 9] = [
    dominates(RM, "ll-bound", "hyperbolic", "E. Bini, G. C. Buttazzo, G. M. Buttazzo, IEEE TC 52(7), 2003, Section 3"),
    dominates(RM, "hyperbolic", "rta", "rta is exact: N. C. Audsley et al., SEJ 8(5), 1993"),
    dominates(EDF, "density", "qpa", "qpa is exact: F. Zhang, A. Burns, IEEE TC 58(9), 2009"),
    dominates(ALL, "bcl", "bcl-iterative", "its first round: M. Bertogna, M. Cirinei, G. Lipari, TPDS 20(4), 2009"),
    dominates(ALL, "bcl-iterative", "rta-global", "M. Bertogna, M. Cirinei, RTSS 2007; global/rta_global.rs"),
    dominates(EDF, "gfb", "ff-dbf", "S. Baruah et al., RTS 46(1), 2010, Section 4; global/ff_dbf.rs"),
    dominates(FP, "rta-global", "rta-lc", "N. Guan et al., RTSS 2009; global/rta_lc.rs"),
    dominates(FP, "bcl", "da-lc", "R. Davis, A. Burns, RTS 47, 2011, Section 4; global/da_lc.rs"),
    dominates(FP, "da-lc", "rta-lc", "R. Davis, A. Burns, RTS 47, 2011, Section 4; global/da_lc.rs"),
];

/// A set of sporadic tasks as the contenders take it: preemptive, without jitter, blocking and costs.
#[derive(Clone, Debug)]
pub struct Set {
    m: u32,
    strategy: Builtin,
    /// No deadline before the period.
    late: bool,
    /// (C, T).
    pairs: Vec<(u64, u64)>,
    /// (C, min(D, T)).
    windows: Vec<(u64, u64)>,
    /// (C, D, T).
    triples: Vec<(u64, u64, u64)>,
    fp: Vec<FpTask>,
    edf: Vec<EdfTask>,
    sporadic: Vec<Sporadic>,
}

impl Default for Set {
    fn default() -> Self {
        Set {
            m: 1,
            strategy: Builtin::Edf,
            late: true,
            pairs: Vec::new(),
            windows: Vec::new(),
            triples: Vec::new(),
            fp: Vec::new(),
            edf: Vec::new(),
            sporadic: Vec::new(),
        }
    }
}

impl Set {
    /// Takes tasks of (C, D, T) in ns, each at least 1, on `m` CPUs under `edf`, `rm` or `dm` (any
    /// other counts as `dm`). Tasks that are equally urgent are more important in the order in
    /// which they are given.
    pub fn load(&mut self, tasks: impl IntoIterator<Item = (u64, u64, u64)>, m: u32, strategy: Builtin) {
        self.m = m;
        self.strategy = if STRATEGIES.contains(&strategy) { strategy } else { Builtin::Dm };
        self.triples.clear();
        self.triples.extend(tasks);
        match self.strategy {
            Builtin::Rm => self.triples.sort_by_key(|&(_, d, t)| (t, d)),
            _ => self.triples.sort_by_key(|&(_, d, t)| (d, t)),
        }
        self.late = self.triples.iter().all(|&(_, d, t)| d >= t);
        self.pairs.clear();
        self.windows.clear();
        self.fp.clear();
        self.edf.clear();
        self.sporadic.clear();
        for (level, &(c, d, t)) in self.triples.iter().enumerate() {
            self.pairs.push((c, t));
            self.windows.push((c, d.min(t)));
            self.fp.push(FpTask { c, t, d, level: level as u32, ..FpTask::default() });
            self.edf.push(EdfTask { c, t, d, ..EdfTask::default() });
            self.sporadic.push(Sporadic { c, d, t, level: level as u32, ..Sporadic::default() });
        }
    }

    /// The tasks, (C, D, T), the most important first under fixed priorities.
    #[must_use]
    pub fn tasks(&self) -> &[(u64, u64, u64)] {
        &self.triples
    }

    fn rule(&self) -> Rule {
        if self.strategy == Builtin::Edf { Rule::Edf } else { Rule::Fp }
    }

    fn implicit(&self, test: fn(&[(u64, u64)]) -> Answer) -> Answer {
        if self.late { test(&self.pairs) } else { Answer::Unknown }
    }
}

fn met(load: Load) -> Answer {
    if load.is_met() { Answer::Yes } else { Answer::Unknown }
}

/// The first yes or no of all that are not costly.
fn any(set: &Set) -> Answer {
    let others = CONTENDERS.iter().filter(|other| other.name != "any" && !other.costly);
    others.map(|other| other.decide(set)).find(|answer| *answer != Answer::Unknown).unwrap_or(Answer::Unknown)
}

/// Reachability. Times are divided by their common factor. A miss is a miss of the real set. The
/// absence of a miss is only proven if the factor is 1.
fn search(set: &Set) -> Answer {
    let grain = set.triples.iter().fold(0, |grain, &(c, d, t)| gcd(gcd(grain, c), gcd(d, t))).max(1);
    let divided: Vec<Sporadic> = (set.sporadic.iter())
        .map(|task| Sporadic { c: task.c / grain, d: task.d / grain, t: task.t / grain, ..*task })
        .collect();
    match exact::sporadic(&divided, set.m, set.rule(), Ties::Any, STATES_MAX) {
        Reachability::Safe { .. } if grain == 1 => Answer::Yes,
        Reachability::Miss { .. } => Answer::No,
        _ => Answer::Unknown,
    }
}
