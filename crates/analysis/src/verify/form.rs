//! The certificate's form: JSON, documented in docs/reference/certificate.md.

use serde::{Deserialize, Serialize};

/// The version of the form that this crate writes and reads.
pub const VERSION: u64 = 1;

/// The fields of every version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct AnyVersion {
    /// The version.
    #[serde(rename = "takt-certificate")]
    pub version: u64,
}

/// A proof, or a witness, about one System.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`VERSION`].
    #[serde(rename = "takt-certificate")]
    pub version: u64,
    /// The System in canonical TOML.
    pub system: String,
    /// Whether every deadline is kept.
    pub schedulable: bool,
    /// The CPUs of tasks that the file leaves open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<Placed>,
    /// When chains' successors are released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Released>,
    /// For a yes: one part for each set of CPUs with tasks of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<UnitProof>,
    /// Of a no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
}

/// A task's CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// The task.
    pub task: String,
    /// CPUs of its node.
    pub cpus: Vec<u32>,
}

/// When a chain's successor is released.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Released {
    /// The task.
    pub task: String,
    /// At most this after its source's nominal arrival.
    pub wander_ns: u64,
}

/// The proof of one set of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitProof {
    /// The node.
    pub node: String,
    /// Its CPUs.
    pub cpus: Vec<u32>,
    /// The component whose tasks and inner servers these are; none: they stand in no component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Why its tasks keep their deadlines.
    pub proof: Proof,
}

/// Why tasks keep their deadlines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Proof {
    /// Fixed priorities in the order of rates: prod (U + 1) <= 2.
    Hyperbolic {},
    /// EDF: sum C / min(D, T) <= 1.
    Density {},
    /// EDF: demand up to a busy period.
    Demand {
        /// A length that holds all work released within it.
        horizon_ns: u64,
        /// From the longest down: intervals whose demand fits.
        points_ns: Vec<u64>,
    },
    /// Fixed priorities: busy windows.
    Responses {
        /// Every task.
        tasks: Vec<Windows>,
    },
    /// One CPU, levels of any order: busy windows of some tasks, keys of the others.
    Levels {
        /// Tasks that are in time whatever the order of their level.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<Windows>,
        /// Tasks of a level by deadline or laxity.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<Keys>,
    },
    /// Strictly periodic tasks: their schedule repeats and misses nothing.
    Repeats {
        /// From when on.
        from_ns: u64,
        /// After how long.
        cycle_ns: u64,
    },
    /// Global EDF: sum delta <= m - (m - 1) max delta.
    Gfb {},
    /// Global EDF: work within each window before a deadline, by Baker.
    Bak {},
    /// Global EDF: work since the last instant at which a CPU was idle, by Baruah.
    Bar {
        /// From here on the load tells.
        horizon_ns: u64,
    },
    /// Global EDF: forced-forward demand.
    FfDbf {
        /// 2^32 times the speed of a job from which on it is no longer followed.
        sigma: u64,
        /// From here on the load tells.
        horizon_ns: u64,
    },
    /// Several CPUs, EDF or fixed priorities: bounds that imply each other.
    Global {
        /// Whether fewer than m more important tasks bring work into a window (fixed priorities alone).
        limited: bool,
        /// Every task.
        tasks: Vec<Responding>,
    },
}

impl Proof {
    /// Its name in the form.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Proof::Hyperbolic {} => "hyperbolic",
            Proof::Density {} => "density",
            Proof::Demand { .. } => "demand",
            Proof::Responses { .. } => "responses",
            Proof::Levels { .. } => "levels",
            Proof::Repeats { .. } => "repeats",
            Proof::Gfb {} => "gfb",
            Proof::Bak {} => "bak",
            Proof::Bar { .. } => "bar",
            Proof::FfDbf { .. } => "ff-dbf",
            Proof::Global { .. } => "global",
        }
    }
}

/// The busy window of a task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// The task.
    pub task: String,
    /// Entry q: by when, from the window's start, its first q + 1 jobs and all that goes before is
    /// done. The last is done before the next can arrive.
    pub windows_ns: Vec<u64>,
}

/// Tasks of one level, and by when jobs with their keys are done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// The tasks; one alone under preemptive laxity.
    pub tasks: Vec<String>,
    /// A length L such that all work of the level and the more important levels released within L
    /// is done within L.
    pub horizon_ns: u64,
    /// From the largest key down: by when, from the window's start, the job with the next key is done.
    pub points_ns: Vec<u64>,
}

/// A bound of a task's responses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Responding {
    /// The task.
    pub task: String,
    /// From the nominal arrival.
    pub response_ns: u64,
}

/// A legal behaviour that misses a deadline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Witness {
    /// A job that needs more time than it has.
    TooLong {
        /// Its task.
        task: String,
    },
    /// Tasks bound to CPUs that need more than these have.
    Overload {
        /// The node.
        node: String,
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// Arrivals that end in a miss.
    Schedule {
        /// The node.
        node: String,
        /// The CPUs whose tasks are looked at.
        cpus: Vec<u32>,
        /// Who misses.
        task: String,
        /// When sporadic tasks arrive; periodic ones do so every period from their offsets.
        arrivals: Vec<SporadicArrival>,
    },
}

/// An arrival of a sporadic task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SporadicArrival {
    /// The task.
    pub task: String,
    /// When.
    pub at_ns: u64,
}
