/* The properties of operations: chains, two CPUs, late rules, cancellation, offset and priority.
 * Each outcome is counted. Run: planned CPUS LOG. */
#define _GNU_SOURCE

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const uint64_t MS = 1000000;

static bool best_effort;

static takt_counts counted(const takt_dispatcher *dispatcher, const char *operation) {
    takt_counts counts;
    memset(&counts, 0xff, sizeof counts);
    (void)takt_dispatcher_counts(dispatcher, operation, &counts);
    return counts;
}

/* Every job is something, at any time. */
static bool adds_up(takt_counts counts) {
    return counts.released == counts.completed + counts.cancelled + counts.rejected + counts.unfinished &&
           counts.late <= counts.completed;
}

/* One with a deadline that is pushed. */
static takt_operation pushed(const char *name, uint64_t deadline_ns) {
    takt_operation operation;
    memset(&operation, 0, sizeof operation);
    operation.name = name;
    operation.arrival = TAKT_ARRIVAL_SPORADIC;
    operation.period_ns = 1000 * MS;
    operation.wcet_ns = 1000;
    operation.deadline_ns = deadline_ns;
    operation.noncritical = true;
    operation.backlog = 1;
    return operation;
}

/* A priority chooses the level, whatever the order, and the table shows it. */
static int priorities(void) {
    static const struct {
        const char *name;
        uint32_t priority, importance;
    } all[] = {{"last", 3, 9}, {"first", 1, 0}, {"middle", 2, 5}};
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    char table[2048], guarded[4096];

    OK(takt_operations_new("priorities", 1, false, &operations));
    for (size_t at = 0; at < 3; at++) {
        takt_operation operation;
        memset(&operation, 0, sizeof operation);
        operation.name = all[at].name;
        operation.period_ns = 100 * MS;
        operation.wcet_ns = MS;
        operation.priority = all[at].priority;
        operation.importance = all[at].importance;
        OK(takt_operations_add(operations, &operation));
    }
    OK(takt_operations_mode(operations, "guard", "muf"));
    OK(takt_plan_new(operations, "fp", &plan));
    SO(takt_plan_text(plan, table, sizeof table) < sizeof table);
    /* As in the table of the first plan. */
    *strstr(table, "mode guard") = 0;
    printf("%s", table);
    /* No strategy of these looks at an importance; a system file has it. */
    SO(takt_plan_guarded(plan, takt_plan_mode(plan, "guard"), "middle", guarded, sizeof guarded) < sizeof guarded);
    SO(strstr(guarded, "importance = 5") != NULL);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}

/* What the jobs of a chain saw; written by one handler each. */
static atomic_ulong sensed, acted;
static atomic_int out_of_order, cpu_of[2];

static void sense(const takt_job *job, void *user) {
    uint64_t number = takt_job_number(job);
    (void)user;
    /* By the timer's own clock, however late this is. */
    if (number < atomic_load(&sensed) || takt_job_arrival_ns(job) != 5 * MS + number * 10 * MS ||
        takt_job_deadline_ns(job) != takt_job_arrival_ns(job) + 10 * MS ||
        takt_job_now_ns(job) < takt_job_arrival_ns(job)) {
        atomic_store(&out_of_order, 1);
    }
    atomic_store(&cpu_of[0], sched_getcpu());
    atomic_store(&sensed, number + 1);
}

static void act(const takt_job *job, void *user) {
    (void)user;
    /* Job k follows job k. */
    if (takt_job_number(job) >= atomic_load(&sensed) || takt_job_number(job) < atomic_load(&acted)) {
        atomic_store(&out_of_order, 1);
    }
    atomic_store(&cpu_of[1], sched_getcpu());
    atomic_store(&acted, takt_job_number(job) + 1);
}

static void nothing(const takt_job *job, void *user) {
    (void)job;
    (void)user;
}

/* With the default options, or without any promise. */
static takt_status start(takt_dispatcher *dispatcher, uint64_t duration_ns, size_t records) {
    takt_options options;
    memset(&options, 0, sizeof options);
    options.best_effort = best_effort;
    options.duration_ns = duration_ns;
    options.records = records;
    return takt_dispatcher_start(dispatcher, &options);
}

/* 50 jobs of a timer, from its offset to the end of the duration, each followed by a successor's job; and
 * cancellation by the set's rule or the operation's. Nobody drains: there is room for 16 facts a CPU. */
static int chain(uint32_t cpus, const char *log) {
    static const char *const before_act[] = {"sense"}, *const before_shed[] = {"hopeless"};
    static const char *const names[] = {"sense", "act", "hopeless", "shed", "never"};
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_handle *hopeless = NULL, *never = NULL;
    takt_operation operation;
    takt_counts counts;
    takt_status started;

    OK(takt_operations_new("chain", cpus, true, &operations));
    memset(&operation, 0, sizeof operation);
    operation.name = "sense";
    operation.arrival = TAKT_ARRIVAL_PERIODIC;
    operation.period_ns = 10 * MS;
    operation.offset_ns = 5 * MS;
    operation.wcet_ns = 100000;
    OK(takt_operations_add(operations, &operation));
    memset(&operation, 0, sizeof operation);
    operation.name = "act";
    operation.arrival = TAKT_ARRIVAL_AFTER;
    operation.wcet_ns = 100000;
    operation.cpu = cpus - 1;
    operation.after = before_act;
    operation.after_count = 1;
    OK(takt_operations_add(operations, &operation));
    /* It takes as long as it may: once it is asked it is too late. */
    operation = pushed("hopeless", MS);
    operation.wcet_ns = MS;
    operation.cancel = TAKT_CANCEL_SET;
    OK(takt_operations_add(operations, &operation));
    memset(&operation, 0, sizeof operation);
    operation.name = "shed";
    operation.arrival = TAKT_ARRIVAL_AFTER;
    operation.wcet_ns = 1000;
    operation.noncritical = true;
    operation.cpu = cpus - 1;
    operation.after = before_shed;
    operation.after_count = 1;
    OK(takt_operations_add(operations, &operation));
    operation = pushed("never", MS);
    operation.wcet_ns = MS;
    operation.cancel = TAKT_CANCEL_NEVER;
    OK(takt_operations_add(operations, &operation));
    OK(takt_plan_new(operations, "muf", &plan));
    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on(dispatcher, "sense", sense, NULL));
    OK(takt_dispatcher_on(dispatcher, "act", act, NULL));
    for (size_t at = 2; at < 5; at++) {
        OK(takt_dispatcher_on(dispatcher, names[at], nothing, NULL));
    }
    OK(takt_dispatcher_log(dispatcher, log));
    started = start(dispatcher, 500 * MS, 16);
    if (started == TAKT_STATUS_PRIVILEGE) {
        printf("without privilege: %s\n", takt_last_error());
        best_effort = true;
        takt_dispatcher_free(dispatcher);
        takt_plan_free(plan);
        takt_operations_free(operations);
        return chain(cpus, log);
    }
    OK(started);
    OK(takt_dispatcher_operation(dispatcher, "hopeless", &hopeless));
    OK(takt_dispatcher_operation(dispatcher, "never", &never));
    OK(takt_operation_push(hopeless));
    OK(takt_operation_push(never));
    UNTIL(counted(dispatcher, "sense").released == 50 && counted(dispatcher, "never").completed == 1);
    doze();
    OK(takt_dispatcher_stop(dispatcher));
    for (size_t at = 0; at < 5; at++) {
        SO(adds_up(counted(dispatcher, names[at])));
    }
    counts = counted(dispatcher, "sense");
    /* One that runs at the stop is called and not complete. */
    SO(counts.released == 50 && counts.completed > 0 && counts.completed <= atomic_load(&sensed));
    counts = counted(dispatcher, "act");
    SO(counts.completed > 0 && counts.completed <= atomic_load(&acted) && counts.released <= 50);
    SO(!atomic_load(&out_of_order));
    SO((atomic_load(&cpu_of[0]) != atomic_load(&cpu_of[1])) == (cpus > 1));
    counts = counted(dispatcher, "hopeless");
    SO(counts.released == 1 && counts.cancelled == 1);
    counts = counted(dispatcher, "shed");
    SO(counts.released == 1 && counts.cancelled == 1);
    counts = counted(dispatcher, "never");
    SO(counts.released == 1 && counts.completed == 1);
    takt_operation_free(hopeless);
    takt_operation_free(never);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}

/* In which order jobs ran. */
static char order[8];
static atomic_size_t ran;
static atomic_int held, all_wait, in_time, told_to_stop;

static void note(const takt_job *job, void *user) {
    (void)job;
    order[atomic_fetch_add(&ran, 1)] = *(const char *)user;
}

/* Once the others wait it has the CPU until the deadlines of some of them are over. */
static void hold(const takt_job *job, void *user) {
    uint64_t since;
    atomic_store(&held, 1);
    while (!atomic_load(&all_wait) && !takt_job_must_stop(job)) {
        doze();
    }
    since = takt_job_now_ns(job);
    /* None was late while this slept. */
    atomic_store(&in_time, since < takt_job_arrival_ns(job) + 100 * MS);
    while (takt_job_now_ns(job) < since + 100 * MS && !takt_job_must_stop(job)) {
    }
    note(job, user);
}

/* For ever, if nobody said so. */
static void stop_if_told(const takt_job *job, void *user) {
    (void)user;
    while (!takt_job_must_stop(job)) {
        doze();
    }
    if (takt_job_time_left_ns(job) == 0) {
        atomic_store(&told_to_stop, 1);
    }
}

/* What becomes of late jobs, in one level, by the order of arrival. */
static int late(void) {
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    static struct {
        const char *name;
        uint64_t deadline_ns;
        uint32_t late, cancel;
    } all[] = {
        {"hold", 10000, TAKT_LATE_LEVEL, TAKT_CANCEL_SET},
        {"below", 100, TAKT_LATE_DEMOTE, TAKT_CANCEL_SET},
        {"dropped", 100, TAKT_LATE_DROP, TAKT_CANCEL_SET},
        {"on", 100, TAKT_LATE_CONTINUE, TAKT_CANCEL_NEVER},
        {"omitted", 100, TAKT_LATE_LEVEL, TAKT_CANCEL_ALWAYS},
        {"timely", 10000, TAKT_LATE_LEVEL, TAKT_CANCEL_ALWAYS},
        {"runs", 500, TAKT_LATE_DROP, TAKT_CANCEL_SET},
    };
    takt_handle *handles[7];
    takt_counts counts[7];

    OK(takt_operations_new("late", 1, false, &operations));
    for (size_t at = 0; at < 7; at++) {
        takt_operation operation = pushed(all[at].name, all[at].deadline_ns * MS);
        operation.late = all[at].late;
        operation.cancel = all[at].cancel;
        OK(takt_operations_add(operations, &operation));
    }
    OK(takt_plan_new(operations, "fifo", &plan));
    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on(dispatcher, "hold", hold, (void *)all[0].name));
    for (size_t at = 1; at < 6; at++) {
        OK(takt_dispatcher_on(dispatcher, all[at].name, note, (void *)all[at].name));
    }
    OK(takt_dispatcher_on(dispatcher, "runs", stop_if_told, NULL));
    OK(start(dispatcher, 0, 0));
    for (size_t at = 0; at < 7; at++) {
        OK(takt_dispatcher_operation(dispatcher, all[at].name, &handles[at]));
    }
    OK(takt_operation_push(handles[0]));
    UNTIL(atomic_load(&held));
    for (size_t at = 1; at < 6; at++) {
        OK(takt_operation_push(handles[at]));
    }
    SO(takt_operation_push(handles[1]) == TAKT_STATUS_TOO_EARLY);
    atomic_store(&all_wait, 1);
    UNTIL(counted(dispatcher, "timely").completed == 1 && counted(dispatcher, "below").completed == 1);
    /* One that runs is told. */
    OK(takt_operation_push(handles[6]));
    UNTIL(atomic_load(&told_to_stop));
    OK(takt_dispatcher_drain(dispatcher));
    OK(takt_dispatcher_stop(dispatcher));
    for (size_t at = 0; at < 7; at++) {
        counts[at] = counted(dispatcher, all[at].name);
        SO(adds_up(counts[at]) && counts[at].released == 1);
        takt_operation_free(handles[at]);
    }
    SO(counts[0].completed == 1 && counts[1].completed == 1 && counts[1].late == 1);
    SO(counts[2].unfinished == 1 && counts[2].late == 0);
    SO(counts[3].completed == 1 && counts[3].late == 1);
    SO(counts[4].cancelled == 1 && counts[5].completed == 1 && counts[5].late == 0 && counts[6].unfinished == 1);
    /* What is demoted comes after all levels; on ordinary threads nothing comes before anything. */
    SO(best_effort || !atomic_load(&in_time) || strcmp(order, "hotb") == 0);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    if (priorities() != 0 || chain((uint32_t)atoi(argv[1]), argv[2]) != 0 || late() != 0) {
        return 1;
    }
    printf("every job became what it should\n");
    return 0;
}
