/* Two nodes, left and right, as two processes would be. They find each other. Left's values are
 * replicated to right, and its alarms go there. Right is told when left ends.
 * Runs on ordinary threads: it promises no times and needs no privilege. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { VALUES = 1, ALARM = 2, COUNT = 0, NAME = 1 };

static const uint64_t MS = 1000000;
static const size_t SIZES[] = {8, 16};

/* Counters are shared by threads. The builtins are there in C and in C++. */
static unsigned long seen(unsigned long *counter) { return __atomic_load_n(counter, __ATOMIC_SEQ_CST); }
static void count(unsigned long *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST); }

/* What one of the two is made of. */
typedef struct {
    takt_plan *plan;
    takt_channel *channel;
    takt_dispatcher *dispatcher;
    takt_node *node;
    takt_subscription *peers, *events;
    takt_published *published;
    takt_replica *replica;
    takt_supplier *supplier;
    /* What its handlers saw. */
    unsigned long found, lost, written, alarms, troubles;
} side;

/* A peer that is new has none of the values. */
static void on_peers(const takt_event *events, size_t events_count, const takt_job *job, void *user) {
    side *own = (side *)user;
    (void)job;
    if (events_count != 1 || events[0].length != 8) {
        count(&own->troubles);
    } else if (events[0].kind == TAKT_KIND_PEER_LOST) {
        count(&own->lost);
    } else if (events[0].kind == TAKT_KIND_PEER_FOUND) {
        count(&own->found);
        if (own->published != NULL && takt_published_refresh(own->published) != TAKT_STATUS_OK) {
            count(&own->troubles);
        }
    }
}

/* Left: a count in each frame, and a name once. */
static void on_mission(const takt_job *job, void *user) {
    side *own = (side *)user;
    uint8_t bytes[8] = {0};
    bool in_time = false;
    bytes[7] = (uint8_t)(own->written & 0x7f);
    if (takt_published_write(own->published, COUNT, bytes, sizeof bytes, job, &in_time) != TAKT_STATUS_OK ||
        (own->written == 0 &&
         takt_published_write(own->published, NAME, (const uint8_t *)"north", 5, job, NULL) != TAKT_STATUS_OK) ||
        takt_published_write(own->published, 2, bytes, 1, job, NULL) != TAKT_STATUS_INVALID ||
        takt_published_write(own->published, COUNT, bytes, 9, job, NULL) != TAKT_STATUS_INVALID) {
        count(&own->troubles);
    }
    own->written++;
}

/* Left, when a frame ends: sends the values written in it, which are of use for 2 s. Without a connected
 * channel nothing is sent. */
static void on_flush(const takt_job *job, void *user) {
    side *own = (side *)user;
    size_t values = 0;
    takt_status is = takt_published_flush(own->published, 2000 * MS, job, &values);
    if ((is != TAKT_STATUS_OK && is != TAKT_STATUS_STOPPED) || values > 2) {
        count(&own->troubles);
    }
}

/* Right: values and alarms. */
static void on_events(const takt_event *events, size_t events_count, const takt_job *job, void *user) {
    side *own = (side *)user;
    if (takt_replica_apply(own->replica, events, events_count, job) != TAKT_STATUS_OK) {
        count(&own->troubles);
    }
    if (events[0].kind == ALARM && events[0].source == 9 && events[0].length == 4 &&
        memcmp(events[0].payload, "fire", 4) == 0) {
        count(&own->alarms);
    }
}

/* An operation more. */
static int add(takt_operations *operations, const char *name, uint64_t period_ns, uint64_t deadline_ns) {
    takt_operation operation;
    memset(&operation, 0, sizeof operation);
    operation.name = name;
    operation.arrival = period_ns == 1 ? TAKT_ARRIVAL_SPORADIC : TAKT_ARRIVAL_PERIODIC;
    operation.period_ns = period_ns;
    operation.deadline_ns = deadline_ns;
    operation.wcet_ns = 1;
    operation.backlog = period_ns == 1 ? 56 : 0;
    operation.noncritical = period_ns == 1;
    OK(takt_operations_add(operations, &operation));
    return 0;
}

/* Plan, channel, and who subscribes to what: news of peers, and what right is sent. */
static int prepare(side *own, bool left) {
    takt_pattern news[2] = {{TAKT_KIND_PEER_FOUND, UINT32_MAX, 0, 0}, {TAKT_KIND_PEER_LOST, UINT32_MAX, 0, 0}};
    takt_pattern sent[2] = {{VALUES, UINT32_MAX, 1, UINT32_MAX}, {ALARM, UINT32_MAX, 0, 0}};
    takt_operations *operations = NULL;

    OK(takt_operations_new(left ? "left" : "right", 1, false, &operations));
    if (add(operations, "peers", 1, 1000 * MS) != 0 || (!left && add(operations, "events", 1, 1000 * MS) != 0) ||
        (left && (add(operations, "mission", 20 * MS, 0) != 0 || add(operations, "flush", 20 * MS, 5 * MS) != 0))) {
        return 1;
    }
    OK(takt_plan_new(operations, "muf", &own->plan));
    takt_operations_free(operations);
    OK(takt_channel_new(0, 0, 0, &own->channel));
    OK(takt_channel_subscribe(own->channel, own->plan, "peers", TAKT_GROUP_ANY, news, 2, &own->peers));
    OK(takt_channel_supplier(own->channel, 9, &own->supplier));
    OK(takt_dispatcher_new(own->plan, &own->dispatcher));
    OK(takt_dispatcher_on_events(own->dispatcher, "peers", own->peers, on_peers, own));
    if (left) {
        OK(takt_published_new(own->channel, 1, VALUES, SIZES, 2, &own->published));
        SO(takt_published_events_max(own->published) == 1);
        OK(takt_dispatcher_on(own->dispatcher, "mission", on_mission, own));
        OK(takt_dispatcher_on(own->dispatcher, "flush", on_flush, own));
    } else {
        OK(takt_replica_new(1, VALUES, SIZES, 2, &own->replica));
        OK(takt_channel_subscribe(own->channel, own->plan, "events", TAKT_GROUP_ANY, sent, 2, &own->events));
        OK(takt_dispatcher_on_events(own->dispatcher, "events", own->events, on_events, own));
    }
    return 0;
}

/* The node: alarms go at once, values by another thread. A silence of 2 s is long, so a peer is lost only
 * when it ends. */
static int make_node(side *own, bool left, const char *here[2], const char *there[2]) {
    takt_node_options options;
    takt_level level;
    takt_pattern alarms = {ALARM, UINT32_MAX, 0, 0}, values = {VALUES, UINT32_MAX, 0, 0};
    memset(&options, 0, sizeof options);
    options.beat_ns = 20 * MS;
    options.lost_after_ns = 2000 * MS;
    OK(takt_node_new(left ? 1 : 2, &options, &own->node));
    memset(&level, 0, sizeof level);
    level.name = "alarms";
    level.at = here[0];
    level.peers = &there[0];
    level.peer_count = 1;
    level.sends = &alarms;
    level.send_count = 1;
    OK(takt_node_add(own->node, &level));
    level.name = "values";
    level.at = here[1];
    level.peers = &there[1];
    level.sends = &values;
    level.unprioritized = true;
    level.sending = TAKT_SENDING_QUEUED_OLDEST;
    level.room = 16;
    OK(takt_node_add(own->node, &level));
    return 0;
}

static int start(side *own) {
    takt_options options;
    memset(&options, 0, sizeof options);
    options.best_effort = true;
    IS(takt_channel_connect_as(own->channel, own->node, own->dispatcher), TAKT_STATUS_STOPPED);
    OK(takt_dispatcher_start(own->dispatcher, &options));
    OK(takt_channel_connect_as(own->channel, own->node, own->dispatcher));
    return 0;
}

/* A port that the kernel chooses, and a priority that takes a privilege: it is had, or that is told. */
static int urgent(side *right) {
    takt_node *node = NULL;
    takt_level level;
    takt_traffic traffic;
    takt_status is;
    memset(&level, 0, sizeof level);
    level.name = "urgent";
    level.at = "127.0.0.1:0";
    level.so_priority = 7;
    OK(takt_node_new(4, NULL, &node));
    OK(takt_node_add(node, &level));
    is = takt_channel_connect_as(right->channel, node, right->dispatcher);
    takt_node_free(node);
    if (is == TAKT_STATUS_PRIVILEGE) {
        SO(strstr(takt_last_error(), "CAP_NET_ADMIN") != NULL);
        return 0;
    }
    SO(is == TAKT_STATUS_OK);
    OK(takt_channel_traffic(right->channel, "urgent", &traffic));
    SO(traffic.port != 0 && traffic.peers == 0);
    OK(takt_channel_disconnect(right->channel));
    return 0;
}

/* Right cannot be a node at left's address, nor one with a level that its plan lacks; then its channel is
 * not connected. */
static int refuse(side *right, const char *taken) {
    takt_options options;
    takt_node *node = NULL;
    takt_level level;
    takt_traffic traffic;
    memset(&options, 0, sizeof options);
    options.best_effort = true;
    memset(&level, 0, sizeof level);
    level.name = "taken";
    level.at = taken;
    OK(takt_node_new(3, NULL, &node));
    OK(takt_node_add(node, &level));
    OK(takt_dispatcher_start(right->dispatcher, &options));
    IS(takt_channel_connect_as(right->channel, node, right->dispatcher), TAKT_STATUS_REFUSED);
    IS(takt_channel_traffic(right->channel, "taken", &traffic), TAKT_STATUS_STOPPED);
    level.name = "absent";
    level.level = 9;
    OK(takt_node_add(node, &level));
    IS(takt_channel_connect_as(right->channel, node, right->dispatcher), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    takt_node_free(node);
    if (urgent(right) != 0) {
        return 1;
    }
    OK(takt_channel_connect_as(right->channel, right->node, right->dispatcher));
    /* Once is enough. */
    IS(takt_channel_connect_as(right->channel, right->node, right->dispatcher), TAKT_STATUS_INVALID);
    return 0;
}

/* How many values left has sent, to whoever was there. */
static uint64_t flushed(const side *left) {
    takt_flushes flushes;
    return takt_published_counts(left->published, &flushes) == TAKT_STATUS_OK ? flushes.flushed : 0;
}

/* Both values, as they were after the same event. */
static bool is_known(const side *right, uint8_t number[8], char name[16]) {
    takt_known values[2];
    memset(values, 0, sizeof values);
    values[0].value = COUNT;
    values[0].bytes = number;
    values[0].size = 8;
    values[1].value = NAME;
    values[1].bytes = (uint8_t *)name;
    values[1].size = 15;
    return takt_replica_read(right->replica, values, 2) == TAKT_STATUS_OK && values[COUNT].version >= 3 &&
           values[COUNT].length == 8 && number[7] == ((values[COUNT].version - 1) & 0x7f) &&
           values[NAME].version == 1 && values[NAME].length == 5;
}

/* A value is cut to its place, and nothing is read where one has none. */
static int read_in_part(const side *right) {
    uint8_t bytes[4] = {9, 9, 9, 9};
    takt_known values[2];
    memset(values, 0, sizeof values);
    values[0].value = NAME;
    values[0].bytes = bytes;
    values[0].size = 2;
    values[1].value = COUNT;
    OK(takt_replica_read(right->replica, values, 2));
    SO(values[0].length == 5 && memcmp(bytes, "no\t\t", 4) == 0 && values[0].came_ns > 0);
    SO(values[1].length == 8 && values[1].version >= 3);
    bytes[0] = 9;
    values[1].size = 1;
    IS(takt_replica_read(right->replica, values, 2), TAKT_STATUS_INVALID);
    values[1].size = 0;
    values[1].value = 2;
    IS(takt_replica_read(right->replica, values, 2), TAKT_STATUS_INVALID);
    SO(bytes[0] == 9);
    return 0;
}

static bool is_there(const side *own, const char *level, uint64_t node) {
    takt_peer peer;
    return takt_channel_peer(own->channel, level, 0, &peer) == TAKT_STATUS_OK && peer.heard && peer.node == node &&
           peer.is_there;
}

/* What goes from left to right. */
static int talk(side *left, side *right) {
    takt_pushed pushed;
    takt_traffic traffic;
    takt_applied applied;
    takt_peer peer;
    uint8_t number[8] = {0};
    char name[16] = {0};

    UNTIL(is_there(left, "alarms", 2) && is_there(left, "values", 2) && is_there(right, "alarms", 1) &&
          is_there(right, "values", 1));
    /* News of each level. */
    UNTIL(seen(&left->found) >= 2 && seen(&right->found) >= 2);
    printf("they found each other\n");
    UNTIL(is_known(right, number, name));
    printf("of the values right knows the name, %s\n", name);
    if (read_in_part(right) != 0) {
        return 1;
    }

    OK(takt_supplier_push(left->supplier, ALARM, (const uint8_t *)"fire", 4, 0, 0, &pushed));
    SO(pushed.number == 0 && pushed.sent == 1 && pushed.unsent == 0 && pushed.taken == 0);
    UNTIL(seen(&right->alarms) == 1);
    OK(takt_channel_traffic(left->channel, "alarms", &traffic));
    SO(traffic.sent == 1 && traffic.full + traffic.refused + traffic.stale == 0 && traffic.peers == 1 &&
       traffic.port != 0);
    OK(takt_channel_traffic(right->channel, "alarms", &traffic));
    SO(traffic.events == 1 && traffic.late + traffic.unsynchronized + traffic.strangers + traffic.malformed == 0);
    printf("an alarm went from left to right\n");

    OK(takt_replica_counts(right->replica, &applied));
    SO(applied.applied >= 2 && applied.malformed == 0);
    IS(takt_channel_traffic(left->channel, "rest", &traffic), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    IS(takt_channel_peer(left->channel, "alarms", 1, &peer), TAKT_STATUS_INVALID);
    printf("%s\n", takt_last_error());
    return 0;
}

/* Left ends, and right is told. */
static int part(side *left, side *right) {
    takt_flushes flushes;
    takt_traffic traffic;

    OK(takt_channel_disconnect(left->channel));
    IS(takt_supplier_push(left->supplier, ALARM, NULL, 0, 0, 0, NULL), TAKT_STATUS_STOPPED);
    IS(takt_channel_traffic(left->channel, "alarms", &traffic), TAKT_STATUS_STOPPED);
    UNTIL(seen(&right->lost) >= 2);
    printf("left is lost\n");
    OK(takt_dispatcher_stop(left->dispatcher));
    OK(takt_channel_disconnect(right->channel));
    OK(takt_dispatcher_stop(right->dispatcher));
    OK(takt_published_counts(left->published, &flushes));
    SO(flushes.written == left->written + 1 && flushes.flushed >= 3 && flushes.repeated >= 1);
    SO(flushes.flushed + flushes.replaced <= flushes.written);
    SO(left->troubles + right->troubles == 0);
    return 0;
}

static void release(side *own) {
    takt_node_free(own->node);
    takt_supplier_free(own->supplier);
    takt_published_free(own->published);
    takt_replica_free(own->replica);
    takt_subscription_free(own->peers);
    takt_subscription_free(own->events);
    takt_channel_free(own->channel);
    takt_dispatcher_free(own->dispatcher);
    takt_plan_free(own->plan);
}

int main(void) {
    /* All of 127.0.0.0/8 is this host: no two programs that run have the same addresses. */
    unsigned pid = (unsigned)getpid();
    char at[4][64];
    const char *left_at[2], *right_at[2];
    side left, right;

    for (unsigned place = 0; place < 4; place++) {
        snprintf(at[place], sizeof at[place], "127.%u.%u.%u:%u", 1 + (pid >> 16 & 0x7f), pid >> 8 & 0xff, pid & 0xff,
                 27180 + place);
    }
    left_at[0] = at[0];
    left_at[1] = at[1];
    right_at[0] = at[2];
    right_at[1] = at[3];
    memset(&left, 0, sizeof left);
    memset(&right, 0, sizeof right);
    if (prepare(&left, true) != 0 || prepare(&right, false) != 0 || make_node(&left, true, left_at, right_at) != 0 ||
        make_node(&right, false, right_at, left_at) != 0 || start(&left) != 0) {
        return 1;
    }
    /* The name goes while nobody is there: right has it when left knows of right. */
    UNTIL(flushed(&left) >= 2);
    if (refuse(&right, left_at[0]) != 0 || talk(&left, &right) != 0 || part(&left, &right) != 0) {
        return 1;
    }
    release(&left);
    release(&right);
    printf("both nodes ended\n");
    return 0;
}
