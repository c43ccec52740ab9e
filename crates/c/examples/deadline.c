/* Messages with deadlines on UDP and TCP sockets: through the broker at the path of the first
 * argument. Without it there is no broker: the messages go straight to the kernel, and the program is
 * told so. */
#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "takt.h"

#define TRY(call)                                                   \
    do {                                                            \
        if ((call) != TAKT_STATUS_OK) {                             \
            fprintf(stderr, "%s: %s\n", #call, takt_last_error());  \
            return 1;                                               \
        }                                                           \
    } while (0)

static const struct timespec moment = {0, 20000000};

/* Waits until a socket has joined the broker, if there is one. */
static int joins(int fd, int has_broker) {
    takt_sent counts;
    int tries;

    for (tries = 0; has_broker && tries < 1000; tries++) {
        if (takt_deadline_counts(fd, &counts) != TAKT_STATUS_OK) {
            return 0;
        }
        if (counts.through_broker) {
            return 1;
        }
        nanosleep(&moment, NULL);
    }
    return !has_broker;
}

/* Fills a stream whose peer takes nothing. What the kernel has not taken waits in the broker. */
static int fill_stream(int has_broker) {
    static uint8_t much[65536];
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    struct pollfd room;
    int64_t sent;
    int listener = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0);

    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 || out < 0 || bind(listener, (struct sockaddr *)&here, sizeof here) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&here, &size) != 0 ||
        connect(out, (struct sockaddr *)&here, sizeof here) != 0) {
        perror("socket");
        return 1;
    }
    TRY(takt_deadline(out, 2000000));
    if (!joins(out, has_broker)) {
        return 1;
    }
    room.fd = takt_deadline_room_fd(out);
    room.events = POLLIN;
    if (room.fd < 0) {
        return 1;
    }
    /* After a second without room there will be none. */
    do {
        sent = takt_send(out, much, sizeof much, MSG_DONTWAIT);
    } while (sent > 0 || (sent == -EAGAIN && poll(&room, 1, 1000) != 0));
    if (sent != -EAGAIN) {
        return 1;
    }
    printf("a peer that takes nothing: %s\n",
           takt_deadline(out, 0) == TAKT_STATUS_FULL ? "bytes wait in the broker" : "no byte waits outside the kernel");
    close(out);
    close(listener);
    return 0;
}

int main(int argc, char **argv) {
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    char bytes[16] = "";
    takt_sent counts;
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);

    setenv("TAKT_BROKER", argc > 1 ? argv[1] : "/nonexistent/broker", 1);
    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (in < 0 || out < 0 || bind(in, (struct sockaddr *)&here, sizeof here) != 0 ||
        getsockname(in, (struct sockaddr *)&here, &size) != 0) {
        perror("socket");
        return 1;
    }
    if (takt_send(out, (const uint8_t *)"x", 1, 0) != -EINVAL) {
        return 1;
    }
    TRY(takt_deadline(out, 2000000));
    if (!joins(out, argc > 1)) {
        return 1;
    }
    if (takt_sendto(out, (const uint8_t *)"sample", 6, MSG_DONTWAIT, &here, size) != 6 ||
        recv(in, bytes, sizeof bytes - 1, 0) != 6) {
        return 1;
    }
    if (takt_sendto(out, (const uint8_t *)"sample", 6, MSG_OOB, &here, size) != -EINVAL) {
        return 1;
    }
    TRY(takt_deadline_counts(out, &counts));
    printf("\"%s\" arrived; through the broker: %s, plain: %llu\n", bytes, counts.through_broker ? "yes" : "no",
           (unsigned long long)counts.plain);
    TRY(takt_deadline(out, 0));
    if (fill_stream(argc > 1) != 0) {
        return 1;
    }
    printf("a pipe: %s\n", takt_deadline(STDOUT_FILENO, 1) == TAKT_STATUS_INVALID ? takt_last_error() : "?");
    close(in);
    close(out);
    return 0;
}
