/* takt for C: operations under a scheduling strategy on SCHED_FIFO threads, and a real-time event
 * channel between them.
 *
 * Generated from crates/c/src by cbindgen; `TAKT_HEADER=write cargo test -p takt-c` writes it anew.
 *
 * Times are nanoseconds; times of a dispatcher count from its start. Strings are UTF-8 and end with
 * a zero byte; takt copies the strings that it keeps.
 *
 * A call that can fail returns a takt_status. takt_last_error() returns the error and the remedy
 * (for a push, use takt_status_text).
 *
 * Unless a call says otherwise, pointers must not be null: a call with a null pointer answers
 * TAKT_STATUS_INVALID. One thread at a time uses an object. A handler runs on another thread than
 * the thread that drains its dispatcher, so it makes no call with that dispatcher.
 *
 * Any thread and any handler may call takt_operation_push and takt_supplier_push. The same holds
 * for takt_published_write, _flush and _refresh, and takt_replica_apply and _read. These are pushes,
 * too, and leave no text. */

#ifndef TAKT_H
#define TAKT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The type of the event that stands for a timeout or a silence (takt_filter_timeout,
// takt_filter_silence). No supplier has it, nor the two below.
#define TAKT_KIND_TIMEOUT 4294967295

// The type of the event that a peer of a node is lost: it was silent for too long, ended, or began
// anew. Its source is the peer's place in its level, its number the level's in the node, both from
// 0; its payload is the peer's number (8 bytes, big-endian).
#define TAKT_KIND_PEER_LOST 4294967294

// The type of the event that a peer of a node is there, for the first time or again. Source,
// number and payload as of the former.
#define TAKT_KIND_PEER_FOUND 4294967293

// The result of a call.
typedef enum {
  // Success.
  TAKT_STATUS_OK = 0,
  // A null pointer, a name that nothing has, a value out of its range, or a call that comes too early or too late.
  TAKT_STATUS_INVALID = 1,
  // The operations are no plan under that strategy; all that is wrong is told.
  TAKT_STATUS_UNPLANNABLE = 2,
  // A privilege is missing; what to grant is told.
  TAKT_STATUS_PRIVILEGE = 3,
  // The kernel refused something else.
  TAKT_STATUS_REFUSED = 4,
  // A push: as many jobs as the operation's backlog allows wait or run. takt_deadline: bytes still wait.
  TAKT_STATUS_FULL = 5,
  // A push: the operation's least distance is not over.
  TAKT_STATUS_TOO_EARLY = 6,
  // A push: the dispatcher, or the channel, is not there any more, or not yet.
  TAKT_STATUS_STOPPED = 7,
  // A handler does not return: what it uses is to stay.
  TAKT_STATUS_TROUBLE = 8,
  // A defect of takt.
  TAKT_STATUS_PANIC = 9,
  // A push: the operation takes no part in the mode that holds.
  TAKT_STATUS_ABSENT = 10,
  // The log could not be written, or not to its end.
  TAKT_STATUS_UNWRITTEN = 11,
} takt_status;

// When an operation's jobs are released.
typedef enum {
  // By a timer, each period.
  TAKT_ARRIVAL_PERIODIC = 0,
  // By takt_operation_push or an event, never twice within the least distance.
  TAKT_ARRIVAL_SPORADIC = 1,
  // When all its predecessors are complete.
  TAKT_ARRIVAL_AFTER = 2,
} takt_arrival;

// The rule for an operation's late jobs.
typedef enum {
  // The rule of the strategy's level.
  TAKT_LATE_LEVEL = 0,
  // They go on.
  TAKT_LATE_CONTINUE = 1,
  // They are dropped at their deadlines.
  TAKT_LATE_DROP = 2,
  // They go on below all levels.
  TAKT_LATE_DEMOTE = 3,
} takt_late;

// Whether an operation's jobs are omitted once they can no longer be in time; only of noncritical ones.
typedef enum {
  // As the set says.
  TAKT_CANCEL_SET = 0,
  // Never.
  TAKT_CANCEL_NEVER = 1,
  // Always.
  TAKT_CANCEL_ALWAYS = 2,
} takt_cancel;

// The reaction to a job that executes for longer than its operation's wcet. No handler is ended
// from outside: it goes on until it returns.
typedef enum {
  // Overruns are not watched.
  TAKT_OVERRUN_UNWATCHED = 0,
  // It goes on, and the program is told (takt_dispatcher_next_overrun).
  TAKT_OVERRUN_CONTINUE = 1,
  // The same, and it is told to stop (takt_job_must_stop). Whenever it returns it is not
  // complete, and the rest of its chain is shed.
  TAKT_OVERRUN_STOP = 2,
  // The same as TAKT_OVERRUN_CONTINUE, and it has the priority of demoted jobs until it returns,
  // below all levels. Another thread takes the next job of its level.
  TAKT_OVERRUN_DEMOTE = 3,
} takt_overrun;

// How the patterns of a subscription, or the members of a filter, belong together.
typedef enum {
  // The first event that one of them means.
  TAKT_GROUP_ANY = 0,
  // An event for each of them, in any order.
  TAKT_GROUP_ALL = 1,
  // An event for each of them, one after the other.
  TAKT_GROUP_SEQUENCE = 2,
} takt_group;

// A change of a subscription.
typedef enum {
  // It is new.
  TAKT_CHANGE_SUBSCRIBED = 0,
  // Events pass it by.
  TAKT_CHANGE_SUSPENDED = 1,
  // It waits again.
  TAKT_CHANGE_RESUMED = 2,
  // It waits for something else, or with another quality of service.
  TAKT_CHANGE_RECONNECTED = 3,
  // It is one no more.
  TAKT_CHANGE_UNSUBSCRIBED = 4,
} takt_change;

// By which clock a node tells when its events leave. Nodes with the same one know how long events
// were under way, which counts against their time to live and their deadline.
typedef enum {
  // CLOCK_MONOTONIC, which processes of one machine share.
  TAKT_CLOCK_MACHINE = 0,
  // CLOCK_TAI, which something else keeps synchronized (PTP) among all nodes that have the same clock_number.
  TAKT_CLOCK_SYNCHRONIZED = 1,
  // None in common with anybody.
  TAKT_CLOCK_OWN = 2,
} takt_clock;

// How a push sends an event to other nodes.
typedef enum {
  // The pushing thread sends it at once. It is dropped if the socket has no room.
  TAKT_SENDING_DIRECT = 0,
  // The pushing thread sends it and waits for room in the socket, at most for the event's time
  // to live and patience_ns. Then it is dropped.
  TAKT_SENDING_PATIENT = 1,
  // Another thread of the level sends it from a queue. A new event is dropped if the queue is
  // full.
  TAKT_SENDING_QUEUED_NEWEST = 2,
  // The same, but a new event replaces the oldest one if the queue is full.
  TAKT_SENDING_QUEUED_OLDEST = 3,
} takt_sending;

// A channel.
typedef struct takt_channel takt_channel;

// A dispatcher before its start, while it runs, and after its stop.
typedef struct takt_dispatcher takt_dispatcher;

// A condition on events: one event, or a group of filters. It waits for at most 64 events, and is
// at most 16 filters deep. A group copies its filters, which stay the caller's.
typedef struct takt_filter takt_filter;

// An operation of a dispatcher that runs, to push jobs of.
typedef struct takt_handle takt_handle;

// The job that a handler is called for; of use during that call.
typedef struct takt_job takt_job;

// A future process among others that share events: takt_channel_connect_as connects as this node.
typedef struct takt_node takt_node;

// A set of operations.
typedef struct takt_operations takt_operations;

// A queue of events for an ordinary thread of the program. It holds events that should not be
// handled on a real-time thread, or answers of handlers.
typedef struct takt_outlet takt_outlet;

// Who runs when.
typedef struct takt_plan takt_plan;

// Values that operations of this process write, and others are to know. Its calls may be made by
// any thread, all but takt_published_free.
typedef struct takt_published takt_published;

// Values of a publisher as they are known here. Its calls may be made by any thread, all but takt_replica_free.
typedef struct takt_replica takt_replica;

// The events that start an operation's job.
typedef struct takt_subscription takt_subscription;

// A source from which threads push events.
typedef struct takt_supplier takt_supplier;

// The properties of an operation. Zero is a value for all that may be left out.
typedef struct {
  // Its name, which no other operation has.
  const char *name;
  // When its jobs are released: a takt_arrival.
  uint32_t arrival;
  // The period, or the least distance; unused where it comes after others.
  uint64_t period_ns;
  // When the first job of a periodic one is released.
  uint64_t offset_ns;
  // The longest that a job executes.
  uint64_t wcet_ns;
  // By when after its release a job must be complete; zero: the period.
  uint64_t deadline_ns;
  // Whether it is missed without harm.
  bool noncritical;
  // Larger is more important. No strategy of takt_plan_new looks at it; the system file of takt_plan_guarded has it.
  uint32_t importance;
  // For fixed priorities; 1 is the most important, zero: none.
  uint32_t priority;
  // The plan's CPU that it runs on, from 0.
  uint32_t cpu;
  // How many of its jobs may wait or run at once; zero: as many as may be where all operations keep their deadlines.
  uint32_t backlog;
  // The rule for its late jobs: a takt_late.
  uint32_t late;
  // Whether its jobs are omitted once they can no longer be in time: a takt_cancel.
  uint32_t cancel;
  // The reaction to its jobs that execute for longer than wcet_ns: a takt_overrun.
  uint32_t overrun;
  // The names of its predecessors; may be null where there are none.
  const char *const *after;
  // How many there are.
  size_t after_count;
} takt_operation;

// The code of an operation, called once a job on a real-time thread. It should not wait. `user` is
// the pointer given with it.
//
// The handler may call takt_job_must_stop and the other calls for its job. It may call pushes, and
// all other calls that any thread may make at any time. It may not make calls of its dispatcher,
// because another thread may be using the dispatcher meanwhile: not takt_dispatcher_stop or _free,
// nor _switch, _holds, _counts, _operation or _now_ns (takt_job_now_ns gives the same time).
typedef void (*takt_handler)(const takt_job *job, void *user);

// The longest response of a critical operation under the guard of takt_dispatcher_adaptive. It
// assumes that the first plan has delayed the other critical operations as much as it may.
// takt_plan_guarded gives the system file for which `takt check` finds this response. A smaller
// one, such as the response under the guard's plan alone, can lose critical deadlines.
typedef struct {
  // The operation's name.
  const char *operation;
  // From its arrival to its completion, at the most.
  uint64_t longest_ns;
} takt_response;

// How a dispatcher runs. All zero is the default.
typedef struct {
  // Run without privilege and without any guarantee, as ordinary threads. Without it a missing
  // privilege is TAKT_STATUS_PRIVILEGE.
  bool best_effort;
  // Timers release no job at or after this; zero: they go on.
  uint64_t duration_ns;
  // Facts that each CPU keeps between two calls of takt_dispatcher_drain; more are lost and counted. Zero: 65,536.
  size_t records;
} takt_options;

// The outcomes of an operation's jobs. released = completed + cancelled + rejected + unfinished.
typedef struct {
  // Jobs released.
  uint64_t released;
  // Jobs that came to their end.
  uint64_t completed;
  // Jobs that completed after their deadline.
  uint64_t late;
  // Jobs omitted, or shed with a predecessor.
  uint64_t cancelled;
  // Jobs not queued, for too many of the operation waited or ran.
  uint64_t rejected;
  // Jobs that wait, run, were dropped at their deadline, or failed.
  uint64_t unfinished;
  // Deadlines not met so far. Counts jobs that were not complete by their deadline, even if they
  // still wait or run. Counts jobs that can no longer meet it: cancelled, rejected, dropped and
  // failed ones. A monitor should use this count, because `late` counts only completed jobs.
  uint64_t unmet;
  // Jobs that executed for longer than the operation's wcet, where its takt_overrun watches that.
  uint64_t overran;
} takt_counts;

// A job that executed for longer than its operation's wcet.
typedef struct {
  // Its operation; of use until the next one is taken.
  const char *operation;
  // Its number among those of its operation, from 0.
  uint64_t job;
  // When that was found, since the dispatcher's start: while the job ran.
  uint64_t at_ns;
} takt_overran;

// A pattern of events. It matches events whose type and source agree with these values in all bits
// of the masks. A mask of zero matches any.
typedef struct {
  // The bits of the type that are wanted.
  uint32_t kind;
  // The bits of the type that count.
  uint32_t kind_mask;
  // The bits of the source that are wanted.
  uint32_t source;
  // The bits of the source that count.
  uint32_t source_mask;
} takt_pattern;

// With what quality of service a subscription has its events, beside its operation's level and
// deadline. All zeros: as a new subscription.
typedef struct {
  // How soon after its push an event should have been handled, in ns; its own deadline holds
  // where that is earlier. Zero: its own.
  uint64_t deadline_ns;
  // How long after its push an event is of use here, in ns; its own time to live holds where
  // that is shorter. Zero: its own.
  uint64_t ttl_ns;
  // Whether the newest events take the place of those that wait, and wait for the least distance
  // (the operation has a backlog of 2 or more).
  bool latest;
} takt_quality;

// The outcomes of the sets of events of a subscription. complete = handled + expired + rejected +
// omitted + replaced + waiting ones.
typedef struct {
  // Times that its patterns were there.
  uint64_t complete;
  // Sets for which the handler was called.
  uint64_t handled;
  // Handled sets whose handler returned after a deadline of their events.
  uint64_t late;
  // Sets whose time to live was over when their job ran.
  uint64_t expired;
  // Sets for which the operation was not pushed.
  uint64_t rejected;
  // Sets whose job was omitted or dropped.
  uint64_t omitted;
  // Sets that newer ones replaced.
  uint64_t replaced;
  // Events that came while it was suspended.
  uint64_t suspended;
} takt_event_counts;

// An event as a handler is given it; of use during that call.
typedef struct {
  // Its type.
  uint32_t kind;
  // Its source.
  uint32_t source;
  // Zero for the first event of its supplier.
  uint64_t number;
  // When it was pushed.
  uint64_t sent_ns;
  // Its deadline; all ones: it has none of its own.
  uint64_t due_ns;
  // After this it is of no use; all ones: never.
  uint64_t expires_ns;
  // The supplier's bytes.
  const uint8_t *payload;
  // How many bytes.
  size_t length;
  // The pattern of the subscription that the event matches, from 0. For a filter: the index of
  // the single event, silence or timeout, in the order in which they were given.
  size_t pattern;
} takt_event;

// The code of an operation that consumes events: `count` of them, one for each pattern that took part.
typedef void (*takt_event_handler)(const takt_event *events, size_t count, const takt_job *job, void *user);

// The outcome of a push.
typedef struct {
  // The event's number: how many its supplier pushed before.
  uint64_t number;
  // Consumers whose operation was pushed.
  size_t taken;
  // Consumers that wait for more.
  size_t kept;
  // Consumers whose operation was not pushed, for want of room or time.
  size_t rejected;
  // Peers of other nodes that it was sent to, or waits in a queue for.
  size_t sent;
  // Peers that it should have gone to and did not: takt_channel_traffic tells why.
  size_t unsent;
} takt_pushed;

// Is shown an event of a channel's history, which is of use during that call. `user` is what was given with it.
typedef void (*takt_event_viewer)(const takt_event *event, void *user);

// Is told that the subscription of an operation changed: a takt_change. The name is of use during that call.
typedef void (*takt_observer)(const char *operation, uint32_t change, void *user);

// An event that was taken from an outlet; its payload is of use until the next one is taken.
typedef struct {
  // Its type.
  uint32_t kind;
  // Its source.
  uint32_t source;
  // Zero for the first event of its supplier.
  uint64_t number;
  // The time to its deadline, zero once this is over; all ones: it has no deadline of its own.
  uint64_t due_in_ns;
  // For how long it is still of use; all ones: for ever.
  uint64_t expires_in_ns;
  // The supplier's bytes.
  const uint8_t *payload;
  // How many bytes.
  size_t length;
} takt_taken;

// The counters of an outlet.
typedef struct {
  // Events that were meant.
  uint64_t pushed;
  // Events that were dropped for lack of room.
  uint64_t full;
} takt_passed;

// Options of a node. All zeros: the default.
typedef struct {
  // By which clock it tells times: a takt_clock.
  uint32_t clock;
  // For TAKT_CLOCK_SYNCHRONIZED: the number of the clock. Unused otherwise.
  uint64_t clock_number;
  // The period of its signs of life to peers, on each level: 10 ms or more. Zero: 100 ms.
  uint64_t beat_ns;
  // After how long a silence a peer is lost: four beats or more. Zero: four beats.
  uint64_t lost_after_ns;
  // The most other nodes whose received events a level tracks, 65,536 at most. Zero: 64.
  size_t nodes_max;
  // Whether events from one peer go on to the others of the level. Without room they are then
  // dropped, whatever the level's takt_sending.
  bool forwards;
} takt_node_options;

// The traffic between nodes at one level of urgency, with its own socket and thread. Zero is a
// value for all but `name` and `at`.
typedef struct {
  // Its name, which no other level of the node has.
  const char *name;
  // The address for receiving and sending: "10.0.0.1:7000" or "[fe80::1%2]:7000". Port 0: the
  // kernel chooses a port, and takt_traffic reports it.
  const char *at;
  // The addresses of the same level of other nodes (1,024 at most). Datagrams from other
  // addresses are dropped. May be null where there are none.
  const char *const *peers;
  // How many there are.
  size_t peer_count;
  // The patterns of the events that go to all peers (1,024 at most). May be null for a level
  // that only receives.
  const takt_pattern *sends;
  // How many there are.
  size_t send_count;
  // The level of the dispatcher's plan as whose threads its own is scheduled; 0 is the most urgent.
  size_t level;
  // Whether its threads run on `cpu` alone.
  bool pinned;
  // The plan's CPU, from 0; unused where it is not pinned.
  uint32_t cpu;
  // Whether it sends with SO_PRIORITY 0; then so_priority is unused.
  bool unprioritized;
  // SO_PRIORITY of its packets, for queueing disciplines. More than 6 needs CAP_NET_ADMIN. Zero:
  // 6.
  uint32_t so_priority;
  // How a push sends: a takt_sending.
  uint32_t sending;
  // For TAKT_SENDING_PATIENT: the longest wait of a push for room. Zero: as long as it takes.
  uint64_t patience_ns;
  // For TAKT_SENDING_QUEUED_*: how many events can wait, 65,536 at most. Zero: 64.
  size_t room;
  // Bytes of the socket's buffers, each way, 64 MiB at most. Zero: 256 KiB.
  size_t buffer;
} takt_level;

// Counters of a level since the channel was connected.
typedef struct {
  // Datagrams with events that the kernel has taken, one for each peer.
  uint64_t sent;
  // Datagrams with events that were dropped here, for want of room in the socket or the queue.
  uint64_t full;
  // Datagrams with events that the kernel refused to send for another cause.
  uint64_t refused;
  // Datagrams with events that did not leave because their time was over.
  uint64_t stale;
  // Events that came, each counted once.
  uint64_t events;
  // Received events whose time was over on arrival. No consumer got them.
  uint64_t late;
  // Received events without a common clock. Their time under way did not count against their
  // time.
  uint64_t unsynchronized;
  // Received events that, by the common clock, came before they were sent.
  uint64_t skewed;
  // Received events that went on to another peer.
  uint64_t forwarded;
  // Events that peers sent and that have not come: dropped there, on the way or here, or still under way.
  uint64_t lost;
  // Events that came again.
  uint64_t duplicates;
  // Events so old that nobody knows whether they came before, of a former run of their node, or
  // of one node too many (nodes_max).
  uint64_t old;
  // This node's own events, and events that had gone through more than 16 nodes.
  uint64_t loops;
  // Datagrams from others than the level's peers.
  uint64_t strangers;
  // Datagrams that are none of a node.
  uint64_t malformed;
  // Datagrams that found no room in the socket; all ones where the kernel does not tell.
  uint64_t overflowed;
  // The port at which it receives; zero where the kernel does not tell.
  uint16_t port;
  // How many peers it has.
  size_t peers;
} takt_traffic;

// Known facts about a peer.
typedef struct {
  // Its node's number, once it was heard.
  uint64_t node;
  // Whether it was.
  bool heard;
  // Whether it is there, as far as is known.
  bool is_there;
} takt_peer;

// The counters of a publisher. written = flushed + replaced + waiting ones.
typedef struct {
  // Values written.
  uint64_t written;
  // Values written after their job's deadline, which missed the flush of that job.
  uint64_t late;
  // Values that another one followed before they were sent for the first time.
  uint64_t replaced;
  // Values sent, each counted once.
  uint64_t flushed;
  // Values sent again: for want of somebody who got them, or by takt_published_refresh.
  uint64_t repeated;
  // Events that they were sent in.
  uint64_t events;
  // Events that a consumer or a peer did not get for lack of room, as far as the push could
  // tell.
  uint64_t missed;
  // Flushes, with values or without.
  uint64_t flushes;
  // Flushes that ended after the flushing job's deadline.
  uint64_t late_flushes;
} takt_flushes;

// A value to be read.
typedef struct {
  // Which, from 0: for the caller to say.
  size_t value;
  // The destination, set by the caller. May be null if `size` is zero.
  uint8_t *bytes;
  // How many bytes there is room for: for the caller to say. A longer value is cut.
  size_t size;
  // How many bytes it has.
  size_t length;
  // The number of writes of the value at its publisher, in that run of the publisher. Zero: it
  // has not come yet.
  uint64_t version;
  // Its time of arrival, by the clock of the dispatcher that ran the receiving job.
  uint64_t came_ns;
} takt_known;

// The counters of a replica.
typedef struct {
  // Values that it took.
  uint64_t applied;
  // Values that it had already, or newer ones of, or of a former run.
  uint64_t old;
  // Events of its publisher's source and type that are none of a flush, or of other values than these.
  uint64_t malformed;
} takt_applied;

// What became of the messages of a socket with deadlines.
typedef struct {
  // Whether the next message goes through the broker, by its deadline.
  bool through_broker;
  // Messages given to a broker.
  uint64_t queued;
  // Messages given straight to the kernel, because there was no broker.
  uint64_t plain;
  // Messages that a broker gave to the kernel. Brokers report with some delay.
  uint64_t sent;
  // Messages that a broker dropped because they were late.
  uint64_t late;
  // Messages that the kernel refused to a broker.
  uint64_t refused;
  // Datagrams that waited in a broker that ended without sending them.
  uint64_t lost;
} takt_sent;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The text of this thread's last failed call: the error, its place, and the remedy. It stays until
// another call fails. Pushes are for real-time threads and leave no text: use takt_status_text for
// their status.
const char *takt_last_error(void);

// The version of takt, such as "0.1.0"; it lives for ever.
const char *takt_version(void);

// The meaning of a status, in a few words; for any number.
const char *takt_status_text(uint32_t status);

// An empty set of operations for so many CPUs, at least one. With `cancel`, noncritical jobs that
// can no longer be in time are omitted.
// `name` is a string, `into` may be written.
takt_status takt_operations_new(const char *name, uint32_t cpus, bool cancel, takt_operations **into);

// Adds an operation. Errors in it are reported when the plan is made.
// `operations` came from takt_operations_new; `operation` and what it points to can be read.
takt_status takt_operations_add(takt_operations *operations, const takt_operation *operation);

// Lets an operation take no part at first: until a switch to a mode of which takt_mode_absent does
// not say the same. A chain takes part as a whole.
// `operations` came from takt_operations_new, `operation` is a string.
takt_status takt_operations_absent(takt_operations *operations, const char *operation);

// Adds a mode for takt_dispatcher_switch: the same operations at the same rates under this
// strategy. Errors in it are reported when the plan is made.
// `operations` came from takt_operations_new, `mode` and `strategy` are strings.
takt_status takt_operations_mode(takt_operations *operations, const char *mode, const char *strategy);

// Lets an operation take no part in a mode.
// `operations` came from takt_operations_new, `mode` and `operation` are strings.
takt_status takt_mode_absent(takt_operations *operations, const char *mode, const char *operation);

// Gives an operation another period, or least distance, in a mode. Its successors come as often.
// `operations` came from takt_operations_new, `mode` and `operation` are strings.
takt_status takt_mode_period(takt_operations *operations, const char *mode, const char *operation, uint64_t period_ns);

// Frees a set of operations; a null pointer is no harm. Plans made of it stay.
// It came from takt_operations_new, and is not used any more.
void takt_operations_free(takt_operations *operations);

// The plan of a set of operations under a strategy: "rm", "dm", "edf", "mlf", "muf", "rms+mlf",
// "fifo", as in a system file. Within a level each job runs to completion.
// `operations` came from takt_operations_new, `strategy` is a string, `into` may be written.
takt_status takt_plan_new(const takt_operations *operations, const char *strategy, takt_plan **into);

// As takt_plan_new, but jobs of a level preempt each other. A level takes as many priorities then as its jobs nest.
// As of takt_plan_new.
takt_status takt_plan_new_preemptive(const takt_operations *operations, const char *strategy, takt_plan **into);

// The plan of the first node of a system file's text, with its strategy and its modes. Within a
// level each job runs to completion, whatever the file says.
// `toml` is a string, `into` may be written.
takt_status takt_plan_of_system(const char *toml, takt_plan **into);

// As takt_plan_of_system, but jobs of a level preempt each other where the file says so, as `takt run` has it.
// As of takt_plan_of_system.
takt_status takt_plan_of_system_preemptive(const char *toml, takt_plan **into);

// The number of a mode's plan, from 1, for takt_dispatcher_switch: that of takt_operations_mode of
// this name. SIZE_MAX where there is none, which a switch refuses.
// `plan` came from a call that makes plans, `mode` is a string.
size_t takt_plan_mode(const takt_plan *plan, const char *mode);

// A system file for takt_dispatcher_adaptive. `takt check` finds in it the longest response of a
// critical operation under a guard. It has only the critical operations of that CPU. The others
// are released as late as the first plan may have delayed them. Copied as takt_plan_text does it.
// Returns the number of bytes, zero without such a plan or critical operation.
// `plan` came from a call that makes plans, `operation` is a string; `into` is null, or `size`
// bytes of it may be written.
size_t takt_plan_guarded(const takt_plan *plan, size_t guard, const char *operation, char *into, size_t size);

// Copies the plan's table into `into`, cut to `size` bytes and ended by a zero byte; how many
// bytes it has without that. `into` may be null: to learn how many. Zero where the plan is a null
// pointer.
// `plan` is null or came from a call that makes plans; `into` is null, or `size` bytes of it may be written.
size_t takt_plan_text(const takt_plan *plan, char *into, size_t size);

// Frees a plan; a null pointer is no harm. Dispatchers and channels made of it stay.
// It came from a call that makes plans, and is not used any more.
void takt_plan_free(takt_plan *plan);

// A dispatcher for a plan, which it copies.
// `plan` came from a call that makes plans, `into` may be written.
takt_status takt_dispatcher_new(const takt_plan *plan, takt_dispatcher **into);

// Gives an operation its handler, which is called with `user`. To be called before the start;
// every operation needs one.
// `dispatcher` came from takt_dispatcher_new, `operation` is a string. `handler` does not unwind.
// Until takt_dispatcher_stop has answered TAKT_STATUS_OK, any of the dispatcher's threads may call
// it with `user`, one call at a time.
takt_status takt_dispatcher_on(takt_dispatcher *dispatcher, const char *operation, takt_handler handler, void *user);

// Moves by itself between two plans. It switches to the guard, a mode's plan, while a critical job
// is in danger. It switches back to the first plan (0) after two windows of a second with idle
// time.
//
// A job is in danger when its time to the deadline is no more than the sum of three parts: its
// operation's response under the guard, 500 us for the switch, and the work that the first plan
// may leave started in several levels. For an operation without a response, half of the deadline
// is taken, which promises nothing.
//
// Call this before the start, for a plan whose modes differ in their strategies alone. The start
// reports whether the controller fits the plan.
// `dispatcher` came from takt_dispatcher_new; `responses` points to `count` of them, or `count` is zero.
takt_status takt_dispatcher_adaptive(takt_dispatcher *dispatcher,
                                     size_t guard,
                                     const takt_response *responses,
                                     size_t count);

// Writes all that happens to a log, which `takt stats`, `takt chart` and the others read. To be
// called before the start; takt_dispatcher_drain writes on. A file that is there stays as it is
// until the dispatcher has started. TAKT_STATUS_UNWRITTEN: there can be no such file.
// `dispatcher` came from takt_dispatcher_new, `path` is a string.
takt_status takt_dispatcher_log(takt_dispatcher *dispatcher, const char *path);

// Starts all threads and returns at their time zero. `options` may be null. A dispatcher can be
// started only once. After a refused start, make another dispatcher of the same plan.
//
// A refused start leaves an existing file at the log's path as it was. TAKT_STATUS_UNWRITTEN is
// the exception: the threads had started when the log could not be begun, and have stopped again.
// `dispatcher` came from takt_dispatcher_new; `options` is null or can be read.
takt_status takt_dispatcher_start(takt_dispatcher *dispatcher, const takt_options *options);

// An operation of a dispatcher that runs, to push jobs of it. It may outlive the dispatcher;
// pushes answer TAKT_STATUS_STOPPED then.
// `dispatcher` came from takt_dispatcher_new, `operation` is a string, `into` may be written.
takt_status takt_dispatcher_operation(const takt_dispatcher *dispatcher, const char *operation, takt_handle **into);

// Releases a job now, by any thread. Takes a lock with priority inheritance for a moment,
// allocates nothing, never waits for room.
// `operation` came from takt_dispatcher_operation.
takt_status takt_operation_push(const takt_handle *operation);

// Frees what takt_dispatcher_operation gave; a null pointer is no harm.
// It came from there, and is not used any more.
void takt_operation_free(takt_handle *operation);

// The time since the dispatcher's start; zero where it does not run.
// `dispatcher` is null or came from takt_dispatcher_new.
uint64_t takt_dispatcher_now_ns(const takt_dispatcher *dispatcher);

// Switches to another plan: 0 is the plan of the node's strategy, k the plan of its k-th mode. No
// job or event is lost or repeated. A controller (takt_dispatcher_adaptive) goes on from there. It
// rests while the plan is neither of its two.
// `dispatcher` came from takt_dispatcher_new.
takt_status takt_dispatcher_switch(const takt_dispatcher *dispatcher, size_t plan);

// Which plan holds, counted as for takt_dispatcher_switch; zero where the dispatcher does not run.
// A controller may have changed it since.
// `dispatcher` is null or came from takt_dispatcher_new.
size_t takt_dispatcher_holds(const takt_dispatcher *dispatcher);

// Warnings about operations that may use more of a CPU than the kernel leaves real-time threads,
// as it was set at the start. One sentence per line. Copied as takt_plan_text does it. Returns the
// number of bytes: zero without a warning, on ordinary threads, or if the dispatcher does not run.
// `dispatcher` is null or came from takt_dispatcher_new; `into` is null, or `size` bytes of it may be written.
size_t takt_dispatcher_warnings(const takt_dispatcher *dispatcher, char *into, size_t size);

// Writes the events since the last call to the log, or forgets them if there is no log. Call it
// often enough that `records` are not exceeded.
//
// TAKT_STATUS_UNWRITTEN means that the log could not be written (a full disk). The log ends there;
// the dispatcher goes on. Writing is buffered, so takt_dispatcher_stop may be the first call to
// report this.
// `dispatcher` came from takt_dispatcher_new.
takt_status takt_dispatcher_drain(takt_dispatcher *dispatcher);

// The outcomes of an operation's jobs: so far, or in the end.
// `dispatcher` came from takt_dispatcher_new, `operation` is a string, `into` may be written.
takt_status takt_dispatcher_counts(const takt_dispatcher *dispatcher, const char *operation, takt_counts *into);

// A descriptor for poll, select or epoll. It is readable while an overrun waits; the loop then
// calls takt_dispatcher_next_overrun until that returns false. It may be readable once in vain. Do
// not close or read it: the dispatcher closes it at its stop or free. -1 if the dispatcher does
// not run, or no descriptor can be had.
// `dispatcher` is null or came from takt_dispatcher_new.
int takt_dispatcher_overrun_fd(const takt_dispatcher *dispatcher);

// Takes the oldest waiting overrun of the operations with a watched wcet. Returns whether there
// was one. Never waits. At most 256 wait: takt_counts counts them all.
// `dispatcher` is null or came from takt_dispatcher_new, `into` may be written.
bool takt_dispatcher_next_overrun(takt_dispatcher *dispatcher, takt_overran *into);

// Stops the dispatcher. No job starts any more; running jobs may return (5 s at most). Do not call
// it from a handler.
//
// The log is then complete, unless it could not be written, which is TAKT_STATUS_UNWRITTEN. After
// TAKT_STATUS_OK and TAKT_STATUS_UNWRITTEN no handler runs any more. After TAKT_STATUS_TROUBLE (or
// _PANIC) a handler may still run, and its data must stay. If the log failed too, this status is
// returned, and takt_last_error reports both.
// `dispatcher` came from takt_dispatcher_new.
takt_status takt_dispatcher_stop(takt_dispatcher *dispatcher);

// Stops a dispatcher if it runs, as takt_dispatcher_stop, and frees it; a null pointer is no harm.
// Whether a handler runs on only takt_dispatcher_stop tells.
// It came from takt_dispatcher_new, and is not used any more, nor is a channel connected to it.
void takt_dispatcher_free(takt_dispatcher *dispatcher);

// The job's number among those of its operation, from 0.
// `job` is what a handler was called with, during that call (of a null pointer all is zero); so for the calls below.
uint64_t takt_job_number(const takt_job *job);

// When the job was released.
// As takt_job_number.
uint64_t takt_job_arrival_ns(const takt_job *job);

// By when it must be complete.
// As takt_job_number.
uint64_t takt_job_deadline_ns(const takt_job *job);

// The time since the dispatcher's start, as takt_dispatcher_now_ns.
// As takt_job_number.
uint64_t takt_job_now_ns(const takt_job *job);

// How long it is until the deadline; zero once it is over.
// As takt_job_number.
uint64_t takt_job_time_left_ns(const takt_job *job);

// Whether the job has executed for longer than its operation's wcet, where its takt_overrun watches that.
// As takt_job_number.
bool takt_job_has_overrun(const takt_job *job);

// Whether the job is to return at once. This is so if it was dropped at its deadline, if it has
// overrun a wcet that stops it, or if the dispatcher stops. A long handler should ask from time to
// time.
// As takt_job_number.
bool takt_job_must_stop(const takt_job *job);

// A channel for payloads of up to `payload_max` bytes (64 KiB at most), groups of up to
// `events_max` events (64 at most), and a history of so many. Zero: 256 bytes, 8 events, none. A
// subscription takes room for the groups of up to 64 jobs; that and the history may take 64 MiB
// together, with some 90 bytes of each event's own.
// `into` may be written.
takt_status takt_channel_new(size_t payload_max, size_t events_max, size_t history, takt_channel **into);

// A sporadic operation of a plan waits for `count` patterns, which `group` (a takt_group) joins.
// To be called before the channel is connected.
// `channel` and `plan` came from calls that make them, `operation` is a string, `patterns` points
// to `count` of them, `into` may be written.
takt_status takt_channel_subscribe(const takt_channel *channel,
                                   const takt_plan *plan,
                                   const char *operation,
                                   uint32_t group,
                                   const takt_pattern *patterns,
                                   size_t count,
                                   takt_subscription **into);

// Replaces the patterns and the quality of service from now on (null: the quality of a new
// subscription). Events that wait for its handler stay. By any thread.
// `subscription` came from takt_channel_subscribe, `patterns` points to `count` of them, `quality`
// is null or points to one.
takt_status takt_subscription_reconnect(const takt_subscription *subscription,
                                        uint32_t group,
                                        const takt_pattern *patterns,
                                        size_t count,
                                        const takt_quality *quality);

// Suspends the subscription until takt_subscription_resume. It ignores events and forgets the
// events of an incomplete group. By any thread.
// `subscription` came from takt_channel_subscribe.
takt_status takt_subscription_suspend(const takt_subscription *subscription);

// It waits again, from now on. By any thread.
// `subscription` came from takt_channel_subscribe.
takt_status takt_subscription_resume(const takt_subscription *subscription);

// The outcomes of its sets of events so far.
// `subscription` came from takt_channel_subscribe, `into` may be written.
takt_status takt_subscription_counts(const takt_subscription *subscription, takt_event_counts *into);

// Gives an operation that subscribed its handler, which is called with `user`. To be called before the start.
// `dispatcher` and `subscription` came from calls that make them, `operation` is a string, that of
// the subscription. `handler` and `user` are as for takt_dispatcher_on.
takt_status takt_dispatcher_on_events(takt_dispatcher *dispatcher,
                                      const char *operation,
                                      const takt_subscription *subscription,
                                      takt_event_handler handler,
                                      void *user);

// Frees what takt_channel_subscribe gave; a null pointer is no harm. The operation goes on
// waiting, unless takt_channel_unsubscribe was called.
// It came from there, and is not used any more.
void takt_subscription_free(takt_subscription *subscription);

// The operation waits for nothing any more, and may subscribe anew; also one without a handler,
// with which the channel cannot be connected. To be called while the channel is not connected. The
// subscription is to be freed all the same.
// `channel` came from takt_channel_new, `subscription` from takt_channel_subscribe.
takt_status takt_channel_unsubscribe(const takt_channel *channel, const takt_subscription *subscription);

// Delivers from now on to the operations of a dispatcher that runs, until takt_channel_disconnect.
// `channel` and `dispatcher` came from calls that make them.
takt_status takt_channel_connect(takt_channel *channel, const takt_dispatcher *dispatcher);

// Delivers no more. To be called before the dispatcher stops; a channel that is not connected is no harm.
// `channel` came from takt_channel_new.
takt_status takt_channel_disconnect(takt_channel *channel);

// Disconnects and frees a channel; a null pointer is no harm. Pushes of its suppliers answer TAKT_STATUS_STOPPED then.
// It came from takt_channel_new, and is not used any more.
void takt_channel_free(takt_channel *channel);

// A supplier that pushes events under this number.
// `channel` came from takt_channel_new, `into` may be written.
takt_status takt_channel_supplier(const takt_channel *channel, uint32_t source, takt_supplier **into);

// Pushes an event, by any thread. Its handlers should have returned after `deadline_ns` (zero: it
// has no deadline of its own). It is of no use after `ttl_ns` (zero: it does not expire).
//
// The push copies the payload and allocates nothing. It takes locks with priority inheritance for
// moments. It waits for room only at a node's level with TAKT_SENDING_PATIENT.
//
// `pushed` may be null. A payload that is too long is TAKT_STATUS_INVALID, and so is a type of the
// channel's own (the three largest).
// `supplier` came from takt_channel_supplier, `payload` points to `length` bytes (it may be null
// where that is zero), `pushed` is null or may be written.
takt_status takt_supplier_push(const takt_supplier *supplier,
                               uint32_t kind,
                               const uint8_t *payload,
                               size_t length,
                               uint64_t deadline_ns,
                               uint64_t ttl_ns,
                               takt_pushed *pushed);

// Shows the remembered events that match the pattern and have not expired, the oldest first, on
// the calling thread. They are a copy from the time of the call. Suppliers wait while the copy is
// made, so handlers should not call this. A channel that was connected to another dispatcher since
// has forgotten the events before.
// `channel` came from takt_channel_new, `pattern` can be read. `show` does not unwind, and may be
// called with `user` meanwhile.
takt_status takt_channel_history(const takt_channel *channel,
                                 const takt_pattern *pattern,
                                 takt_event_viewer show,
                                 void *user);

// Reports every change of a subscription to `observer` from now on. The calling thread of the
// change reports it before its call returns.
// `channel` came from takt_channel_new. `observer` does not unwind. Any thread that changes a
// subscription may call it with `user`, several at a time, until the channel and all objects made
// of it are freed.
takt_status takt_channel_observe(const takt_channel *channel, takt_observer observer, void *user);

// Frees what takt_channel_supplier gave; a null pointer is no harm.
// It came from there, and is not used any more.
void takt_supplier_free(takt_supplier *supplier);

// One event.
// `pattern` can be read, `into` may be written.
takt_status takt_filter_one(const takt_pattern *pattern, takt_filter **into);

// `count` filters (64 at most), which `group` (a takt_group) joins.
// `members` points to `count` filters that came from calls that make them, `into` may be written.
takt_status takt_filter_group(uint32_t group, const takt_filter *const *members, size_t count, takt_filter **into);

// A filter that is complete without an event of `unless` since it began to wait. Such an event
// makes it begin anew.
// `filter` came from a call that makes filters, `unless` can be read, `into` may be written.
takt_status takt_filter_without(const takt_filter *filter, const takt_pattern *unless, takt_filter **into);

// No event that `of` means for `span_ns`, which is 100 us or more. It comes as an event of the type TAKT_KIND_TIMEOUT.
// `of` can be read, `into` may be written.
takt_status takt_filter_silence(const takt_pattern *of, uint64_t span_ns, takt_filter **into);

// `span_ns` after it began to wait, which is 100 us or more. It comes as an event of the type TAKT_KIND_TIMEOUT.
// `into` may be written.
takt_status takt_filter_timeout(uint64_t span_ns, takt_filter **into);

// Frees a filter; a null pointer is no harm. Filters and subscriptions made of it stay.
// It came from a call that makes filters, and is not used any more.
void takt_filter_free(takt_filter *filter);

// As takt_channel_subscribe, with a filter and a quality of service; that may be null.
// `channel`, `plan` and `filter` came from calls that make them, `operation` is a string,
// `quality` is null or points to one, `into` may be written.
takt_status takt_channel_subscribe_filter(const takt_channel *channel,
                                          const takt_plan *plan,
                                          const char *operation,
                                          const takt_filter *filter,
                                          const takt_quality *quality,
                                          takt_subscription **into);

// As takt_subscription_reconnect, with a filter. By any thread.
// `subscription` and `filter` came from calls that make them, `quality` is null or points to one.
takt_status takt_subscription_reconnect_filter(const takt_subscription *subscription,
                                               const takt_filter *filter,
                                               const takt_quality *quality);

// Makes a queue for a thread of the program. It holds events that match one of these patterns and
// are pushed by any thread of this process. takt_outlet_fd signals waiting events,
// takt_outlet_next takes them. Call this before the channel is connected.
//
// `room` is the number of events that can wait (zero: 64; 65,536 at most). If the queue is full,
// the new event is dropped, or with `drops_oldest` the oldest one. The drop is counted.
// `channel` came from takt_channel_new; `patterns` points to `count` of them; `into` may be written.
takt_status takt_channel_outlet(const takt_channel *channel,
                                const takt_pattern *patterns,
                                size_t count,
                                size_t room,
                                bool drops_oldest,
                                takt_outlet **into);

// A descriptor for poll, select or epoll: readable while an event waits, so that a loop calls
// takt_outlet_next until that says false. It may be readable once in vain. The outlet closes it:
// it is neither to be closed nor to be read. -1 for a null pointer.
// `outlet` is null or came from takt_channel_outlet.
int takt_outlet_fd(const takt_outlet *outlet);

// Takes the oldest event that waits; whether there was one. Never waits. An event whose time is
// over is taken like any other.
// `outlet` is null or came from takt_channel_outlet, `into` may be written.
bool takt_outlet_next(takt_outlet *outlet, takt_taken *into);

// The counters of an outlet.
// `outlet` came from takt_channel_outlet, `into` may be written.
takt_status takt_outlet_counts(const takt_outlet *outlet, takt_passed *into);

// Frees an outlet and closes its descriptor; a null pointer is no harm. Pushes pass it by from then on.
// It came from takt_channel_outlet, and is not used any more.
void takt_outlet_free(takt_outlet *outlet);

// A node of this number, which no other node has, without levels. `options` may be null.
// `options` is null or can be read, `into` may be written.
takt_status takt_node_new(uint64_t id, const takt_node_options *options, takt_node **into);

// Adds a level. Whether it fits the dispatcher's plan takt_channel_connect_as tells.
// `node` came from takt_node_new; `level` can be read, its strings are strings, and its pointers
// point to as many as it says.
takt_status takt_node_add(takt_node *node, const takt_level *level);

// Frees a node; a null pointer is no harm. A channel that is connected as it stays so.
// It came from takt_node_new, and is not used any more.
void takt_node_free(takt_node *node);

// Whether a push may have to wait for the network, at a level with this takt_sending and
// patience_ns; so it may where the number is none of a takt_sending.
bool takt_sending_may_block(uint32_t sending, uint64_t patience_ns);

// Whether such a level may drop an event that is pushed here and does not expire, for lack of
// room. True also if the number is no takt_sending. If a push waits for room while the channel is
// disconnected, its event is dropped at any level.
bool takt_sending_may_drop(uint32_t sending, uint64_t patience_ns);

// As takt_channel_connect, and shares events with other nodes. A node that cannot be is
// TAKT_STATUS_INVALID; a socket that is refused is TAKT_STATUS_REFUSED, or TAKT_STATUS_PRIVILEGE.
// Queues of all levels together may take 64 MiB.
// `channel`, `node` and `dispatcher` came from calls that make them.
takt_status takt_channel_connect_as(takt_channel *channel, const takt_node *node, const takt_dispatcher *dispatcher);

// The counters of a level so far. TAKT_STATUS_STOPPED while the channel is not connected.
// `channel` came from takt_channel_new, `level` is a string, `into` may be written.
takt_status takt_channel_traffic(const takt_channel *channel, const char *level, takt_traffic *into);

// The known facts about a level's peer, counted from 0 in the order of takt_level.
// TAKT_STATUS_STOPPED while the channel is not connected.
// `channel` came from takt_channel_new, `level` is a string, `into` may be written.
takt_status takt_channel_peer(const takt_channel *channel, const char *level, size_t peer, takt_peer *into);

// `count` values (65,536 and 64 MiB at most), of each of which `sizes` says how many bytes it can
// have. They go as events of this source and type, which nobody else is to supply. A value that
// fits into no event of the channel, with 28 bytes besides, is TAKT_STATUS_INVALID.
// `channel` came from takt_channel_new, `sizes` points to `count` of them, `into` may be written.
takt_status takt_published_new(const takt_channel *channel,
                               uint32_t source,
                               uint32_t kind,
                               const size_t *sizes,
                               size_t count,
                               takt_published **into);

// An operation's job writes a value, to be sent by the flush at the job's deadline; `in_time` (may
// be null) tells whether it is in time for that. From a handler, whether the channel is connected
// or not. Takes a lock with priority inheritance for a moment, and allocates nothing. No such
// value, or too many bytes: TAKT_STATUS_INVALID.
// `published` came from takt_published_new. `bytes` points to `length` bytes (it may be null if
// that is zero). `job` is the handler's argument. `in_time` is null or may be written.
takt_status takt_published_write(const takt_published *published,
                                 size_t value,
                                 const uint8_t *bytes,
                                 size_t length,
                                 const takt_job *job,
                                 bool *in_time);

// Sends all values that are due at this job's arrival, in as few events as they fit into; they are
// of use for `ttl_ns` (zero: for ever). `values` (may be null) tells how many there were. From the
// handler of one operation, which has the frame's period. Does what takt_supplier_push does for
// each event. TAKT_STATUS_STOPPED: the channel is not connected; what was not sent goes with the
// next flush.
// `published` came from takt_published_new, `job` is what the handler was called with, `values` is
// null or may be written.
takt_status takt_published_flush(const takt_published *published, uint64_t ttl_ns, const takt_job *job, size_t *values);

// The next flush sends all values that were ever sent again. Use it for a new peer
// (TAKT_KIND_PEER_FOUND), or for a peer that lost some. From handlers, too.
// `published` came from takt_published_new.
takt_status takt_published_refresh(const takt_published *published);

// The most events that a flush takes: the backlog that a consumer of them needs, with a least
// distance of 1 ns. Zero for a null pointer.
// `published` is null or came from takt_published_new.
size_t takt_published_events_max(const takt_published *published);

// The counters of writes and flushes so far.
// `published` came from takt_published_new, `into` may be written.
takt_status takt_published_counts(const takt_published *published, takt_flushes *into);

// Frees a publisher; a null pointer is no harm.
// It came from takt_published_new, and is not used any more.
void takt_published_free(takt_published *published);

// Makes a replica of the publisher with this source, type and sizes.
// `sizes` points to `count` of them, `into` may be written.
takt_status takt_replica_new(uint32_t source, uint32_t kind, const size_t *sizes, size_t count, takt_replica **into);

// Takes the values of a flush's events, and leaves other events: from the handler that was called
// with them. Takes a lock with priority inheritance for moments, and allocates nothing.
// `replica` came from takt_replica_new; `events`, `count` and `job` are what the handler was called with.
takt_status takt_replica_apply(const takt_replica *replica,
                               const takt_event *events,
                               size_t count,
                               const takt_job *job);

// Reads `count` values (65,536 at most), all as they were after the same event. A flush may come
// in several events. Each element names its value and its destination. From handlers, too: it
// takes a lock with priority inheritance for the time of the copies, and allocates nothing.
//
// An element with an unknown value or without a destination makes the call TAKT_STATUS_INVALID,
// and nothing is read.
// `replica` came from takt_replica_new; `values` points to `count` of them, and of each `size`
// bytes may be written at `bytes`, which no other one has.
takt_status takt_replica_read(const takt_replica *replica, takt_known *values, size_t count);

// The counters of applied events so far.
// `replica` came from takt_replica_new, `into` may be written.
takt_status takt_replica_counts(const takt_replica *replica, takt_applied *into);

// Frees a replica; a null pointer is no harm.
// It came from takt_replica_new, and is not used any more.
void takt_replica_free(takt_replica *replica);

// Gives the messages of a UDP socket, or of a connected TCP socket, a deadline: `ns` after they are
// sent. May be called again before any of them. Zero ends that: the call waits for what the broker
// still has, for a second at most. Then all calls of the system work on the socket as before.
//
// A file that defines TAKT_DEADLINE_SENDS before it includes this header sends them by send(2),
// sendto(2), sendmsg(2) and, in C, write(2): see the end of this header. Other files call takt_send
// or takt_sendto.
//
// TAKT_STATUS_FULL: bytes of a stream still wait after that second, because its peer takes none.
// They leave when it does. Call this again with zero, and do not send before that.
//
// The broker (`takt net broker`) sends the messages of all programs in the order of their
// deadlines. It is looked for at /run/takt-broker, or where the environment variable TAKT_BROKER
// says. While there is none, messages go straight to the kernel: takt_deadline_counts tells so.
//
// End it before the descriptor is closed. If its number is given to another socket, that socket has no
// deadline until this is called. A child of fork(2) uses none of its parent's sockets with
// deadlines.
takt_status takt_deadline(int fd, uint64_t ns);

// Sends a message on a socket that takt_deadline was called for. Returns how many bytes were taken:
// of a datagram all, of a stream perhaps fewer. Never raises SIGPIPE. A negative value is an errno:
//
// - -EAGAIN: there is no room, and the socket has O_NONBLOCK or `flags` MSG_DONTWAIT. The descriptor of
//   takt_deadline_room_fd signals room.
// - -EMSGSIZE: a datagram of more than 65,536 bytes.
// - -EINVAL: other flags than MSG_DONTWAIT and MSG_NOSIGNAL, a null pointer, or a descriptor without a
//   deadline.
// `bytes` points to `length` bytes.
int64_t takt_send(int fd, const uint8_t *bytes, size_t length, int flags);

// The same to an address: a `struct sockaddr_in` or `sockaddr_in6` of `address_length` bytes.
// `bytes` points to `length` bytes, `address` to `address_length` bytes.
int64_t takt_sendto(int fd,
                    const uint8_t *bytes,
                    size_t length,
                    int flags,
                    const void *address,
                    uint32_t address_length);

// Sends one message of `count` parts, each a `struct iovec`, to an address or, if that is a null pointer,
// to the connected peer. The macros of TAKT_DEADLINE_SENDS at the end of this header call it.
//
// Returns INT64_MIN, and sends nothing, if the descriptor has no deadline. Otherwise it returns what
// takt_sendto does, with two more errors:
//
// - -EOPNOTSUPP: the message has control data, so `control_length` is not zero.
// - -EFAULT: a part, or all of them, is a null pointer.
// `parts` points to `count` parts, each to its bytes, `address` to `address_length` bytes.
int64_t takt_send_parts(int fd,
                        const void *parts,
                        size_t count,
                        size_t control_length,
                        int flags,
                        const void *address,
                        uint32_t address_length);

// A descriptor for poll(2) or epoll(7) with POLLIN: it is readable until a send fails with EAGAIN, and
// again when there is room for that message. POLLOUT of the socket itself tells nothing of the room in
// the broker. A send may still fail with EAGAIN, if another thread takes the room first: poll again.
//
// Each call answers the same one. Do not read from it, and do not close it: takt_deadline with zero
// does. A negative value is an errno: -EINVAL for a descriptor without a deadline, -EMFILE if the
// process has as many open files as it may.
int takt_deadline_room_fd(int fd);

// The counts of a socket with deadlines.
// `into` may be written.
takt_status takt_deadline_counts(int fd, takt_sent *into);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAKT_H */

/* Plain sends by the deadline, for a file that defines TAKT_DEADLINE_SENDS before it includes this header.
 *
 * In the rest of the file send, sendto, sendmsg and, in C, write are macros. For a socket that takt_deadline
 * was called for they go by its deadline. For all other descriptors they are the calls of the system.
 *
 * They answer as those do: the bytes that were taken, or -1 and errno. On a socket with a deadline:
 *
 * - SIGPIPE is never raised, with MSG_NOSIGNAL and without it.
 * - Other flags than MSG_DONTWAIT and MSG_NOSIGNAL are refused with EINVAL, control data with EOPNOTSUPP.
 * - A datagram of more than 65,536 bytes is refused with EMSGSIZE. A longer send on a stream takes only a part.
 * - A send that waits for room ends neither by a signal (EINTR) nor by SO_SNDTIMEO.
 *
 * They take a lock. Call (write)(fd, ...), which is no macro, in a handler of signals and in a child of fork.
 * Include this header last. No function with one of these names may be declared after it. */
#if defined(TAKT_DEADLINE_SENDS) && !defined(TAKT_DEADLINE_SENDS_H)
#define TAKT_DEADLINE_SENDS_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static inline ssize_t takt_deadline_result(int64_t answer) {
  if (answer < 0) {
    errno = (int)-answer;
    return -1;
  }
  return (ssize_t)answer;
}

/* What takt_send_parts answers to a message of one part. */
static inline int64_t takt_deadline_part(int fd, const void *bytes, size_t length, int flags, const void *address,
                                         socklen_t address_length) {
  /* As struct iovec, but its bytes are const. */
  const struct {
    const void *bytes;
    size_t length;
  } part = {bytes, length};

  return takt_send_parts(fd, &part, 1, 0, flags, address, address_length);
}

static inline ssize_t takt_deadline_send(int fd, const void *bytes, size_t length, int flags) {
  int64_t answer = takt_deadline_part(fd, bytes, length, flags, NULL, 0);

  return answer == INT64_MIN ? (send)(fd, bytes, length, flags) : takt_deadline_result(answer);
}

/* In C, _GNU_SOURCE lets sendto take each kind of address without a cast. */
static inline ssize_t takt_deadline_sendto(int fd, const void *bytes, size_t length, int flags, const void *address,
                                           socklen_t address_length) {
  int64_t answer = takt_deadline_part(fd, bytes, length, flags, address, address_length);

  return answer == INT64_MIN ? (sendto)(fd, bytes, length, flags, (const struct sockaddr *)address, address_length)
                             : takt_deadline_result(answer);
}

static inline ssize_t takt_deadline_sendmsg(int fd, const struct msghdr *message, int flags) {
  const void *address = message->msg_namelen > 0 ? message->msg_name : NULL;
  int64_t answer = takt_send_parts(fd, message->msg_iov, message->msg_iovlen, message->msg_controllen, flags,
                                   address, message->msg_namelen);

  return answer == INT64_MIN ? (sendmsg)(fd, message, flags) : takt_deadline_result(answer);
}

#define send(...) takt_deadline_send(__VA_ARGS__)
#define sendto(...) takt_deadline_sendto(__VA_ARGS__)
#define sendmsg(...) takt_deadline_sendmsg(__VA_ARGS__)

#ifndef __cplusplus
static inline ssize_t takt_deadline_write(int fd, const void *bytes, size_t length) {
  int64_t answer = takt_deadline_part(fd, bytes, length, 0, NULL, 0);

  return answer == INT64_MIN ? (write)(fd, bytes, length) : takt_deadline_result(answer);
}

#define write(...) takt_deadline_write(__VA_ARGS__)
#endif

#endif  /* TAKT_DEADLINE_SENDS */
