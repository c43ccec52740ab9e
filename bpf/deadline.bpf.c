/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Deadlines for the packets of ordinary sockets.
 *
 * set_deadline takes the socket option and keeps its value with the socket. get_deadline tells it.
 *
 * tag_packet hangs before the queueing discipline of a device. It writes the absolute deadline into
 * the packet (skb->tstamp) and chooses the real-time class (skb->priority). If the late rule says
 * so, it drops a datagram that cannot start before its deadline.
 *
 * count_departure runs where a packet goes to the driver. It counts those that leave late.
 */
#include "takt.h"
#include "deadline.h"

char LICENSE[] SEC("license") = "GPL";

/* Sockets that accept(2) makes inherit the value of the socket that listens. */
#define BPF_F_CLONE (1 << 9)
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_SKB_TSTAMP_DELIVERY_MONO 1
#define TCX_NEXT -1
#define TCX_DROP 2
#define IPPROTO_UDP 17

struct bpf_sock {
	__u32 protocol;
} KERNEL_TYPE;

struct bpf_sockopt {
	struct bpf_sock *sk;
	void *optval;
	void *optval_end;
	__s32 level;
	__s32 optname;
	__s32 optlen;
	__s32 retval;
} KERNEL_TYPE;

struct __sk_buff {
	__u32 priority;
	__u32 wire_len;
	struct bpf_sock *sk;
} KERNEL_TYPE;

struct ns_common {
	__u32 inum;
} KERNEL_TYPE;

struct net {
	struct ns_common ns;
} KERNEL_TYPE;

typedef struct {
	struct net *net;
} KERNEL_TYPE possible_net_t;

struct net_device {
	__u32 ifindex;
	possible_net_t nd_net;
} KERNEL_TYPE;

struct sk_buff {
	__u32 priority;
	__u64 tstamp;
} KERNEL_TYPE;

/* In a socket's value: the deadline is a time, not a duration. */
#define IS_TIME (1ULL << 63)
#define NS_PER_S 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u64);
} deadlines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* The bucket's tokens: they were zero at that time, if negative they will be. */
struct bucket {
	struct bpf_spin_lock lock;
	__u64 zero_at;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} bucket SEC(".maps");

static const __u32 only;

static void count(__u64 *of)
{
	__sync_fetch_and_add(of, 1);
}

static bool is_ours(struct bpf_sockopt *ctx)
{
	return ctx->level == SOL_TAKT && (ctx->optname == SO_DEADLINE || ctx->optname == SO_DEADLINE_AT);
}

static int refuse(int errno)
{
	bpf_set_retval(-errno);
	return 0;
}

SEC("cgroup/setsockopt")
int set_deadline(struct bpf_sockopt *ctx)
{
	__u64 *given = ctx->optval, *value;

	if (!is_ours(ctx))
		return 1;
	if ((void *)(given + 1) > ctx->optval_end || *given & IS_TIME)
		return refuse(EINVAL);
	value = bpf_sk_storage_get(&deadlines, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!value)
		return refuse(ENOMEM);
	*value = *given && ctx->optname == SO_DEADLINE_AT ? *given | IS_TIME : *given;
	/* The kernel does not see the option. */
	ctx->optlen = -1;
	return 1;
}

SEC("cgroup/getsockopt")
int get_deadline(struct bpf_sockopt *ctx)
{
	__u64 *into = ctx->optval, *value;
	bool time = ctx->optname == SO_DEADLINE_AT;

	if (!is_ours(ctx))
		return 1;
	if ((void *)(into + 1) > ctx->optval_end)
		return refuse(EINVAL);
	value = bpf_sk_storage_get(&deadlines, ctx->sk, 0, 0);
	/* Programs of another device may have answered; they do not know deadlines from before their start. */
	if (!value && !ctx->retval)
		return 1;
	*into = value && !!(*value & IS_TIME) == time ? *value & ~IS_TIME : 0;
	ctx->optlen = sizeof(*into);
	ctx->retval = 0;
	return 1;
}

/*
 * Takes the tokens of a packet. Takes none if the packet may be dropped and cannot start before its
 * deadline. The rule is that of HTB: a packet starts while tokens are not negative, and its whole
 * length is taken off. Packets of the class without deadlines are not known here, so a packet may
 * start later than reckoned, and never sooner.
 */
static bool take_tokens(struct settings *class, __u64 length, __u64 now, __u64 deadline, bool may_drop)
{
	struct bucket *of = bpf_map_lookup_elem(&bucket, &only);
	__u64 takes = class->rate ? length * NS_PER_S / class->rate : 0;
	bool in_time;

	if (!of)
		return true;
	bpf_spin_lock(&of->lock);
	in_time = (of->zero_at > now ? of->zero_at : now) <= deadline;
	if (in_time || !may_drop) {
		/* The bucket holds no more than its burst. */
		if (of->zero_at + class->burst_ns < now)
			of->zero_at = now - class->burst_ns;
		of->zero_at += takes;
	}
	bpf_spin_unlock(&of->lock);
	return in_time || !may_drop;
}

SEC("tcx/egress")
int tag_packet(struct __sk_buff *skb)
{
	struct settings *class = bpf_map_lookup_elem(&settings, &only);
	struct counts *counted = bpf_map_lookup_elem(&counts, &only);
	struct bpf_sock *sk = skb->sk;
	__u64 *value, now, deadline;
	bool may_drop;

	if (!class || !counted || !sk)
		return TCX_NEXT;
	value = bpf_sk_storage_get(&deadlines, sk, 0, 0);
	if (!value || !*value)
		return TCX_NEXT;
	now = bpf_ktime_get_ns();
	deadline = *value & IS_TIME ? *value & ~IS_TIME : now + *value;
	sk = bpf_sk_fullsock(sk);
	may_drop = class->drop_late && sk && sk->protocol == IPPROTO_UDP;
	count(&counted->came);
	if (!take_tokens(class, skb->wire_len + class->overhead, now, deadline, may_drop)) {
		count(&counted->dropped);
		return TCX_DROP;
	}
	/* Refused for packets other than IP, which then have no deadline. */
	if (!bpf_skb_set_tstamp(skb, deadline, BPF_SKB_TSTAMP_DELIVERY_MONO))
		skb->priority = class->class;
	return TCX_NEXT;
}

SEC("tp_btf/net_dev_start_xmit")
int count_departure(__u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct net_device *device = (void *)ctx[1];
	struct settings *class = bpf_map_lookup_elem(&settings, &only);
	struct counts *counted = bpf_map_lookup_elem(&counts, &only);

	if (!class || !counted || skb->priority != class->class || !skb->tstamp)
		return 0;
	if (device->ifindex != class->device || device->nd_net.net->ns.inum != class->space)
		return 0;
	count(&counted->left);
	if (bpf_ktime_get_ns() > skb->tstamp)
		count(&counted->late);
	return 0;
}
