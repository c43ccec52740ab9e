/* A node of a system with flows: the program carries out its jobs. Start one process for each node, with
 * the same key and the same start:
 *
 *   (umask 077; openssl rand -hex 32 > takt.key)
 *   START=$(date -d '+2 sec' +%s)
 *   flows sensor 127.0.0.1:7000 arm=127.0.0.1:7001 takt.key $START &
 *   flows arm    127.0.0.1:7001 sensor=127.0.0.1:7000 takt.key $START arm.takt
 *
 * The node "arm" ends after ten messages, and the node "sensor" by a signal or after ten seconds. */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "takt.h"

#define MS UINT64_C(1000000)

#define TRY(call)                                                  \
    do {                                                           \
        if ((call) != TAKT_STATUS_OK) {                            \
            fprintf(stderr, "%s: %s\n", #call, takt_last_error()); \
            return 1;                                              \
        }                                                          \
    } while (0)

/* All nodes have the same text. A message of 200 bytes has room for 80 of a handler. */
static const char SYSTEM[] =
    "takt = 1\n"
    "[[node]]\nname = \"sensor\"\n"
    "receive = { period = \"10ms\", wcet = \"1ms\" }\nsend = { period = \"10ms\", wcet = \"1ms\" }\n"
    "[[node]]\nname = \"arm\"\n"
    "receive = { period = \"10ms\", wcet = \"1ms\" }\nsend = { period = \"10ms\", wcet = \"1ms\" }\n"
    "[[flow]]\nname = \"steer\"\npath = [\"sensor\", \"arm\"]\n"
    "period = \"20ms\"\nsend-gap = \"10ms\"\nwcet = \"1ms\"\ndeadline = \"1s\"\nsize = \"200B\"\n"
    "[[network]]\ndelay = [\"0us\", \"5ms\"]\n";

/* What a node's handlers know. Only the thread of the flow's hop writes it. */
struct known {
    takt_flow_node *node;
    uint64_t jobs;
    uint64_t wrong;
};

/* The bytes that job `number` sends. Returns how many. */
static size_t sample(uint64_t number, uint8_t *bytes) {
    size_t length = (size_t)(number % 80);
    memset(bytes, (int)(number % 256), length);
    return length;
}

static void handle(takt_flow_job *job, void *user) {
    struct known *known = (struct known *)user;
    uint64_t number = takt_flow_job_number(job);
    uint64_t arrival = takt_flow_job_arrival_ns(job), release = takt_flow_job_release_ns(job);
    uint64_t deadline = takt_flow_job_deadline_ns(job), now = takt_flow_job_now_ns(job);
    uint32_t hop = takt_flow_job_hop(job);
    uint8_t bytes[81];
    size_t expected = sample(number, bytes), length = 1;
    const uint8_t *input = takt_flow_job_input(job, &length);

    ++known->jobs;
    /* Each hop has half of the deadline of a second. A job starts after its release. */
    if (arrival > release || release > now || deadline != arrival + (hop + 1) * 500 * MS) {
        ++known->wrong;
    }
    if (hop == 0) {
        if (length != 0 || arrival != number * 20 * MS || takt_flow_job_room(job) != 80 ||
            takt_flow_job_send(job, bytes, expected) != TAKT_STATUS_OK ||
            takt_flow_job_send(job, bytes, 81) != TAKT_STATUS_FULL ||
            takt_flow_job_send(job, NULL, 1) != TAKT_STATUS_INVALID) {
            ++known->wrong;
        }
        return;
    }
    if (input == NULL || length != expected || memcmp(input, bytes, length) != 0 || takt_flow_job_room(job) != 0 ||
        takt_flow_job_send(job, bytes, 1) != TAKT_STATUS_FULL) {
        ++known->wrong;
    }
    if (known->jobs == 10) {
        takt_flow_node_end(known->node);
    }
}

int main(int argc, char **argv) {
    takt_flow_options options;
    takt_flow_peer peer;
    takt_flow_counts counts;
    takt_flow_jobs jobs;
    struct known known = {NULL, 0, 0};
    struct timespec pause = {0, 10 * 1000 * 1000};
    char *at = argc > 3 ? strchr(argv[3], '=') : NULL;

    if (argc < 6 || at == NULL) {
        fprintf(stderr, "flows NODE LISTEN PEER=ADDRESS KEY START [LOG]\n");
        return 2;
    }
    *at = 0;
    peer.node = argv[3];
    peer.at = at + 1;
    memset(&options, 0, sizeof options);
    options.listen = argv[2];
    options.peers = &peer;
    options.peer_count = 1;
    options.key_file = argv[4];
    options.start_at_ns = strtoull(argv[5], NULL, 10) * 1000 * MS;
    options.duration_ns = 10 * 1000 * MS;
    /* Leave it out to run on real-time threads: that needs a privilege. */
    options.best_effort = true;

    TRY(takt_flow_node_new(SYSTEM, argv[1], &known.node));
    TRY(takt_flow_node_on(known.node, "steer", handle, &known));
    if (argc > 6) {
        TRY(takt_flow_node_log(known.node, argv[6]));
    }
    if (takt_flow_node_counts(known.node, &counts) != TAKT_STATUS_STOPPED || takt_flow_node_runs(known.node)) {
        return 1;
    }
    TRY(takt_flow_node_start(known.node, &options));
    if (takt_flow_node_start(known.node, &options) != TAKT_STATUS_INVALID) {
        return 1;
    }
    while (takt_flow_node_runs(known.node)) {
        TRY(takt_flow_node_counts(known.node, &counts));
        nanosleep(&pause, NULL);
    }
    TRY(takt_flow_node_wait(known.node));

    TRY(takt_flow_node_counts(known.node, &counts));
    TRY(takt_flow_node_jobs(known.node, "steer", &jobs));
    printf("%" PRIu64 " wrong, messages: %s sent, %s arrived, %" PRIu64 " refused\n", known.wrong,
           counts.sent > 0 ? "some" : "none", counts.arrived > 0 ? "some" : "none",
           counts.malformed + counts.foreign + counts.forged + counts.replayed);
    /* The run may have ended within a handler. */
    if (jobs.completed + 1 < known.jobs || jobs.completed > known.jobs || jobs.released < jobs.completed) {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " completed, %" PRIu64 " calls\n", jobs.completed, jobs.released,
                known.jobs);
        return 1;
    }
    if (takt_flow_node_notes(known.node, NULL, 0) == 0 || takt_flow_node_stop(known.node) != TAKT_STATUS_STOPPED) {
        return 1;
    }
    takt_flow_node_free(known.node);
    return 0;
}
