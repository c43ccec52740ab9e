// SPDX-License-Identifier: GPL-2.0-only
/*
 * The least sched_ext scheduler, for comparison: one queue of all threads, first in, first out. A thread that wakes up
 * on an idle CPU runs there at once. The kernel's sample scx_simple does the same with the option -f.
 */
#include "scx.h"

char _license[] SEC("license") = "GPL";

#define QUEUE 1ull
#define SCX_DSQ_LOCAL (1ull << 63 | 2)

SEC("struct_ops/fifo_select_cpu")
s32 BPF_PROG(fifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

SEC("struct_ops/fifo_enqueue")
void BPF_PROG(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, QUEUE, SCX_SLICE_DFL, enq_flags);
}

SEC("struct_ops/fifo_dispatch")
void BPF_PROG(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(QUEUE);
}

SEC("struct_ops.s/fifo_init")
s32 BPF_PROG(fifo_init)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops fifo_ops = {
	.select_cpu = (void *)fifo_select_cpu,
	.enqueue = (void *)fifo_enqueue,
	.dispatch = (void *)fifo_dispatch,
	.init = (void *)fifo_init,
	.name = "fifo",
};
