//! The tables of a System file.

use super::{CRITICALITIES, DISCIPLINES, FITS, Key, Kind, LATES, PACKETS_LATE, PLACEMENTS, Rule, SPLITS, Table};
use crate::cpus::CpuSet;
use crate::system::{Clock, ServerRule};

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, required: false, default: "", doc }
}

impl Key {
    const fn required(mut self) -> Self {
        self.required = true;
        self
    }
    const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }
}

const POSITIVE: Kind = Kind::Span { zero: false };
const SPAN: Kind = Kind::Span { zero: true };
const NODE: Kind = Kind::NameOf("node");
const TASKS: Kind = Kind::List(&Kind::NameOf("task"));
const PMF: Kind = Kind::List(&Kind::Tuple(&[POSITIVE, Kind::Probability]));
const PMF_OF_DELAYS: Kind = Kind::List(&Kind::Tuple(&[SPAN, Kind::Probability]));
const PMF_OR_TRACE: Rule = Rule::One {
    keys: &["pmf", "trace"],
    none: "says nothing; give it one of pmf and trace",
    several: "says more than one of pmf and trace; keep one",
};
const AUTO: Kind = Kind::Either(&[Kind::Choice(&["auto"]), POSITIVE]);
const IMPORTANCE: Kind = Kind::Int { least: 0, most: u32::MAX };
const PRIORITY: Kind = Kind::Int { least: 1, most: u32::MAX };

const ARRIVALS: &[&str] = &["table", "interrupt", "cyclic"];
const SERVERS: [&str; ServerRule::ALL.len()] = {
    let mut names = [""; ServerRule::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = ServerRule::ALL[i].name();
        i += 1;
    }
    names
};

/// The whole file.
pub(crate) static FILE: Table = Table {
    noun: "file",
    doc: "A system: what should run, where, by when.",
    rule: Rule::Free,
    keys: &[
        key("takt", Kind::Version, "Version of the format; this takt reads 1.").required(),
        key("name", Kind::Name, "Name of the system.").default("\"system\""),
        key(
            "notes",
            Kind::List(&Kind::Text),
            "Assumptions of the file: `check` repeats each as a warning. `infer` writes the classes of the \
             threads here.",
        ),
        key("node", Kind::Tables(&NODE_TABLE), "The machines.").default("one node \"local\" with one CPU under EDF"),
        key("strategy", Kind::Tables(&STRATEGY_TABLE), "Own strategies, beside those that every file knows."),
        key("mode", Kind::Tables(&MODE_TABLE), "Switches of a node's strategy or of a component's server at run time."),
        key("component", Kind::Tables(&COMPONENT_TABLE), "Servers with local schedulers."),
        key("task", Kind::Tables(&TASK_TABLE), "The tasks; their order breaks ties."),
        key("flow", Kind::Tables(&FLOW_TABLE), "Distributed tasks."),
        key("port", Kind::Tables(&PORT_TABLE), "Output ports of switches, through which messages go."),
        key("network", Kind::Tables(&NETWORK_TABLE), "Delay and loss between nodes."),
        key("clock", Kind::Table(&CLOCK_TABLE), "How the nodes' clocks differ.").default("one perfect clock"),
    ],
};

static NODE_TABLE: Table = Table {
    noun: "node",
    doc: "A machine. A file without any has one node `local` with one CPU under EDF.",
    rule: Rule::Free,
    keys: &[
        key("name", Kind::Name, "Its name; no two nodes share one.").required(),
        key(
            "cpus",
            Kind::Int { least: 1, most: CpuSet::CPUS_MAX },
            "Number of CPUs. Model CPU *i* is the *i*-th CPU that the process may use.",
        )
        .default("1"),
        key("strategy", Kind::Strategy, "How its tasks that stand in no component are ordered.").default("\"edf\""),
        key("placement", Kind::Choice(PLACEMENTS), "How tasks are bound to CPUs.").default("\"global\""),
        key(
            "cluster-cpus",
            Kind::Int { least: 1, most: CpuSet::CPUS_MAX },
            "CPUs of a cluster; needed where the placement is clustered, an error elsewhere. The last cluster \
             may be smaller.",
        ),
        key("fit", Kind::Choice(FITS), "The order in which a partitioner tries CPUs or clusters.")
            .default("\"worst-fit\""),
        key(
            "cancel",
            Kind::Bool,
            "Omit a noncritical job at its first dispatch when its WCET exceeds the time left before its deadline.",
        )
        .default("false"),
        key("laxity-quantum", POSITIVE, "Grid on which laxities are compared, besides releases and completions.")
            .default("releases and completions only"),
        key("costs", Kind::Table(&COSTS_TABLE), "Overheads that `check` and `sim` both charge.").default("none"),
        key("link", Kind::Table(&LINK_TABLE), "The node's network link."),
        key(
            "arrivals",
            Kind::Choice(ARRIVALS),
            "How it learns of messages [HEDF II-A]. `table`: its `receive` and `send` tasks run above all jobs. \
             `interrupt`: each message interrupts the running job. `cyclic`: `receive`, jobs and `send` have slots \
             in a frame, which is the period of both.",
        )
        .default("\"table\""),
        key(
            "interrupt",
            POSITIVE,
            "Time of a message above all jobs, when it arrives and when it is sent; needed where messages \
             interrupt, an error elsewhere.",
        ),
        key(
            "receive",
            Kind::Table(&TABLE_TASK_TABLE),
            "The partial-EDF receiving task, a time table above EDF [HEDF II-A].",
        ),
        key("send", Kind::Table(&TABLE_TASK_TABLE), "The partial-EDF sending task [HEDF II-A]."),
        key(
            "clock-step",
            Kind::Tables(&CLOCK_STEP_TABLE),
            "Steps of its clock, in ascending order. Only `sim` makes them.",
        )
        .default("none"),
    ],
};

static COSTS_TABLE: Table = Table {
    noun: "costs",
    doc: "Overheads of a node.",
    rule: Rule::Free,
    keys: &[
        key("switch", SPAN, "Added to a job's execution each time that it is given a CPU (start or resume).")
            .default("\"0ns\""),
        key("migrate", SPAN, "Added to this when it resumes on another CPU than it last ran on.").default("\"0ns\""),
        key("release", SPAN, "Added once per job, for its release.").default("\"0ns\""),
        key("tick", SPAN, "Time that each scheduler tick takes from the running job; shorter than `tick-period`.")
            .default("\"0ns\""),
        key("tick-period", POSITIVE, "Distance of the ticks on each CPU.").default("\"4ms\" (HZ=250)"),
        key(
            "interrupt",
            SPAN,
            "Time that interrupts take from the running job, all that come together; ticks and interrupts leave \
             some time.",
        )
        .default("\"0ns\""),
        key(
            "interrupt-period",
            POSITIVE,
            "The least distance of such interrupts on each CPU; in `sim` they come as often.",
        )
        .default("\"1ms\""),
        key(
            "ordinary",
            SPAN,
            "Time that ordinary threads may take from the tasks on each CPU in each `ordinary-period`, anywhere in \
             it (docs/reference/tests/linux.md).",
        )
        .default("\"0ns\""),
        key(
            "ordinary-period",
            POSITIVE,
            "See `ordinary`; in `sim` they take it late in one period and early in the next.",
        )
        .default("\"1s\""),
        key(
            "latency",
            SPAN,
            "Longest delay of a timer that releases a job; added to the `jitter` of every task without `after`.",
        )
        .default("\"0ns\""),
    ],
};

static LINK_TABLE: Table = Table {
    noun: "link",
    doc: "A node's network link.",
    rule: Rule::Free,
    keys: &[
        key("rate", Kind::Rate, "Its rate.").required(),
        key(
            "order",
            Kind::Choice(&["fifo", "edf"]),
            "Which message is sent first. `fifo`: what came first. `edf`: what is due first; the messages of a \
             flow keep their order.",
        )
        .default("\"fifo\""),
        key(
            "late",
            Kind::Choice(PACKETS_LATE),
            "Rule for a message that cannot start by its deadline. The message has the deadline of the job that it \
             releases. `demote`: it is sent when no other waits.",
        )
        .default("\"send\""),
        key("bucket", Kind::Table(&BUCKET_TABLE), "Token bucket of the flows' messages.")
            .default("none: they may take the whole link"),
        key(
            "replies",
            Kind::Table(&BUCKET_TABLE),
            "Token bucket of replies (`reply` of a flow). They then go after all other messages.",
        )
        .default("none: replies are as other messages"),
        key(
            "background",
            Kind::Table(&BACKGROUND_TABLE),
            "Other traffic of the node. A packet of it is always ready, and is sent when no message may start.",
        )
        .default("none"),
    ],
};

static BUCKET_TABLE: Table = Table {
    noun: "token bucket",
    doc: "A token bucket (σ, ρ) as HTB keeps it: in any time t no more than `burst` + `rate` t and one message more.",
    rule: Rule::Free,
    keys: &[
        key("burst", Kind::Size, "σ: at least the largest message.").required(),
        key("rate", Kind::Rate, "ρ: at most the rate of the link.").required(),
    ],
};

static BACKGROUND_TABLE: Table = Table {
    noun: "background traffic",
    doc: "Traffic of a node beside that of its flows.",
    rule: Rule::Free,
    keys: &[
        key("size", Kind::Size, "Size of its packets.").required(),
        key("rate", Kind::Rate, "Its rate in the long run.").default("the rate left by the messages"),
    ],
};

static TABLE_TASK_TABLE: Table = Table {
    noun: "table task",
    doc: "A periodic task of the time table above EDF.",
    rule: Rule::Free,
    keys: &[
        key("period", POSITIVE, "Its period.").required(),
        key("wcet", POSITIVE, "Its worst-case execution time, at most the period.").required(),
        key("cost", POSITIVE, "Execution per message, at most the wcet: a job handles as many as fit.")
            .default("none: the wcet suffices for all messages that can wait"),
    ],
};

static CLOCK_TABLE: Table = Table {
    noun: "clock",
    doc: "How the clocks of the nodes differ [HEDF II-B].",
    rule: Rule::Free,
    keys: &[
        key(
            "drift-ppm",
            Kind::Int { least: 0, most: Clock::DRIFT_PPM_MAX },
            "Every clock's rate differs from that of true time by at most this many parts per million. It \
             concerns what goes between nodes: all times of a node's own tasks, executions too, are by its own clock.",
        )
        .default("0"),
        key(
            "offset",
            SPAN,
            "How far the clocks of two nodes are apart at the start at most. `sim` draws when each begins, and \
             nodes know no more of the clocks of others than real ones do.",
        )
        .default("\"0ns\""),
        key("error", SPAN, "Largest error of an instant that is converted from one node's clock to another's.")
            .default("\"0ns\""),
        key("sync", Kind::Table(&SYNC_TABLE), "Time synchronisation of the nodes with flows.").default("nothing"),
    ],
};

static SYNC_TABLE: Table = Table {
    noun: "sync",
    doc: "The synchronisation job of a node with flows. It runs once a period beside the node's tasks, and \
          exchanges a message each way with every node at the other end of its flows.",
    rule: Rule::Free,
    keys: &[
        key("period", POSITIVE, "Its period, and its deadline.").required(),
        key("wcet", POSITIVE, "Its worst-case execution time, at most the period.").required(),
    ],
};

static CLOCK_STEP_TABLE: Table = Table {
    noun: "clock-step",
    doc: "A step of a node's clock. It changes the times in the messages of the node. Releases, executions and modes \
          go by the clock without its steps.",
    rule: Rule::Free,
    keys: &[
        key("at", POSITIVE, "When, on the clock of the node without its steps.").required(),
        key("by", Kind::Shift, "By how much; a negative one sets the clock back, to zero at most.").required(),
    ],
};

static STRATEGY_TABLE: Table = Table {
    noun: "strategy",
    doc: "An own strategy: an ordered list of levels. Every task belongs to the first level that takes it. The \
          first level with a job runs its first job.",
    rule: Rule::Free,
    keys: &[
        key("name", Kind::Name, "Its name; not one of the named strategies.").required(),
        key("level", Kind::Tables(&LEVEL_TABLE), "The levels, the most important first.").required(),
    ],
};

static LEVEL_TABLE: Table = Table {
    noun: "level",
    doc: "One level of a strategy. More important levels always preempt less important ones.",
    rule: Rule::Free,
    keys: &[
        key(
            "tasks",
            Kind::Either(&[Kind::Choice(&["rest"]), TASKS, Kind::Table(&FILTER_TABLE)]),
            "Tasks of this level, among those that no earlier level took: all (`\"rest\"`), the named tasks, or tasks \
             with these values.",
        )
        .default("\"rest\""),
        key(
            "split",
            Kind::Choice(SPLITS),
            "One level for all, or one per distinct value: smallest `priority` number first, shortest `period` or \
             `deadline` first, high `criticality` first, largest `importance` first.",
        )
        .default("\"none\""),
        key(
            "discipline",
            Kind::Choice(DISCIPLINES),
            "The order within the level. `gel` is the deadline plus a constant per task (`shift`).",
        )
        .required(),
        key(
            "shift",
            Kind::Map(&Kind::Shift),
            "For `gel`: the constant by task; a negative one makes a task more urgent.",
        )
        .default("zero for every task"),
        key("preemptive", Kind::Bool, "Whether a job may preempt a started one of the same level.").default("true"),
        key(
            "late",
            Kind::Choice(LATES),
            "Rule for a job that missed its deadline: it goes on, is dropped at the deadline, or goes on below all \
             levels (unless the job has started on a non-preemptive level).",
        )
        .default("\"continue\""),
        key(
            "ties",
            Kind::Choice(&["arrival", "importance"]),
            "Rule for ties of the discipline: the nominal arrival, or first the larger importance. Then the order \
             of tasks in the file.",
        )
        .default("\"arrival\""),
    ],
};

static FILTER_TABLE: Table = Table {
    noun: "filter",
    doc: "The values of the tasks that a level takes; all must fit.",
    rule: Rule::Some { none: "asks for nothing; name a criticality, importance or priority, or write \"rest\"" },
    keys: &[
        key("criticality", Kind::Choice(CRITICALITIES), "Wanted criticality.").default("any"),
        key("importance", IMPORTANCE, "Wanted importance.").default("any"),
        key("priority", PRIORITY, "Wanted priority.").default("any"),
    ],
};

static MODE_TABLE: Table = Table {
    noun: "mode",
    doc: "A switch of a node's strategy, or of a component's server. No job is lost, doubled or reordered against the \
          new strategy, and no budget is lost or doubled.",
    rule: Rule::One {
        keys: &["strategy", "component"],
        none: "switches nothing; give it a strategy, or a component and its new server, period or budget",
        several: "switches a strategy and a component; write two modes",
    },
    keys: &[
        key("node", NODE, "The node.").default("the file's one node"),
        key("at", SPAN, "When, since the start. No two of one node or one component at the same instant.").required(),
        key("strategy", Kind::Strategy, "The node's strategy from then on."),
        key(
            "component",
            Kind::NameOf("component"),
            "The component whose server changes, instead of a strategy. The change holds from the end of the server's \
             period on.",
        ),
        key("server", Kind::Choice(&SERVERS), "The component's rule from then on.").default("as before"),
        key("period", POSITIVE, "Its replenishment period from then on, at least the quantum of the component.")
            .default("as before"),
        key("budget", POSITIVE, "Its budget from then on, at most the period (on each of its CPUs).")
            .default("as before"),
    ],
};

static COMPONENT_TABLE: Table = Table {
    noun: "component",
    doc: "A server with a local scheduler [CSA].",
    rule: Rule::Free,
    keys: &[
        key("name", Kind::Name, "Its name; no two components share one, and none is called `root`.").required(),
        key("node", NODE, "The node that it lives on.").default("the file's one node"),
        key("parent", Kind::NameOf("component"), "The component around it, on the same node.").default("\"root\""),
        key("strategy", Kind::Strategy, "How its tasks and inner components are ordered.").default("\"edf\""),
        key("server", Kind::Choice(&SERVERS), "How its budget is kept.").required(),
        key("period", AUTO, "Replenishment period, or `\"auto\"`: `size` chooses it, in multiples of the quantum.")
            .default("\"auto\""),
        key(
            "budget",
            AUTO,
            "Budget per period, at most the period (on each of its CPUs), or `\"auto\"`: `size` computes the \
             least, in multiples of the quantum.",
        )
        .default("\"auto\""),
        key("quantum", POSITIVE, "Granularity of period, budget and decisions; at most the period.")
            .default("1us for sizing, none for decisions"),
        key(
            "cpus",
            Kind::Int { least: 1, most: CpuSet::CPUS_MAX },
            "On how many CPUs it may run at once: the budget is that of all together. At most those of the \
             node, and of the component around it.",
        )
        .default("1"),
        key(
            "server-cpus",
            Kind::List(&Kind::Int { least: 0, most: CpuSet::CPUS_MAX - 1 }),
            "On a partitioned or clustered node, a CPU for each of its `cpus`: it runs there, or in the cluster \
             of that CPU. Not allowed in a component within another one.",
        )
        .default("chosen by the `fit` of the node"),
        key(
            "priority",
            PRIORITY,
            "Priority of its server, if the node or the component around it uses fixed priorities; 1 is the \
             most important.",
        )
        .default("none"),
        key(
            "threads",
            Kind::Text,
            "Existing threads that `run` keeps within its budget: `\"pid:1234\"`, `\"cgroup:/machine.slice/guest\"` or \
             `\"unit:guest.service\"`. `check` and `sim` go by its budget and by its tasks. No component stands in it, \
             and no thread is in two components.",
        )
        .default("none: `run` makes a thread for each of its tasks"),
    ],
};

static TASK_TABLE: Table = Table {
    noun: "task",
    doc: "A task. Its jobs run in the order of their release, never two at once.",
    rule: Rule::One {
        keys: &["period", "after"],
        none: "has no period; give it a period, or name the tasks that it follows",
        several: "has a period of its own, but a task that comes after others takes theirs; remove one of the two",
    },
    keys: &[
        key("name", Kind::Name, "Its name; no two tasks share one.").required(),
        key("node", NODE, "Where it runs.").default("the file's one node, or that of its component"),
        key("component", Kind::NameOf("component"), "The component that it stands in.").default("none"),
        key(
            "cpus",
            Kind::List(&Kind::Int { least: 0, most: CpuSet::CPUS_MAX - 1 }),
            "The CPUs of its node that it may use.",
        )
        .default("all of the node"),
        key(
            "after",
            TASKS,
            "Chain: its job *k* is released when job *k* of all these has completed. They stand on its node and have \
             one period, which becomes its period.",
        ),
        key("period", POSITIVE, "Period, or minimum inter-arrival time of a sporadic task."),
        key("deadline", POSITIVE, "Relative to the nominal arrival (of a task with `after`: to its release).")
            .default("the period"),
        key("offset", SPAN, "Nominal arrival of the first job.").default("\"0ns\""),
        key("jitter", SPAN, "A job is released up to this after its nominal arrival; uniform in `sim`.")
            .default("\"0ns\""),
        key("wcet", POSITIVE, "Worst-case execution time.").required(),
        key("blocking", SPAN, "Longest section of less important work that can delay it; for analysis.")
            .default("\"0ns\""),
        key(
            "final-section",
            POSITIVE,
            "Limited preemption: once less than this is left of its wcet, nothing preempts a job. At most the wcet.",
        )
        .default("none"),
        key(
            "sections",
            Kind::List(&POSITIVE),
            "Limited preemption: the parts of a job, in order, between which alone it may be preempted (fixed \
             preemption points). They add up to the wcet. Instead of `final-section`.",
        )
        .default("none: preempted anywhere"),
        key("exec", Kind::Either(&[Kind::Choice(&["wcet"]), Kind::Table(&EXEC_TABLE)]), "Actual execution times.")
            .default("\"wcet\""),
        key(
            "arrival",
            Kind::Either(&[Kind::Choice(&["periodic", "sporadic"]), Kind::Table(&ARRIVAL_TABLE)]),
            "Actual arrivals. Sporadic in `sim`: at distances drawn uniformly from one to two periods.",
        )
        .default("\"periodic\""),
        key("criticality", Kind::Choice(CRITICALITIES), "Whether it may be cancelled (`low`).").default("\"high\""),
        key("importance", IMPORTANCE, "Tie-breaker or level of strategies that use it; larger is more important.")
            .default("0"),
        key("priority", PRIORITY, "Priority for `fp` and levels split by it; 1 is the most important.").default("none"),
        key("late", Kind::Choice(LATES), "Rule for its late jobs, in place of the rule of its level.")
            .default("its level's"),
        key(
            "cancel",
            Kind::Bool,
            "Whether a job is omitted once it can no longer be in time, whatever its node \
             says; only of `criticality = \"low\"`.",
        )
        .default("its node's"),
        key(
            "wss",
            Kind::Size,
            "Working set in a live run: a job walks through as much of it as its execution \
             time allows, on from where the last one stopped.",
        )
        .default("\"0B\""),
    ],
};

static EXEC_TABLE: Table = Table {
    noun: "exec",
    doc: "Actual execution times of a task's jobs.",
    rule: Rule::One {
        keys: &["uniform", "pmf", "trace"],
        none: "says nothing; give it one of uniform, pmf and trace",
        several: "says more than one of uniform, pmf and trace; keep one",
    },
    keys: &[
        key(
            "uniform",
            Kind::Tuple(&[POSITIVE, POSITIVE]),
            "Shortest and longest; whole nanoseconds, all equally likely, both ends included.",
        ),
        key("pmf", PMF, "Values with their probabilities, which sum to exactly 1."),
        key("trace", Kind::Path, "A file of durations, one a line; job *k* takes value *k* modulo their number."),
    ],
};

static ARRIVAL_TABLE: Table = Table {
    noun: "arrival",
    doc: "Actual arrivals of a task's jobs.",
    rule: PMF_OR_TRACE,
    keys: &[
        key("pmf", PMF, "Distances between arrivals with their probabilities, which sum to exactly 1."),
        key(
            "trace",
            Kind::Path,
            "A file of ascending instants, one a line; the first stands for the task's offset. No job after the last.",
        ),
    ],
};

static FLOW_TABLE: Table = Table {
    noun: "flow",
    doc: "A distributed task [HEDF]: released on the first node of its path, processed on each further one.",
    rule: Rule::Free,
    keys: &[
        key("name", Kind::Name, "Its name; no two flows share one.").required(),
        key("path", Kind::List(&NODE), "The nodes that it visits.").required(),
        key("reply", Kind::Bool, "Whether the last node answers the first: one more hop.").default("false"),
        key("period", POSITIVE, "*T*: inter-arrival time on the first node.").required(),
        key("wcet", POSITIVE, "*C*: execution on the first node.").required(),
        key("deadline", POSITIVE, "*D*: end to end.").default("the period"),
        key("send-gap", POSITIVE, "*T'*: minimum inter-transmission time, at most the period.").default("the period"),
        key("hop-wcet", POSITIVE, "*C'*: execution on each further node.").default("the wcet"),
        key("size", Kind::Size, "Size of a message.").required(),
        key(
            "hop-deadlines",
            Kind::List(&POSITIVE),
            "Relative deadlines of the jobs on its hops, each from the deadline of the hop before; one for each node \
             of the path, and one for the reply. Together at most the deadline. `takt size` chooses them.",
        )
        .default("even shares of the deadline"),
    ],
};

static NETWORK_TABLE: Table = Table {
    noun: "network",
    doc: "Delay and loss between nodes. One without `from` or `to` stands for all pairs that no other names.",
    rule: Rule::Free,
    keys: &[
        key("from", NODE, "Sending node.").default("every one"),
        key("to", NODE, "Receiving node.").default("every one"),
        key(
            "delay",
            Kind::Either(&[Kind::Choice(&["auto"]), Kind::Tuple(&[SPAN, SPAN])]),
            "Best and worst case, from the sending job's end to the receiver's buffer. `\"auto\"`: it follows from \
             links and ports. `takt sim` simulates these, and `takt size --network-delay` finds a bound.",
        )
        .default("[\"0ns\", \"0ns\"]"),
        key(
            "actual-delay",
            Kind::Table(&ACTUAL_DELAY_TABLE),
            "Delays of messages in a simulation, all within `delay`, which bounds them for analysis.",
        )
        .default("uniform within `delay`"),
        key("loss", Kind::Probability, "Probability that a message is lost.").default("0.0"),
        key(
            "through",
            Kind::List(&Kind::NameOf("port")),
            "The ports in a row through which messages go after the sender's link (docs/explanation/network-delay.md).",
        )
        .default("none: the sender's link ends at the receiver"),
    ],
};

static ACTUAL_DELAY_TABLE: Table = Table {
    noun: "actual-delay",
    doc: "Actual delays of a network's messages.",
    rule: PMF_OR_TRACE,
    keys: &[
        key("pmf", PMF_OF_DELAYS, "Delays with their probabilities, which sum to exactly 1."),
        key(
            "trace",
            Kind::Path,
            "A file of durations, one a line; message *k* from one hop of a flow to the next takes value *k* modulo \
             their number.",
        ),
    ],
};

static PORT_TABLE: Table = Table {
    noun: "port",
    doc: "An output port of a switch: a line that is slower than the traffic that may arrive at once, so \
          messages wait there.",
    rule: Rule::Free,
    keys: &[
        key("name", Kind::Name, "Its name; no two ports share one.").required(),
        key("rate", Kind::Rate, "Full rate of its line, also where flows use a part.").required(),
        key(
            "latency",
            SPAN,
            "The longest wait before it sends: for processing, for a less important packet under way, and \
             on its line.",
        )
        .default("\"0ns\""),
        key("cross", Kind::Table(&CROSS_TABLE), "Traffic beside that of the flows, as it arrives at the port.")
            .default("none"),
        key(
            "order",
            Kind::Choice(&["fifo", "any"]),
            "`fifo`: what arrives first leaves first. `any` (priorities, deadlines, turns): only messages from \
             one node to another keep their order.",
        )
        .default("\"fifo\""),
    ],
};

static CROSS_TABLE: Table = Table {
    noun: "cross traffic",
    doc: "Traffic that is bounded by (σ, ρ): in any time t no more than `burst` + `rate` t.",
    rule: Rule::Free,
    keys: &[
        key("burst", Kind::Size, "σ: what can come at once, at least 64B.").required(),
        key("rate", Kind::Rate, "ρ: what comes in the long run.").required(),
    ],
};
