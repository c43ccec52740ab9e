/* Conditions of an operation: a sequence without interruption, a time after an event, silence.
 * Reports of a channel: the outcome of each push, the last events, changes of subscriptions.
 * Runs on ordinary threads: it promises no times and needs no privilege. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>

#include "check.h"

enum { START = 1, END = 2, ABORT = 3, TRACK = 4, HOLD = 5 };

static const uint64_t MS = 1000000;

/* Counters are shared by threads. The builtins are there in C and in C++. */
static unsigned long seen(unsigned long *counter) { return __atomic_load_n(counter, __ATOMIC_SEQ_CST); }
static void count(unsigned long *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST); }

static unsigned long whole, later, quiet, held, may_return;

/* START and END, without an ABORT between them. */
static void on_whole(const takt_event *events, size_t events_count, const takt_job *job, void *user) {
    (void)user;
    if (events_count == 2 && events[0].kind == START && events[1].kind == END && events[1].pattern == 1 &&
        takt_job_now_ns(job) >= takt_job_arrival_ns(job)) {
        count(&whole);
    }
}

/* A track, and the end of a span of time. */
static void on_later(const takt_event *events, size_t events_count, const takt_job *job, void *user) {
    (void)job;
    (void)user;
    if (events_count == 2 && events[0].kind == TRACK && events[1].kind == TAKT_KIND_TIMEOUT &&
        events[1].sent_ns >= events[0].sent_ns + MS) {
        count(&later);
    }
}

static void on_quiet(const takt_event *events, size_t events_count, const takt_job *job, void *user) {
    (void)job;
    (void)user;
    if (events_count == 1 && events[0].kind == TAKT_KIND_TIMEOUT) {
        count(&quiet);
    }
}

static void on_held(const takt_event *events, size_t events_count, const takt_job *job, void *user) {
    (void)events;
    (void)events_count;
    (void)user;
    count(&held);
    while (seen(&may_return) == 0 && !takt_job_must_stop(job)) {
        doze();
    }
}

/* Who subscribed, and how often each change came. */
typedef struct {
    char names[64];
    unsigned long changes[4];
} told;

static void on_change(const char *operation, uint32_t change, void *user) {
    told *all = (told *)user;
    if (change == TAKT_CHANGE_SUBSCRIBED && strlen(all->names) + strlen(operation) + 2 < sizeof all->names) {
        strcat(all->names, operation);
        strcat(all->names, " ");
    }
    if (change < 4) {
        all->changes[change]++;
    }
}

typedef struct {
    unsigned long count;
    uint64_t last;
} shown;

static void on_history(const takt_event *event, void *user) {
    shown *all = (shown *)user;
    if (event->kind == END && event->source == 7 && event->length == 3 && memcmp(event->payload, "end", 3) == 0) {
        all->count++;
        all->last = event->number;
    }
}

static takt_pattern of_kind(uint32_t kind) {
    takt_pattern pattern = {kind, UINT32_MAX, 0, 0};
    return pattern;
}

/* Filters of filters. */
static int make(takt_filter **sequence, takt_filter **timed, takt_filter **silence) {
    takt_pattern start = of_kind(START), end = of_kind(END), abort_it = of_kind(ABORT), track = of_kind(TRACK);
    takt_filter *parts[2] = {NULL, NULL}, *both = NULL, *none = NULL;
    const takt_filter *members[2];

    OK(takt_filter_one(&start, &parts[0]));
    OK(takt_filter_one(&end, &parts[1]));
    members[0] = parts[0];
    members[1] = parts[1];
    OK(takt_filter_group(TAKT_GROUP_SEQUENCE, members, 2, &both));
    OK(takt_filter_without(both, &abort_it, sequence));
    takt_filter_free(both);
    takt_filter_free(parts[0]);
    takt_filter_free(parts[1]);

    OK(takt_filter_one(&track, &parts[0]));
    OK(takt_filter_timeout(MS, &parts[1]));
    members[0] = parts[0];
    members[1] = parts[1];
    OK(takt_filter_group(TAKT_GROUP_SEQUENCE, members, 2, timed));
    IS(takt_filter_group(9, members, 2, &none), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    members[1] = NULL;
    IS(takt_filter_group(TAKT_GROUP_ALL, members, 2, &none), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    IS(takt_filter_group(TAKT_GROUP_ALL, members, 0, &none), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    IS(takt_filter_timeout(1, &none), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    takt_filter_free(parts[0]);
    takt_filter_free(parts[1]);
    OK(takt_filter_silence(&track, MS, silence));
    return 0;
}

/* A filter within another as often as may be, and once more. */
static int too_deep(void) {
    takt_pattern any = {0, 0, 0, 0};
    takt_filter *filter = NULL, *next = NULL;
    takt_status answer = takt_filter_one(&any, &filter);
    int depth = 0;
    while (answer == TAKT_STATUS_OK && depth < 1000) {
        answer = takt_filter_without(filter, &any, &next);
        if (answer == TAKT_STATUS_OK) {
            takt_filter_free(filter);
            filter = next;
        }
        depth++;
    }
    takt_filter_free(filter);
    if (answer != TAKT_STATUS_INVALID) {
        return wrong("a filter that is too deep", answer);
    }
    printf("%d: %s\n", depth, takt_last_error());
    return 0;
}

static int plan_of(takt_plan **plan) {
    const char *names[] = {"whole", "later", "quiet", "held"};
    takt_operations *operations = NULL;
    takt_operation operation;
    memset(&operation, 0, sizeof operation);
    operation.arrival = TAKT_ARRIVAL_SPORADIC;
    operation.period_ns = 1;
    operation.wcet_ns = 1;
    operation.deadline_ns = 1000 * MS;
    operation.noncritical = true;
    OK(takt_operations_new("filters", 1, false, &operations));
    for (size_t at = 0; at < 4; at++) {
        operation.name = names[at];
        operation.backlog = at == 3 ? 1 : 8;
        OK(takt_operations_add(operations, &operation));
    }
    OK(takt_plan_new(operations, "muf", plan));
    takt_operations_free(operations);
    return 0;
}

/* What each push came to, when the channel is connected. */
static int pushes(const takt_supplier *supplier, takt_channel *channel) {
    const uint8_t *end = (const uint8_t *)"end";
    takt_pattern ends = of_kind(END);
    takt_pushed pushed;
    shown all;

    OK(takt_supplier_push(supplier, START, NULL, 0, 0, 0, &pushed));
    SO(pushed.number == 0 && pushed.kept == 1 && pushed.sent + pushed.unsent == 0);
    OK(takt_supplier_push(supplier, ABORT, NULL, 0, 0, 0, NULL));
    /* The sequence began anew: this is no end of one. */
    OK(takt_supplier_push(supplier, END, end, 3, 0, 0, &pushed));
    SO(pushed.number == 2 && pushed.taken + pushed.kept + pushed.rejected == 0);
    OK(takt_supplier_push(supplier, START, NULL, 0, 0, 0, NULL));
    OK(takt_supplier_push(supplier, END, end, 3, 0, 0, &pushed));
    SO(pushed.number == 4 && pushed.taken == 1);
    UNTIL(seen(&whole) == 1);

    memset(&all, 0, sizeof all);
    OK(takt_channel_history(channel, &ends, on_history, &all));
    /* The channel remembers three events: the end that came too early is the oldest of them. */
    SO(all.count == 2 && all.last == 4);

    OK(takt_supplier_push(supplier, TRACK, NULL, 0, 0, 0, &pushed));
    SO(pushed.kept == 1);
    UNTIL(seen(&later) == 1);

    OK(takt_supplier_push(supplier, HOLD, NULL, 0, 0, 0, &pushed));
    SO(pushed.taken == 1);
    UNTIL(seen(&held) == 1);
    OK(takt_supplier_push(supplier, HOLD, NULL, 0, 0, 0, &pushed));
    SO(pushed.taken == 0 && pushed.rejected == 1);
    __atomic_store_n(&may_return, 1, __ATOMIC_SEQ_CST);
    IS(takt_supplier_push(supplier, TAKT_KIND_PEER_FOUND, NULL, 0, 0, 0, NULL), TAKT_STATUS_INVALID);
    return 0;
}

int main(void) {
    takt_filter *sequence = NULL, *timed = NULL, *silence = NULL;
    takt_subscription *wholes = NULL, *laters = NULL, *quiets = NULL, *helds = NULL;
    takt_plan *plan = NULL;
    takt_channel *channel = NULL;
    takt_supplier *supplier = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_pattern hold = of_kind(HOLD);
    takt_options options;
    takt_quality fresh;
    takt_event_counts counts;
    told changes;

    memset(&changes, 0, sizeof changes);
    memset(&options, 0, sizeof options);
    memset(&fresh, 0, sizeof fresh);
    options.best_effort = true;
    fresh.ttl_ns = 60 * 1000 * MS;
    if (make(&sequence, &timed, &silence) != 0 || too_deep() != 0 || plan_of(&plan) != 0) {
        return 1;
    }
    OK(takt_channel_new(0, 0, 3, &channel));
    OK(takt_channel_observe(channel, on_change, &changes));
    OK(takt_channel_subscribe_filter(channel, plan, "whole", sequence, &fresh, &wholes));
    OK(takt_channel_subscribe_filter(channel, plan, "later", timed, NULL, &laters));
    OK(takt_channel_subscribe_filter(channel, plan, "quiet", silence, NULL, &quiets));
    OK(takt_channel_subscribe(channel, plan, "held", TAKT_GROUP_ANY, &hold, 1, &helds));
    IS(takt_channel_subscribe_filter(channel, plan, "held", silence, NULL, &helds), TAKT_STATUS_INVALID);
    OK(takt_channel_supplier(channel, 7, &supplier));
    IS(takt_supplier_push(supplier, START, NULL, 0, 0, 0, NULL), TAKT_STATUS_STOPPED);

    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on_events(dispatcher, "whole", wholes, on_whole, NULL));
    OK(takt_dispatcher_on_events(dispatcher, "later", laters, on_later, NULL));
    OK(takt_dispatcher_on_events(dispatcher, "quiet", quiets, on_quiet, NULL));
    OK(takt_dispatcher_on_events(dispatcher, "held", helds, on_held, NULL));
    OK(takt_dispatcher_start(dispatcher, &options));
    /* On ordinary threads there is nothing to warn of. */
    SO(takt_dispatcher_warnings(dispatcher, NULL, 0) == 0);
    OK(takt_channel_connect(channel, dispatcher));
    if (pushes(supplier, channel) != 0) {
        return 1;
    }
    UNTIL(seen(&quiet) >= 2);

    /* From now on it waits for what comes once. */
    OK(takt_subscription_suspend(quiets));
    OK(takt_subscription_reconnect_filter(quiets, sequence, NULL));
    OK(takt_subscription_resume(quiets));
    OK(takt_channel_disconnect(channel));
    IS(takt_supplier_push(supplier, START, NULL, 0, 0, 0, NULL), TAKT_STATUS_STOPPED);
    OK(takt_dispatcher_stop(dispatcher));
    OK(takt_subscription_counts(wholes, &counts));
    SO(counts.complete == 1 && counts.handled == 1);
    printf("subscribed: %s\n", changes.names);
    printf("suspended %lu, resumed %lu, reconnected %lu\n", changes.changes[TAKT_CHANGE_SUSPENDED],
           changes.changes[TAKT_CHANGE_RESUMED], changes.changes[TAKT_CHANGE_RECONNECTED]);
    printf("takt %s: each filter was complete when it should be\n", takt_version());

    takt_filter_free(sequence);
    takt_filter_free(timed);
    takt_filter_free(silence);
    takt_supplier_free(supplier);
    takt_subscription_free(wholes);
    takt_subscription_free(laters);
    takt_subscription_free(quiets);
    takt_subscription_free(helds);
    takt_channel_free(channel);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    return 0;
}
