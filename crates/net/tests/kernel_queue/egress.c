/*
 * The egress of bpf/queue.h as a program: reads steps from standard input, writes decisions.
 *
 * class CLASS ORDER LATE PACKETS_MAX RATE BURST   a class, before all else
 * push CLASS OWNER LENGTH DEADLINE TAG            "full TAG" if it is refused
 * pop NOW                                         "send TAG" or "drop TAG" until none may start, then "wake TIME"
 * end                                             the counts of both classes
 */
#include <stdio.h>
#include <string.h>

typedef unsigned int __u32;
typedef unsigned long long __u64;

#include "queue.h"

static struct egress egress;
static __u64 tags[CLASSES][SLOTS];

int main(void)
{
	char word[8];
	__u64 n[6];

	while (scanf("%7s", word) == 1) {
		if (!strcmp(word, "class") && scanf("%llu %llu %llu %llu %llu %llu", n, n + 1, n + 2, n + 3, n + 4, n + 5) == 6) {
			queue_init(&egress.queues[n[0]], n[1], n[2], n[3]);
			bucket_init(&egress.buckets[n[0]], n[4], n[5]);
		} else if (!strcmp(word, "push") && scanf("%llu %llu %llu %llu %llu", n, n + 1, n + 2, n + 3, n + 4) == 5) {
			__u32 slot = queue_push(&egress.queues[n[0]], n[1], n[2], n[3]);

			if (slot == NONE)
				printf("full %llu\n", n[4]);
			else
				tags[n[0]][slot] = n[4];
		} else if (!strcmp(word, "pop") && scanf("%llu", n) == 1) {
			int step;

			while ((step = egress_step(&egress, n[0])) != STEP_EMPTY) {
				if (WHAT(step) == STEP_AGAIN)
					continue;
				printf("%s %llu\n", WHAT(step) == STEP_SEND ? "send" : "drop", tags[CLASS(step)][SLOT(step)]);
				queue_free(&egress.queues[CLASS(step)], SLOT(step));
			}
			printf("wake %llu\n", egress_wakeup(&egress, n[0]));
		} else if (!strcmp(word, "end")) {
			for (int i = 0; i < CLASSES; i++) {
				struct queue *q = &egress.queues[i];

				printf("%llu %llu %llu %llu %llu\n", q->arrived, q->sent, q->late, q->demoted, q->overflow);
			}
			return 0;
		} else {
			return 2;
		}
	}
	return 1;
}
