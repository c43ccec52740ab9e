/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The machine of servers.h as a program. A test compares it with takt-policy (crates/run/src/served).
 * Each line of its input is a command. After each decision it prints the changes of servers and the decision.
 *
 * t AT budget period shift at rule level order outer    the next terms of entry AT
 * s TIME                                                the servers begin
 * r AT release deadline                                 a thread of entry AT wants the CPU
 * c AT                                                  and no more
 * d TIME                                                decide
 * k TIME IS_TAKEN                                       a real-time thread gets the CPU (1), or gives it back (0)
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define TAKT_FN static
struct takt_cpu;
static void takt_tell(struct takt_cpu *cpu, u32 server, u32 kind, u64 at, u64 a, u64 b);
#include "servers.h"

static void takt_tell(struct takt_cpu *cpu, u32 server, u32 kind, u64 at, u64 a, u64 b)
{
	printf("e %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", server, kind, at, a, b, takt_at(cpu, server)->terms.rule);
}

int main(void)
{
	static struct takt_cpu cpu;
	struct takt_terms terms = { .version = 1 };
	char line[256], command;
	u64 release, deadline, now;
	u32 at;

	cpu.chosen.runs = TAKT_NONE;
	while (fgets(line, sizeof(line), stdin)) {
		command = line[0];
		if (command == 't' && sscanf(line, "t %u %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNu64 " %u %u %u %u", &at,
					     &terms.budget, &terms.period, &terms.shift, &terms.at, &terms.rule,
					     &terms.level, &terms.order, &terms.outer) == 9) {
			if (!takt_at(&cpu, at)->version)
				cpu.count = at + 1;
			if (!takt_give(&cpu, at, &terms)) {
				fprintf(stderr, "no place: %s", line);
				return 1;
			}
		} else if (command == 's' && sscanf(line, "s %" SCNu64, &now) == 1) {
			cpu.start = now;
			cpu.now = now;
		} else if (command == 'r' && sscanf(line, "r %u %" SCNu64 " %" SCNu64, &at, &release, &deadline) == 3) {
			takt_at(&cpu, at)->ready++;
			if (takt_at(&cpu, at)->terms.rule == TAKT_TASK) {
				takt_at(&cpu, at)->release = release;
				takt_at(&cpu, at)->deadline = deadline;
			}
		} else if (command == 'c' && sscanf(line, "c %u", &at) == 1) {
			takt_at(&cpu, at)->ready--;
		} else if (command == 'd' && sscanf(line, "d %" SCNu64, &now) == 1) {
			takt_decide(&cpu, now);
			printf("d %" PRIu64 " %u %" PRIu64 "\n", now, cpu.chosen.runs, cpu.next);
			fflush(stdout);
		} else if (command == 'k' && sscanf(line, "k %" SCNu64 " %u", &now, &at) == 2) {
			takt_advance(&cpu, now);
			cpu.is_taken = at;
		} else {
			fprintf(stderr, "no command: %s", line);
			return 1;
		}
	}
	return 0;
}
