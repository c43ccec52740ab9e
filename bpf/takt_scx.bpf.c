// SPDX-License-Identifier: GPL-2.0-only
/*
 * A sched_ext scheduler with server sets as live data, one for each CPU. A server has a budget in each
 * period, a rule, and a queue in the order of its component. Threads of no server are called "the rest".
 * They get the time that the servers leave.
 *
 * A component may have a server on each of several CPUs. Its threads are a pool. They have one queue, and these CPUs
 * take threads from it. Each CPU decides by itself whether its server has the CPU.
 *
 * User space fills takt_terms, takt_pools and takt_members, attaches the scheduler, and sets start and end in
 * takt_when. The terms of a server have a version. To change them, user space writes others with the next
 * version, and then increments takt_when.generation. A thread joins a server, or a pool, by running takt_join.
 * Its children belong to the same one.
 *
 * A control group in takt_groups belongs to a server, with all threads in it and in the groups below it. They do not
 * join (takt_group_ops). A write to the group's cpu.max goes to takt_limits. User space decides about it.
 *
 * A SCHED_FIFO thread on each CPU makes it decide when a budget comes or ends. This thread sleeps until
 * takt_counts[cpu].next, and at most a millisecond. Without it the kernel's ticks end budgets.
 *
 * Another instance of this program may take the place of the one at work, with the same maps (all but takt_ends).
 * From takt_when.held on no server pays, and none changes, until the other instance decides for the first time.
 */
#include "scx.h"

#define TAKT_FN __attribute__((noinline))
struct takt_cpu;
static void takt_tell(struct takt_cpu *cpu, u32 server, u32 kind, u64 at, u64 a, u64 b);
#include "servers.h"
#include "scx_data.h"

char _license[] SEC("license") = "GPL";

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

/* By its number plus one. NULL if this is 0. */
TAKT_INLINE struct takt_pool *pool_of(u32 pool)
{
	u32 at = pool - 1;

	return bpf_map_lookup_elem(&takt_pools, &at);
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

/* The member of a thread, if it has one. */
TAKT_INLINE struct takt_member *place_of(struct takt_thread *thread)
{
	u32 at;

	if (!thread || !thread->member)
		return NULL;
	at = thread->member - 1;
	return bpf_map_lookup_elem(&takt_members, &at);
}

/* The number of its server on this CPU plus one; 0 if it has none there. */
TAKT_INLINE u32 server_on(const struct takt_member *member, u32 cpu)
{
	struct takt_pool *pool;

	if (!member)
		return 0;
	if (!member->pool)
		return member->cpu == cpu ? member->server + 1 : 0;
	pool = pool_of(member->pool);
	/* Only CPUs below CPUS_MAX have a seat. */
	if (!pool || !seat_of(cpu) || !(pool->cpus >> (cpu & (CPUS_MAX - 1)) & 1))
		return 0;
	return pool->servers[cpu & (CPUS_MAX - 1)] + 1u;
}

/* The CPUs on which it has a server, a bit for each. */
TAKT_INLINE u64 cpus_of(const struct takt_member *member)
{
	struct takt_pool *pool;

	if (!member->pool)
		return 1ull << (member->cpu & (CPUS_MAX - 1));
	pool = pool_of(member->pool);
	return pool ? pool->cpus : 0;
}

/* Whether a thread on `cpu` is at a CPU of its server, or can go to one. */
TAKT_INLINE bool is_served(struct task_struct *p, struct takt_member *member, s32 cpu)
{
	if (!member)
		return false;
	/* BPF programs themselves forbid the present thread to migrate. */
	if (!server_on(member, cpu) && p->migration_disabled > (p == bpf_get_current_task_btf()))
		return false;
	return (p->cpus_ptr->bits[0] & cpus_of(member)) != 0;
}

TAKT_INLINE u64 queue_of(u32 cpu, u32 server)
{
	return (u64)cpu * TAKT_SERVERS_MAX + (server & (TAKT_SERVERS_MAX - 1));
}

/* The queue of a thread with this place. */
TAKT_INLINE u64 queue_of_member(const struct takt_member *member)
{
	return member->pool ? POOLS + member->pool - 1 : queue_of(member->cpu, member->server);
}

/* The queue of an entry's threads. */
TAKT_INLINE u64 queue_at(struct takt_cpu *cpu, u32 at)
{
	u32 pool = takt_at(cpu, at)->terms.pool;

	return pool ? POOLS + pool - 1 : queue_of(cpu->number, at);
}

/*
 * The place of a thread in its server's queue: level, then time, then tie. A thread that reports no jobs
 * keeps `former`. In the order TAKT_SHARED it goes behind all that wait.
 */
TAKT_INLINE u64 key_of(const struct takt_member *member, u64 former, u64 now, bool wakes)
{
	u64 at;

	if (member->tells)
		at = member->order == TAKT_DEADLINE ? member->deadline : member->release;
	else if (wakes || !former || member->order == TAKT_SHARED)
		at = member->order == TAKT_DEADLINE ? now + member->relative : now;
	else
		return former;
	if (member->order == TAKT_DEADLINE)
		at += member->shift;
	return (u64)(member->level & 0xff) << 56 | (at & ((1ull << 56) - 32)) | (member->tie & 31);
}

/* The terms of a server with this version, if user space has given them. */
TAKT_INLINE struct takt_terms *terms_of(u32 cpu, u32 server, u32 version)
{
	u32 key = (cpu * TAKT_SERVERS_MAX + server) * TAKT_CHANGES_MAX + (version & (TAKT_CHANGES_MAX - 1));
	struct takt_terms *terms = bpf_map_lookup_elem(&takt_terms, &key);

	return terms && terms->version == version ? terms : NULL;
}

/* Takes in terms that user space has given. 1 if more of them wait. */
TAKT_FN int take_terms(struct takt_cpu *cpu)
{
	u32 at, each;
	int is_full = 0;

	if (!cpu)
		return 0;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= cpu->count)
			break;
		for (each = 0; each < TAKT_CHANGES_MAX; each++) {
			struct takt_terms *terms = terms_of(cpu->number, at, takt_at(cpu, at)->version + 1);

			if (!terms)
				break;
			if (!takt_give(cpu, at, terms)) {
				is_full = 1;
				break;
			}
		}
	}
	return is_full;
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

/*
 * Servers pay until `now`, and then no more before the next decision. No other change of a server is made: threads
 * may come and go now though they wait for the CPU all the time.
 */
TAKT_FN int hold_account(struct takt_cpu *cpu, u64 now)
{
	u32 at;

	if (!cpu)
		return 0;
	takt_pay(cpu, now);
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		takt_settle(cpu, at, now);
		takt_at(cpu, at)->pays = 0;
	}
	cpu->chosen.runs = TAKT_NONE;
	cpu->chosen.payers = 0;
	return 0;
}

TAKT_INLINE void publish(struct takt_seat *seat, u64 next)
{
	struct takt_count *count = count_of(seat->cpu.number);

	if (count)
		count->next = next;
}

/* The kernel asks this instance whom to run. So it has all threads. */
TAKT_INLINE void take_over(void)
{
	struct takt_when *span = when();

	if (span && span->held == TAKT_COMES)
		__sync_val_compare_and_swap(&span->held, TAKT_COMES, TAKT_DECIDES);
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
	if (span->held) {
		if (span->held == TAKT_LEAVES && seat->is_open && !seat->is_held) {
			hold_account(&seat->cpu, now);
			seat->is_held = 1;
		}
		return false;
	}
	seat->is_held = 0;
	if (!seat->is_open) {
		seat->cpu.start = span->start;
		seat->cpu.now = span->start;
		seat->generation = span->generation;
		take_terms(&seat->cpu);
		seat->is_open = 1;
	} else if (seat->generation != span->generation) {
		u64 generation = span->generation;

		if (!take_terms(&seat->cpu))
			seat->generation = generation;
	}
	return true;
}

/* The bit of a server, by its number plus one. 0 is no server. */
TAKT_INLINE u32 bit_of(u32 number)
{
	return (1u << (number & 31)) >> 1;
}

/*
 * Counts the threads of pools that this CPU could run: waiting ones, and its own. `own` is the bit of the server whose
 * thread goes on. `comes` is the bit of the server whose thread will be in the queue. They are bits, because the
 * verifier follows each value of a number.
 */
TAKT_FN int look_at_pools(struct takt_cpu *cpu, u32 own, u32 comes)
{
	u32 at;

	if (!cpu)
		return 0;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		struct takt_server *server = takt_at(cpu, at);
		struct takt_pool *pool;
		s32 waiting;
		u32 all;

		if (at >= cpu->count)
			break;
		pool = pool_of(server->terms.pool);
		if (!pool)
			continue;
		waiting = scx_bpf_dsq_nr_queued(POOLS + server->terms.pool - 1);
		server->ready = (waiting > 0 ? (u32)waiting : 0) + (own >> at & 1) + (comes >> at & 1);
		all = pool->ready;
		server->elsewhere = all > server->ready ? all - server->ready : 0;
	}
	return 0;
}

/*
 * Asks one CPU of a pool to decide again, because a thread of the pool waits. It need not if its server has no budget.
 * The thread comes into the queue after this. So the CPU is asked if its budget is due, and if it is idle by then.
 */
TAKT_INLINE void ask(struct takt_seat *seat, u32 cpu, u32 at, u64 now, u64 key)
{
	struct takt_server *server = takt_at(&seat->cpu, at);
	bool is_due = server->next <= now;
	bool runs_earlier = seat->server == at + 1 && seat->key <= key;

	if (seat->is_open && !seat->is_closed && !is_due && server->left <= 0)
		return;
	if (runs_earlier) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	seat->is_asked = 1;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Asks the CPUs of a pool, but for those in `except`. */
TAKT_FN int ask_pool(u32 number, u64 except, u64 key)
{
	struct takt_pool *pool = pool_of(number);
	u64 now = bpf_ktime_get_ns(), cpus;
	u32 cpu;

	if (!pool)
		return 0;
	cpus = pool->cpus & ~except;
	for (cpu = 0; cpu < CPUS_MAX; cpu++) {
		struct takt_seat *seat = seat_of(cpu);

		if (seat && cpus >> cpu & 1)
			ask(seat, cpu, pool->servers[cpu], now, key);
	}
	return 0;
}

/* `own`: the server whose thread goes on, plus one; `comes`: that of a thread on its way into the queue. */
TAKT_INLINE void decide(struct takt_seat *seat, u64 now, u32 own, u32 comes)
{
	struct takt_count *count = count_of(seat->cpu.number);
	struct takt_when *span = when();

	if (seat->has_pools)
		look_at_pools(&seat->cpu, bit_of(own), bit_of(comes));
	takt_decide(&seat->cpu, now);
	if (span && span->end < seat->cpu.next)
		seat->cpu.next = span->end;
	if (!count)
		return;
	count->decisions++;
	count->next = seat->cpu.next;
}

TAKT_INLINE void add_ready(u64 queue, u32 change)
{
	struct takt_seat *seat;

	if (queue >= POOLS) {
		struct takt_pool *pool = pool_of(queue - POOLS + 1);

		if (pool)
			__sync_fetch_and_add(&pool->ready, change);
		return;
	}
	seat = seat_of(queue / TAKT_SERVERS_MAX);
	if (seat)
		__sync_fetch_and_add(&takt_at(&seat->cpu, queue)->ready, change);
}

TAKT_INLINE void count_no_more(struct takt_thread *thread)
{
	if (thread->counted)
		add_ready(thread->counted - 1, (u32)-1);
	thread->counted = 0;
}

/* Counts a thread among those of its server, or of its pool, that want the CPU. True if it was not counted. */
TAKT_INLINE bool count(struct takt_thread *thread, struct takt_member *member)
{
	u64 queue = queue_of_member(member);

	if (thread->counted == queue + 1)
		return false;
	count_no_more(thread);
	thread->counted = queue + 1;
	add_ready(queue, 1);
	return true;
}

/* Of a task beside the components: its job is what the place of its entry `at` goes by. */
TAKT_INLINE void tell_job(struct takt_seat *seat, struct takt_member *member, u32 at, u64 now, bool wakes)
{
	struct takt_server *server = takt_at(&seat->cpu, at);

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

/* A CPU without work takes the thread from the queue of the rest, if it may. */
TAKT_INLINE void wake_idle(struct task_struct *p)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

SEC("struct_ops/takt_select_cpu")
s32 BPF_PROG(takt_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_member *member = place_of(thread);
	bool is_idle = false;

	if (is_served(p, member, prev_cpu))
		return server_on(member, prev_cpu) ? prev_cpu : (s32)member->cpu;
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
}

SEC("struct_ops/takt_runnable")
void BPF_PROG(takt_runnable, struct task_struct *p, u64 enq_flags)
{
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_member *member = place_of(thread);

	if (thread && is_served(p, member, scx_bpf_task_cpu(p)))
		thread->is_new = count(thread, member);
}

SEC("struct_ops/takt_quiescent")
void BPF_PROG(takt_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);

	if (thread)
		count_no_more(thread);
}

SEC("struct_ops/takt_enqueue")
void BPF_PROG(takt_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);
	struct takt_member *member = place_of(thread);
	struct takt_seat *seat = seat_of(cpu);
	u64 now = bpf_ktime_get_ns(), key;
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, is_new;
	/* Its server here, plus one. */
	u32 own = server_on(member, cpu);

	take_over();
	if (thread && member && !own && is_served(p, member, cpu)) {
		/* Its own CPU takes it from there, and decides. */
		count(thread, member);
		thread->is_new = 0;
		key = key_of(member, 0, now, true);
		scx_bpf_dsq_insert_vtime(p, queue_of_member(member), SLICE_MIN, key, enq_flags);
		if (member->pool)
			ask_pool(member->pool, 0, key);
		else
			scx_bpf_kick_cpu(member->cpu, SCX_KICK_PREEMPT);
		return;
	}
	if (!own)
		member = NULL;
	/* It may have moved here while it wanted the CPU. */
	if (thread && !member)
		count_no_more(thread);
	if (!thread || !member || !is_active(seat, now)) {
		scx_bpf_dsq_insert(p, REST, REST_SLICE, enq_flags);
		if (!wakes)
			wake_idle(p);
		return;
	}
	is_new = count(thread, member);
	tell_job(seat, member, own - 1, now, wakes || is_new);
	key = key_of(member, p->scx.dsq_vtime, now, wakes || is_new);
	scx_bpf_dsq_insert_vtime(p, queue_of_member(member), SLICE_MIN, key, enq_flags);
	/* Also if it lost this CPU: another one may have time for it. */
	if (member->pool)
		ask_pool(member->pool, 1ull << (cpu & (CPUS_MAX - 1)), key);
	is_new |= thread->is_new;
	thread->is_new = 0;
	if (!wakes && !is_new)
		return;
	decide(seat, now, seat->server, own);
	if (seat->cpu.chosen.runs == TAKT_NONE ? seat->server != 0 :
	    seat->cpu.chosen.runs + 1 != seat->server || (seat->server == own && key < seat->key)) {
		seat->is_asked = 1;
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
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

/*
 * Gives the CPU to the first thread of the chosen server. If `prev` wants the CPU, `member` is its place and `own` its
 * server plus one. False if there is no thread.
 */
TAKT_INLINE bool give(struct takt_seat *seat, struct task_struct *prev, struct takt_member *member, u32 own, u64 now)
{
	u64 queue = queue_at(&seat->cpu, seat->cpu.chosen.runs), key = 0;
	bool goes_on = member && own == seat->cpu.chosen.runs + 1;

	if (goes_on)
		key = key_of(member, prev->scx.dsq_vtime, now, false);
	if ((!goes_on || waits_before(queue, key)) && scx_bpf_dsq_move_to_local(queue))
		return true;
	/* It is the first, or those before it are gone or cannot run here. */
	if (!goes_on)
		return false;
	set_slice(prev, slice_of(seat, now));
	seat->cpu.is_taken = 0;
	seat->key = key;
	seat->server = own;
	return true;
}

SEC("struct_ops/takt_dispatch")
void BPF_PROG(takt_dispatch, s32 cpu, struct task_struct *prev)
{
	struct takt_seat *seat = seat_of(cpu);
	struct takt_thread *thread = NULL;
	struct takt_member *member = NULL;
	/* Whether the thread that ran may run on though no server chooses it. */
	bool stays = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	u64 now = bpf_ktime_get_ns();
	/* The server of the thread that ran, plus one. */
	u32 own = 0, at, tries;

	take_over();
	if (stays) {
		thread = bpf_task_storage_get(&takt_threads, prev, 0, 0);
		member = place_of(thread);
		own = server_on(member, cpu);
		if (member && !own) {
			/* It goes to its own CPU, if it may. */
			stays = !is_served(prev, member, cpu);
			member = NULL;
		}
	}
	/* The rest run on CPUs without servers, too. */
	if (!seat) {
		if (!scx_bpf_dsq_move_to_local(REST) && stays)
			set_slice(prev, REST_SLICE);
		return;
	}
	seat->is_asked = 0;
	if (is_active(seat, now)) {
		if (member && thread)
			count(thread, member);
		if (member)
			tell_job(seat, member, own - 1, now, false);
		decide(seat, now, own, 0);
		/* takt_running follows, unless `prev` runs on, or the CPU goes to nobody or to a higher class. */
		seat->cpu.is_taken = 1;
		for (tries = 0; tries < 2 && seat->cpu.chosen.runs != TAKT_NONE; tries++) {
			if (give(seat, prev, member, own, now))
				return;
			if (!takt_at(&seat->cpu, seat->cpu.chosen.runs)->terms.pool)
				break;
			/* Other CPUs have taken the threads of the pool. */
			decide(seat, now, own, 0);
		}
		/* A server's thread without a turn waits, and the rest has the CPU. */
		if (scx_bpf_dsq_move_to_local(REST))
			return;
		if (stays && !member) {
			set_slice(prev, REST_SLICE);
			seat->cpu.is_taken = 0;
		}
		return;
	}
	seat->cpu.is_taken = !stays;
	/* Nothing is in force: threads of servers are as all others. */
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= seat->cpu.count)
			break;
		if (scx_bpf_dsq_move_to_local(queue_at(&seat->cpu, at)))
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
	struct takt_member *member = place_of(thread);
	struct takt_seat *seat = seat_of(cpu);
	u64 now = bpf_ktime_get_ns();
	u32 own = server_on(member, cpu);

	if (!seat)
		return;
	seat->server = 0;
	seat->cpu.is_taken = 0;
	/* The run queue was unlocked while a thread came from another CPU, and the kick of a wake-up got lost. */
	if (seat->is_asked)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	if (member && !own) {
		/* It ran here when it got its place. The next tick lets it go. */
		if (is_served(p, member, cpu))
			set_slice(p, SLICE_MIN);
		else if (thread)
			count_no_more(thread);
		return;
	}
	if (!member || !is_active(seat, now))
		return;
	seat->server = own;
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
	struct takt_seat *seat = seat_of(cpu);
	u64 now = bpf_ktime_get_ns();

	if (seat && is_active(seat, now)) {
		takt_advance(&seat->cpu, now);
		seat->cpu.is_taken = 1;
	}
	scx_bpf_reenqueue_local();
}

/* The place of threads of a control group, plus one. */
TAKT_INLINE u32 place_of_group(struct cgroup *group)
{
	u64 id = group->kn->id;
	struct takt_group *known = bpf_map_lookup_elem(&takt_groups, &id);

	return known ? known->member : 0;
}

SEC("struct_ops.s/takt_init_task")
s32 BPF_PROG(takt_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct takt_thread *thread, *parent;

	thread = bpf_task_storage_get(&takt_threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return -ENOMEM;
	/* A former instance may have counted it. */
	thread->counted = 0;
	thread->is_new = 0;
	if (thread->has_joined)
		return 0;
	parent = args->fork ? bpf_task_storage_get(&takt_threads, bpf_get_current_task_btf(), 0, 0) : NULL;
	if (parent && parent->has_joined) {
		thread->member = parent->member;
		thread->has_joined = 1;
	} else if (bpf_core_field_exists(args->cgroup)) {
		thread->member = place_of_group(args->cgroup);
	}
	return 0;
}

/* A control group, as the scheduler begins or later: it belongs where the group around it does. */
SEC("struct_ops.s/takt_cgroup_init")
s32 BPF_PROG(takt_cgroup_init, struct cgroup *group, struct scx_cgroup_init_args *args)
{
	struct takt_group own = {};
	u64 id = group->kn->id;
	struct cgroup *parent;

	if (bpf_map_lookup_elem(&takt_groups, &id) || group->level < 1)
		return 0;
	parent = bpf_cgroup_ancestor(group, group->level - 1);
	if (!parent)
		return 0;
	own.member = place_of_group(parent);
	bpf_cgroup_release(parent);
	return own.member ? bpf_map_update_elem(&takt_groups, &id, &own, BPF_ANY) : 0;
}

SEC("struct_ops/takt_cgroup_exit")
void BPF_PROG(takt_cgroup_exit, struct cgroup *group)
{
	u64 id = group->kn->id;
	struct takt_group *known = bpf_map_lookup_elem(&takt_groups, &id);

	/* A named group may only have lost the controller for a while: it comes back by takt_cgroup_init. */
	if (known && !known->is_named)
		bpf_map_delete_elem(&takt_groups, &id);
}

/* The thread is in no queue meanwhile. */
SEC("struct_ops/takt_cgroup_move")
void BPF_PROG(takt_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct takt_thread *thread = bpf_task_storage_get(&takt_threads, p, 0, 0);

	if (thread && !thread->has_joined)
		thread->member = place_of_group(to);
}

SEC("struct_ops/takt_cgroup_set_bandwidth")
void BPF_PROG(takt_cgroup_set_bandwidth, struct cgroup *group, u64 period_us, u64 quota_us, u64 burst_us)
{
	u64 id = group->kn->id;
	struct takt_group *known = bpf_map_lookup_elem(&takt_groups, &id);
	struct takt_limit *limit;
	u32 at;

	if (!known || !known->is_named || !known->member)
		return;
	at = known->member - 1;
	limit = bpf_map_lookup_elem(&takt_limits, &at);
	if (!limit)
		return;
	__sync_fetch_and_add(&limit->begun, 1);
	limit->period = period_us;
	limit->quota = quota_us;
	__sync_fetch_and_add(&limit->done, 1);
}

TAKT_FN int open_queues(u32 cpu)
{
	struct takt_seat *seat = seat_of(cpu);
	u32 at, known;

	if (!seat)
		return 0;
	seat->cpu.number = cpu;
	/* It never asked for the account while the former instance left. */
	if (seat->is_open && !seat->is_held) {
		hold_account(&seat->cpu, seat->cpu.now);
		seat->is_held = 1;
	}
	seat->cpu.chosen.runs = TAKT_NONE;
	seat->server = 0;
	seat->is_asked = 0;
	publish(seat, TAKT_NEVER);
	/* Their first terms may be overwritten by now. */
	known = seat->cpu.count;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		struct takt_server *server = takt_at(&seat->cpu, at);
		struct takt_terms *terms = terms_of(cpu, at, 1);
		struct takt_pool *pool;
		int error;

		if (known ? at >= known : !terms)
			break;
		/* Threads may wait before the servers begin. */
		if (!known && terms)
			server->terms.pool = terms->pool;
		server->ready = 0;
		seat->cpu.count = at + 1;
		pool = pool_of(server->terms.pool);
		if (pool) {
			seat->has_pools = 1;
			/* Its first CPU makes the queue. */
			if (pool->cpus & ((1ull << (cpu & (CPUS_MAX - 1))) - 1))
				continue;
			pool->ready = 0;
		}
		error = scx_bpf_create_dsq(queue_at(&seat->cpu, at), -1);
		if (error)
			return error;
	}
	return 0;
}

SEC("struct_ops.s/takt_init")
s32 BPF_PROG(takt_init)
{
	u32 cpu, zero = 0;
	struct takt_end *end = bpf_map_lookup_elem(&takt_ends, &zero);
	struct takt_when *span = when();
	int error = scx_bpf_create_dsq(REST, -1);

	if (end)
		end->is_over = 0;
	if (span && span->held)
		span->held = TAKT_COMES;
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
	thread->has_joined = 1;
	return 0;
}

#define TAKT_OPS \
	.select_cpu = (void *)takt_select_cpu, .enqueue = (void *)takt_enqueue, .dispatch = (void *)takt_dispatch, \
	.runnable = (void *)takt_runnable, .quiescent = (void *)takt_quiescent, \
	.running = (void *)takt_running, .stopping = (void *)takt_stopping, \
	.init_task = (void *)takt_init_task, .cpu_release = (void *)takt_cpu_release, \
	.init = (void *)takt_init, .exit = (void *)takt_exit, \
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED, \
	.timeout_ms = 30000, .name = "takt"

SEC(".struct_ops.link")
struct sched_ext_ops takt_ops = { TAKT_OPS };

/* The same with control groups. User space loads one of both. */
SEC(".struct_ops.link")
struct sched_ext_ops takt_group_ops = {
	TAKT_OPS,
	.cgroup_init = (void *)takt_cgroup_init,
	.cgroup_exit = (void *)takt_cgroup_exit,
	.cgroup_move = (void *)takt_cgroup_move,
	.cgroup_set_bandwidth = (void *)takt_cgroup_set_bandwidth,
};
