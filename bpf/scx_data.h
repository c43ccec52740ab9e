/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The data of takt_scx.bpf.c: its CPUs and threads, and what user space reads and writes
 * (crates/linux/src/sched_ext). Include scx.h and servers.h before it.
 */
#ifndef TAKT_SCX_DATA_H
#define TAKT_SCX_DATA_H

#define CPUS_MAX 64
#define MEMBERS_MAX 1024
/* Control groups whose threads belong to servers. */
#define GROUPS_MAX 65536
/* The queue of the rest. Those of servers are below it. */
#define REST (1ull << 20)
/* The first queue of a pool. Those of servers on one CPU are below it. */
#define POOLS (1ull << 19)
/* A pool has two servers at least. */
#define POOLS_MAX (CPUS_MAX * TAKT_SERVERS_MAX / 2)
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
	/* It pays nothing until the next decision, because another instance takes over. */
	u32 is_held;
	/* A wake-up asked for another thread, and no dispatch has begun since. */
	u32 is_asked;
	/* One of its servers has a pool. */
	u32 has_pools;
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

/* The threads of a component with servers on several CPUs. They wait in one queue. */
struct takt_pool {
	/* A bit for each of the CPUs. */
	u64 cpus;
	/* Threads that want a CPU, with those that have one. */
	u32 ready, pad;
	/* The server on each of the CPUs. */
	u8 servers[CPUS_MAX];
};

/* A thread's place: which server, and where in its queue. User space may change all of it. */
struct takt_member {
	/* In a pool: its first server. */
	u32 cpu, server;
	u32 level, order;
	/* Among equal keys the smaller goes first; below 32. */
	u32 tie;
	/* Whether the thread tells release and deadline of each job. Else a job is released when the thread wakes up. */
	u32 tells;
	/* Its pool plus one, or 0. */
	u64 pool;
	/* The relative deadline, and what is added to it in the order by deadline. */
	u64 relative;
	s64 shift;
	/* Of the present job, in nanoseconds of CLOCK_MONOTONIC. */
	u64 release, deadline;
};

/* Which instance decides. User space writes TAKT_LEAVES, the next instance the others. */
enum takt_held {
	TAKT_DECIDES,
	/* The instance at work is to end. */
	TAKT_LEAVES,
	/* The next one begins. The kernel gives it the threads, and asks nothing until it has all of them. */
	TAKT_COMES,
};

struct takt_when {
	u64 start, end, generation;
	u64 held;
};

struct takt_end {
	u32 is_over, kind;
	s64 code;
	char reason[64];
	char message[192];
};

/* A thread: its member plus one, and the queue plus one of the server that counts it as ready. */
struct takt_thread {
	u32 member;
	u32 counted;
	/* It has joined, or its parent has. Then its control group does not matter. */
	u32 has_joined;
	/* It wants the CPU, and nobody has decided since. */
	u32 is_new;
};

/* A control group of a server: the place of its threads plus one. */
struct takt_group {
	u32 member;
	/* Groups below a named one are not named. */
	u32 is_named;
};

/* The last cpu.max of a server's group, in microseconds. */
struct takt_limit {
	/* How often it was written. It changes before and after the others do. */
	u64 begun, done;
	u64 period, quota;
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
	/* Of each server its last changes: the place of a change is its version modulo their number. */
	__uint(max_entries, CPUS_MAX * TAKT_SERVERS_MAX * TAKT_CHANGES_MAX);
	__type(key, u32);
	__type(value, struct takt_terms);
} takt_terms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POOLS_MAX);
	__type(key, u32);
	__type(value, struct takt_pool);
} takt_pools SEC(".maps");

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

/* By the number of the group, which is the inode of its folder. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u64);
	__type(value, struct takt_group);
} takt_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MEMBERS_MAX);
	__type(key, u32);
	__type(value, struct takt_limit);
} takt_limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} takt_events SEC(".maps");

#endif
