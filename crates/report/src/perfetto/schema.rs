//! Numbers of the fields, names and tracks that [`PerfettoWriter`](super::PerfettoWriter) writes.

use takt_model::{NodeId, TaskId};

use super::proto::Message;

/// Fields of `TracePacket` and of what stands in it.
pub(super) mod field {
    pub(crate) const TRACE_PACKET: u32 = 1;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;

    pub(crate) const TRACK_UUID: u32 = 1;
    pub(crate) const TRACK_NAME: u32 = 2;
    pub(crate) const TRACK_PROCESS: u32 = 3;
    pub(crate) const TRACK_PARENT: u32 = 5;
    pub(crate) const TRACK_COUNTER: u32 = 8;
    pub(crate) const TRACK_CHILD_ORDERING: u32 = 11;
    pub(crate) const TRACK_RANK: u32 = 12;
    pub(crate) const TRACK_MERGE: u32 = 15;
    pub(crate) const PROCESS_PID: u32 = 1;
    pub(crate) const PROCESS_NAME: u32 = 6;
    pub(crate) const COUNTER_UNIT_NAME: u32 = 6;

    pub(crate) const EVENT_ANNOTATION: u32 = 4;
    pub(crate) const EVENT_TYPE: u32 = 9;
    pub(crate) const EVENT_NAME_IID: u32 = 10;
    pub(crate) const EVENT_TRACK: u32 = 11;
    pub(crate) const EVENT_NAME: u32 = 23;
    pub(crate) const EVENT_COUNTER: u32 = 30;
    pub(crate) const EVENT_FLOW: u32 = 47;
    pub(crate) const EVENT_FLOW_END: u32 = 48;

    pub(crate) const ANNOTATION_NAME_IID: u32 = 1;
    pub(crate) const ANNOTATION_UINT: u32 = 3;
    pub(crate) const ANNOTATION_INT: u32 = 4;
    pub(crate) const ANNOTATION_TEXT: u32 = 6;

    pub(crate) const INTERNED_EVENT_NAMES: u32 = 2;
    pub(crate) const INTERNED_ANNOTATION_NAMES: u32 = 3;
    pub(crate) const IID: u32 = 1;
    pub(crate) const IID_NAME: u32 = 2;
}

pub(super) const SLICE_BEGIN: u64 = 1;
pub(super) const SLICE_END: u64 = 2;
pub(super) const INSTANT: u64 = 3;
pub(super) const COUNTER: u64 = 4;
pub(super) const INCREMENTAL_STATE_CLEARED: u64 = 1;
pub(super) const NEEDS_INCREMENTAL_STATE: u64 = 2;
pub(super) const ORDER_EXPLICIT: u64 = 3;
pub(super) const MERGE_NONE: u64 = 2;
/// All packets are of one writer.
pub(super) const SEQUENCE: u64 = 1;

/// Names of events other than tasks' names; their interned ids are their places here, from 1 on.
pub(super) const EVENT_NAMES: [&str; 21] = [
    "runs",
    "waits",
    "in progress",
    "release",
    "deadline missed",
    "omitted",
    "shed",
    "dropped",
    "rejected",
    "failed",
    "migrates",
    "events lost",
    "events missing",
    "pays",
    "pays idle",
    "replenished",
    "used up",
    "idle",
    "sends",
    "receives",
    "message lost",
];
/// Interned ids of the names of tasks and interrupts start here.
pub(super) const NAMES: u64 = 1_000;
/// More CPUs of a node than this have no tracks: no machine has them, but a damaged log may.
pub(super) const CPUS_MAX: u32 = 4_096;
/// Names of arguments; their interned ids are their places here, from 1 on.
pub(super) const ARGUMENTS: [&str; 16] = [
    "task",
    "job",
    "cpu",
    "arrival_ns",
    "release_ns",
    "deadline_ns",
    "start_ns",
    "response_ns",
    "lateness_ns",
    "outcome",
    "from_cpu",
    "to_cpu",
    "count",
    "earliest_ns",
    "kind",
    "amount_ns",
];

pub(super) fn child(track: &mut Message, uuid: u64, node: NodeId, name: &str, rank: u64) {
    track.uint(field::TRACK_UUID, uuid).uint(field::TRACK_PARENT, node_track(node)).text(field::TRACK_NAME, name);
    track.uint(field::TRACK_RANK, rank).uint(field::TRACK_MERGE, MERGE_NONE);
}

pub(super) fn event_name(name: &str) -> u64 {
    let place = EVENT_NAMES.iter().position(|known| *known == name);
    debug_assert!(place.is_some(), "{name} is missing in EVENT_NAMES");
    place.map_or(0, |i| i as u64 + 1)
}

pub(super) fn argument(name: &str) -> u64 {
    ARGUMENTS.iter().position(|known| *known == name).map_or(0, |i| i as u64 + 1)
}

/// Numbers of tracks: the kind in the top bits, so that they never meet.
pub(super) fn node_track(node: NodeId) -> u64 {
    1 << 48 | u64::from(node.0)
}
pub(super) fn cpu_track(node: NodeId, cpu: u32) -> u64 {
    2 << 48 | u64::from(node.0) << 12 | u64::from(cpu)
}
pub(super) fn task_track(task: TaskId) -> u64 {
    3 << 48 | u64::from(task.0)
}
pub(super) fn pending_track(node: NodeId) -> u64 {
    4 << 48 | u64::from(node.0)
}
pub(super) fn irq_track(node: NodeId, cpu: u32) -> u64 {
    5 << 48 | u64::from(node.0) << 12 | u64::from(cpu)
}
pub(super) fn server_track(server: u32) -> u64 {
    6 << 48 | u64::from(server)
}
pub(super) fn budget_track(server: u32) -> u64 {
    7 << 48 | u64::from(server)
}
