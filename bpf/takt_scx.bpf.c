// SPDX-License-Identifier: GPL-2.0-only
/*
 * A sched_ext scheduler with server sets as live data, one for each CPU. A server has a budget in each
 * period, a rule, and a queue in the order of its component. Threads of no server are called "the rest".
 * They get the time that the servers leave.
 *
 * User space fills takt_terms and takt_members, attaches the scheduler, and sets start and end in
 * takt_when. The terms of a server have a version. To change them, user space writes them with the next
 * version, and then increments takt_when.generation. A thread joins a server by running takt_join.
 * Its children belong to the same server.
 *
 * A SCHED_FIFO thread on each CPU makes it decide when a budget comes or ends. This thread sleeps until
 * takt_counts[cpu].next, and at most a millisecond. Without it the kernel's ticks end budgets.
 */
#include "scx.h"

#define TAKT_FN __attribute__((noinline))
struct takt_cpu;
static void takt_tell(struct takt_cpu *cpu, u32 server, u32 kind, u64 at, u64 a, u64 b);
#include "servers.h"

char _license[] SEC("license") = "GPL";

#define CPUS_MAX 64
#define MEMBERS_MAX 1024
/* The queue of the rest. Those of servers are below it. */
#define REST (1ull << 20)
/* Of a thread of the rest, ns. */
#define REST_SLICE 4000000ull
/* The shortest slice of a server's thread, ns. */
#define SLICE_MIN 1000ull

/* A change of a server, for user space. */
struct takt_event {
	u64 at, a, b;
	u32 kind, cpu, server, rule;
};

/* A CPU: its servers, and what it runs. */
struct takt_seat {
	struct takt_cpu cpu;
	/* The server of the running thread plus one, and its place in the server's queue. */
	u64 key;
	u32 server;
	u32 is_open, is_closed;
	u32 pad;
	u64 generation;
};

/* What user space sees of a CPU. */
struct takt_count {
	/* When the CPU must decide though nothing happens. */
	u64 next;
	u64 decisions;
	/* How often a thread of a server lost the CPU though it wanted it. */
	u64 preemptions;
	/* Events that found the buffer full. */
	u64 lost;
};

/* A thread's place: which server, and where in its queue. User space may change all of it. */
struct takt_member {
	u32 cpu, server;
	u32 level, order;
	/* Among equal keys the smaller goes first; below 32. */
	u32 tie;
	/* Whether the thread tells release and deadline of each job. Else a job is released when the thread wakes up. */
	u32 tells;
	/* The relative deadline, and what is added to it in the order by deadline. */
	u64 relative;
	s64 shift;
	/* Of the present job, in nanoseconds of CLOCK_MONOTONIC. */
	u64 release, deadline;
};

struct takt_when {
	u64 start, end, generation;
};

struct takt_end {
	u32 is_over, kind;
	s64 code;
	char reason[64];
	char message[192];
};

/* A thread: its member plus one, and the server plus one that counts it as ready. */
struct takt_thread {
	u32 member;
	u32 counted;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS_MAX);
	__type(key, u32);
	__type(value, struct takt_seat);
} takt_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CPUS_MAX);
	__type(key, u32);
	__type(value, struct takt_count);
} takt_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS_MAX * TAKT_SERVERS_MAX);
	__type(key, u32);
	__type(value, struct takt_terms);
} takt_terms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MEMBERS_MAX);
	__type(key, u32);
	__type(value, struct takt_member);
} takt_members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct takt_when);
} takt_when SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct takt_end);
} takt_ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct takt_thread);
} takt_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} takt_events SEC(".maps");

TAKT_INLINE struct takt_seat *seat_of(u32 cpu)
{
	return bpf_map_lookup_elem(&takt_cpus, &cpu);
}

TAKT_INLINE struct takt_count *count_of(u32 cpu)
{
	return bpf_map_lookup_elem(&takt_counts, &cpu);
}

TAKT_INLINE struct takt_when *when(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&takt_when, &zero);
}

/* The machine's CPU is the first member of a seat. */
TAKT_INLINE void takt_tell(struct takt_cpu *cpu, u32 server, u32 kind, u64 at, u64 a, u64 b)
{
	struct takt_event event = {
		.at = at, .a = a, .b = b, .kind = kind, .cpu = cpu->number, .server = server,
		.rule = takt_at(cpu, server)->terms.rule,
	};

	if (bpf_ringbuf_output(&takt_events, &event, sizeof(event), BPF_RB_NO_WAKEUP)) {
		struct takt_count *count = count_of(cpu->number);

		if (count)
			count->lost++;
	}
}

/* The member of a thread, if it has one and is on its CPU. */
TAKT_INLINE struct takt_member *member_of(struct takt_thread *thread, s32 cpu)
{
	struct takt_member *member;
	u32 at;

	if (!thread || !thread->member)
		return NULL;
	at = thread->member - 1;
	member = bpf_map_lookup_elem(&takt_members, &at);
	return member && member->cpu == (u32)cpu ? member : NULL;
}

TAKT_INLINE u64 queue_of(u32 cpu, u32 server)
{
	return (u64)cpu * TAKT_SERVERS_MAX + (server & (TAKT_SERVERS_MAX - 1));
}

/*
 * The place of a thread in its server's queue: level, then time, then tie. A thread that reports no jobs
 * keeps `former`.
 */
TAKT_INLINE u64 key_of(const struct takt_member *member, u64 former, u64 now, bool wakes)
{
	u64 at;

	if (member->tells)
		at = member->order == TAKT_DEADLINE ? member->deadline : member->release;
	else if (wakes || !former)
		at = member->order == TAKT_DEADLINE ? now + member->relative : now;
	else
		return former;
	if (member->order == TAKT_DEADLINE)
		at += member->shift;
	return (u64)(member->level & 0xff) << 56 | (at & ((1ull << 56) - 32)) | (member->tie & 31);
}

/* Takes in terms that user space has changed. */
TAKT_FN int take_terms(struct takt_cpu *cpu)
{
	u32 at;

	if (!cpu)
		return 0;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		struct takt_server *server = takt_at(cpu, at);
		struct takt_terms *terms;
		u32 key = cpu->number * TAKT_SERVERS_MAX + at;

		if (at >= cpu->count)
			break;
		terms = bpf_map_lookup_elem(&takt_terms, &key);
		if (!terms)
			break;
		if (!server->terms.version) {
			takt_open(cpu, at, terms);
		} else if (terms->version != (server->is_pending ? server->pending.version : server->terms.version)) {
			server->pending = *terms;
			server->is_pending = 1;
		}
	}
	return 0;
}

/* Ends the account of a CPU: all payments so far are told. */
TAKT_FN int close_account(struct takt_cpu *cpu, u64 end)
{
	u32 at;

	if (!cpu)
		return 0;
	takt_decide(cpu, end - 1);
	takt_pay(cpu, end);
	for (at = 0; at < TAKT_SERVERS_MAX; at++)
		takt_settle(cpu, at, end);
	return 0;
}

TAKT_INLINE void publish(struct takt_seat *seat, u64 next)
{
	struct takt_count *count = count_of(seat->cpu.number);

	if (count)
		count->next = next;
}

/* Whether the servers of a CPU are in force. Begins and ends their account. */
TAKT_INLINE bool is_active(struct takt_seat *seat, u64 now)
{
	struct takt_when *span = when();

	if (!seat || !span || !seat->cpu.count || !span->start || now < span->start)
		return false;
	if (now >= span->end) {
		if (seat->is_open && !seat->is_closed) {
			seat->is_closed = 1;
			close_account(&seat->cpu, span->end);
			publish(seat, TAKT_NEVER);
		}
		return false;
	}
	if (!seat->is_open) {
		seat->cpu.start = span->start;
		seat->cpu.now = span->start;
		seat->generation = span->generation;
		take_terms(&seat->cpu);
		seat->is_open = 1;
	} else if (seat->generation != span->generation) {
		seat->generation = span->generation;
		take_terms(&seat->cpu);
	}
	return true;
}

TAKT_INLINE void decide(struct takt_seat *seat, u64 now)
{
	struct takt_count *count = count_of(seat->cpu.number);
	struct takt_when *span = when();

	takt_decide(&seat->cpu, now);
	if (span && span->end < seat->cpu.next)
		seat->cpu.next = span->end;
	if (!count)
		return;
	count->decisions++;
	count->next = seat->cpu.next;
}

/* Counts a thread among those of its server that want the CPU. True if it was not counted. */
TAKT_INLINE bool count(struct takt_thread *thread, struct takt_member *member, struct takt_seat *seat)
{
	if (thread->counted == member->server + 1)
		return false;
	if (thread->counted)
		__sync_fetch_and_add(&takt_at(&seat->cpu, thread->counted - 1)->ready, (u32)-1);
	thread->counted = member->server + 1;
	__sync_fetch_and_add(&takt_at(&seat->cpu, member->server)->ready, 1);
	return true;
}

/* Of a task beside the components: its job is what the server's place goes by. */
TAKT_INLINE void tell_job(struct takt_seat *seat, struct takt_member *member, u64 now, bool wakes)
{
	struct takt_server *server = takt_at(&seat->cpu, member->server);

	if (server->terms.rule != TAKT_TASK)
		return;
	if (member->tells) {
		server->release = member->release;
		server->deadline = member->deadline;
	} else if (wakes) {
		server->release = now;
		server->deadline = now + member->relative;
	}
}

TAKT_INLINE void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/* Until the next instant at which the CPU decides. So the kernel's tick ends what nobody else has ended. */
TAKT_INLINE u64 slice_of(struct takt_seat *seat, u64 now)
{
	u64 next = seat->cpu.next;

	return next > now + SLICE_MIN ? next - now : SLICE_MIN;
}

SEC("struct_ops/takt_select_cpu")
s32 BPF_PROG(takt_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	bool is_idle = false;

	if (thread && thread->member)
		return prev_cpu;
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
}

SEC("struct_ops/takt_runnable")
void BPF_PROG(takt_runnable, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_member *member = member_of(thread, cpu);
	struct takt_seat *seat = seat_of(cpu);

	if (member && seat)
		count(thread, member, seat);
}

SEC("struct_ops/takt_quiescent")
void BPF_PROG(takt_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_seat *seat = seat_of(scx_bpf_task_cpu(p));

	if (!thread || !thread->counted || !seat)
		return;
	__sync_fetch_and_add(&takt_at(&seat->cpu, thread->counted - 1)->ready, (u32)-1);
	thread->counted = 0;
}

SEC("struct_ops/takt_enqueue")
void BPF_PROG(takt_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_member *member = member_of(thread, cpu);
	struct takt_seat *seat = seat_of(cpu);
	u64 now = bpf_ktime_get_ns(), key;
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, is_new;

	if (!member || !is_active(seat, now)) {
		scx_bpf_dsq_insert(p, REST, REST_SLICE, enq_flags);
		return;
	}
	is_new = count(thread, member, seat);
	tell_job(seat, member, now, wakes || is_new);
	key = key_of(member, p->scx.dsq_vtime, now, wakes || is_new);
	scx_bpf_dsq_insert_vtime(p, queue_of(cpu, member->server), SLICE_MIN, key, enq_flags);
	if (!wakes && !is_new)
		return;
	decide(seat, now);
	if (seat->cpu.runs == TAKT_NONE ? seat->server != 0 :
	    seat->cpu.runs + 1 != seat->server || (seat->cpu.runs == member->server && key < seat->key))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Whether a thread in the queue goes before one with this key. */
TAKT_INLINE bool waits_before(u64 queue, u64 key)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *first;
	bool before = false;

	if (!bpf_iter_scx_dsq_new(&it, queue, 0)) {
		first = bpf_iter_scx_dsq_next(&it);
		before = first && first->scx.dsq_vtime < key;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return before;
}

SEC("struct_ops/takt_dispatch")
void BPF_PROG(takt_dispatch, s32 cpu, struct task_struct *prev)
{
	struct takt_seat *seat = seat_of(cpu);
	struct takt_thread *thread = NULL;
	struct takt_member *member = NULL;
	bool stays = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	u64 now = bpf_ktime_get_ns();
	u32 at;

	/* The rest run on CPUs without servers, too. */
	if (!seat) {
		if (!scx_bpf_dsq_move_to_local(REST) && stays)
			set_slice(prev, REST_SLICE);
		return;
	}
	if (stays) {
		thread = bpf_task_storage_get(&takt_threads, prev, 0, 0);
		member = member_of(thread, cpu);
	}
	if (is_active(seat, now)) {
		if (member)
			count(thread, member, seat);
		if (member)
			tell_job(seat, member, now, false);
		decide(seat, now);
		if (seat->cpu.runs != TAKT_NONE) {
			u64 queue = queue_of(cpu, seat->cpu.runs);

			if (member && member->server == seat->cpu.runs) {
				u64 key = key_of(member, prev->scx.dsq_vtime, now, false);

				if (!waits_before(queue, key)) {
					set_slice(prev, slice_of(seat, now));
					seat->key = key;
					seat->server = member->server + 1;
					return;
				}
			}
			if (scx_bpf_dsq_move_to_local(queue))
				return;
		}
		/* A server's thread without a turn waits, and the rest has the CPU. */
		if (scx_bpf_dsq_move_to_local(REST))
			return;
		if (stays && !member)
			set_slice(prev, REST_SLICE);
		return;
	}
	/* Nothing is in force: threads of servers are as all others. */
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= seat->cpu.count)
			break;
		if (scx_bpf_dsq_move_to_local(queue_of(cpu, at)))
			return;
	}
	if (scx_bpf_dsq_move_to_local(REST))
		return;
	if (stays)
		set_slice(prev, REST_SLICE);
}

SEC("struct_ops/takt_running")
void BPF_PROG(takt_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_member *member = member_of(thread, cpu);
	struct takt_seat *seat = seat_of(cpu);
	u64 now = bpf_ktime_get_ns();

	if (!seat)
		return;
	seat->server = 0;
	if (!member || !is_active(seat, now))
		return;
	seat->server = member->server + 1;
	seat->key = p->scx.dsq_vtime;
	set_slice(p, slice_of(seat, now));
}

SEC("struct_ops/takt_stopping")
void BPF_PROG(takt_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct takt_seat *seat = seat_of(cpu);
	struct takt_count *count = count_of(cpu);

	if (!seat)
		return;
	if (runnable && seat->server && count)
		count->preemptions++;
	seat->server = 0;
}

/* A thread of a higher class takes the CPU. The thread that has lost it is to be chosen anew afterwards. */
SEC("struct_ops/takt_cpu_release")
void BPF_PROG(takt_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
}

SEC("struct_ops.s/takt_init_task")
s32 BPF_PROG(takt_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct takt_thread *thread, *parent;

	thread = bpf_task_storage_get(&takt_threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return -ENOMEM;
	if (!args->fork)
		return 0;
	parent = bpf_task_storage_get(&takt_threads, bpf_get_current_task_btf(), 0, 0);
	if (parent)
		thread->member = parent->member;
	return 0;
}

TAKT_FN int open_queues(u32 cpu)
{
	struct takt_seat *seat = seat_of(cpu);
	u32 at;

	if (!seat)
		return 0;
	seat->cpu.number = cpu;
	seat->cpu.runs = TAKT_NONE;
	publish(seat, TAKT_NEVER);
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		u32 key = cpu * TAKT_SERVERS_MAX + at;
		struct takt_terms *terms = bpf_map_lookup_elem(&takt_terms, &key);
		int error;

		if (!terms || !terms->version)
			break;
		error = scx_bpf_create_dsq(queue_of(cpu, at), -1);
		if (error)
			return error;
		seat->cpu.count = at + 1;
	}
	return 0;
}

SEC("struct_ops.s/takt_init")
s32 BPF_PROG(takt_init)
{
	u32 cpu;
	int error = scx_bpf_create_dsq(REST, -1);

	for (cpu = 0; cpu < CPUS_MAX && !error; cpu++)
		error = open_queues(cpu);
	return error;
}

SEC("struct_ops/takt_exit")
void BPF_PROG(takt_exit, struct scx_exit_info *info)
{
	u32 zero = 0;
	struct takt_end *end = bpf_map_lookup_elem(&takt_ends, &zero);

	if (!end)
		return;
	end->kind = info->kind;
	end->code = info->exit_code;
	bpf_probe_read_kernel_str(end->reason, sizeof(end->reason), info->reason);
	bpf_probe_read_kernel_str(end->message, sizeof(end->message), info->msg);
	end->is_over = 1;
}

/* The calling thread joins: its member plus one, or 0 to leave. */
struct takt_join {
	u32 member;
};

SEC("syscall")
int takt_join(struct takt_join *join)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		return ENOMEM;
	thread->member = join->member;
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops takt_ops = {
	.select_cpu = (void *)takt_select_cpu,
	.enqueue = (void *)takt_enqueue,
	.dispatch = (void *)takt_dispatch,
	.runnable = (void *)takt_runnable,
	.running = (void *)takt_running,
	.stopping = (void *)takt_stopping,
	.quiescent = (void *)takt_quiescent,
	.init_task = (void *)takt_init_task,
	.init = (void *)takt_init,
	.exit = (void *)takt_exit,
	.cpu_release = (void *)takt_cpu_release,
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "takt",
};
