/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The servers of one CPU as a machine without clock and kernel: budgets, ranks, and the thread that runs.
 * It is the Hierarchy of takt-policy in C, without quanta. A test compares both on random sequences.
 *
 * The servers are a tree. The node and each server with entries in it is a scope. A scope orders its entries and
 * gives the CPU to the first of them. An entry with threads of its own has no entries in it. Entries stand behind
 * the server around them. So a loop over the numbers, from the last one down, sees inner entries first.
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

/* The most entries of one CPU, which are servers and tasks beside them: a power of two. */
#define TAKT_SERVERS_MAX 16
#define TAKT_NONE 0xffffffffu
#define TAKT_NEVER (~0ull)
/* Boundaries of periods that a late caller makes up for one by one. */
#define TAKT_STEPS_MAX 64
/* Budgets that a late caller gives a soft server one by one. */
#define TAKT_BUDGETS_MAX 4
/* Changes of a server that wait: a power of two. */
#define TAKT_CHANGES_MAX 4

enum takt_rule {
	TAKT_PTPS,
	TAKT_WCPS,
	TAKT_CRPS,
	TAKT_POLLING,
	TAKT_DEFERRABLE,
	TAKT_CBS,
	TAKT_CBS_HARD,
	/* No server: a task beside the servers of its scope. It has the CPU whenever it is the first. */
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
	TAKT_IDLE, /* a: threads of its component that other CPUs run */
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
	/* The server around it plus one, or 0. It has a smaller number, and never changes. */
	u32 outer;
	/* Its component's pool plus one if that has servers on several CPUs, or 0. It never changes. */
	u32 pool;
};

/* What a scope does with the CPU. */
struct takt_choice {
	/* The entry whose thread runs, or TAKT_NONE. */
	u32 runs;
	/* A bit for each server in it that pays. */
	u32 payers;
};

struct takt_server {
	struct takt_terms terms;
	/*
	 * Changes that wait, by version, in the order of `at`. A change holds from the end of the period on, unless the
	 * next one comes before.
	 */
	struct takt_terms pending[TAKT_CHANGES_MAX];
	/* The last version that came, and the last one that waits no more. */
	u32 version, taken;
	s64 left;
	u64 release, deadline;
	/* Of a periodic server: when the next budget comes. */
	u64 next;
	/* Of an idle bandwidth server: until when its bandwidth counts. */
	u64 lag;
	/* Its payment: since when, and how much. */
	u64 since, paid;
	/* What happens in it when it has the CPU. */
	struct takt_choice inside;
	/* A bit for itself and for each server around it; one for each entry in its scope. */
	u32 around, entries;
	/* Its threads that want the CPU. Of a component with servers on several CPUs: those that wait, and its own. */
	u32 ready;
	/* Threads of its component that other CPUs run. */
	u32 elsewhere;
	/* Whether something in it would use the CPU, with or without a thread. */
	u32 has_work;
	u32 had_work, is_spent, pays, ran;
};

struct takt_cpu {
	/* Budgets are kept between these instants. */
	u64 start, end;
	/* Paid until then. */
	u64 now;
	/* The next instant at which something changes by itself. */
	u64 next;
	u32 count;
	/* A bit for each server with entries in it; one for each entry of the node's own scope. */
	u32 scopes, entries;
	/* A bit for each entry that is to have the CPU; one for each in which a thread wants it. */
	u32 eligible, busy;
	/* Those that takt_first looks at. It reads them from here, because the verifier follows each bit of a register. */
	volatile u32 wanted;
	struct takt_choice chosen;
	/* No thread of this scheduler has the CPU: a real-time thread has it, or nobody. Payers then make no debts. */
	u32 is_taken;
	/* Its number, for the one that is told. */
	u32 number;
	struct takt_server servers[TAKT_SERVERS_MAX];
};

TAKT_INLINE struct takt_server *takt_at(struct takt_cpu *cpu, u32 at)
{
	return &cpu->servers[at & (TAKT_SERVERS_MAX - 1)];
}

/* The bit of an entry. */
TAKT_INLINE u32 takt_bit(u32 at)
{
	return 1u << (at & (TAKT_SERVERS_MAX - 1));
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
		return server->has_work;
	return server->left > 0 && (rule <= TAKT_CRPS || server->has_work);
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
	if (cpu->is_taken && (s64)time > server->left)
		time = server->left > 0 ? (u64)server->left : 0;
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
		if (cpu->chosen.payers & takt_bit(at))
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

/* The change after `version`, if it has come. */
TAKT_INLINE const struct takt_terms *takt_change(const struct takt_server *server, u32 version)
{
	if (server->version - version - 1 >= TAKT_CHANGES_MAX)
		return 0;
	return &server->pending[(version + 1) & (TAKT_CHANGES_MAX - 1)];
}

/* Whether it is to have other terms. */
TAKT_INLINE int takt_awaits(const struct takt_server *server, u64 now)
{
	const struct takt_terms *next = takt_change(server, server->taken);

	return next && next->at <= now;
}

/* A change that another one has overtaken waits no more. */
TAKT_INLINE void takt_overtake(struct takt_server *server, u64 now)
{
	u32 each;

	for (each = 0; each < TAKT_CHANGES_MAX - 1; each++) {
		const struct takt_terms *second = takt_change(server, server->taken + 1);

		if (!second || second->at > now)
			break;
		server->taken++;
	}
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
	server->taken++;
	server->terms = server->pending[server->taken & (TAKT_CHANGES_MAX - 1)];
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
	work = server->has_work;
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
		int is_hard = server->terms.rule == TAKT_CBS_HARD || takt_awaits(server, now);
		u32 each;

		/* More than once only after a debt. */
		for (each = 0; each < TAKT_BUDGETS_MAX; each++) {
			if (server->left > 0 || !server->deadline || (is_hard && now < server->deadline))
				break;
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
		takt_tell(cpu, at, TAKT_IDLE, now, server->elsewhere, 0);
	}
	server->had_work = work;
	return 0;
}

/* Brings an entry to `now`, and tells the scope around it. What is in it has been brought there. */
TAKT_FN int takt_update(struct takt_cpu *cpu, u32 at, u64 now)
{
	struct takt_server *server;
	u32 outer;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	takt_overtake(server, now);
	takt_take_terms(cpu, at, now);
	takt_update_by_rule(cpu, at, now);
	/* Its period may have ended with its work. */
	if (takt_take_terms(cpu, at, now))
		takt_update_by_rule(cpu, at, now);
	outer = server->terms.outer;
	if (takt_is_eligible(server)) {
		cpu->eligible |= takt_bit(at);
		if (outer)
			takt_at(cpu, outer - 1)->has_work = 1;
	}
	if (outer && (cpu->busy & takt_bit(at)))
		cpu->busy |= takt_bit(outer - 1);
	return 0;
}

/* Brings all entries to `now`, inner ones first. */
TAKT_FN int takt_update_all(struct takt_cpu *cpu, u64 now)
{
	u32 at;

	if (!cpu)
		return 0;
	cpu->eligible = 0;
	cpu->busy = 0;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		struct takt_server *server = takt_at(cpu, at);

		if (at >= cpu->count)
			break;
		server->has_work = server->ready > 0;
		cpu->busy |= server->has_work << at;
		/* All bits without work: TAKT_NONE. */
		server->inside.runs = at | (server->has_work - 1);
		server->inside.payers = 0;
	}
	for (at = TAKT_SERVERS_MAX; at-- > 0;)
		if (at < cpu->count)
			takt_update(cpu, at, now);
	return 0;
}

/* When it changes though nothing happens and it pays nothing. */
TAKT_FN u64 takt_next_change(struct takt_cpu *cpu, u32 at)
{
	const struct takt_server *server;
	const struct takt_terms *change;
	u64 next = TAKT_NEVER;

	if (!cpu)
		return TAKT_NEVER;
	server = takt_at(cpu, at);
	if (server->terms.rule == TAKT_TASK)
		return TAKT_NEVER;
	change = takt_change(server, server->taken);
	if (takt_is_periodic(server->terms.rule))
		next = server->next;
	else if (server->terms.rule == TAKT_CBS_HARD && server->left <= 0 && server->deadline)
		next = server->deadline;
	if (change) {
		u64 end = takt_period_end(server);

		end = end < change->at ? change->at : end;
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
	next = takt_next_change(cpu, at);
	if (cpu->chosen.payers & takt_bit(at)) {
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
		next = takt_next_change(cpu, at);
		first = next < first ? next : first;
	}
	return first;
}

/* One step of takt_advance: up to the next boundary, at most to `now`. 1 if there is more to do. */
TAKT_FN int takt_step(struct takt_cpu *cpu, u64 now, int is_last)
{
	u64 to;

	if (!cpu)
		return 0;
	to = takt_boundary(cpu);
	if (to > now || is_last)
		to = now;
	if (to < cpu->now)
		to = cpu->now;
	takt_pay(cpu, to);
	takt_update_all(cpu, to);
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

/* The first of these entries, a bit for each, behind `after`; or TAKT_NONE. */
TAKT_FN u32 takt_first(struct takt_cpu *cpu, u32 entries, u32 after)
{
	u32 first = TAKT_NONE, at;

	if (!cpu)
		return TAKT_NONE;
	cpu->wanted = entries;
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= cpu->count)
			break;
		if (!(cpu->wanted & takt_bit(at)))
			continue;
		if (after != TAKT_NONE && !takt_precedes(cpu, after, at))
			continue;
		if (first == TAKT_NONE || takt_precedes(cpu, at, first))
			first = at;
	}
	return first;
}

/* Whether the thread that runs is one of this server, at whatever depth. */
TAKT_INLINE u32 takt_has_thread(struct takt_cpu *cpu, u32 at)
{
	return cpu->chosen.runs != TAKT_NONE && (takt_at(cpu, cpu->chosen.runs)->around & takt_bit(at));
}

/* A server pays from now on, or pays no more. */
TAKT_FN int takt_begin_to_pay(struct takt_cpu *cpu, u32 at)
{
	struct takt_server *server;
	u32 ran;

	if (!cpu)
		return 0;
	server = takt_at(cpu, at);
	if (!(cpu->chosen.payers & takt_bit(at))) {
		if (server->pays)
			takt_settle(cpu, at, cpu->now);
		server->pays = 0;
		return 0;
	}
	ran = takt_has_thread(cpu, at);
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

/* Who borrows the CPU from an idle server among these entries. */
TAKT_FN u32 takt_borrower(struct takt_cpu *cpu, u32 entries, u32 lender)
{
	u32 rule, after, at;

	if (!cpu)
		return TAKT_NONE;
	rule = takt_at(cpu, lender)->terms.rule;
	if (rule != TAKT_WCPS && rule != TAKT_CRPS)
		return TAKT_NONE;
	entries &= cpu->busy;
	/* Whoever reclaims needs no budget, and may stand before the lender. */
	after = TAKT_NONE;
	if (rule == TAKT_WCPS) {
		entries &= cpu->eligible;
		after = lender;
	}
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		after = takt_first(cpu, entries, after);
		if (after == TAKT_NONE || takt_at(cpu, after)->inside.runs != TAKT_NONE)
			break;
	}
	return after;
}

/* Decides who runs and who pays in a scope that has the CPU: in that of server `scope` - 1, or the node's (0). */
TAKT_FN int takt_choose(struct takt_cpu *cpu, u32 scope)
{
	struct takt_choice *choice;
	struct takt_server *server;
	u32 first, borrower, entries;

	if (!cpu)
		return 0;
	choice = scope ? &takt_at(cpu, scope - 1)->inside : &cpu->chosen;
	entries = scope ? takt_at(cpu, scope - 1)->entries : cpu->entries;
	choice->runs = TAKT_NONE;
	choice->payers = 0;
	first = takt_first(cpu, entries & cpu->eligible, TAKT_NONE);
	if (first == TAKT_NONE)
		return 0;
	server = takt_at(cpu, first);
	*choice = server->inside;
	if (server->terms.rule != TAKT_TASK)
		choice->payers |= takt_bit(first);
	if (choice->runs != TAKT_NONE)
		return 0;
	borrower = takt_borrower(cpu, entries, first);
	if (borrower == TAKT_NONE)
		return 0;
	choice->runs = takt_at(cpu, borrower)->inside.runs;
	choice->payers |= takt_at(cpu, borrower)->inside.payers;
	/* Whoever reclaims does not pay. */
	if (server->terms.rule == TAKT_WCPS && takt_at(cpu, borrower)->terms.rule != TAKT_TASK)
		choice->payers |= takt_bit(borrower);
	return 0;
}

/* Brings the CPU to `now`. */
TAKT_INLINE void takt_advance(struct takt_cpu *cpu, u64 now)
{
	int step;

	for (step = 0; step < TAKT_STEPS_MAX; step++)
		if (!takt_step(cpu, now, step == TAKT_STEPS_MAX - 1))
			break;
}

/* Brings the CPU to `now` and decides. */
TAKT_FN int takt_decide(struct takt_cpu *cpu, u64 now)
{
	u64 next = TAKT_NEVER;
	u32 at;

	if (!cpu)
		return 0;
	takt_advance(cpu, now);
	if (cpu->scopes)
		for (at = TAKT_SERVERS_MAX; at-- > 0;)
			if (cpu->scopes & takt_bit(at))
				takt_choose(cpu, at + 1);
	takt_choose(cpu, 0);
	for (at = 0; at < TAKT_SERVERS_MAX; at++) {
		if (at >= cpu->count)
			break;
		takt_begin_to_pay(cpu, at);
	}
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

	server->version = terms->version;
	server->taken = terms->version;
	server->terms = *terms;
	server->is_spent = 1;
	server->next = takt_is_periodic(terms->rule) ? cpu->start : TAKT_NEVER;
	server->around = takt_bit(at);
	if (!terms->outer) {
		cpu->entries |= takt_bit(at);
		return;
	}
	takt_at(cpu, terms->outer - 1)->entries |= takt_bit(at);
	server->around |= takt_at(cpu, terms->outer - 1)->around;
	cpu->scopes |= takt_bit(terms->outer - 1);
}

/* Gives a server its first terms, or a change. Versions count up. 0 if there is no place yet. */
TAKT_FN int takt_give(struct takt_cpu *cpu, u32 at, const struct takt_terms *terms)
{
	struct takt_server *server;

	if (!cpu || !terms)
		return 0;
	server = takt_at(cpu, at);
	if (!server->version) {
		takt_open(cpu, at, terms);
		return 1;
	}
	if (server->version - server->taken >= TAKT_CHANGES_MAX)
		return 0;
	server->version++;
	server->pending[server->version & (TAKT_CHANGES_MAX - 1)] = *terms;
	return 1;
}

#endif
