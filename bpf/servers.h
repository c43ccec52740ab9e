/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The servers of one CPU as a machine without clock and kernel: budgets, ranks, and the thread that runs.
 * It is the Hierarchy of takt-policy in C, for one level of components. A test compares both on random
 * sequences.
 *
 * takt_scx.bpf.c calls it under the lock of the CPU's run queue. All times are absolute, in nanoseconds.
 * The caller defines takt_tell(cpu, server, kind, at, a, b). It receives each change of a server.
 *
 * A caller may be late. Budgets then come at their own instants, and payers pay until the caller is there.
 * A server that exceeds its budget gets less in its next period.
 */
#ifndef TAKT_SERVERS_H
#define TAKT_SERVERS_H

#define TAKT_INLINE static inline __attribute__((always_inline))

/* The most servers and tasks beside them on one CPU: a power of two. */
#define TAKT_SERVERS_MAX 16
#define TAKT_NONE 0xffffffffu
#define TAKT_NEVER (~0ull)
/* Boundaries of periods that a late caller makes up for one by one. */
#define TAKT_STEPS_MAX 64

enum takt_rule {
	TAKT_PTPS,
	TAKT_WCPS,
	TAKT_CRPS,
	TAKT_POLLING,
	TAKT_DEFERRABLE,
	TAKT_CBS,
	TAKT_CBS_HARD,
	/* No server: a task beside the components. It has the CPU whenever it is the first. */
	TAKT_TASK,
};

enum takt_order {
	TAKT_FIFO,
	TAKT_DEADLINE,
	/* Of threads only: they take turns. */
	TAKT_SHARED,
};

enum takt_kind {
	TAKT_REPLENISHED, /* a: the budget */
	TAKT_EXHAUSTED,
	TAKT_IDLE,
	TAKT_PAID, /* a: since when; b: amount, and 1 << 63 if none of its jobs ran */
	TAKT_SWITCHED, /* a: the budget; b: the period; the rule in `rule` of the event */
};
#define TAKT_PAID_IDLE (1ull << 63)

struct takt_terms {
	u64 budget, period;
	/* Added to the deadline where the order goes by it. */
	s64 shift;
	/* They are not asked for before this. */
	u64 at;
	u32 rule, level, order;
	/* Counts the changes of these terms. */
	u32 version;
};

struct takt_server {
	struct takt_terms terms;
	/* They hold from the end of the period on. */
	struct takt_terms pending;
	s64 left;
	u64 release, deadline;
	/* Of a periodic server: when the next budget comes. */
	u64 next;
	/* Of an idle bandwidth server: until when its bandwidth counts. */
	u64 lag;
	/* Its payment: since when, and how much. */
	u64 since, paid;
	/* Its threads that want the CPU. */
	u32 ready;
	u32 had_work, is_pending, is_spent, pays, ran;
};

struct takt_cpu {
	/* Budgets are kept between these instants. */
	u64 start, end;
	/* Paid until then. */
	u64 now;
	/* The next instant at which something changes by itself. */
	u64 next;
	u32 count;
	/* A bit for each server that pays. */
	u32 payers;
	/* The server whose job has the CPU. */
	u32 runs;
	/* Its number, for the one that is told. */
	u32 number;
	struct takt_server servers[TAKT_SERVERS_MAX];
};

TAKT_INLINE struct takt_server *takt_at(struct takt_cpu *cpu, u32 at)
{
	return &cpu->servers[at & (TAKT_SERVERS_MAX - 1)];
}

TAKT_INLINE int takt_is_bandwidth(u32 rule)
{
	return rule == TAKT_CBS || rule == TAKT_CBS_HARD;
}

TAKT_INLINE int takt_is_periodic(u32 rule)
{
	return rule < TAKT_CBS;
}

/* Whether it is to have the CPU. */
TAKT_INLINE int takt_is_eligible(const struct takt_server *server)
{
	u32 rule = server->terms.rule;

	if (rule == TAKT_TASK)
		return server->ready > 0;
	return server->left > 0 && (rule <= TAKT_CRPS || server->ready > 0);
}

/* Tells of its payment so far. */
TAKT_FN int takt_settle(struct takt_cpu *cpu, u32 at, u64 now)
{
	struct takt_server *server;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	if (!server->pays)
		return 0;
	if (server->since < now)
		takt_tell(cpu, at, TAKT_PAID, now, server->since, server->paid | (server->ran ? 0 : TAKT_PAID_IDLE));
	server->since = now;
	server->paid = 0;
	return 0;
}

/* Charges a payer for `time` up to `now`. */
TAKT_FN int takt_charge(struct takt_cpu *cpu, u32 at, u64 time, u64 now)
{
	struct takt_server *server;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	server->left -= (s64)time;
	server->paid += time;
	if (server->left > 0 || server->is_spent)
		return 0;
	server->is_spent = 1;
	takt_settle(cpu, at, now);
	takt_tell(cpu, at, TAKT_EXHAUSTED, now, 0, 0);
	return 0;
}

TAKT_INLINE void takt_pay(struct takt_cpu *cpu, u64 now)
{
	u64 time = now - cpu->now;
	u32 at;

	if (now <= cpu->now)
		return;
	cpu->now = now;
	for (at = 0; at < TAKT_SERVERS_MAX; at++)
		if (cpu->payers & (1u << at))
			takt_charge(cpu, at, time, now);
}

TAKT_INLINE void takt_replenish(struct takt_cpu *cpu, u32 at, u64 now)
{
	struct takt_server *server = takt_at(cpu, at);
	s64 debt = server->left < 0 ? server->left : 0;

	server->left = (s64)server->terms.budget + debt;
	server->is_spent = server->left <= 0;
	takt_settle(cpu, at, now);
	if (server->left > 0)
		takt_tell(cpu, at, TAKT_REPLENISHED, now, (u64)server->left, 0);
}

/* Whether it is to have other terms. */
TAKT_INLINE int takt_awaits(const struct takt_server *server, u64 now)
{
	return server->is_pending && server->pending.at <= now;
}

/* When all of its budget is back or lost, so that new terms can begin. */
TAKT_INLINE u64 takt_period_end(const struct takt_server *server)
{
	if (takt_is_periodic(server->terms.rule))
		return server->next;
	if (!takt_is_bandwidth(server->terms.rule))
		return 0;
	return server->had_work ? server->deadline : server->lag;
}

/* Whether its budget by its deadline would be more than its share: q T >= (d - t) Q. All of them are below 2^32. */
TAKT_INLINE int takt_asks_for_more(const struct takt_server *server, u64 now)
{
	u64 room = server->deadline > now ? server->deadline - now : 0;

	if (room >> 32)
		return 0;
	return (u64)server->left * server->terms.period >= room * server->terms.budget;
}

/* Begins with new terms, if there are any and the period is over. */
TAKT_FN int takt_take_terms(struct takt_cpu *cpu, u32 at, u64 now)
{
	struct takt_server *server;
	int had_budget;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	if (!takt_awaits(server, now) || takt_period_end(server) > now)
		return 0;
	had_budget = server->left > 0;
	takt_settle(cpu, at, now);
	server->terms = server->pending;
	server->is_pending = 0;
	server->left = server->left < 0 ? server->left : 0;
	server->is_spent = 1;
	server->deadline = 0;
	server->lag = 0;
	server->had_work = 0;
	server->next = takt_is_periodic(server->terms.rule) ? now : TAKT_NEVER;
	takt_tell(cpu, at, TAKT_SWITCHED, now, server->terms.budget, server->terms.period);
	/* A bandwidth server has its first budget when work comes. */
	if (had_budget && !takt_is_periodic(server->terms.rule))
		takt_tell(cpu, at, TAKT_REPLENISHED, now, 0, 0);
	return 1;
}

TAKT_FN int takt_update_by_rule(struct takt_cpu *cpu, u32 at, u64 now)
{
	struct takt_server *server;
	u32 work;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	work = server->ready > 0;
	if (server->terms.rule == TAKT_TASK)
		return 0;
	if (takt_is_periodic(server->terms.rule)) {
		if (server->next <= now) {
			u64 period = server->terms.period ? server->terms.period : 1;

			/* Periods that nobody has seen are lost. */
			if (now - server->next >= period)
				server->next = now - (now - server->next) % period;
			server->release = server->next;
			server->deadline = server->next + period;
			server->next = server->deadline;
			takt_replenish(cpu, at, server->release);
		}
		if (server->terms.rule == TAKT_POLLING && !work && server->left > 0) {
			server->left = 0;
			server->is_spent = 1;
			/* Reported as idle, even if it never had work. */
			server->had_work = 1;
		}
	} else {
		int waits = (server->terms.rule == TAKT_CBS_HARD || takt_awaits(server, now)) && now < server->deadline;

		if (server->left <= 0 && server->deadline && !waits) {
			server->deadline += server->terms.period;
			server->release = now;
			takt_replenish(cpu, at, now);
		}
		if (work && !server->had_work && !takt_awaits(server, now) &&
		    (!server->deadline || (server->left > 0 && takt_asks_for_more(server, now)))) {
			server->deadline = now + server->terms.period;
			server->release = now;
			server->left = server->left < 0 ? server->left : 0;
			takt_replenish(cpu, at, now);
		}
		if (!work && server->had_work) {
			u64 budget = server->terms.budget ? server->terms.budget : 1;
			u64 early = server->left > 0 ? (u64)server->left * server->terms.period / budget : 0;

			server->lag = server->deadline > early ? server->deadline - early : 0;
		}
	}
	if (server->had_work && !work) {
		takt_settle(cpu, at, now);
		takt_tell(cpu, at, TAKT_IDLE, now, 0, 0);
	}
	server->had_work = work;
	return 0;
}

/* Brings a server to `now`. */
TAKT_FN int takt_update(struct takt_cpu *cpu, u32 at, u64 now)
{
	takt_take_terms(cpu, at, now);
	takt_update_by_rule(cpu, at, now);
	/* Its period may have ended with its work. */
	if (takt_take_terms(cpu, at, now))
		takt_update_by_rule(cpu, at, now);
	return 0;
}

/* When it changes though nothing happens and it pays nothing. */
TAKT_INLINE u64 takt_next_change(const struct takt_server *server)
{
	u64 next = TAKT_NEVER;

	if (takt_is_periodic(server->terms.rule))
		next = server->next;
	else if (server->terms.rule == TAKT_CBS_HARD && server->left <= 0 && server->deadline)
		next = server->deadline;
	if (server->is_pending) {
		u64 end = takt_period_end(server);

		end = end < server->pending.at ? server->pending.at : end;
		next = end < next ? end : next;
	}
	return next;
}

/* The next change of a server, and the end of its budget if it pays. */
TAKT_FN u64 takt_next_of(struct takt_cpu *cpu, u32 at)
{
	struct takt_server *server;
	u64 next;

	if (!cpu)
		return TAKT_NEVER;
	server = takt_at(cpu, at);
	if (server->terms.rule == TAKT_TASK)
		return TAKT_NEVER;
	next = takt_next_change(server);
	if (cpu->payers & (1u << (at & (TAKT_SERVERS_MAX - 1)))) {
		u64 end = cpu->now + (server->left > 0 ? (u64)server->left : 0);

		next = end < next ? end : next;
	}
	return next;
}

/* The first change by itself of any server that pays nothing; budgets end only where the caller looks. */
TAKT_INLINE u64 takt_boundary(struct takt_cpu *cpu)
{
	u64 first = TAKT_NEVER;
	u32 at;

	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		u64 next;

		if (at >= cpu->count)
			break;
		if (takt_at(cpu, at)->terms.rule == TAKT_TASK)
			continue;
		next = takt_next_change(takt_at(cpu, at));
		first = next < first ? next : first;
	}
	return first;
}

/* One step of takt_advance: up to the next boundary, at most to `now`. 1 if there is more to do. */
TAKT_FN int takt_step(struct takt_cpu *cpu, u64 now, int is_last)
{
	u64 to;
	u32 at;

	if (!cpu)
		return 0;
	to = takt_boundary(cpu);
	if (to > now || is_last)
		to = now;
	if (to < cpu->now)
		to = cpu->now;
	takt_pay(cpu, to);
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= cpu->count)
			break;
		takt_update(cpu, at, to);
	}
	return to < now;
}

/* Whether entry `a` goes before entry `b`. */
TAKT_FN int takt_precedes(struct takt_cpu *cpu, u32 a, u32 b)
{
	struct takt_server *one, *other;
	u64 key_one, key_other;

	if (!cpu)
		return 0;
	one = takt_at(cpu, a);
	other = takt_at(cpu, b);
	if (one->terms.level != other->terms.level)
		return one->terms.level < other->terms.level;
	key_one = one->terms.order == TAKT_DEADLINE ? one->deadline + one->terms.shift : one->release;
	key_other = other->terms.order == TAKT_DEADLINE ? other->deadline + other->terms.shift : other->release;
	if (key_one != key_other)
		return key_one < key_other;
	if (one->release != other->release)
		return one->release < other->release;
	return a < b;
}

enum takt_filter {
	TAKT_ELIGIBLE,
	/* With budget and a job. */
	TAKT_READY,
	/* With a job. */
	TAKT_BUSY,
};

/* The first of these entries behind `after`, or TAKT_NONE. */
TAKT_FN u32 takt_first(struct takt_cpu *cpu, u32 after, u32 filter)
{
	u32 first = TAKT_NONE, at;

	if (!cpu)
		return TAKT_NONE;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		struct takt_server *server = takt_at(cpu, at);

		if (at >= cpu->count)
			break;
		if (filter != TAKT_BUSY && !takt_is_eligible(server))
			continue;
		if (filter != TAKT_ELIGIBLE && !server->ready)
			continue;
		if (after != TAKT_NONE && !takt_precedes(cpu, after, at))
			continue;
		if (first == TAKT_NONE || takt_precedes(cpu, at, first))
			first = at;
	}
	return first;
}

/* A server pays from now on, or pays no more. */
TAKT_FN int takt_begin_to_pay(struct takt_cpu *cpu, u32 at, u32 payers)
{
	struct takt_server *server;
	u32 ran;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	if (!(payers & (1u << (at & (TAKT_SERVERS_MAX - 1))))) {
		if (server->pays)
			takt_settle(cpu, at, cpu->now);
		server->pays = 0;
		return 0;
	}
	ran = cpu->runs == at;
	if (!server->pays) {
		server->pays = 1;
		server->since = cpu->now;
		server->paid = 0;
	} else if (server->ran != ran) {
		takt_settle(cpu, at, cpu->now);
	}
	server->ran = ran;
	return 0;
}

/* Decides who runs and who pays from cpu->now on. */
TAKT_FN int takt_choose(struct takt_cpu *cpu)
{
	u32 first, runs, payers = 0, at;
	struct takt_server *server;

	if (!cpu)
		return 0;
	first = takt_first(cpu, TAKT_NONE, TAKT_ELIGIBLE);
	runs = first;
	if (first != TAKT_NONE) {
		server = takt_at(cpu, first);
		if (server->terms.rule != TAKT_TASK)
			payers = 1u << (first & (TAKT_SERVERS_MAX - 1));
		if (!server->ready) {
			runs = TAKT_NONE;
			if (server->terms.rule == TAKT_WCPS) {
				runs = takt_first(cpu, first, TAKT_READY);
				if (runs != TAKT_NONE && takt_at(cpu, runs)->terms.rule != TAKT_TASK)
					payers |= 1u << (runs & (TAKT_SERVERS_MAX - 1));
			} else if (server->terms.rule == TAKT_CRPS) {
				runs = takt_first(cpu, TAKT_NONE, TAKT_BUSY);
			}
		}
	}
	cpu->runs = runs;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= cpu->count)
			break;
		takt_begin_to_pay(cpu, at, payers);
	}
	cpu->payers = payers;
	return 0;
}

/* Brings the CPU to `now` and decides. */
TAKT_FN int takt_decide(struct takt_cpu *cpu, u64 now)
{
	u64 next = TAKT_NEVER;
	u32 at;
	int step;

	if (!cpu)
		return 0;
	for (step = 0; step < TAKT_STEPS_MAX; step++)
		if (!takt_step(cpu, now, step == TAKT_STEPS_MAX - 1))
			break;
	takt_choose(cpu);
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		u64 of;

		if (at >= cpu->count)
			break;
		of = takt_next_of(cpu, at);
		next = of < next ? of : next;
	}
	cpu->next = next;
	return 0;
}

/* The first terms of a server, before cpu->start. */
TAKT_INLINE void takt_open(struct takt_cpu *cpu, u32 at, const struct takt_terms *terms)
{
	struct takt_server *server = takt_at(cpu, at);

	server->terms = *terms;
	server->is_spent = 1;
	server->next = takt_is_periodic(terms->rule) ? cpu->start : TAKT_NEVER;
}

#endif
