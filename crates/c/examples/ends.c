/* Ways in which a dispatcher ends, or does not start. Run:
 * - ends stuck LOG: a handler does not return
 * - ends full LOG: there is no room for the log
 * - ends refused LOG: the start is refused
 * - ends privilege LOG: the start is refused for lack of privilege
 * All but the last one run on ordinary threads, and need no privilege. */
#define _POSIX_C_SOURCE 200809L

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static atomic_int may_return, entered;

/* Does not look at takt_job_must_stop. */
static void stay(const takt_job *job, void *user) {
    (void)job;
    (void)user;
    atomic_store(&entered, 1);
    while (!atomic_load(&may_return)) {
        doze();
    }
}

static void tick(const takt_job *job, void *user) {
    (void)job;
    (void)user;
}

static uint64_t completed(const takt_dispatcher *dispatcher, const char *operation) {
    takt_counts counts;
    memset(&counts, 0, sizeof counts);
    (void)takt_dispatcher_counts(dispatcher, operation, &counts);
    return counts.completed;
}

/* A timer's operation, and one that is pushed. */
static takt_status planned(takt_plan **plan) {
    takt_operations *operations = NULL;
    takt_operation operation;
    takt_status made;
    made = takt_operations_new("ends", 1, false, &operations);
    memset(&operation, 0, sizeof operation);
    operation.name = "tick";
    operation.period_ns = 5000000;
    operation.wcet_ns = 1000;
    made = made == TAKT_STATUS_OK ? takt_operations_add(operations, &operation) : made;
    operation.name = "stay";
    operation.arrival = TAKT_ARRIVAL_SPORADIC;
    operation.period_ns = 1;
    operation.wcet_ns = 1;
    operation.deadline_ns = 1000000000;
    operation.noncritical = true;
    operation.backlog = 1;
    made = made == TAKT_STATUS_OK ? takt_operations_add(operations, &operation) : made;
    made = made == TAKT_STATUS_OK ? takt_plan_new(operations, "muf", plan) : made;
    takt_operations_free(operations);
    return made;
}

static int stuck(takt_dispatcher *dispatcher, const takt_options *options) {
    takt_handle *stays = NULL;
    takt_counts counts;
    OK(takt_dispatcher_start(dispatcher, options));
    OK(takt_dispatcher_operation(dispatcher, "stay", &stays));
    OK(takt_operation_push(stays));
    UNTIL(atomic_load(&entered) && completed(dispatcher, "tick") >= 3);
    OK(takt_dispatcher_drain(dispatcher));
    IS(takt_dispatcher_stop(dispatcher), TAKT_STATUS_TROUBLE);
    printf("%s\n", takt_last_error());
    OK(takt_dispatcher_counts(dispatcher, "stay", &counts));
    if (counts.released != 1 || counts.unfinished != 1 || completed(dispatcher, "tick") < 3) {
        return wrong("the last counts", TAKT_STATUS_OK);
    }
    IS(takt_dispatcher_stop(dispatcher), TAKT_STATUS_STOPPED);
    IS(takt_dispatcher_drain(dispatcher), TAKT_STATUS_STOPPED);
    atomic_store(&may_return, 1);
    takt_operation_free(stays);
    return 0;
}

static int full(takt_dispatcher *dispatcher, const takt_options *options) {
    takt_handle *stays = NULL;
    takt_status drained = TAKT_STATUS_OK;
    OK(takt_dispatcher_start(dispatcher, options));
    OK(takt_dispatcher_operation(dispatcher, "stay", &stays));
    atomic_store(&may_return, 1);
    /* More than is written at once; most of it is rejected, which is told, too. */
    for (int rounds = 0; drained == TAKT_STATUS_OK && rounds < 1000; rounds++) {
        for (int pushes = 0; pushes < 1000; pushes++) {
            (void)takt_operation_push(stays);
        }
        drained = takt_dispatcher_drain(dispatcher);
    }
    IS(drained, TAKT_STATUS_UNWRITTEN);
    printf("%s: %s\n", takt_status_text((uint32_t)drained), takt_last_error());
    /* Nothing but the log has ended. */
    {
        uint64_t before = completed(dispatcher, "tick");
        UNTIL(completed(dispatcher, "tick") > before);
    }
    IS(takt_dispatcher_drain(dispatcher), TAKT_STATUS_UNWRITTEN);
    IS(takt_dispatcher_stop(dispatcher), TAKT_STATUS_UNWRITTEN);
    takt_operation_free(stays);
    return 0;
}

/* For want of a handler. It is the caller's matter to look at LOG, too. */
static int refused(takt_dispatcher *dispatcher, const takt_options *options) {
    for (int tries = 0; tries < 2; tries++) {
        IS(takt_dispatcher_start(dispatcher, options), TAKT_STATUS_INVALID);
        printf("%s\n", takt_last_error());
    }
    IS(takt_dispatcher_on(dispatcher, "stay", stay, NULL), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    return 0;
}

/* Never a silent fall to ordinary threads. */
static int unprivileged(takt_dispatcher *dispatcher) {
    IS(takt_dispatcher_start(dispatcher, NULL), TAKT_STATUS_PRIVILEGE);
    printf("%s\n", takt_last_error());
    IS(takt_dispatcher_stop(dispatcher), TAKT_STATUS_STOPPED);
    return completed(dispatcher, "tick") != 0;
}

int main(int argc, char **argv) {
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_options options;
    int result = 1;

    if (argc != 3) {
        return 2;
    }
    memset(&options, 0, sizeof options);
    options.best_effort = true;
    OK(planned(&plan));
    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on(dispatcher, "tick", tick, NULL));
    IS(takt_dispatcher_on(dispatcher, "tick", tick, NULL), TAKT_STATUS_INVALID);
    IS(takt_dispatcher_log(dispatcher, "/nowhere/log"), TAKT_STATUS_UNWRITTEN);
    OK(takt_dispatcher_log(dispatcher, argv[2]));
    /* The same once more is the same. */
    OK(takt_dispatcher_log(dispatcher, argv[2]));
    if (strcmp(argv[1], "refused") == 0) {
        result = refused(dispatcher, &options);
    } else {
        OK(takt_dispatcher_on(dispatcher, "stay", stay, NULL));
        result = strcmp(argv[1], "privilege") == 0 ? unprivileged(dispatcher)
                 : strcmp(argv[1], "full") == 0    ? full(dispatcher, &options)
                                                   : stuck(dispatcher, &options);
    }
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    return result;
}
