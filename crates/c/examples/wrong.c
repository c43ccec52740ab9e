/* Calls that are wrong, each answered with a status and a text. */
#include <stdio.h>
#include <string.h>

#include "takt.h"

static void show(takt_status status) { printf("%d: %s\n", (int)status, takt_last_error()); }

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
        takt_plan_mode(NULL, "landing") != SIZE_MAX || takt_plan_guarded(NULL, 1, "a", NULL, 0) != 0 || takt_dispatcher_adaptive(NULL, 1, NULL, 0) != TAKT_STATUS_INVALID ||
        takt_dispatcher_now_ns(NULL) != 0 ||
        takt_subscription_reconnect(NULL, TAKT_GROUP_ANY, NULL, 0, NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_suspend(NULL) != TAKT_STATUS_INVALID || takt_subscription_resume(NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_counts(NULL, NULL) != TAKT_STATUS_INVALID || takt_job_now_ns(NULL) != 0 ||
        takt_dispatcher_warnings(NULL, NULL, 0) != 0) {
        return 1;
    }
    if (takt_filter_one(NULL, NULL) != TAKT_STATUS_INVALID || takt_filter_without(NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_filter_group(TAKT_GROUP_ALL, NULL, 1, NULL) != TAKT_STATUS_INVALID ||
        takt_filter_silence(NULL, 1000000, NULL) != TAKT_STATUS_INVALID || takt_filter_timeout(1000000, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_subscribe_filter(NULL, NULL, "a", NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_subscription_reconnect_filter(NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_history(NULL, NULL, NULL, NULL) != TAKT_STATUS_INVALID ||
        takt_channel_observe(NULL, NULL, NULL) != TAKT_STATUS_INVALID) {
        return 1;
    }
    takt_filter_free(NULL);
    takt_plan_free(plan);
    takt_dispatcher_free(dispatcher);
    takt_operations_free(operations);
    return 0;
}
