/* A radar pushes tracks. A critical operation steers by each track, a noncritical one draws both kinds
 * of events, and a timer has a control loop. Run: radar [LOG]. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "takt.h"

enum { TRACK = 1, WEATHER = 2 };

static const uint64_t MS = 1000000;

/* Ends with what takt says. */
static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, takt_last_error());
    return 1;
}

/* A push leaves no text. */
#define PUSH(call)                                                                        \
    do {                                                                                  \
        takt_status answer = (call);                                                      \
        if (answer != TAKT_STATUS_OK) {                                                   \
            fprintf(stderr, "%s: %s\n", #call, takt_status_text((uint32_t)answer));       \
            return 1;                                                                     \
        }                                                                                 \
    } while (0)

#define TRY(call)                \
    do {                         \
        if ((call) != TAKT_STATUS_OK) { \
            return failed(#call); \
        }                        \
    } while (0)

static void control(const takt_job *job, void *user) {
    unsigned long *steps = (unsigned long *)user;
    if (!takt_job_must_stop(job)) {
        ++*steps;
    }
}

static void steer(const takt_event *events, size_t count, const takt_job *job, void *user) {
    unsigned long *seen = (unsigned long *)user;
    (void)job;
    if (count == 1 && events[0].length == 5 && memcmp(events[0].payload, "north", 5) == 0) {
        ++*seen;
    }
}

static void draw(const takt_event *events, size_t count, const takt_job *job, void *user) {
    (void)events;
    (void)job;
    *(unsigned long *)user += count;
}

int main(int argc, char **argv) {
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_channel *channel = NULL;
    takt_subscription *steers = NULL, *draws = NULL;
    takt_supplier *radar = NULL;
    takt_dispatcher *dispatcher = NULL;
    unsigned long steps = 0, seen = 0, drawn = 0;
    char table[2048];

    TRY(takt_operations_new("radar", 1, true, &operations));
    {
        takt_operation operation;
        memset(&operation, 0, sizeof operation);
        operation.name = "control";
        operation.arrival = TAKT_ARRIVAL_PERIODIC;
        operation.period_ns = 10 * MS;
        operation.wcet_ns = MS;
        TRY(takt_operations_add(operations, &operation));
        operation.name = "steer";
        operation.arrival = TAKT_ARRIVAL_SPORADIC;
        operation.period_ns = 2 * MS;
        operation.wcet_ns = MS / 5;
        operation.backlog = 8;
        TRY(takt_operations_add(operations, &operation));
        operation.name = "draw";
        operation.period_ns = 20 * MS;
        operation.wcet_ns = 5 * MS;
        operation.noncritical = true;
        TRY(takt_operations_add(operations, &operation));
    }
    TRY(takt_plan_new(operations, "muf", &plan));
    takt_plan_text(plan, table, sizeof table);
    printf("%s", table);

    TRY(takt_channel_new(0, 0, 0, &channel));
    {
        takt_pattern track = {TRACK, UINT32_MAX, 0, 0}, weather = {WEATHER, UINT32_MAX, 0, 0};
        takt_pattern both[2];
        both[0] = track;
        both[1] = weather;
        TRY(takt_channel_subscribe(channel, plan, "steer", TAKT_GROUP_ANY, &track, 1, &steers));
        TRY(takt_channel_subscribe(channel, plan, "draw", TAKT_GROUP_ALL, both, 2, &draws));
    }
    TRY(takt_dispatcher_new(plan, &dispatcher));
    TRY(takt_dispatcher_on(dispatcher, "control", control, &steps));
    TRY(takt_dispatcher_on_events(dispatcher, "steer", steers, steer, &seen));
    TRY(takt_dispatcher_on_events(dispatcher, "draw", draws, draw, &drawn));
    if (argc > 1) {
        TRY(takt_dispatcher_log(dispatcher, argv[1]));
    }
    {
        takt_status started = takt_dispatcher_start(dispatcher, NULL);
        if (started == TAKT_STATUS_PRIVILEGE) {
            /* Only to show that it works: nothing is promised then. A dispatcher starts once: this one is made anew. */
            takt_options options;
            memset(&options, 0, sizeof options);
            options.best_effort = true;
            printf("without privilege: %s\n", takt_last_error());
            takt_dispatcher_free(dispatcher);
            TRY(takt_dispatcher_new(plan, &dispatcher));
            TRY(takt_dispatcher_on(dispatcher, "control", control, &steps));
            TRY(takt_dispatcher_on_events(dispatcher, "steer", steers, steer, &seen));
            TRY(takt_dispatcher_on_events(dispatcher, "draw", draws, draw, &drawn));
            if (argc > 1) {
                TRY(takt_dispatcher_log(dispatcher, argv[1]));
            }
            started = takt_dispatcher_start(dispatcher, &options);
        }
        if (started != TAKT_STATUS_OK) {
            return failed("takt_dispatcher_start");
        }
    }
    TRY(takt_channel_connect(channel, dispatcher));
    TRY(takt_channel_supplier(channel, 7, &radar));

    for (int sweep = 0; sweep < 20; ++sweep) {
        if (sweep == 10) {
            /* From now on tracks of the newest sweep only, of 50 ms at most. */
            takt_pattern track = {TRACK, UINT32_MAX, 0, 0};
            takt_quality fresh;
            memset(&fresh, 0, sizeof fresh);
            fresh.ttl_ns = 50 * MS;
            fresh.latest = true;
            TRY(takt_subscription_reconnect(steers, TAKT_GROUP_ANY, &track, 1, &fresh));
            TRY(takt_subscription_suspend(draws));
        }
        struct timespec pause = {0, 5 * 1000 * 1000};
        takt_pushed pushed;
        PUSH(takt_supplier_push(radar, TRACK, (const uint8_t *)"north", 5, 20 * MS, 100 * MS, &pushed));
        PUSH(takt_supplier_push(radar, WEATHER, NULL, 0, 0, 0, NULL));
        nanosleep(&pause, NULL);
        TRY(takt_dispatcher_drain(dispatcher));
    }
    TRY(takt_subscription_resume(draws));
    TRY(takt_channel_disconnect(channel));
    TRY(takt_dispatcher_stop(dispatcher));
    {
        const char *names[] = {"control", "steer", "draw"};
        for (size_t at = 0; at < 3; ++at) {
            takt_counts counts;
            TRY(takt_dispatcher_counts(dispatcher, names[at], &counts));
            printf("%-8s released %llu, completed %llu, late %llu\n", names[at], (unsigned long long)counts.released,
                   (unsigned long long)counts.completed, (unsigned long long)counts.late);
            /* Each handler was called once for each complete job, except for events that expired. One may
             * have run when the dispatcher stopped. */
            if ((at == 0 && (steps < counts.completed || steps > counts.completed + 1)) ||
                (at == 1 && seen > counts.completed + 1)) {
                fprintf(stderr, "%lu steps, %lu tracks\n", steps, seen);
                return 1;
            }
        }
    }
    {
        takt_event_counts tracks, weather;
        TRY(takt_subscription_counts(steers, &tracks));
        TRY(takt_subscription_counts(draws, &weather));
        printf("tracks: %llu complete, %llu handled, of these %llu late; %llu passed the display by\n",
               (unsigned long long)tracks.complete, (unsigned long long)tracks.handled, (unsigned long long)tracks.late,
               (unsigned long long)weather.suspended);
        if (tracks.complete != 20 || tracks.handled != seen || weather.suspended != 20) {
            fprintf(stderr, "%lu tracks seen\n", seen);
            return 1;
        }
    }
    if (steps == 0 || seen == 0) {
        fprintf(stderr, "%lu steps, %lu tracks\n", steps, seen);
        return 1;
    }
    printf("every job is accounted for\n");

    takt_supplier_free(radar);
    takt_subscription_free(draws);
    takt_subscription_free(steers);
    takt_channel_free(channel);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}
