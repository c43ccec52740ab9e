/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's types and constants that the programs of this folder share, and libbpf's helpers.
 *
 * A program declares a structure of the kernel with KERNEL_TYPE, and only the fields that it uses.
 * The loader finds their places in the running kernel (CO-RE). So no header of a kernel is needed.
 */
#ifndef TAKT_H
#define TAKT_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/* enum bpf_map_type */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_SK_STORAGE 24

#define BPF_F_NO_PREALLOC 1

#include <bpf/bpf_helpers.h>

#define ENOMEM 12
#define EINVAL 22

#define KERNEL_TYPE __attribute__((preserve_access_index))

/* Protects a map's value that holds it. */
struct bpf_spin_lock {
	__u32 val;
};

#endif
