/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A queueing discipline: real-time packets by their deadlines, then replies, then all others, each
 * class with a token bucket. The decisions are those of queue.h; here are the packets.
 *
 * A packet's priority says its class. tag_packet of deadline.bpf.c and the program of takt's rules
 * write it before the packet comes here. It needs Linux 6.16 with CONFIG_NET_SCH_BPF, and stands at
 * the root of a device. One object serves one device.
 */
#include "takt.h"
#include "queue.h"

char LICENSE[] SEC("license") = "GPL";

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define EBUSY 16
#define IPPROTO_UDP 17
/* Handles of classes (tc/htb.rs), and what a packet has that also carries its deadline. */
#define HANDLE_REAL_TIME 0x74610010
#define HANDLE_TAGGED 0x74610011
#define HANDLE_REPLY 0x74610020

struct nlattr;
struct netlink_ext_ack;
/* An iterator over numbers (bpf_for). */
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

struct qdisc_skb_head {
	__u32 qlen;
} KERNEL_TYPE;

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
} KERNEL_TYPE;

struct Qdisc {
	__u32 limit;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} KERNEL_TYPE;

struct qdisc_skb_cb {
	__u32 pkt_len;
} KERNEL_TYPE;

struct sock {
	__u16 sk_protocol;
} KERNEL_TYPE;

struct sk_buff {
	__u32 priority;
	__u64 tstamp;
	struct sock *sk;
	char cb[48];
} KERNEL_TYPE;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
} KERNEL_TYPE;

struct Qdisc_ops {
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *options, struct netlink_ext_ack *said);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
	char id[16];
};

void bpf_kfree_skb(struct sk_buff *skb) __ksym;
void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns) __ksym;
void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

/* By another name, since clang 14 forgets the tag of a pointer to a structure itself. */
typedef struct sk_buff owned_sk_buff;

struct packet {
	owned_sk_buff __kptr *skb;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct egress_settings);
} settings_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct egress);
} egress SEC(".maps");

/* The packets of all slots, class by class. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES * SLOTS);
	__type(key, __u32);
	__type(value, struct packet);
} packets SEC(".maps");

/* User space knows these places (tc/own/loaded.rs). */
_Static_assert(__builtin_offsetof(struct egress, queues) == 16 + 4 * 32, "the place of the queues");
_Static_assert(__builtin_offsetof(struct Qdisc_ops, id) == 40, "the place of the name");

static const __u32 only;
/* The discipline that the object serves, as a number. */
static __u64 served;

static struct packet *packet_of(__u32 class, __u32 slot)
{
	__u32 at = class * SLOTS + (slot & (SLOTS - 1));

	return bpf_map_lookup_elem(&packets, &at);
}

static __u32 length_of(const struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

/* The egress with the newest settings. */
static struct egress *tuned(void)
{
	struct egress_settings *settings = bpf_map_lookup_elem(&settings_map, &only);
	struct egress *e = bpf_map_lookup_elem(&egress, &only);

	if (settings && e && e->generation != settings->generation)
		egress_tune(e, settings);
	return e;
}

SEC("struct_ops")
int takt_enqueue(__u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct Qdisc *sch = (void *)ctx[1];
	struct bpf_sk_buff_ptr *to_free = (void *)ctx[2];
	struct egress_settings *settings = bpf_map_lookup_elem(&settings_map, &only);
	struct egress *e = tuned();
	__u32 length = length_of(skb), class = BACKGROUND, is_kept = 0, slot;
	__u64 deadline = NEVER, owner = 0;
	struct packet *packet;
	struct sock *sk;

	if (!settings || !e)
		goto drop;
	sk = skb->sk;
	if (skb->priority == HANDLE_TAGGED) {
		class = REAL_TIME;
		deadline = skb->tstamp;
		/* Bytes of streams are always sent. */
		is_kept = !sk || sk->sk_protocol != IPPROTO_UDP;
	} else if (skb->priority == HANDLE_REAL_TIME) {
		class = REAL_TIME;
	} else if (skb->priority == HANDLE_REPLY) {
		class = REPLY;
	}
	/* The socket's address as a number. */
	bpf_probe_read_kernel(&owner, sizeof(owner), &skb->sk);
	slot = queue_push(&e->queues[class], owner, length + settings->overhead, deadline, is_kept);
	if (slot == NONE)
		goto drop;
	packet = packet_of(class, slot);
	if (!packet)
		goto drop;
	sch->q.qlen++;
	sch->qstats.backlog += length;
	skb = bpf_kptr_xchg(&packet->skb, skb);
	/* The slot was free. */
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_SUCCESS;
drop:
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

SEC("struct_ops")
struct sk_buff *takt_dequeue(__u64 *ctx)
{
	struct Qdisc *sch = (void *)ctx[0];
	struct egress *e = tuned();
	__u64 now = bpf_ktime_get_ns(), wake;
	struct sk_buff *skb;
	__u32 i;

	if (!e)
		return NULL;
	bpf_for(i, 0, 2 * CLASSES * SLOTS) {
		int step = egress_step(e, now);
		__u32 class = CLASS(step);
		struct packet *packet;

		if (WHAT(step) == STEP_EMPTY || class >= CLASSES)
			break;
		if (WHAT(step) == STEP_AGAIN)
			continue;
		packet = packet_of(class, SLOT(step));
		queue_free(&e->queues[class], SLOT(step));
		if (!packet)
			continue;
		skb = bpf_kptr_xchg(&packet->skb, NULL);
		if (!skb)
			continue;
		sch->q.qlen--;
		sch->qstats.backlog -= length_of(skb);
		if (WHAT(step) == STEP_SEND) {
			bpf_qdisc_bstats_update(sch, skb);
			return skb;
		}
		sch->qstats.drops++;
		bpf_kfree_skb(skb);
	}
	wake = egress_wakeup(e, now);
	if (wake != NEVER)
		bpf_qdisc_watchdog_schedule(sch, wake, 0);
	return NULL;
}

/* An empty egress. */
static void clear(struct egress *e)
{
	for (__u32 i = 0; i < CLASSES; i++)
		queue_clear(&e->queues[i]);
	/* The settings take force with the next packet. */
	e->generation = 0;
}

SEC("struct_ops")
int takt_init(__u64 *ctx)
{
	struct Qdisc *sch = (void *)ctx[0];
	struct egress *e = bpf_map_lookup_elem(&egress, &only);

	if (!e)
		return -EINVAL;
	if (__sync_val_compare_and_swap(&served, 0, (__u64)sch))
		return -EBUSY;
	clear(e);
	sch->limit = CLASSES * SLOTS;
	return 0;
}

SEC("struct_ops")
void takt_reset(__u64 *ctx)
{
	struct Qdisc *sch = (void *)ctx[0];
	struct egress *e = bpf_map_lookup_elem(&egress, &only);
	__u32 i;

	if (served != (__u64)sch)
		return;
	bpf_for(i, 0, CLASSES * SLOTS) {
		__u32 at = i;
		struct packet *packet = bpf_map_lookup_elem(&packets, &at);
		struct sk_buff *skb;

		if (!packet)
			continue;
		skb = bpf_kptr_xchg(&packet->skb, NULL);
		if (skb)
			bpf_kfree_skb(skb);
	}
	if (e)
		clear(e);
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

/* Also called for a discipline that takt_init has refused. */
SEC("struct_ops")
void takt_destroy(__u64 *ctx)
{
	if (served == ctx[0])
		served = 0;
}

SEC(".struct_ops")
struct Qdisc_ops takt_qdisc = {
	.enqueue = (void *)takt_enqueue,
	.dequeue = (void *)takt_dequeue,
	.init = (void *)takt_init,
	.reset = (void *)takt_reset,
	.destroy = (void *)takt_destroy,
	.id = "takt",
};
