/* A flight that lands: the program switches to a mode with other operations and rates.
 * Then a second dispatcher switches by itself to a strategy that guards its critical operation.
 * Run: landing. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "takt.h"

static const uint64_t MS = 1000000;

#define TRY(call)                                                        \
    do {                                                                 \
        if ((call) != TAKT_STATUS_OK) {                                  \
            fprintf(stderr, "%s: %s\n", #call, takt_last_error());       \
            return 1;                                                    \
        }                                                                \
    } while (0)

/* Handlers are called until the dispatcher has stopped: what they use lives as long as the program. */
static unsigned long controls, routes, gears, photos, steered, drawn;

static void count(const takt_job *job, void *user) {
    (void)job;
    ++*(unsigned long *)user;
}

/* Works until it is in danger, and a little longer. */
static void steer(const takt_job *job, void *user) {
    while (takt_job_time_left_ns(job) > 40 * MS && !takt_job_must_stop(job)) {
    }
    count(job, user);
}

/* Looks, at 5 ms from one another, at an operation's counts at most this often. */
static const int LOOKS_MAX = 4000;

static void sleep_ms(long ms) {
    struct timespec pause;
    pause.tv_sec = ms / 1000;
    pause.tv_nsec = ms % 1000 * 1000000;
    nanosleep(&pause, NULL);
}

static takt_status add_as(takt_operations *operations, takt_arrival arrival, const char *name, uint64_t period_ms,
                          uint64_t wcet_ms, bool noncritical) {
    takt_operation operation;
    memset(&operation, 0, sizeof operation);
    operation.name = name;
    operation.arrival = arrival;
    operation.period_ns = period_ms * MS;
    operation.wcet_ns = wcet_ms * MS;
    operation.noncritical = noncritical;
    return takt_operations_add(operations, &operation);
}

static takt_status add(takt_operations *operations, const char *name, uint64_t period_ms, uint64_t wcet_ms,
                       bool noncritical) {
    return add_as(operations, TAKT_ARRIVAL_PERIODIC, name, period_ms, wcet_ms, noncritical);
}

/* With privilege, or else without any promise. */
static takt_status start(takt_dispatcher *dispatcher, bool best_effort) {
    takt_options options;
    memset(&options, 0, sizeof options);
    options.best_effort = best_effort;
    return takt_dispatcher_start(dispatcher, &options);
}

static int land(bool best_effort, bool *unprivileged) {
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_handle *photo = NULL;
    uint64_t switched;
    int looks = 0;
    char table[4096];
    takt_counts counts;

    TRY(takt_operations_new("flight", 1, false, &operations));
    TRY(add(operations, "control", 20, 1, false));
    TRY(add(operations, "route", 20, 2, true));
    TRY(add(operations, "gear", 20, 1, false));
    TRY(add_as(operations, TAKT_ARRIVAL_SPORADIC, "photo", 20, 1, true));
    TRY(takt_operations_absent(operations, "gear"));
    TRY(takt_operations_mode(operations, "landing", "muf"));
    TRY(takt_mode_absent(operations, "landing", "route"));
    TRY(takt_mode_absent(operations, "landing", "photo"));
    TRY(takt_mode_period(operations, "landing", "control", 10 * MS));
    TRY(takt_plan_new(operations, "rm", &plan));
    takt_plan_text(plan, table, sizeof table);
    printf("%s", table);

    TRY(takt_dispatcher_new(plan, &dispatcher));
    TRY(takt_dispatcher_on(dispatcher, "control", count, &controls));
    TRY(takt_dispatcher_on(dispatcher, "route", count, &routes));
    TRY(takt_dispatcher_on(dispatcher, "gear", count, &gears));
    TRY(takt_dispatcher_on(dispatcher, "photo", count, &photos));
    switch (start(dispatcher, best_effort)) {
    case TAKT_STATUS_OK:
        break;
    case TAKT_STATUS_PRIVILEGE:
        *unprivileged = true;
        takt_dispatcher_free(dispatcher);
        takt_plan_free(plan);
        takt_operations_free(operations);
        return 0;
    default:
        fprintf(stderr, "start: %s\n", takt_last_error());
        return 1;
    }
    TRY(takt_dispatcher_operation(dispatcher, "photo", &photo));
    TRY(takt_operation_push(photo));
    do {
        sleep_ms(5);
        TRY(takt_dispatcher_counts(dispatcher, "route", &counts));
    } while (counts.completed < 2 && ++looks < LOOKS_MAX);
    TRY(takt_dispatcher_counts(dispatcher, "gear", &counts));
    if (counts.released != 0) {
        fprintf(stderr, "the gear came out in flight\n");
        return 1;
    }
    TRY(takt_dispatcher_switch(dispatcher, takt_plan_mode(plan, "landing")));
    switched = takt_dispatcher_now_ns(dispatcher);
    if (takt_operation_push(photo) != TAKT_STATUS_ABSENT) {
        fprintf(stderr, "a photo was taken while landing\n");
        return 1;
    }
    do {
        sleep_ms(5);
        TRY(takt_dispatcher_counts(dispatcher, "gear", &counts));
    } while (counts.completed < 2 && ++looks < LOOKS_MAX);
    if (looks == LOOKS_MAX) {
        fprintf(stderr, "no job came to its end\n");
        return 1;
    }
    TRY(takt_dispatcher_counts(dispatcher, "route", &counts));
    /* Until the switch it came every 20 ms, though a timer that was late may have told so after it. */
    if (counts.released > switched / (20 * MS) + 1) {
        fprintf(stderr, "the route went on: %lu jobs\n", (unsigned long)counts.released);
        return 1;
    }
    TRY(takt_dispatcher_stop(dispatcher));
    printf("landed: gear is out\n");
    takt_operation_free(photo);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}

static int guard(bool best_effort) {
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    int looks = 0;
    takt_response response;

    TRY(takt_operations_new("guarded", 1, false, &operations));
    TRY(add(operations, "steer", 80, 20, false));
    TRY(add(operations, "draw", 20, 2, true));
    TRY(takt_operations_mode(operations, "guard", "muf"));
    TRY(takt_plan_new(operations, "rm", &plan));
    TRY(takt_dispatcher_new(plan, &dispatcher));
    TRY(takt_dispatcher_on(dispatcher, "steer", steer, &steered));
    TRY(takt_dispatcher_on(dispatcher, "draw", count, &drawn));
    /* In danger 20 ms after its arrival, because it works longer than that. A real program takes the
     * response that "takt check" finds for the system of takt_plan_guarded. */
    response.operation = "steer";
    response.longest_ns = 60 * MS;
    TRY(takt_dispatcher_adaptive(dispatcher, takt_plan_mode(plan, "guard"), &response, 1));
    TRY(start(dispatcher, best_effort));
    while (takt_dispatcher_holds(dispatcher) != takt_plan_mode(plan, "guard")) {
        sleep_ms(5);
        TRY(takt_dispatcher_drain(dispatcher));
        if (++looks == LOOKS_MAX) {
            fprintf(stderr, "the guard did not come\n");
            return 1;
        }
    }
    printf("the guard came\n");
    TRY(takt_dispatcher_stop(dispatcher));
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}

int main(void) {
    bool best_effort = false;
    if (land(false, &best_effort) != 0) {
        return 1;
    }
    if (best_effort) {
        printf("without privilege: %s\n", takt_last_error());
        if (land(true, &best_effort) != 0) {
            return 1;
        }
    }
    return guard(best_effort);
}
