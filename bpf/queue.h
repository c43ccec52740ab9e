/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The egress of a queueing discipline (takt_qdisc.bpf.c): three classes, each with a packet queue and
 * a token bucket, and the bucket of the line.
 *
 * It does what PacketQueue and TokenBucket of crates/net do. It is plain C, without pointers to
 * packets: a packet is known by its slot. Loops are bounded and each index is masked. The kernel's
 * verifier demands this. crates/net/tests/kernel_queue.rs holds it against the Rust code.
 *
 * Needs __u32 and __u64.
 */
#ifndef TAKT_QUEUE_H
#define TAKT_QUEUE_H

/* Places for packets of a class; a power of two. A queue holds at most so many. */
#define SLOTS 1024
/* Levels of a heap of so many. */
#define LEVELS 10
#define NONE 0xffffffff
/* Neighbouring places in which a stream is looked for. */
#define STREAM_TRIES 8
#define SECOND 1000000000ULL
/* A deadline that never comes. */
#define NEVER 0xffffffffffffffffULL

/* Classes, the most important first. */
#define REAL_TIME 0
#define REPLY 1
#define BACKGROUND 2
#define CLASSES 3

/* The order of packets. */
#define ORDER_FIFO 0
/* Streams by the deadline of their first packet, equal ones by its arrival; a stream first in, first out. */
#define ORDER_EDF 1

/* Late rules. A packet is late if its deadline has passed when it could start. */
#define LATE_SEND 0
#define LATE_DROP 1
/* Late packets leave after all others, first in, first out. */
#define LATE_DEMOTE 2

struct slot {
	__u64 deadline;
	/* Number of the packet, in order of arrival. */
	__u64 number;
	__u32 stream;
	__u32 length;
	/* The next of its stream or row, or the next free slot. */
	__u32 next;
	/* The late rule does not hold for it. */
	__u32 is_kept;
};

/* Slots from the first to the last, by their `next`. */
struct row {
	__u32 first;
	__u32 last;
};

/* User space reads them (tc/own/loaded.rs). All but the last count since the start. */
struct queue_counts {
	__u64 sent;
	/* Of packets that were sent. */
	__u64 bytes;
	/* Late packets that were dropped. */
	__u64 late;
	__u64 demoted;
	__u64 overflow;
	__u64 arrived;
	/* Packets in the queue. */
	__u64 waiting;
};

struct queue {
	struct queue_counts counts;
	__u32 order;
	__u32 late_rule;
	__u32 packets_max;
	/* Slots that were given back, and how many were ever used. */
	__u32 free;
	__u32 used;
	/* All in time, under FIFO. */
	struct row in_time;
	struct row demoted_row;
	/* First packets of streams, under EDF: a heap. */
	__u32 heads;
	__u32 scratch;
	__u32 heap[SLOTS];
	/* The last packet of each stream, and whose stream it is. */
	__u32 last[SLOTS];
	__u64 owner[SLOTS];
	struct slot slots[SLOTS];
};

/*
 * Tokens are counted by the time at which they are zero: at + part / rate, in nanoseconds. So
 * nothing is rounded. At time 0, the start of the machine, a bucket is empty.
 */
struct bucket {
	/* Bytes a second; 0: there is no bucket. */
	__u64 rate;
	/* The most tokens, in bytes. */
	__u64 burst;
	__u64 at;
	__u64 part;
};

struct class_settings {
	/* The bucket of the class; rate 0: it has none. */
	__u64 rate;
	__u64 burst;
	__u32 order;
	__u32 late_rule;
	__u32 packets_max;
	/* It starts no packet while the line has negative tokens. */
	__u32 by_line;
};

struct egress_settings {
	__u64 line_rate;
	__u64 line_burst;
	struct class_settings classes[CLASSES];
	/* Counts changes of the settings; above zero. */
	__u32 generation;
	/* Bytes of each frame that the kernel does not count. */
	__u32 overhead;
};

struct egress {
	/* The settings that are in force. */
	__u32 generation;
	__u32 by_line[CLASSES];
	struct bucket line;
	struct bucket buckets[CLASSES];
	struct queue queues[CLASSES];
};

/* The results of a step. */
#define STEP_EMPTY 0
/* The packet leaves. */
#define STEP_SEND 1
/* The packet is late, and dropped. */
#define STEP_DROP 2
/* A packet was demoted: look again. */
#define STEP_AGAIN 3

/* A step with the slot of its packet, and with its class. */
#define STEP(what, slot) ((what) | ((slot) & (SLOTS - 1)) << 2)
#define STEP_OF_CLASS(step, class) ((step) | (class) << 12)
#define WHAT(step) ((step) & 3)
#define SLOT(step) ((step) >> 2 & (SLOTS - 1))
#define CLASS(step) ((step) >> 12 & 3)

#define ALWAYS_INLINE static inline __attribute__((always_inline, unused))
/* The verifier looks at a global function once, and not again where it is called. It demands a number. */
#ifdef __bpf__
#define ALONE __attribute__((noinline)) int
#else
#define ALONE static int
#endif

ALWAYS_INLINE struct slot *slot_at(struct queue *q, __u32 at)
{
	return &q->slots[at & (SLOTS - 1)];
}

/* Forgets all packets. The counts stay. */
ALWAYS_INLINE void queue_clear(struct queue *q)
{
	q->counts.waiting = q->used = q->heads = 0;
	q->free = NONE;
	q->in_time.first = q->in_time.last = NONE;
	q->demoted_row.first = q->demoted_row.last = NONE;
	/* Volatile, since clang would call memset, which no program of the kernel can. */
	for (__u32 at = 0; at < SLOTS; at++)
		*(volatile __u32 *)&q->last[at] = NONE;
}

ALWAYS_INLINE void row_append(struct queue *q, struct row *row, __u32 at)
{
	slot_at(q, at)->next = NONE;
	if (row->first == NONE)
		row->first = at;
	else
		slot_at(q, row->last)->next = at;
	row->last = at;
}

ALWAYS_INLINE __u32 row_take(struct queue *q, struct row *row)
{
	__u32 at = row->first;

	if (at != NONE)
		row->first = slot_at(q, at)->next;
	return at;
}

/* Whether the packet of the first slot goes before the other. */
ALWAYS_INLINE int goes_before(struct queue *q, __u32 one, __u32 other)
{
	struct slot *a = slot_at(q, one), *b = slot_at(q, other);

	return a->deadline < b->deadline || (a->deadline == b->deadline && a->number < b->number);
}

ALONE heap_push(struct queue *q, __u32 slot)
{
	__u32 at;

	if (!q)
		return 0;
	at = q->heads++;
	for (int level = 0; level <= LEVELS && at; level++) {
		__u32 above = (at - 1) / 2, there = q->heap[above & (SLOTS - 1)];

		if (!goes_before(q, slot, there))
			break;
		q->heap[at & (SLOTS - 1)] = there;
		at = above;
	}
	q->heap[at & (SLOTS - 1)] = slot;
	return 0;
}

/*
 * The same number by way of memory. So the verifier knows nothing of the number, and does not follow
 * each of the many ways through the heap.
 */
ALWAYS_INLINE __u32 forget(struct queue *q, __u32 number)
{
	volatile __u32 *scratch = &q->scratch;

	*scratch = number;
	return *scratch;
}

/* Puts a slot into the place of the first. */
ALONE heap_replace_first(struct queue *q, __u32 slot)
{
	__u32 at;

	if (!q)
		return 0;
	at = forget(q, 0);
	for (int level = 0; level <= LEVELS; level++) {
		__u32 below = 2 * at + 1, there;

		if (below >= q->heads)
			break;
		there = q->heap[below & (SLOTS - 1)];
		if (below + 1 < q->heads && goes_before(q, q->heap[(below + 1) & (SLOTS - 1)], there))
			there = q->heap[++below & (SLOTS - 1)];
		if (!goes_before(q, there, slot))
			break;
		q->heap[at & (SLOTS - 1)] = there;
		at = forget(q, below);
	}
	q->heap[at & (SLOTS - 1)] = slot;
	return 0;
}

/*
 * The place of a stream: where packets of this owner wait, or else a free one. If all neighbouring
 * places are taken, two owners share a stream. Then their packets keep their common order.
 */
ALWAYS_INLINE __u32 stream_of(struct queue *q, __u64 owner)
{
	__u32 first = (owner * 0x9e3779b97f4a7c15ULL) >> 54;

	for (__u32 i = 0; i < STREAM_TRIES; i++) {
		__u32 at = (first + i) & (SLOTS - 1);

		if (q->last[at] != NONE && q->owner[at] == owner)
			return at;
	}
	for (__u32 i = 0; i < STREAM_TRIES; i++) {
		__u32 at = (first + i) & (SLOTS - 1);

		if (q->last[at] == NONE) {
			q->owner[at] = owner;
			return at;
		}
	}
	return first & (SLOTS - 1);
}

/*
 * A packet comes. Returns its slot, or NONE if the queue is full: then it is refused, and counted. The
 * late rule does not hold for a packet that is kept.
 */
ALWAYS_INLINE __u32 queue_push(struct queue *q, __u64 owner, __u32 length, __u64 deadline, __u32 is_kept)
{
	__u32 at = q->free, stream, before;
	struct slot *slot;

	q->counts.arrived++;
	if (q->counts.waiting >= q->packets_max) {
		q->counts.overflow++;
		return NONE;
	}
	if (at == NONE)
		at = q->used++;
	else
		q->free = slot_at(q, at)->next;
	at &= SLOTS - 1;
	q->counts.waiting++;
	slot = slot_at(q, at);
	slot->deadline = deadline;
	slot->number = q->counts.arrived;
	slot->length = length;
	slot->next = NONE;
	slot->stream = 0;
	slot->is_kept = is_kept;
	if (q->order == ORDER_FIFO) {
		row_append(q, &q->in_time, at);
		return at;
	}
	stream = stream_of(q, owner);
	slot->stream = stream;
	before = q->last[stream & (SLOTS - 1)];
	q->last[stream & (SLOTS - 1)] = at;
	if (before == NONE)
		heap_push(q, at);
	else
		slot_at(q, before)->next = at;
	return at;
}

/* Takes out the first packet of the stream whose turn it is. */
ALWAYS_INLINE __u32 take_head(struct queue *q)
{
	__u32 at = q->heap[0], next;

	if (!q->heads)
		return NONE;
	next = slot_at(q, at)->next;
	if (next == NONE) {
		q->last[slot_at(q, at)->stream & (SLOTS - 1)] = NONE;
		q->heads--;
		next = q->heap[q->heads & (SLOTS - 1)];
		if (!q->heads)
			return at;
	}
	heap_replace_first(q, next);
	return at;
}

/*
 * Takes out the next packet. After STEP_SEND and STEP_DROP the caller looks at the slot, and gives it
 * back (queue_free). There is a packet to be found as long as the queue has one in time.
 */
ALONE queue_step(struct queue *q, __u64 now)
{
	__u32 at;

	if (!q)
		return STEP_EMPTY;
	at = q->order == ORDER_FIFO ? row_take(q, &q->in_time) : take_head(q);
	if (at == NONE) {
		at = row_take(q, &q->demoted_row);
		if (at == NONE)
			return STEP_EMPTY;
	} else if (slot_at(q, at)->deadline < now && q->late_rule == LATE_DROP && !slot_at(q, at)->is_kept) {
		q->counts.late++;
		return STEP(STEP_DROP, at);
	} else if (slot_at(q, at)->deadline < now && q->late_rule == LATE_DEMOTE && !slot_at(q, at)->is_kept) {
		q->counts.demoted++;
		row_append(q, &q->demoted_row, at);
		return STEP_AGAIN;
	}
	q->counts.sent++;
	q->counts.bytes += slot_at(q, at)->length;
	return STEP(STEP_SEND, at);
}

ALWAYS_INLINE void queue_free(struct queue *q, __u32 at)
{
	slot_at(q, at)->next = q->free;
	q->free = at;
	q->counts.waiting--;
}

/* A bucket gets its rate and burst. One below zero is at zero when it was to be before. */
ALWAYS_INLINE void bucket_tune(struct bucket *of, __u64 rate, __u64 burst)
{
	if (of->rate != rate)
		of->part = 0;
	of->rate = rate;
	of->burst = burst;
}

/* When a packet may start: `now` while tokens are not negative. */
ALWAYS_INLINE __u64 bucket_ready(struct bucket *of, __u64 now)
{
	__u64 zero = of->at + !!of->part;

	return of->rate && zero > now ? zero : now;
}

/* A packet starts: its whole length is taken off. */
ALWAYS_INLINE void bucket_charge(struct bucket *of, __u64 now, __u64 length)
{
	__u64 full_ns, full_part, since, part;

	if (!of->rate)
		return;
	/* The bucket is full if its tokens were zero that long ago. */
	full_ns = of->burst * SECOND / of->rate;
	full_part = of->burst * SECOND % of->rate;
	if (now > of->at) {
		/* since + part / rate: how long ago tokens were zero. */
		since = now - of->at;
		part = 0;
		if (of->part) {
			since--;
			part = of->rate - of->part;
		}
		if (since > full_ns || (since == full_ns && part > full_part)) {
			of->at = now - full_ns;
			of->part = 0;
			if (full_part) {
				of->at--;
				of->part = of->rate - full_part;
			}
		}
	}
	of->at += length * SECOND / of->rate;
	of->part += length * SECOND % of->rate;
	if (of->part >= of->rate) {
		of->part -= of->rate;
		of->at++;
	}
}

/* Settings take force. Waiting packets keep their order, so a new order waits until a queue is empty. */
ALONE egress_tune(struct egress *e, const struct egress_settings *to)
{
	int waits = 0;

	if (!e || !to)
		return 0;
	bucket_tune(&e->line, to->line_rate, to->line_burst);
	for (__u32 i = 0; i < CLASSES; i++) {
		const struct class_settings *of = &to->classes[i];
		struct queue *q = &e->queues[i];

		bucket_tune(&e->buckets[i], of->rate, of->burst);
		e->by_line[i] = of->by_line;
		q->late_rule = of->late_rule;
		q->packets_max = of->packets_max < SLOTS ? of->packets_max : SLOTS;
		if (q->counts.waiting && q->order != of->order)
			waits = 1;
		else
			q->order = of->order;
	}
	if (!waits)
		e->generation = to->generation;
	return 0;
}

/* When a packet of the class may start: `now` while no bucket that it needs has negative tokens. */
ALWAYS_INLINE __u64 class_ready(struct egress *e, __u32 class, __u64 now)
{
	__u64 own = bucket_ready(&e->buckets[class], now);

	return e->by_line[class] ? bucket_ready(&e->line, own) : own;
}

/*
 * One step of the egress at `now`: looks at the first class with a packet and without negative
 * tokens. Each packet takes tokens of the line. STEP_EMPTY: no class has one.
 */
ALONE egress_step(struct egress *e, __u64 now)
{
	if (!e)
		return STEP_EMPTY;
	for (__u32 i = 0; i < CLASSES; i++) {
		struct queue *q = &e->queues[i];
		int step;

		if (!q->counts.waiting || class_ready(e, i, now) > now)
			continue;
		step = queue_step(q, now);
		if (step == STEP_EMPTY)
			continue;
		if (WHAT(step) == STEP_SEND) {
			bucket_charge(&e->buckets[i], now, slot_at(q, SLOT(step))->length);
			bucket_charge(&e->line, now, slot_at(q, SLOT(step))->length);
		}
		return STEP_OF_CLASS(step, i);
	}
	return STEP_EMPTY;
}

/* When a packet may start, if none may at `now`; NEVER: none waits. */
ALWAYS_INLINE __u64 egress_wakeup(struct egress *e, __u64 now)
{
	__u64 first = NEVER;

	for (__u32 i = 0; i < CLASSES; i++) {
		__u64 at = class_ready(e, i, now);

		if (e->queues[i].counts.waiting && at < first)
			first = at;
	}
	return first;
}

#endif
