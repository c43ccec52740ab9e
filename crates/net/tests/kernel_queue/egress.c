/*
 * The egress of bpf/queue.h as a program: reads steps from standard input, writes decisions.
 *
 * line RATE BURST                                         the bucket of the line
 * class CLASS ORDER LATE PACKETS_MAX RATE BURST BY_LINE   a class
 * tune                                                    the settings take force
 * push CLASS OWNER LENGTH DEADLINE IS_KEPT TAG            "full TAG" if it is refused
 * pop NOW                                                 "send TAG" or "drop TAG" until none may start,
 *                                                         then "wake TIME"
 * end                                                     the counts of all classes
 */
#include <stdio.h>
#include <string.h>

typedef unsigned int __u32;
typedef unsigned long long __u64;

#include "queue.h"

static struct egress egress;
static struct egress_settings settings;
static __u64 tags[CLASSES][SLOTS];

int main(void)
{
	char word[8];
	__u64 n[7];

	for (int i = 0; i < CLASSES; i++)
		queue_clear(&egress.queues[i]);
	while (scanf("%7s", word) == 1) {
		if (!strcmp(word, "line") && scanf("%llu %llu", n, n + 1) == 2) {
			settings.line_rate = n[0];
			settings.line_burst = n[1];
		} else if (!strcmp(word, "class") &&
			   scanf("%llu %llu %llu %llu %llu %llu %llu", n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6) == 7) {
			settings.classes[n[0]] = (struct class_settings){
				.order = n[1], .late_rule = n[2], .packets_max = n[3], .rate = n[4], .burst = n[5], .by_line = n[6],
			};
		} else if (!strcmp(word, "tune")) {
			settings.generation++;
			egress_tune(&egress, &settings);
		} else if (!strcmp(word, "push") &&
			   scanf("%llu %llu %llu %llu %llu %llu", n, n + 1, n + 2, n + 3, n + 4, n + 5) == 6) {
			__u32 slot;

			if (egress.generation != settings.generation)
				egress_tune(&egress, &settings);
			slot = queue_push(&egress.queues[n[0]], n[1], n[2], n[3], n[4]);
			if (slot == NONE)
				printf("full %llu\n", n[5]);
			else
				tags[n[0]][slot] = n[5];
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
				struct queue_counts *of = &egress.queues[i].counts;

				printf("%llu %llu %llu %llu %llu\n", of->arrived, of->sent, of->late, of->demoted, of->overflow);
			}
			return 0;
		} else {
			return 2;
		}
	}
	return 1;
}
