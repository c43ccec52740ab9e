/* A program with its own poll loop. A handler on a real-time thread measures and answers by events.
 * The events wait in an outlet until the loop, an ordinary thread, takes them. Another handler
 * overruns its wcet, and the loop learns of that as it happens. */
#define _POSIX_C_SOURCE 200809L

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "takt.h"

enum { ANSWER = 7, ANSWERS = 20 };

static const uint64_t MS = 1000000;

#define TRY(call)                                                   \
    do {                                                            \
        if ((call) != TAKT_STATUS_OK) {                             \
            fprintf(stderr, "%s: %s\n", #call, takt_last_error());  \
            return 1;                                               \
        }                                                           \
    } while (0)

/* Works until it is told to stop, which is when it has executed for longer than its wcet. */
static void greedy(const takt_job *job, void *user) {
    (void)user;
    while (!takt_job_must_stop(job)) {
    }
}

static void measure(const takt_job *job, void *user) {
    uint64_t number = takt_job_number(job);
    takt_supplier_push((takt_supplier *)user, ANSWER, (const uint8_t *)&number, sizeof number, 0, 0, NULL);
}

/* Whether the descriptor is readable within so many milliseconds. */
static int readable(int fd, int ms) {
    struct pollfd asked;
    asked.fd = fd;
    asked.events = POLLIN;
    asked.revents = 0;
    return poll(&asked, 1, ms) == 1;
}

int main(void) {
    takt_operations *operations = NULL;
    takt_operation operation;
    takt_plan *plan = NULL;
    takt_channel *channel = NULL;
    takt_supplier *sensor = NULL;
    takt_outlet *outlet = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_pattern answers = {ANSWER, UINT32_MAX, 0, 0};
    takt_options options;
    takt_taken taken;
    takt_passed passed;
    takt_counts counts;
    takt_overran overran;
    takt_handle *push = NULL;
    uint64_t last = 0, number = 0;
    int fd, found = 0;

    memset(&operation, 0, sizeof operation);
    operation.name = "measure";
    operation.arrival = TAKT_ARRIVAL_PERIODIC;
    operation.period_ns = 5 * MS;
    operation.wcet_ns = MS;
    TRY(takt_operations_new("loop", 1, false, &operations));
    TRY(takt_operations_add(operations, &operation));
    operation.name = "greedy";
    operation.arrival = TAKT_ARRIVAL_SPORADIC;
    operation.period_ns = 100 * MS;
    operation.overrun = TAKT_OVERRUN_STOP;
    TRY(takt_operations_add(operations, &operation));
    operation.overrun = 4;
    if (takt_operations_add(operations, &operation) != TAKT_STATUS_INVALID) {
        return 1;
    }
    TRY(takt_plan_new(operations, "rm", &plan));
    TRY(takt_channel_new(0, 0, 0, &channel));
    if (takt_channel_outlet(channel, &answers, 0, 0, false, &outlet) != TAKT_STATUS_INVALID ||
        takt_outlet_fd(NULL) != -1) {
        return 1;
    }
    printf("%s\n", takt_last_error());
    /* Room for the answers of 20 s, however long the loop does other things. */
    TRY(takt_channel_outlet(channel, &answers, 1, 4096, false, &outlet));
    TRY(takt_channel_supplier(channel, 1, &sensor));
    TRY(takt_dispatcher_new(plan, &dispatcher));
    TRY(takt_dispatcher_on(dispatcher, "measure", measure, sensor));
    TRY(takt_dispatcher_on(dispatcher, "greedy", greedy, NULL));
    if (takt_dispatcher_overrun_fd(dispatcher) != -1) {
        return 1;
    }
    memset(&options, 0, sizeof options);
    options.best_effort = true;
    fd = takt_outlet_fd(outlet);
    if (readable(fd, 0) || takt_outlet_next(outlet, &taken)) {
        return 2;
    }
    TRY(takt_dispatcher_start(dispatcher, &options));
    TRY(takt_channel_connect(channel, dispatcher));

    while (found < ANSWERS) {
        if (!readable(fd, 10000)) {
            fprintf(stderr, "no answer for ten seconds\n");
            return 3;
        }
        while (takt_outlet_next(outlet, &taken)) {
            if (taken.kind != ANSWER || taken.source != 1 || taken.length != sizeof number ||
                taken.due_in_ns != UINT64_MAX) {
                return 4;
            }
            memcpy(&number, taken.payload, sizeof number);
            if (found > 0 && number <= last) {
                return 5;
            }
            last = number;
            found++;
        }
    }
    fd = takt_dispatcher_overrun_fd(dispatcher);
    if (readable(fd, 0) || takt_dispatcher_next_overrun(dispatcher, &overran)) {
        return 7;
    }
    TRY(takt_dispatcher_operation(dispatcher, "greedy", &push));
    TRY(takt_operation_push(push));
    if (!readable(fd, 10000) || !takt_dispatcher_next_overrun(dispatcher, &overran) ||
        strcmp(overran.operation, "greedy") != 0 ||
        overran.job != 0 || overran.at_ns < MS) {
        return 8;
    }
    do {
        TRY(takt_dispatcher_counts(dispatcher, "greedy", &counts));
    } while (counts.unmet == 0);
    if (readable(fd, 0) || counts.overran != 1 || counts.completed != 0) {
        return 9;
    }
    fd = takt_outlet_fd(outlet);
    TRY(takt_channel_disconnect(channel));
    TRY(takt_dispatcher_stop(dispatcher));
    while (takt_outlet_next(outlet, &taken)) {
    }
    TRY(takt_outlet_counts(outlet, &passed));
    TRY(takt_dispatcher_counts(dispatcher, "measure", &counts));
    if (readable(fd, 0) || passed.pushed < ANSWERS || passed.full != 0 ||
        counts.unmet < counts.late + counts.rejected + counts.cancelled) {
        return 6;
    }
    printf("%d answers came in order, and the descriptor was readable while they waited\n", ANSWERS);

    printf("an overrun was told while the handler ran, which stopped\n");

    takt_operation_free(push);
    takt_supplier_free(sensor);
    takt_outlet_free(outlet);
    takt_outlet_free(NULL);
    takt_channel_free(channel);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}
