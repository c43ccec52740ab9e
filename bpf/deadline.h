/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The socket options of deadline.bpf.c, and its structures in maps.
 * crates/linux/src/tc/tags.rs has the same numbers and structures.
 */
#ifndef TAKT_DEADLINE_H
#define TAKT_DEADLINE_H

/*
 * Level and options of setsockopt(2); the value is a __u64 in nanoseconds, 0 ends it.
 * No protocol of the kernel has this level, so no option of the kernel is hidden.
 */
#define SOL_TAKT 0x7461
/* The deadline of a packet is so long after its send. */
#define SO_DEADLINE 1
/* It is that time of CLOCK_MONOTONIC, until the option is set again. */
#define SO_DEADLINE_AT 2

/* A device and its real-time class. */
struct settings {
	/* The token bucket of the class: bytes a second, and nanoseconds that its burst takes. */
	__u64 rate;
	__u64 burst_ns;
	/* Bytes of each frame on the wire beside the kernel's count. */
	__u64 overhead;
	/* Number of the device in its network namespace, and of that namespace. */
	__u32 device;
	__u32 space;
	/* The handle of the class. */
	__u32 class;
	/* 1: datagrams that cannot start in time are dropped. */
	__u32 drop_late;
};

/* Packets with deadlines since the start. */
struct counts {
	/* All packets, dropped ones included. */
	__u64 came;
	/* Datagrams dropped because they could not start in time. */
	__u64 dropped;
	/* Packets on their way to the driver, and late ones among them. */
	__u64 left;
	__u64 late;
};

#endif
