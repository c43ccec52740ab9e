/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Types and functions of the kernel's sched_ext for takt_scx.bpf.c (Linux 6.13 and later). libbpf finds
 * the layout of the running kernel by the names of types.
 */
#ifndef TAKT_SCX_H
#define TAKT_SCX_H

#include "takt.h"

/* The kernel fixes the arguments of its calls, and no program uses all of them. */
#pragma clang diagnostic ignored "-Wunused-parameter"

typedef __u8 u8;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Of the kernel's enums. */
#define BPF_ANY 0
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_MAP_TYPE_TASK_STORAGE 29
#define BPF_F_MMAPABLE 1024
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_RB_NO_WAKEUP 1

struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
} KERNEL_TYPE;

/* The first word has the CPUs below 64. */
struct cpumask {
	unsigned long bits[1];
} KERNEL_TYPE;

struct task_struct {
	s32 pid;
	s32 nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	struct sched_ext_entity scx;
} KERNEL_TYPE;

struct kernfs_node {
	u64 id;
} KERNEL_TYPE;

struct cgroup {
	struct kernfs_node *kn;
	int level;
} KERNEL_TYPE;

/* The group is there in kernels with CONFIG_EXT_GROUP_SCHED. */
struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
} KERNEL_TYPE;

struct scx_cgroup_init_args;

struct scx_cpu_release_args;

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
} KERNEL_TYPE;

/* libbpf matches the members by name. A member that is not set may be missing in the kernel. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	s32 (*cgroup_init)(struct cgroup *group, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *group);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_bandwidth)(struct cgroup *group, u64 period_us, u64 quota_us, u64 burst_us);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#define SCX_OPS_ENQ_LAST 2ull
#define SCX_OPS_ENQ_EXITING 4ull
#define SCX_OPS_ENQ_MIGRATION_DISABLED 16ull
#define SCX_ENQ_WAKEUP 1ull
#define SCX_KICK_IDLE 1ull
#define SCX_KICK_PREEMPT 2ull
#define SCX_TASK_QUEUED 1u
#define SCX_SLICE_DFL 20000000ull

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *group, int level) __ksym __weak;
extern void bpf_cgroup_release(struct cgroup *group) __ksym __weak;

extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
extern u32 scx_bpf_reenqueue_local(void) __ksym;
/* Linux 6.19 and later; before, programs write the slice themselves. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;

#endif
