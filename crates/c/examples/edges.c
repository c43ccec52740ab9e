/* The answers of pushes without room, before the start, and after the stop; and events in sequence.
 * Runs on ordinary threads: it promises no times and needs no privilege. */
#define _POSIX_C_SOURCE 200809L

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static atomic_int may_return, entered;
static atomic_ulong in_turn;

static void hold(const takt_job *job, void *user) {
    (void)user;
    atomic_fetch_add(&entered, 1);
    while (!atomic_load(&may_return) && !takt_job_must_stop(job)) {
        doze();
    }
}

static void pair(const takt_event *events, size_t count, const takt_job *job, void *user) {
    (void)user;
    if (count == 2 && events[0].kind == 1 && events[1].kind == 2 &&
        takt_job_deadline_ns(job) > takt_job_arrival_ns(job)) {
        atomic_fetch_add(&in_turn, 1);
    }
}

static int full_and_in_sequence(const takt_options *options) {
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_channel *channel = NULL;
    takt_subscription *pairs = NULL;
    takt_supplier *supplier = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_handle *slow = NULL;
    takt_operation operation;
    takt_pattern parts[2] = {{1, UINT32_MAX, 0, 0}, {2, UINT32_MAX, 0, 0}};
    takt_pushed pushed;
    takt_event_counts counts;

    OK(takt_operations_new("edges", 1, false, &operations));
    memset(&operation, 0, sizeof operation);
    operation.name = "slow";
    operation.arrival = TAKT_ARRIVAL_SPORADIC;
    operation.period_ns = 1;
    operation.wcet_ns = 1;
    operation.deadline_ns = 1000000000;
    operation.backlog = 1;
    operation.noncritical = true;
    OK(takt_operations_add(operations, &operation));
    operation.name = "pair";
    operation.noncritical = false;
    OK(takt_operations_add(operations, &operation));
    OK(takt_plan_new(operations, "muf", &plan));
    OK(takt_channel_new(0, 0, 0, &channel));
    OK(takt_channel_subscribe(channel, plan, "pair", TAKT_GROUP_SEQUENCE, parts, 2, &pairs));
    OK(takt_channel_supplier(channel, 7, &supplier));
    IS(takt_supplier_push(supplier, 1, NULL, 0, 0, 0, NULL), TAKT_STATUS_STOPPED);
    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on(dispatcher, "slow", hold, NULL));
    /* A subscription is its operation's. What is refused is not taken for given. */
    IS(takt_dispatcher_on_events(dispatcher, "slow", pairs, pair, NULL), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    OK(takt_dispatcher_on(dispatcher, "pair", hold, NULL));
    OK(takt_dispatcher_start(dispatcher, options));
    IS(takt_dispatcher_on_events(dispatcher, "pair", pairs, pair, NULL), TAKT_STATUS_INVALID);
    IS(takt_channel_connect(channel, dispatcher), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    /* One that is given up is in nobody's way, and the operation may subscribe anew. */
    OK(takt_channel_unsubscribe(channel, pairs));
    IS(takt_channel_unsubscribe(channel, pairs), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    takt_subscription_free(pairs);
    OK(takt_channel_connect(channel, dispatcher));
    OK(takt_channel_disconnect(channel));
    OK(takt_channel_subscribe(channel, plan, "pair", TAKT_GROUP_SEQUENCE, parts, 2, &pairs));
    OK(takt_dispatcher_stop(dispatcher));
    takt_dispatcher_free(dispatcher);
    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on(dispatcher, "slow", hold, NULL));
    OK(takt_dispatcher_on_events(dispatcher, "pair", pairs, pair, NULL));
    OK(takt_dispatcher_start(dispatcher, options));
    OK(takt_channel_connect(channel, dispatcher));
    IS(takt_dispatcher_operation(dispatcher, "nobody", &slow), TAKT_STATUS_INVALID);
    OK(takt_dispatcher_operation(dispatcher, "slow", &slow));
    OK(takt_operation_push(slow));
    UNTIL(atomic_load(&entered) == 1);
    IS(takt_operation_push(slow), TAKT_STATUS_FULL);
    atomic_store(&may_return, 1);
    OK(takt_supplier_push(supplier, 2, NULL, 0, 0, 0, &pushed));
    if (pushed.taken + pushed.kept + pushed.rejected != 0) {
        return wrong("the second is not the first", TAKT_STATUS_OK);
    }
    OK(takt_supplier_push(supplier, 1, NULL, 0, 0, 0, &pushed));
    if (pushed.kept != 1) {
        return wrong("the first", TAKT_STATUS_OK);
    }
    OK(takt_supplier_push(supplier, 2, NULL, 0, 0, 0, &pushed));
    if (pushed.taken != 1) {
        return wrong("the second", TAKT_STATUS_OK);
    }
    UNTIL(atomic_load(&in_turn) == 1);
    OK(takt_dispatcher_stop(dispatcher));
    /* The channel is connected still, to a dispatcher that runs no more. */
    OK(takt_supplier_push(supplier, 1, NULL, 0, 0, 0, &pushed));
    OK(takt_supplier_push(supplier, 2, NULL, 0, 0, 0, &pushed));
    OK(takt_subscription_counts(pairs, &counts));
    if (pushed.rejected != 1 || counts.complete != 2 || counts.handled != 1 || counts.rejected != 1) {
        return wrong("after the stop", TAKT_STATUS_OK);
    }
    IS(takt_operation_push(slow), TAKT_STATUS_STOPPED);
    OK(takt_channel_disconnect(channel));
    IS(takt_supplier_push(supplier, 1, NULL, 0, 0, 0, NULL), TAKT_STATUS_STOPPED);
    takt_operation_free(slow);
    takt_supplier_free(supplier);
    takt_subscription_free(pairs);
    takt_channel_free(channel);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    takt_operations_free(operations);
    return 0;
}

static int too_early(const takt_options *options) {
    static const char *system = "takt = 1\nname = \"valves\"\n[[task]]\nname = \"valve\"\narrival = \"sporadic\"\n"
                                "period = \"100s\"\nwcet = \"1ms\"\n";
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_handle *valve = NULL;

    IS(takt_plan_of_system("takt = 1\n", &plan), TAKT_STATUS_UNPLANNABLE);
    OK(takt_plan_of_system(system, &plan));
    OK(takt_dispatcher_new(plan, &dispatcher));
    OK(takt_dispatcher_on(dispatcher, "valve", hold, NULL));
    IS(takt_dispatcher_operation(dispatcher, "valve", &valve), TAKT_STATUS_STOPPED);
    OK(takt_dispatcher_start(dispatcher, options));
    OK(takt_dispatcher_operation(dispatcher, "valve", &valve));
    OK(takt_operation_push(valve));
    IS(takt_operation_push(valve), TAKT_STATUS_TOO_EARLY);
    OK(takt_dispatcher_stop(dispatcher));
    IS(takt_operation_push(valve), TAKT_STATUS_STOPPED);
    takt_operation_free(valve);
    takt_dispatcher_free(dispatcher);
    takt_plan_free(plan);
    return 0;
}

int main(void) {
    takt_options options;
    memset(&options, 0, sizeof options);
    options.best_effort = true;
    if (full_and_in_sequence(&options) != 0 || too_early(&options) != 0) {
        return 1;
    }
    printf("each push was answered as it should\n");
    return 0;
}
