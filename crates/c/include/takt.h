/* takt for C: operations under a scheduling strategy on SCHED_FIFO threads, and a real-time event channel between them.
 *
 * Generated from crates/c/src by cbindgen; `TAKT_HEADER=write cargo test -p takt-c` writes it anew.
 *
 * Times are nanoseconds; those of a dispatcher count from its start. Strings are UTF-8 and end with a zero byte; takt copies
 * what it keeps. A call that can fail returns a takt_status, and takt_last_error() tells what was wrong and what to do (of a
 * push, takt_status_text).
 * Unless a call says otherwise, pointers must not be null (a call that is given one answers TAKT_STATUS_INVALID), and an object is
 * used by one thread at a time: a handler runs on another one than whoever drains its dispatcher, and makes no call with that.
 * takt_operation_push and takt_supplier_push may be called by any thread, and from handlers, and so may takt_published_write,
 * _flush and _refresh and takt_replica_apply and _read: these are pushes, too, that leave no text. */

#ifndef TAKT_H
#define TAKT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The type of the event that stands for a timeout or a silence (takt_filter_timeout, takt_filter_silence). No supplier has it, nor the two below.
#define TAKT_KIND_TIMEOUT 4294967295

// The type of the event that a peer of a node is lost: it was silent for too long, ended, or began anew. Its source is the peer's place in its level, its number the level's in the node, both from 0; its payload is the peer's number (8 bytes, big-endian).
#define TAKT_KIND_PEER_LOST 4294967294

// The type of the event that a peer of a node is there, for the first time or again. Source, number and payload as of the former.
#define TAKT_KIND_PEER_FOUND 4294967293

// What became of a call.
typedef enum {
  // It did what it says.
  TAKT_STATUS_OK = 0,
  // A null pointer, a name that nothing has, a value out of its range, or a call that comes too early or too late.
  TAKT_STATUS_INVALID = 1,
  // The operations are no plan under that strategy; all that is wrong is told.
  TAKT_STATUS_UNPLANNABLE = 2,
  // A privilege is missing; what to grant is told.
  TAKT_STATUS_PRIVILEGE = 3,
  // The kernel refused something else.
  TAKT_STATUS_REFUSED = 4,
  // A push: as many jobs as the operation's backlog allows wait or run.
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

// What becomes of an operation's late jobs.
typedef enum {
  // What the strategy's level says.
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

// What becomes of a job that executes for longer than its operation's wcet. No handler is ended from outside: it goes on until it returns.
typedef enum {
  // That is not watched.
  TAKT_OVERRUN_UNWATCHED = 0,
  // It goes on, and the program is told (takt_dispatcher_next_overrun).
  TAKT_OVERRUN_CONTINUE = 1,
  // The same, and it is told to stop (takt_job_must_stop). Whenever it returns it is not complete, and the rest of its chain is shed.
  TAKT_OVERRUN_STOP = 2,
  // The same as TAKT_OVERRUN_CONTINUE, and it has the priority of demoted jobs until it returns, below all levels. Another thread takes the next job of its level.
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

// What happened to a subscription.
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

// By which clock a node tells when its events leave. Nodes with the same one know how long events were under way, which counts against their time to live and their deadline.
typedef enum {
  // CLOCK_MONOTONIC, which processes of one machine share.
  TAKT_CLOCK_MACHINE = 0,
  // CLOCK_TAI, which something else keeps synchronized (PTP) among all nodes that have the same clock_number.
  TAKT_CLOCK_SYNCHRONIZED = 1,
  // None in common with anybody.
  TAKT_CLOCK_OWN = 2,
} takt_clock;

// What a push does with an event that is to leave.
typedef enum {
  // It is sent by whoever pushes, at once. Where the socket has no room it is dropped.
  TAKT_SENDING_DIRECT = 0,
  // It is sent by whoever pushes, who waits for room in the socket: for the event's time to live and patience_ns at most. Then it is dropped.
  TAKT_SENDING_PATIENT = 1,
  // It is sent by another thread of the level, and waits in a queue for that. One that finds no room there is dropped.
  TAKT_SENDING_QUEUED_NEWEST = 2,
  // The same, but one that finds no room takes the place of the oldest, which is dropped.
  TAKT_SENDING_QUEUED_OLDEST = 3,
} takt_sending;

// A channel.
typedef struct takt_channel takt_channel;

// A dispatcher, before it starts, while it runs, and when it has stopped.
typedef struct takt_dispatcher takt_dispatcher;

// What an operation waits for: one event, or a group of filters. What a filter is made of is copied, and stays the caller's. It waits for at most 64 events, and is at most 16 filters deep.
typedef struct takt_filter takt_filter;

// An operation of a dispatcher that runs, to push jobs of.
typedef struct takt_handle takt_handle;

// The job that a handler is called for; of use during that call.
typedef struct takt_job takt_job;

// A process among others that share events, as it will be: takt_channel_connect_as makes it one.
typedef struct takt_node takt_node;

// A set of operations.
typedef struct takt_operations takt_operations;

// Events that wait for a thread of the program: what it does not want to handle on a real-time thread, or what handlers answer.
typedef struct takt_outlet takt_outlet;

// Who runs when.
typedef struct takt_plan takt_plan;

// Values that operations of this process write, and others are to know. Its calls may be made by any thread, all but takt_published_free.
typedef struct takt_published takt_published;

// Values of a publisher as they are known here. Its calls may be made by any thread, all but takt_replica_free.
typedef struct takt_replica takt_replica;

// What an operation waits for.
typedef struct takt_subscription takt_subscription;

// Who pushes events of one source.
typedef struct takt_supplier takt_supplier;

// What an operation is like. Zero is a value for all that may be left out.
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
  // What becomes of its late jobs: a takt_late.
  uint32_t late;
  // Whether its jobs are omitted once they can no longer be in time: a takt_cancel.
  uint32_t cancel;
  // What becomes of its jobs that execute for longer than wcet_ns: a takt_overrun.
  uint32_t overrun;
  // The names of its predecessors; may be null where there are none.
  const char *const *after;
  // How many there are.
  size_t after_count;
} takt_operation;

// The code of an operation, called once a job on a real-time thread: it should not wait. `user` is what was given with it. Beside takt_job_must_stop and the others of its job it may call what any thread may
// at any time (pushes); no call of its dispatcher, which another thread may be using meanwhile: not takt_dispatcher_stop or _free, nor _switch, _holds, _counts, _operation or _now_ns (takt_job_now_ns says the same).
typedef void (*takt_handler)(const takt_job *job, void *user);

// The longest response of a critical operation under the guard of takt_dispatcher_adaptive, with the others released as late as the first plan may have put them off:
// takt_plan_guarded gives the system file of which `takt check` finds it. A smaller one, as of the guard's plan by itself, can lose critical deadlines.
typedef struct {
  // The operation's name.
  const char *operation;
  // From its arrival to its completion, at the most.
  uint64_t longest_ns;
} takt_response;

// How a dispatcher runs. All zero is the default.
typedef struct {
  // Run without privilege and without any guarantee, as ordinary threads. Without it a missing privilege is TAKT_STATUS_PRIVILEGE.
  bool best_effort;
  // Timers release no job at or after this; zero: they go on.
  uint64_t duration_ns;
  // Facts that each CPU keeps between two calls of takt_dispatcher_drain; more are lost and counted. Zero: 65,536.
  size_t records;
} takt_options;

// What became of an operation's jobs. released = completed + cancelled + rejected + unfinished.
typedef struct {
  // Jobs released.
  uint64_t released;
  // Jobs that came to their end.
  uint64_t completed;
  // Of these, after their deadline.
  uint64_t late;
  // Jobs omitted, or shed with a predecessor.
  uint64_t cancelled;
  // Jobs not queued, for too many of the operation waited or ran.
  uint64_t rejected;
  // Jobs that wait, run, were dropped at their deadline, or failed.
  uint64_t unfinished;
  // Deadlines not met so far: jobs that were not complete by their deadline (those that wait or run past it, too), or cannot be any more: all that are cancelled,
  // rejected, dropped or failed. What a monitor looks at: `late` has those alone that came to their end.
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

// Which events are meant: those whose type and source agree with these values in all bits of the masks. A mask of zero means any.
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

// With what quality of service a subscription has its events, beside its operation's level and deadline. All zeros: as a new subscription.
typedef struct {
  // How soon after its push an event should have been handled, in ns; its own deadline holds where that is earlier. Zero: its own.
  uint64_t deadline_ns;
  // How long after its push an event is of use here, in ns; its own time to live holds where that is shorter. Zero: its own.
  uint64_t ttl_ns;
  // Whether the newest events take the place of those that wait, and wait for the least distance (the operation has a backlog of 2 or more).
  bool latest;
} takt_quality;

// What became of the sets of events that a subscription waited for: complete = handled + expired + rejected + omitted + replaced + what waits.
typedef struct {
  // Times that its patterns were there.
  uint64_t complete;
  // Of these, those that its handler was called for.
  uint64_t handled;
  // Of those handled, those whose handler returned after a deadline of their events.
  uint64_t late;
  // Whose time to live was over when its job ran.
  uint64_t expired;
  // That the operation was not pushed for.
  uint64_t rejected;
  // Whose job was omitted or dropped.
  uint64_t omitted;
  // Whose place newer ones took.
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
  // What its supplier said.
  const uint8_t *payload;
  // How many bytes.
  size_t length;
  // Which pattern of the subscription it is for, from 0. Of a filter: which of its single events, silences and timeouts, in the order in which they were given.
  size_t pattern;
} takt_event;

// The code of an operation that consumes events: `count` of them, one for each pattern that took part.
typedef void (*takt_event_handler)(const takt_event *events, size_t count, const takt_job *job, void *user);

// What a push came to.
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
  // How long it is until its deadline, zero once that is over; all ones: it has none of its own.
  uint64_t due_in_ns;
  // For how long it is still of use; all ones: for ever.
  uint64_t expires_in_ns;
  // What its supplier said.
  const uint8_t *payload;
  // How many bytes.
  size_t length;
} takt_taken;

// What an outlet has counted.
typedef struct {
  // Events that were meant.
  uint64_t pushed;
  // Of these, those dropped for want of room.
  uint64_t full;
} takt_passed;

// What a node is like. All zeros: the default.
typedef struct {
  // By which clock it tells times: a takt_clock.
  uint32_t clock;
  // Of TAKT_CLOCK_SYNCHRONIZED: which clock it is. Unused otherwise.
  uint64_t clock_number;
  // How often it tells its peers that it is there, on each level: 10 ms or more. Zero: 100 ms.
  uint64_t beat_ns;
  // After how long a silence a peer is lost: four beats or more. Zero: four beats.
  uint64_t lost_after_ns;
  // Of how many other nodes a level keeps apart whose events have come, 65,536 at most. Zero: 64.
  size_t nodes_max;
  // Whether events that come from one peer go on to the others of the level. What finds no room is dropped then, whatever the level's takt_sending.
  bool forwards;
} takt_node_options;

// What goes between nodes at one level of urgency: a socket and a thread of its own. Zero is a value for all but `name` and `at`.
typedef struct {
  // Its name, which no other level of the node has.
  const char *name;
  // The address at which it receives, and from which it sends: "10.0.0.1:7000" or "[fe80::1%2]:7000". Port 0: one that the kernel chooses, which takt_traffic tells.
  const char *at;
  // The addresses of the same level of other nodes (1,024 at most). Datagrams from other addresses are dropped. May be null where there are none.
  const char *const *peers;
  // How many there are.
  size_t peer_count;
  // Which events go to all the peers: those that one of these patterns means (1,024 at most). May be null where it only receives.
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
  // SO_PRIORITY of what it sends, by which queueing disciplines go; more than 6 takes CAP_NET_ADMIN. Zero: 6.
  uint32_t so_priority;
  // How a push sends: a takt_sending.
  uint32_t sending;
  // Of TAKT_SENDING_PATIENT: for how long a push waits for room. Zero: as long as it takes.
  uint64_t patience_ns;
  // Of TAKT_SENDING_QUEUED_*: how many events can wait, 65,536 at most. Zero: 64.
  size_t room;
  // Bytes of the socket's buffers, each way, 64 MiB at most. Zero: 256 KiB.
  size_t buffer;
} takt_level;

// What a level has counted since the channel was connected.
typedef struct {
  // Datagrams with events that the kernel has taken, one for each peer.
  uint64_t sent;
  // Datagrams with events that were dropped here, for want of room in the socket or the queue.
  uint64_t full;
  // That the kernel refused to send for another cause.
  uint64_t refused;
  // That did not leave because their time was over.
  uint64_t stale;
  // Events that came, each counted once.
  uint64_t events;
  // Of these, those whose time was over when they came; nobody was given them.
  uint64_t late;
  // Of these, those that came without a clock in common: what they spent under way did not count against their time.
  uint64_t unsynchronized;
  // Of these, those that came before they were sent, says the clock in common.
  uint64_t skewed;
  // Of these, those that went on to another peer.
  uint64_t forwarded;
  // Events that peers sent and that have not come: dropped there, on the way or here, or still under way.
  uint64_t lost;
  // Events that came again.
  uint64_t duplicates;
  // Events so old that nobody knows whether they came before, of a former run of their node, or of one node too many (nodes_max).
  uint64_t old;
  // What was this node's own, or had gone through more than 16 nodes.
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

// What is known of a peer.
typedef struct {
  // Its node's number, once it was heard.
  uint64_t node;
  // Whether it was.
  bool heard;
  // Whether it is there, as far as is known.
  bool is_there;
} takt_peer;

// What a publisher has counted. written = flushed + replaced + what waits.
typedef struct {
  // Values written.
  uint64_t written;
  // Of these, those written after their job's deadline: they missed the flush that they were for.
  uint64_t late;
  // Values that another one followed before they were sent for the first time.
  uint64_t replaced;
  // Values sent, each counted once.
  uint64_t flushed;
  // Values sent again: for want of somebody who got them, or by takt_published_refresh.
  uint64_t repeated;
  // Events that they were sent in.
  uint64_t events;
  // Of these, those that a consumer or a peer did not get for want of room, as far as the push could tell.
  uint64_t missed;
  // Flushes, with values or without.
  uint64_t flushes;
  // Of these, those that ended after the flushing job's deadline.
  uint64_t late_flushes;
} takt_flushes;

// A value to be read.
typedef struct {
  // Which, from 0: for the caller to say.
  size_t value;
  // Where it goes: for the caller to say. May be null where `size` is zero.
  uint8_t *bytes;
  // How many bytes there is room for: for the caller to say. A longer value is cut.
  size_t size;
  // How many bytes it has.
  size_t length;
  // How often it was written where it comes from, in that run of the publisher; zero: it has not come yet.
  uint64_t version;
  // When it came, by the clock of the dispatcher whose job took it.
  uint64_t came_ns;
} takt_known;

// What a replica has counted.
typedef struct {
  // Values that it took.
  uint64_t applied;
  // Values that it had already, or newer ones of, or of a former run.
  uint64_t old;
  // Events of its publisher's source and type that are none of a flush, or of other values than these.
  uint64_t malformed;
} takt_applied;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What the last call of this thread that failed said: what was wrong, where, and what to do. It stays until another one fails. Pushes, which are for real-time threads, leave no text:
// takt_status_text tells what their status means.
const char *takt_last_error(void);

// The version of takt, such as "0.1.0"; it lives for ever.
const char *takt_version(void);

// What a status means, in a few words; for any number.
const char *takt_status_text(uint32_t status);

// An empty set of operations for so many CPUs, at least one. With `cancel`, noncritical jobs that can no longer be in time are omitted.
// `name` is a string, `into` may be written.
takt_status takt_operations_new(const char *name,
                                uint32_t cpus,
                                bool cancel,
                                takt_operations **into);

// Adds an operation. What is wrong with it is told when the plan is made.
// `operations` came from takt_operations_new; `operation` and what it points to can be read.
takt_status takt_operations_add(takt_operations *operations, const takt_operation *operation);

// Lets an operation take no part at first: until a switch to a mode of which takt_mode_absent does not say the same. A chain takes part as a whole.
// `operations` came from takt_operations_new, `operation` is a string.
takt_status takt_operations_absent(takt_operations *operations,
                                   const char *operation);

// Adds a mode, to which takt_dispatcher_switch switches: the same operations at the same rates under this strategy. What is wrong with it is told when the plan is made.
// `operations` came from takt_operations_new, `mode` and `strategy` are strings.
takt_status takt_operations_mode(takt_operations *operations,
                                 const char *mode,
                                 const char *strategy);

// Lets an operation take no part in a mode.
// `operations` came from takt_operations_new, `mode` and `operation` are strings.
takt_status takt_mode_absent(takt_operations *operations, const char *mode, const char *operation);

// Gives an operation another period in a mode, or least distance. What follows it comes as often.
// `operations` came from takt_operations_new, `mode` and `operation` are strings.
takt_status takt_mode_period(takt_operations *operations, const char *mode, const char *operation, uint64_t period_ns);

// Frees a set of operations; a null pointer is no harm. Plans made of it stay.
// It came from takt_operations_new, and is not used any more.
void takt_operations_free(takt_operations *operations);

// The plan of a set of operations under a strategy: "rm", "dm", "edf", "mlf", "muf", "rms+mlf", "fifo", as in a system file. Within a level each job runs to completion.
// `operations` came from takt_operations_new, `strategy` is a string, `into` may be written.
takt_status takt_plan_new(const takt_operations *operations,
                          const char *strategy,
                          takt_plan **into);

// As takt_plan_new, but jobs of a level preempt each other. A level takes as many priorities then as its jobs nest.
// As of takt_plan_new.
takt_status takt_plan_new_preemptive(const takt_operations *operations, const char *strategy, takt_plan **into);

// The plan of the first node of a system file's text, with its strategy and its modes. Within a level each job runs to completion, whatever the file says.
// `toml` is a string, `into` may be written.
takt_status takt_plan_of_system(const char *toml,
                                takt_plan **into);

// As takt_plan_of_system, but jobs of a level preempt each other where the file says so, as `takt run` has it.
// As of takt_plan_of_system.
takt_status takt_plan_of_system_preemptive(const char *toml, takt_plan **into);

// The number of a mode's plan, from 1, for takt_dispatcher_switch: that of takt_operations_mode of this name. SIZE_MAX where there is none, which a switch refuses.
// `plan` came from a call that makes plans, `mode` is a string.
size_t takt_plan_mode(const takt_plan *plan,
                      const char *mode);

// A system file of which `takt check` finds the longest response of a critical operation under a guard, for takt_dispatcher_adaptive: the critical operations of its CPU alone, the others of them released as
// late as the first plan may have put them off. Copied as takt_plan_text does it; how many bytes it has, zero where there is no such plan or critical operation.
// `plan` came from a call that makes plans, `operation` is a string; `into` is null, or `size` bytes of it may be written.
size_t takt_plan_guarded(const takt_plan *plan,
                         size_t guard,
                         const char *operation,
                         char *into,
                         size_t size);

// Copies the plan's table into `into`, cut to `size` bytes and ended by a zero byte; how many bytes it has without that. `into` may be null: to learn how many.
// Zero where the plan is a null pointer.
// `plan` is null or came from a call that makes plans; `into` is null, or `size` bytes of it may be written.
size_t takt_plan_text(const takt_plan *plan,
                      char *into,
                      size_t size);

// Frees a plan; a null pointer is no harm. Dispatchers and channels made of it stay.
// It came from a call that makes plans, and is not used any more.
void takt_plan_free(takt_plan *plan);

// A dispatcher for a plan, which it copies.
// `plan` came from a call that makes plans, `into` may be written.
takt_status takt_dispatcher_new(const takt_plan *plan, takt_dispatcher **into);

// Gives an operation its handler, which is called with `user`. To be called before the start; every operation needs one.
// `dispatcher` came from takt_dispatcher_new, `operation` is a string. `handler` does not unwind, and with `user` it may be called on any of the dispatcher's threads,
// one call of it at a time, until takt_dispatcher_stop has answered TAKT_STATUS_OK.
takt_status takt_dispatcher_on(takt_dispatcher *dispatcher,
                               const char *operation,
                               takt_handler handler,
                               void *user);

// Moves by itself between two plans: to the guard, a mode's, while a critical job is in danger, and back to the first (0) after two windows of a second with idle time. A job is in danger when the
// time that is left before its deadline is no more than its operation's response under the guard, 500 us for the switch, and what the first plan may leave started in several levels; of an operation
// without a response half of the deadline is taken, which promises nothing. To be called before the start, of a plan whose modes differ in their strategies alone. Whether the controller fits the plan is told at the start.
// `dispatcher` came from takt_dispatcher_new; `responses` points to `count` of them, or `count` is zero.
takt_status takt_dispatcher_adaptive(takt_dispatcher *dispatcher,
                                     size_t guard,
                                     const takt_response *responses,
                                     size_t count);

// Writes all that happens to a log, which `takt stats`, `takt chart` and the others read. To be called before the start; takt_dispatcher_drain writes on. A file that is there stays as it is until the dispatcher
// has started. TAKT_STATUS_UNWRITTEN: there can be no such file.
// `dispatcher` came from takt_dispatcher_new, `path` is a string.
takt_status takt_dispatcher_log(takt_dispatcher *dispatcher,
                                const char *path);

// Starts all threads and returns at their time zero. `options` may be null. A dispatcher starts once: where its start is refused, too, another one is to be made (of the same plan). What stood at the
// log's path is there still then, but for TAKT_STATUS_UNWRITTEN: the threads had started when the log could not be begun, and have stopped again.
// `dispatcher` came from takt_dispatcher_new; `options` is null or can be read.
takt_status takt_dispatcher_start(takt_dispatcher *dispatcher,
                                  const takt_options *options);

// An operation of a dispatcher that runs, to push jobs of it. It may outlive the dispatcher; pushes answer TAKT_STATUS_STOPPED then.
// `dispatcher` came from takt_dispatcher_new, `operation` is a string, `into` may be written.
takt_status takt_dispatcher_operation(const takt_dispatcher *dispatcher,
                                      const char *operation,
                                      takt_handle **into);

// Releases a job now, by any thread. Takes a lock with priority inheritance for a moment, allocates nothing, never waits for room.
// `operation` came from takt_dispatcher_operation.
takt_status takt_operation_push(const takt_handle *operation);

// Frees what takt_dispatcher_operation gave; a null pointer is no harm.
// It came from there, and is not used any more.
void takt_operation_free(takt_handle *operation);

// The time since the dispatcher's start; zero where it does not run.
// `dispatcher` is null or came from takt_dispatcher_new.
uint64_t takt_dispatcher_now_ns(const takt_dispatcher *dispatcher);

// Another plan holds from now on: 0 is that of the node's strategy, k that of its k-th mode. Nothing is lost or told twice. A controller (takt_dispatcher_adaptive) goes on from there: a plan that is
// neither of its two puts it to rest until one of them holds again.
// `dispatcher` came from takt_dispatcher_new.
takt_status takt_dispatcher_switch(const takt_dispatcher *dispatcher,
                                   size_t plan);

// Which plan holds, counted as for takt_dispatcher_switch; zero where the dispatcher does not run. A controller may have changed it since.
// `dispatcher` is null or came from takt_dispatcher_new.
size_t takt_dispatcher_holds(const takt_dispatcher *dispatcher);

// What may keep the threads from their CPUs though nothing else is more important, as the kernel was set at the start: sentences, a line each, of operations that may use more of a CPU than the kernel leaves
// real-time threads. Copied as takt_plan_text does it; how many bytes it has, zero where there is nothing to warn of, or the dispatcher does not run, or on ordinary threads.
// `dispatcher` is null or came from takt_dispatcher_new; `into` is null, or `size` bytes of it may be written.
size_t takt_dispatcher_warnings(const takt_dispatcher *dispatcher,
                                char *into,
                                size_t size);

// Writes what has happened since the last time to the log, or forgets it where there is none. To be called often enough that `records` are not exceeded. TAKT_STATUS_UNWRITTEN, from the first call on that
// knows it: the log could not be written (a full disk), and ends there; the dispatcher goes on. Writing is buffered, so that the first call that knows it may be takt_dispatcher_stop.
// `dispatcher` came from takt_dispatcher_new.
takt_status takt_dispatcher_drain(takt_dispatcher *dispatcher);

// What became of an operation's jobs: so far, or in the end.
// `dispatcher` came from takt_dispatcher_new, `operation` is a string, `into` may be written.
takt_status takt_dispatcher_counts(const takt_dispatcher *dispatcher, const char *operation, takt_counts *into);

// A descriptor for poll, select or epoll: readable while an overrun waits, so that a loop calls takt_dispatcher_next_overrun until that says false. It may be readable once in vain. The dispatcher closes
// it when it stops or is freed: it is neither to be closed nor to be read. -1 where the dispatcher does not run, or no descriptor can be had.
// `dispatcher` is null or came from takt_dispatcher_new.
int takt_dispatcher_overrun_fd(const takt_dispatcher *dispatcher);

// Takes the oldest overrun that waits, of those that operations watch; whether there was one. Never waits. 256 wait at most: takt_counts counts them all.
// `dispatcher` is null or came from takt_dispatcher_new, `into` may be written.
bool takt_dispatcher_next_overrun(takt_dispatcher *dispatcher,
                                  takt_overran *into);

// Stops: no job starts any more, those that run may return (5 s at most). The log is complete then, unless it could not be written, which is TAKT_STATUS_UNWRITTEN. After this and TAKT_STATUS_OK no handler runs any more; after
// TAKT_STATUS_TROUBLE (or _PANIC) one may, and what it uses is to stay: that goes before, and takt_last_error tells of the log, too. Not to be called from a handler.
// `dispatcher` came from takt_dispatcher_new.
takt_status takt_dispatcher_stop(takt_dispatcher *dispatcher);

// Stops a dispatcher if it runs, as takt_dispatcher_stop, and frees it; a null pointer is no harm. Whether a handler runs on only takt_dispatcher_stop tells.
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

// Whether the job is to return at once: it was dropped at its deadline, has overrun its wcet where that is to stop it, or the dispatcher stops. A long handler asks now and then.
// As takt_job_number.
bool takt_job_must_stop(const takt_job *job);

// A channel for payloads of up to `payload_max` bytes (64 KiB at most), groups of up to `events_max` events (64 at most), and a history of so many. Zero: 256 bytes, 8 events, none. A
// subscription takes room for the groups of up to 64 jobs; that and the history may take 64 MiB together, with some 90 bytes of each event's own.
// `into` may be written.
takt_status takt_channel_new(size_t payload_max,
                             size_t events_max,
                             size_t history,
                             takt_channel **into);

// A sporadic operation of a plan waits for `count` patterns, which `group` (a takt_group) joins. To be called before the channel is connected.
// `channel` and `plan` came from calls that make them, `operation` is a string, `patterns` points to `count` of them, `into` may be written.
takt_status takt_channel_subscribe(const takt_channel *channel,
                                   const takt_plan *plan,
                                   const char *operation,
                                   uint32_t group,
                                   const takt_pattern *patterns,
                                   size_t count,
                                   takt_subscription **into);

// It waits for these patterns from now on, and with this quality of service (null: that of a new subscription); what waits for its handler stays. By any thread.
// `subscription` came from takt_channel_subscribe, `patterns` points to `count` of them, `quality` is null or points to one.
takt_status takt_subscription_reconnect(const takt_subscription *subscription,
                                        uint32_t group,
                                        const takt_pattern *patterns,
                                        size_t count,
                                        const takt_quality *quality);

// Events pass it by until takt_subscription_resume; what it has of a group is forgotten then. By any thread.
// `subscription` came from takt_channel_subscribe.
takt_status takt_subscription_suspend(const takt_subscription *subscription);

// It waits again, from now on. By any thread.
// `subscription` came from takt_channel_subscribe.
takt_status takt_subscription_resume(const takt_subscription *subscription);

// What became of what it waited for, so far.
// `subscription` came from takt_channel_subscribe, `into` may be written.
takt_status takt_subscription_counts(const takt_subscription *subscription, takt_event_counts *into);

// Gives an operation that subscribed its handler, which is called with `user`. To be called before the start.
// `dispatcher` and `subscription` came from calls that make them, `operation` is a string, that of the subscription. `handler` and `user` are as for takt_dispatcher_on.
takt_status takt_dispatcher_on_events(takt_dispatcher *dispatcher,
                                      const char *operation,
                                      const takt_subscription *subscription,
                                      takt_event_handler handler,
                                      void *user);

// Frees what takt_channel_subscribe gave; a null pointer is no harm. The operation goes on waiting, unless takt_channel_unsubscribe was called.
// It came from there, and is not used any more.
void takt_subscription_free(takt_subscription *subscription);

// The operation waits for nothing any more, and may subscribe anew; also one without a handler, with which the channel cannot be connected. To be called while the channel is not connected. The
// subscription is to be freed all the same.
// `channel` came from takt_channel_new, `subscription` from takt_channel_subscribe.
takt_status takt_channel_unsubscribe(const takt_channel *channel,
                                     const takt_subscription *subscription);

// Delivers from now on to the operations of a dispatcher that runs, until takt_channel_disconnect.
// `channel` and `dispatcher` came from calls that make them.
takt_status takt_channel_connect(takt_channel *channel, const takt_dispatcher *dispatcher);

// Delivers no more. To be called before the dispatcher stops; a channel that is not connected is no harm.
// `channel` came from takt_channel_new.
takt_status takt_channel_disconnect(takt_channel *channel);

// Disconnects and frees a channel; a null pointer is no harm. Pushes of its suppliers answer TAKT_STATUS_STOPPED then.
// It came from takt_channel_new, and is not used any more.
void takt_channel_free(takt_channel *channel);

// Who pushes events under this number.
// `channel` came from takt_channel_new, `into` may be written.
takt_status takt_channel_supplier(const takt_channel *channel, uint32_t source, takt_supplier **into);

// Pushes an event, by any thread, whose handlers should have returned after `deadline_ns` (zero: it has no deadline of its own), and which is of no use after `ttl_ns` (zero: it does not expire). Takes locks with priority inheritance for moments and copies the payload, allocates nothing, and waits for no room but that of a node's level that is TAKT_SENDING_PATIENT. `pushed` may be null.
// A payload that is too long, or a type of the channel's own (the three largest), is TAKT_STATUS_INVALID.
// `supplier` came from takt_channel_supplier, `payload` points to `length` bytes (it may be null where that is zero), `pushed` is null or may be written.
takt_status takt_supplier_push(const takt_supplier *supplier,
                               uint32_t kind,
                               const uint8_t *payload,
                               size_t length,
                               uint64_t deadline_ns,
                               uint64_t ttl_ns,
                               takt_pushed *pushed);

// Shows the events that the channel remembers, of those that are meant and not expired, the oldest first, on the calling thread: as they were when it was called. They are copied
// for that, while suppliers wait: not for handlers. A channel that was connected to another dispatcher since has forgotten what came before.
// `channel` came from takt_channel_new, `pattern` can be read. `show` does not unwind, and may be called with `user` meanwhile.
takt_status takt_channel_history(const takt_channel *channel,
                                 const takt_pattern *pattern,
                                 takt_event_viewer show,
                                 void *user);

// Tells `observer` of every change of a subscription from now on, on the thread that makes it, before the call that makes it returns.
// `channel` came from takt_channel_new. `observer` does not unwind, and may be called with `user` by any thread that changes a subscription, by several at a time, until the channel and all that was
// made of it are freed.
takt_status takt_channel_observe(const takt_channel *channel,
                                 takt_observer observer,
                                 void *user);

// Frees what takt_channel_supplier gave; a null pointer is no harm.
// It came from there, and is not used any more.
void takt_supplier_free(takt_supplier *supplier);

// One event.
// `pattern` can be read, `into` may be written.
takt_status takt_filter_one(const takt_pattern *pattern, takt_filter **into);

// `count` filters (64 at most), which `group` (a takt_group) joins.
// `members` points to `count` filters that came from calls that make them, `into` may be written.
takt_status takt_filter_group(uint32_t group, const takt_filter *const *members, size_t count, takt_filter **into);

// A filter without an event that `unless` means since it began to wait: such an event makes it begin anew.
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
// `channel`, `plan` and `filter` came from calls that make them, `operation` is a string, `quality` is null or points to one, `into` may be written.
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

// Where events that one of these patterns means, pushed by any thread of this process, wait for a thread of the program: takt_outlet_fd tells when, takt_outlet_next takes them. To be called before
// the channel is connected. There is room for so many (zero: 64; 65,536 at most). One that finds none is dropped, or, where `drops_oldest`, the oldest for it. It is counted.
// `channel` came from takt_channel_new; `patterns` points to `count` of them; `into` may be written.
takt_status takt_channel_outlet(const takt_channel *channel,
                                const takt_pattern *patterns,
                                size_t count,
                                size_t room,
                                bool drops_oldest,
                                takt_outlet **into);

// A descriptor for poll, select or epoll: readable while an event waits, so that a loop calls takt_outlet_next until that says false. It may be readable once in vain. The outlet closes it: it is
// neither to be closed nor to be read. -1 for a null pointer.
// `outlet` is null or came from takt_channel_outlet.
int takt_outlet_fd(const takt_outlet *outlet);

// Takes the oldest event that waits; whether there was one. Never waits. An event whose time is over is taken like any other.
// `outlet` is null or came from takt_channel_outlet, `into` may be written.
bool takt_outlet_next(takt_outlet *outlet,
                      takt_taken *into);

// What an outlet has counted.
// `outlet` came from takt_channel_outlet, `into` may be written.
takt_status takt_outlet_counts(const takt_outlet *outlet, takt_passed *into);

// Frees an outlet and closes its descriptor; a null pointer is no harm. Pushes pass it by from then on.
// It came from takt_channel_outlet, and is not used any more.
void takt_outlet_free(takt_outlet *outlet);

// A node of this number, which no other node has, without levels. `options` may be null.
// `options` is null or can be read, `into` may be written.
takt_status takt_node_new(uint64_t id, const takt_node_options *options, takt_node **into);

// Adds a level. Whether it fits the dispatcher's plan takt_channel_connect_as tells.
// `node` came from takt_node_new; `level` can be read, its strings are strings, and its pointers point to as many as it says.
takt_status takt_node_add(takt_node *node,
                          const takt_level *level);

// Frees a node; a null pointer is no harm. A channel that is connected as it stays so.
// It came from takt_node_new, and is not used any more.
void takt_node_free(takt_node *node);

// Whether a push may have to wait for the network, at a level with this takt_sending and patience_ns; so it may where the number is none of a takt_sending.
bool takt_sending_may_block(uint32_t sending,
                            uint64_t patience_ns);

// Whether an event that is pushed here and does not expire may be dropped for want of room, at such a level; so it may where the number is none of a takt_sending.
// One whose push waits for room when the channel is disconnected is dropped, whatever the level.
bool takt_sending_may_drop(uint32_t sending,
                           uint64_t patience_ns);

// As takt_channel_connect, and shares events with other nodes. A node that cannot be is TAKT_STATUS_INVALID; a socket that is refused is TAKT_STATUS_REFUSED, or TAKT_STATUS_PRIVILEGE.
// Queues of all levels together may take 64 MiB.
// `channel`, `node` and `dispatcher` came from calls that make them.
takt_status takt_channel_connect_as(takt_channel *channel,
                                    const takt_node *node,
                                    const takt_dispatcher *dispatcher);

// What a level has counted so far. TAKT_STATUS_STOPPED while the channel is not connected.
// `channel` came from takt_channel_new, `level` is a string, `into` may be written.
takt_status takt_channel_traffic(const takt_channel *channel, const char *level, takt_traffic *into);

// What is known of a level's peer, counted from 0 in the order of takt_level. TAKT_STATUS_STOPPED while the channel is not connected.
// `channel` came from takt_channel_new, `level` is a string, `into` may be written.
takt_status takt_channel_peer(const takt_channel *channel,
                              const char *level,
                              size_t peer,
                              takt_peer *into);

// `count` values (65,536 and 64 MiB at most), of each of which `sizes` says how many bytes it can have. They go as events of this source and type, which nobody else is to supply. A value that
// fits into no event of the channel, with 28 bytes besides, is TAKT_STATUS_INVALID.
// `channel` came from takt_channel_new, `sizes` points to `count` of them, `into` may be written.
takt_status takt_published_new(const takt_channel *channel,
                               uint32_t source,
                               uint32_t kind,
                               const size_t *sizes,
                               size_t count,
                               takt_published **into);

// An operation's job writes a value, to be sent by the flush at the job's deadline; `in_time` (may be null) tells whether it is in time for that. From a handler, whether the channel is connected or not. Takes a lock
// with priority inheritance for a moment, and allocates nothing. No such value, or too many bytes: TAKT_STATUS_INVALID.
// `published` came from takt_published_new, `bytes` points to `length` of them (it may be null where that is zero), `job` is what the handler was called with, `in_time` is null or may be written.
takt_status takt_published_write(const takt_published *published,
                                 size_t value,
                                 const uint8_t *bytes,
                                 size_t length,
                                 const takt_job *job,
                                 bool *in_time);

// Sends all values that are due at this job's arrival, in as few events as they fit into; they are of use for `ttl_ns` (zero: for ever). `values` (may be null) tells how many there were. From the handler of one
// operation, which has the frame's period. Does what takt_supplier_push does for each event. TAKT_STATUS_STOPPED: the channel is not connected; what was not sent goes with the next flush.
// `published` came from takt_published_new, `job` is what the handler was called with, `values` is null or may be written.
takt_status takt_published_flush(const takt_published *published,
                                 uint64_t ttl_ns,
                                 const takt_job *job,
                                 size_t *values);

// All values that were ever sent go with the next flush again: for a peer that is new (TAKT_KIND_PEER_FOUND), or that lost some. From handlers, too.
// `published` came from takt_published_new.
takt_status takt_published_refresh(const takt_published *published);

// The most events that a flush takes: the backlog that a consumer of them needs, with a least distance of 1 ns. Zero for a null pointer.
// `published` is null or came from takt_published_new.
size_t takt_published_events_max(const takt_published *published);

// What was written and sent so far.
// `published` came from takt_published_new, `into` may be written.
takt_status takt_published_counts(const takt_published *published, takt_flushes *into);

// Frees a publisher; a null pointer is no harm.
// It came from takt_published_new, and is not used any more.
void takt_published_free(takt_published *published);

// Of the publisher with this source, type and sizes.
// `sizes` points to `count` of them, `into` may be written.
takt_status takt_replica_new(uint32_t source, uint32_t kind, const size_t *sizes, size_t count, takt_replica **into);

// Takes the values of a flush's events, and leaves other events: from the handler that was called with them. Takes a lock with priority inheritance for moments, and allocates nothing.
// `replica` came from takt_replica_new; `events`, `count` and `job` are what the handler was called with.
takt_status takt_replica_apply(const takt_replica *replica,
                               const takt_event *events,
                               size_t count,
                               const takt_job *job);

// Reads `count` values (65,536 at most), all as they were after the same event; of those of a flush, which may come in several. Each says itself which it is and where it goes. From handlers, too: takes a lock with priority inheritance for the time of the copies, and
// allocates nothing. Of one that is no value of these, or has no place, all is TAKT_STATUS_INVALID, and nothing is read.
// `replica` came from takt_replica_new; `values` points to `count` of them, and of each `size` bytes may be written at `bytes`, which no other one has.
takt_status takt_replica_read(const takt_replica *replica,
                              takt_known *values,
                              size_t count);

// What it took so far.
// `replica` came from takt_replica_new, `into` may be written.
takt_status takt_replica_counts(const takt_replica *replica, takt_applied *into);

// Frees a replica; a null pointer is no harm.
// It came from takt_replica_new, and is not used any more.
void takt_replica_free(takt_replica *replica);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAKT_H */
