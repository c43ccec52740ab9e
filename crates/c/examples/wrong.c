/* Wrong calls, each answered with a status and a text. */
#include <stdio.h>
#include <string.h>

#include "takt.h"

static void show(takt_status status) { printf("%d: %s\n", (int)status, takt_last_error()); }

/* Nodes and values that cannot be. */
static int nodes_and_values(void) {
    takt_node *node = NULL;
    takt_node_options options;
    takt_level level;
    takt_pattern pattern = {1, UINT32_MAX, 0, 0};
    takt_channel *channel = NULL;
    takt_published *published = NULL;
    takt_replica *replica = NULL;
    size_t sizes[2] = {8, 65536};

    memset(&options, 0, sizeof options);
    options.clock = 3;
    show(takt_node_new(1, &options, &node));
    options.clock = TAKT_CLOCK_OWN;
    options.nodes_max = 65537;
    show(takt_node_new(1, &options, &node));
    options.nodes_max = 0;
    if (takt_node_new(1, &options, &node) != TAKT_STATUS_OK || takt_channel_new(0, 0, 0, &channel) != TAKT_STATUS_OK) {
        return 1;
    }
    memset(&level, 0, sizeof level);
    show(takt_node_add(node, &level));
    level.name = "l";
    show(takt_node_add(node, &level));
    level.at = "here";
    show(takt_node_add(node, &level));
    level.at = "127.0.0.1:0";
    level.peer_count = 1;
    show(takt_node_add(node, &level));
    level.peer_count = 0;
    level.sends = &pattern;
    level.send_count = 1025;
    show(takt_node_add(node, &level));
    level.send_count = 1;
    level.sending = 4;
    show(takt_node_add(node, &level));
    level.sending = TAKT_SENDING_DIRECT;
    level.buffer = SIZE_MAX;
    show(takt_node_add(node, &level));
    show(takt_published_new(channel, 1, TAKT_KIND_TIMEOUT, sizes, 2, &published));
    show(takt_replica_new(1, 1, sizes, 0, &replica));
    show(takt_replica_new(1, 1, sizes, 2, &replica));
    sizes[1] = 229;
    show(takt_published_new(channel, 1, 1, sizes, 2, &published));
    if (takt_sending_may_block(TAKT_SENDING_DIRECT, 0) || !takt_sending_may_drop(TAKT_SENDING_DIRECT, 0) ||
        !takt_sending_may_block(TAKT_SENDING_PATIENT, 0) || takt_sending_may_drop(TAKT_SENDING_PATIENT, 0) ||
        !takt_sending_may_drop(TAKT_SENDING_PATIENT, 1) || takt_sending_may_block(TAKT_SENDING_QUEUED_OLDEST, 0) ||
        !takt_sending_may_drop(TAKT_SENDING_QUEUED_NEWEST, 0) || !takt_sending_may_block(4, 0) ||
        !takt_sending_may_drop(4, 0)) {
        return 1;
    }
    /* Null pointers. */
    if (takt_node_add(NULL, &level) != TAKT_STATUS_INVALID ||
        takt_channel_connect_as(channel, node, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_traffic(NULL, "l", NULL) != TAKT_STATUS_INVALID ||
        takt_channel_peer(NULL, "l", 0, NULL) != TAKT_STATUS_INVALID ||
        takt_published_write(NULL, 0, NULL, 0, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_published_events_max(NULL) != 0 ||
        takt_published_flush(NULL, 0, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_published_refresh(NULL) != TAKT_STATUS_INVALID ||
        takt_published_counts(NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_replica_apply(NULL, NULL, 0, NULL) != TAKT_STATUS_INVALID ||
        takt_replica_read(NULL, NULL, 0) != TAKT_STATUS_INVALID ||
        takt_replica_counts(NULL, NULL) != TAKT_STATUS_INVALID) {
        return 1;
    }
    takt_published_free(published);
    takt_replica_free(replica);
    takt_channel_free(channel);
    takt_node_free(node);
    return 0;
}

int main(void) {
    takt_operations *operations = NULL;
    takt_plan *plan = NULL;
    takt_dispatcher *dispatcher = NULL;
    takt_operation operation;
    const char *before = "b";

    show(takt_operations_new(NULL, 1, false, &operations));
    if (takt_operations_new("x", 1, false, &operations) != TAKT_STATUS_OK) {
        return 1;
    }
    memset(&operation, 0, sizeof operation);
    operation.name = "a";
    operation.after = &before;
    operation.after_count = 1;
    show(takt_operations_add(operations, &operation));
    operation.arrival = 77;
    show(takt_operations_add(operations, &operation));
    show(takt_plan_new(operations, "best", &plan));
    show(takt_plan_new(operations, "muf", &plan));
    show(takt_mode_absent(operations, "landing", "a"));
    show(takt_operations_mode(operations, "landing", "best"));
    /* Null pointers are answered, and freeing them is no harm. */
    if (takt_dispatcher_new(NULL, &dispatcher) != TAKT_STATUS_INVALID ||
        takt_dispatcher_start(NULL, NULL) != TAKT_STATUS_INVALID || takt_operation_push(NULL) != TAKT_STATUS_INVALID ||
        takt_supplier_push(NULL, 1, NULL, 0, 0, 0, NULL) != TAKT_STATUS_INVALID || takt_plan_text(NULL, NULL, 0) != 0 ||
        takt_plan_mode(NULL, "landing") != SIZE_MAX || takt_plan_guarded(NULL, 1, "a", NULL, 0) != 0 ||
        takt_dispatcher_adaptive(NULL, 1, NULL, 0) != TAKT_STATUS_INVALID ||
        takt_dispatcher_now_ns(NULL) != 0 ||
        takt_subscription_reconnect(NULL, TAKT_GROUP_ANY, NULL, 0, NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_suspend(NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_resume(NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_counts(NULL, NULL) != TAKT_STATUS_INVALID || takt_job_now_ns(NULL) != 0 ||
        takt_dispatcher_warnings(NULL, NULL, 0) != 0) {
        return 1;
    }
    if (takt_filter_one(NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_filter_without(NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_filter_group(TAKT_GROUP_ALL, NULL, 1, NULL) != TAKT_STATUS_INVALID ||
        takt_filter_silence(NULL, 1000000, NULL) != TAKT_STATUS_INVALID ||
        takt_filter_timeout(1000000, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_subscribe_filter(NULL, NULL, "a", NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_reconnect_filter(NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_history(NULL, NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_observe(NULL, NULL, NULL) != TAKT_STATUS_INVALID) {
        return 1;
    }
    takt_filter_free(NULL);
    if (nodes_and_values() != 0) {
        return 1;
    }
    takt_plan_free(plan);
    takt_dispatcher_free(dispatcher);
    takt_operations_free(operations);
    return 0;
}
