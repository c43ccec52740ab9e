//! The catalogue of tests: name, decision, preconditions, cost and source of each.

use serde::Serialize;
use takt_model::named;

macro_rules! tests {
    ($($(#[$doc:meta])* $id:ident => { $name:literal, $kind:ident, $decides:literal, $preconditions:literal,
    $cost:literal, $source:literal })*) => {
        /// A test of the catalogue.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum TestId { $($(#[$doc])* $id),* }

        static CATALOGUE: &[TestInfo] = &[$(TestInfo {
            id: TestId::$id, name: $name, kind: Kind::$kind, decides: $decides,
            preconditions: $preconditions, cost: $cost, source: $source,
        }),*];
    };
}

tests! {
    /// Conditions that no scheduler gets around.
    Necessary => { "necessary", Necessary,
        "Finds what no scheduler can do: jitter + wcet > deadline, or more work than the CPUs have time.",
        "none", "O(n)", "by definition" }
    /// Parts that this version does not analyse.
    Unsupported => { "unsupported", Necessary,
        "Names the parts of a system that this version does not analyse.",
        "none", "O(1)", "-" }
    /// Liu and Layland's utilisation bound.
    LlBound => { "ll-bound", Sufficient,
        "U <= n (2^(1/n) - 1) under rate monotonic.",
        "one CPU, rm (or fixed priorities in rate order), deadline >= period, no jitter, no blocking, preemptive",
        "O(n) exact integer arithmetic",
        "C. L. Liu, J. W. Layland: Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment, \
         JACM 20(1), 1973, Theorem 5" }
    /// Bini's hyperbolic bound.
    Hyperbolic => { "hyperbolic", Sufficient,
        "prod (U_i + 1) <= 2 under rate monotonic; accepts all that ll-bound accepts.",
        "one CPU, rm (or fixed priorities in rate order), deadline >= period, no jitter, no blocking, preemptive",
        "O(n)",
        "E. Bini, G. C. Buttazzo, G. M. Buttazzo: Rate Monotonic Analysis: The Hyperbolic Bound, IEEE TC 52(7), \
         2003, Theorem 1" }
    /// Response-time analysis.
    Rta => { "rta", Exact,
        "Bounds response times of levels on one CPU, by the busy window: first come first served, by deadline \
         or by laxity within a level, preemptive or not; exact for sporadic tasks on distinct levels without \
         jitter, blocking, costs or chains.",
        "one CPU, no late job demoted",
        "pseudo-polynomial, O(n) terms per round",
        "N. C. Audsley et al.: Applying New Scheduling Theory to Static Priority Pre-emptive Scheduling, SEJ \
         8(5), 1993; K. Tindell, A. Burns, A. J. Wellings: An Extendible Approach for Analysing Fixed Priority \
         Hard Real-Time Tasks, RTS 6, 1994; within levels after M. Spuri 1996; chains: K. Tindell, J. Clark: \
         Holistic Schedulability Analysis, 1994" }
    /// Density on one CPU under EDF.
    Density => { "density", Sufficient,
        "sum C_i / min(D_i, T_i) <= 1 under EDF.",
        "one CPU, one preemptive deadline level, no blocking",
        "O(n) exact rationals",
        "J. W. S. Liu: Real-Time Systems, 2000, Theorem 6.2" }
    /// Quick processor-demand analysis.
    Qpa => { "qpa", Exact,
        "h(t) <= t for every t: the processor demand under EDF; exact for sporadic tasks without blocking or costs.",
        "one CPU, one preemptive deadline level without shifts; any deadlines",
        "pseudo-polynomial for U < 1, a handful of O(n) rounds in practice",
        "F. Zhang, A. Burns: Schedulability Analysis for Real-Time Systems with EDF Scheduling, IEEE TC 58(9), \
         2009, Theorems 4-5; blocking: S. Baruah 2006" }
    /// Worst-case response times under EDF.
    EdfWcrt => { "edf-wcrt", Exact,
        "Bounds response times of one level that goes by deadline (shifted, or not preemptive, too); exact for \
         sporadic tasks under preemptive EDF without jitter, blocking or costs.",
        "one CPU, one deadline level, no late job demoted",
        "pseudo-polynomial: the deadlines of the busy period, most of them skipped, O(n) terms each",
        "M. Spuri: Analysis of Deadline Scheduled Real-Time Systems, INRIA RR-2772, 1996, Section 4; skipping \
         after N. Guan, W. Yi: General and Efficient Response Time Analysis for EDF Scheduling, DATE 2014; not \
         preemptive: L. George, N. Rivierre, M. Spuri, INRIA RR-2966, 1996" }
    /// Demand of EDF without preemption.
    NpEdf => { "np-edf", Exact,
        "h(t) + max { C_j - 1 : D_j > t } <= t for every t: EDF where a started job runs to its end; exact for \
         sporadic tasks without jitter, blocking or costs.",
        "one CPU, one non-preemptive deadline level without shifts; any deadlines",
        "pseudo-polynomial, as qpa between every two deadlines",
        "K. Jeffay, D. Stanat, C. Martel: On Non-Preemptive Scheduling of Periodic and Sporadic Tasks, RTSS \
         1991; L. George, N. Rivierre, M. Spuri, INRIA RR-2966, 1996, Theorem 7" }
    /// The schedule of strictly periodic tasks.
    Offsets => { "offsets", Exact,
        "Builds the schedule of strictly periodic tasks with their offsets until it repeats; exact, responses and all.",
        "one CPU, periodic arrivals without jitter, levels fifo or by deadline and preemptive, no costs, \
         blocking or chains",
        "the jobs of a few hyperperiods, 200,000 at most, O(log n) each",
        "J. Y.-T. Leung, M. Merrill: A Note on Preemptive Scheduling of Periodic, Real-Time Tasks, IPL 11(3), \
         1980; R. Ha, J. W. S. Liu, ICDCS 1994" }
    /// Audsley's priority assignment.
    Opa => { "opa", Exact,
        "Finds priorities under which every deadline is met, or shows that there are none; the figure \
         \"priorities\" holds them. It decides nothing about the given priorities.",
        "one CPU, all levels fifo, no chains, no sections that nothing preempts",
        "O(n^2) response-time analyses",
        "N. C. Audsley: On Priority Assignment in Fixed Priority Scheduling, IPL 79(1), 2001" }
    /// Goossens, Funk and Baruah's density bound.
    Gfb => { "gfb", Sufficient,
        "sum delta_i <= m - (m - 1) delta_max under global EDF, delta = C / min(D, T).",
        "m CPUs that every task may use, one preemptive deadline level without shifts, no blocking",
        "O(n) exact rationals",
        "J. Goossens, S. Funk, S. Baruah: Priority-Driven Scheduling of Periodic Task Systems on \
         Multiprocessors, RTS 25, 2003, Theorem 5; density form: M. Bertogna, M. Cirinei, G. Lipari 2005" }
    /// Baker's test.
    Bak => { "bak", Sufficient,
        "Bounds the load of the busy interval before a miss, under global EDF.",
        "several CPUs that every task may use, one preemptive deadline level without shifts, deadline <= \
         period, no blocking",
        "O(n^2) exact rationals",
        "T. P. Baker: Multiprocessor EDF and Deadline Monotonic Schedulability Analysis, RTSS 2003, Theorem 12" }
    /// Bertogna, Cirinei and Lipari's test.
    Bcl => { "bcl", Sufficient,
        "Bounds what others execute between a job's release and its deadline, under global EDF or global fixed \
         priorities.",
        "several CPUs that every task may use, edf or all levels fifo, no blocking; deadline <= period under edf, \
         and a longer one is cut to the period under fixed priorities",
        "O(n^2)",
        "M. Bertogna, M. Cirinei, G. Lipari: Improved Schedulability Analysis of EDF on Multiprocessor \
         Platforms, ECRTS 2005, Theorem 7; fixed priorities: OPODIS 2005" }
    /// The same with slack fed back.
    BclIterative => { "bcl-iterative", Sufficient,
        "bcl with feedback: each round uses the slack that the round before proved; accepts every set that bcl \
         accepts, and bounds response times.",
        "several CPUs that every task may use, edf or all levels fifo, no blocking; deadline <= period under edf, \
         and a longer one is cut to the period under fixed priorities",
        "O(n^2) a round, mostly a handful of rounds",
        "M. Bertogna, M. Cirinei, G. Lipari: Schedulability Analysis of Global Scheduling Algorithms on \
         Multiprocessor Platforms, TPDS 20(4), 2009, Theorems 6 and 9" }
    /// Deadline analysis with limited carry-in.
    DaLc => { "da-lc", Sufficient,
        "Bounds what more important tasks execute between a job's release and its deadline, when fewer than m \
         of them bring work in, under global fixed priorities; accepts all that bcl accepts.",
        "several CPUs that every task may use, all levels fifo, no blocking; a deadline above the period is cut to it",
        "O(n^2)",
        "R. I. Davis, A. Burns: Improved Priority Assignment for Global Fixed Priority Pre-emptive Scheduling \
         in Multiprocessor Real-Time Systems, RTS 47, 2011, Section 4" }
    /// Response-time analysis of several CPUs.
    RtaGlobal => { "rta-global", Sufficient,
        "Bounds response times under global EDF or global fixed priorities; accepts all that bcl-iterative accepts.",
        "several CPUs that every task may use, edf or all levels fifo, no blocking; under fixed priorities a deadline \
         above the period is cut to it",
        "pseudo-polynomial, O(n^2) terms per round",
        "M. Bertogna, M. Cirinei: Response-Time Analysis for Globally Scheduled Symmetric Multiprocessor \
         Platforms, RTSS 2007, Theorems 5 to 7" }
    /// Response-time analysis with limited carry-in.
    RtaLc => { "rta-lc", Sufficient,
        "Bounds response times when fewer than m more important tasks bring work in, under global fixed \
         priorities; accepts all that rta-global and da-lc accept.",
        "several CPUs that every task may use, all levels fifo, no blocking; a deadline above the period is cut to it",
        "pseudo-polynomial, O(n^2) terms per round",
        "N. Guan, M. Stigge, W. Yi, G. Yu: New Response Time Bounds for Fixed Priority Multiprocessor \
         Scheduling, RTSS 2009, Theorem 2" }
    /// Baruah's test.
    Bar => { "bar", Sufficient,
        "Bounds the work between the last instant with an idle CPU and a miss, when fewer than m tasks bring \
         work in, under global EDF.",
        "several CPUs that every task may use, one preemptive deadline level without shifts, deadline <= \
         period, no blocking, U < m",
        "pseudo-polynomial, a handful of O(n) points a task in practice",
        "S. Baruah: Techniques for Multiprocessor Global Schedulability Analysis, RTSS 2007, Theorem 2; here \
         with a sound cut-off" }
    /// Forced-forward demand.
    FfDbf => { "ff-dbf", Sufficient,
        "Compares the demand of jobs that run at some speed sigma from their release with the least work of m CPUs, \
         under global EDF; accepts every set that gfb accepts.",
        "several CPUs that every task may use, one preemptive deadline level without shifts, deadline <= \
         period, no blocking",
        "pseudo-polynomial, a handful of O(n) points for each sigma in practice",
        "S. Baruah, V. Bonifaci, A. Marchetti-Spaccamela, S. Stiller: Improved Multiprocessor Global \
         Schedulability Analysis, RTS 46(1), 2010, Theorem 5" }
    /// Exhaustive search.
    Exact => { "exact", Exact,
        "Follows the schedule of periodic tasks from their offsets until it repeats; searches all states of small \
         sporadic sets, with arrivals on the grid of their times, for a miss; no miss is a proof for these only on \
         a grid of 1 ns.",
        "edf or all levels fifo, tasks without jitter, blocking, costs or predecessors, deadline <= period",
        "100,000 jobs or 20,000 states at most; states are searched only when asked (--test exact, --all)",
        "T. P. Baker, M. Cirinei: Brute-Force Determination of Multiprocessor Schedulability for Sets of \
         Sporadic Hard-Deadline Tasks, OPODIS 2007; L. Cucu, J. Goossens 2007" }
    /// Devi and Anderson's tardiness bound.
    TardinessDa => { "tardiness-da", Sufficient,
        "Bounds response times under global EDF, whether or not deadlines are kept.",
        "several CPUs that every task may use, one preemptive deadline level without shifts, late jobs continue, \
         deadline = period, U <= m, no jitter, blocking or predecessors",
        "O(n log n)",
        "U. Devi, J. Anderson: Tardiness Bounds under Global EDF Scheduling on a Multiprocessor, RTS 38, 2008, \
         Theorem 2" }
    /// Compliant vectors.
    TardinessCva => { "tardiness-cva", Sufficient,
        "Bounds response times under global EDF and gel (G-FL too), whether or not deadlines are kept.",
        "several CPUs that every task may use, one preemptive deadline or gel level, late jobs continue, \
         any deadlines, U <= m, no jitter, blocking or predecessors",
        "a fixed point, O(n log n) a round",
        "J. Erickson, J. Anderson, B. Ward: Fair Lateness Scheduling: Reducing Maximum Lateness in G-EDF-like \
         Scheduling, RTS 50, 2014; J. Erickson, U. Devi, S. Baruah, ECRTS 2010" }
    /// Partitioning by fit, with a real test per bin.
    Partition => { "partition", Sufficient,
        "Finds a placement in which every CPU (or cluster) passes a test. On one CPU: qpa for EDF, edf-wcrt for other \
         deadline levels, else rta. On a cluster: gfb, bcl-iterative or ff-dbf for EDF, rta-lc or bcl-iterative for \
         fixed priorities. By first, best, worst or next fit, decreasing utilisation, or by an integer program.",
        "partitioned or clustered node",
        "O(n m) tests",
        "S. Dhall, C. L. Liu 1978; D. Oh, S. Son 1995; J. Lopez et al.: Utilization Bounds for EDF Scheduling \
         on Real-Time Multiprocessor Systems, RTS 28, 2004" }
    /// A task alone in a constant-bandwidth server.
    Cbs => { "cbs", Sufficient,
        "Bounds the response, and the jobs pending, of one task alone in a constant-bandwidth server, hard or soft.",
        "a component with one task and a server cbs or cbs-hard with a period and a budget, under edf on one CPU",
        "O(Q / gcd(C, Q)), at most 10^6 jobs, then a bound in closed form",
        "L. Abeni, G. Buttazzo: Integrating Multimedia Applications in Hard Real-Time Systems, RTSS 1998; N. \
         Manica et al.: Schedulable Device Drivers, OSPERT 2010, Section II, whose Eq. 2 is not sound" }
    /// Components under the supply that their servers guarantee.
    Prm => { "prm", Sufficient,
        "Deadlines of a component's tasks and inner servers under the least supply of its server: sbf(t) \
         against the requests (fixed priorities) or the demand (EDF); bounds response times under fixed priorities.",
        "a component with a period and a budget, fixed priorities or edf in it, a server rule that guarantees a \
         supply there",
        "pseudo-polynomial",
        "I. Shin, I. Lee: Periodic Resource Model for Compositional Real-Time Guarantees, RTSS 2003; J. Lee et \
         al.: Realizing Compositional Scheduling through Virtualization, RTAS 2012, Eq. 1, Lemma 1" }
    /// Components under budgets that come before the period's end.
    Edp => { "edp", Sufficient,
        "As prm, with every budget given by the response time that is proven for the server in the level above.",
        "as prm; a server ptps, wcps, crps, polling or deferrable, whose response is proven to be shorter than its \
         period",
        "pseudo-polynomial",
        "A. Easwaran, M. Anand, I. Lee: Compositional Analysis Framework Using EDP Resource Models, RTSS 2007" }
    /// Components on several CPUs.
    Mpr => { "mpr", Sufficient,
        "Deadlines of a component that runs on several CPUs at once, under global EDF or global fixed \
         priorities, under the least supply of its servers; bounds response times under fixed priorities.",
        "a component with cpus > 1, a period and a budget, edf or all levels fifo in it, server ptps, wcps \
         or crps, deadline <= period, no costs, no blocking",
        "pseudo-polynomial, a handful of O(n) points a task in practice",
        "I. Shin, A. Easwaran, I. Lee: Hierarchical Scheduling Framework for Virtual Clustering of \
         Multiprocessors, ECRTS 2008, Theorem 1; A. Easwaran, I. Shin, I. Lee, RTS 43, 2009; fixed priorities: here" }
    /// EDF below a table, with flows over nodes.
    PartialEdf => { "partial-edf", Sufficient,
        "Holds the demand of local tasks and of every flow's jobs against what the receiving and sending tasks \
         leave, on every node, and every flow's last deadline against its own.",
        "nodes of one CPU under edf (preemptive, or run to completion), with flows or table tasks, without \
         components and chains",
        "pseudo-polynomial, as qpa with a fixed point per point",
        "T. Qian, F. Mueller, Y. Xin: Hybrid EDF Packet Scheduling for Real-Time Distributed Systems, ECRTS \
         2015; here in a sound form" }
    /// The published test of the same.
    PartialEdfPaper => { "partial-edf-paper", Sufficient,
        "The published density test of partial EDF as printed, to reproduce it: published, not sound, so its \
         answer is always unknown.",
        "as partial-edf; only when asked (--test partial-edf-paper, --all)",
        "O(messages of a batch)",
        "T. Qian, F. Mueller, Y. Xin: Hybrid EDF Packet Scheduling for Real-Time Distributed Systems, ECRTS \
         2015, Eq. 5-9, 12, 13" }
    /// The kernel's admission control.
    Linux => { "linux", Exact,
        "The answer of sched_setattr to these tasks: SCHED_DEADLINE limits and bandwidth per root domain, \
         in the kernel's arithmetic; SCHED_FIFO's 99 priorities.",
        "--linux; scopes of their own that do not decide schedulability",
        "O(n)",
        "Linux kernel/sched/deadline.c: __checkparam_dl, sched_dl_overflow, __dl_overflow" }
}

named! {
    /// How far a test's answer reaches.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Kind {
        /// Its yes is a proof; otherwise it says nothing.
        Sufficient => "sufficient",
        /// Its no is a proof; otherwise it says nothing.
        Necessary => "necessary",
        /// Yes and no are proofs under the conditions that it names; outside them its no becomes "unknown".
        Exact => "exact",
    }
}

/// The description of a test in `check --list`.
///
/// Serialises to `{"test", "kind", "decides", "preconditions", "cost", "source"}`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TestInfo {
    /// The test.
    #[serde(skip)]
    pub id: TestId,
    /// Its name, as in the JSON contract; docs/reference/tests/NAME.md says more.
    #[serde(rename = "test")]
    pub name: &'static str,
    /// How far its answer reaches.
    pub kind: Kind,
    /// What it decides.
    pub decides: &'static str,
    /// Where it applies.
    pub preconditions: &'static str,
    /// Running time, for n tasks and m CPUs.
    pub cost: &'static str,
    /// Who found it.
    pub source: &'static str,
}

/// All tests of this version, the cheapest first within a scope.
#[must_use]
pub fn catalogue() -> &'static [TestInfo] {
    CATALOGUE
}

impl TestId {
    /// Its entry in the catalogue.
    #[must_use]
    pub fn info(self) -> &'static TestInfo {
        &CATALOGUE[self as usize]
    }

    /// Its name in the JSON contract and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The test of that name, if there is one.
    #[must_use]
    pub fn by_name(name: &str) -> Option<TestId> {
        CATALOGUE.iter().find(|info| info.name == name).map(|info| info.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_found_by_its_name() {
        for info in catalogue() {
            assert_eq!(TestId::by_name(info.name), Some(info.id));
            assert_eq!(info.id.info().name, info.name);
        }
        assert_eq!(TestId::by_name("rta "), None);
    }
}
