/* A socket with deadlines while brokers come and go. The first argument is the path of the broker. For
 * each line of standard input, "broker" or "none", the program waits until that is so. Then it sends a
 * message, and prints which way messages have gone. */
#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
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

int main(int argc, char **argv) {
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    char line[16];
    takt_sent counts;
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);

    if (argc != 2) {
        fprintf(stderr, "give the path of the broker\n");
        return 1;
    }
    setenv("TAKT_BROKER", argv[1], 1);
    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (in < 0 || out < 0 || bind(in, (struct sockaddr *)&here, sizeof here) != 0 ||
        getsockname(in, (struct sockaddr *)&here, &size) != 0 || connect(out, (struct sockaddr *)&here, size) != 0) {
        perror("socket");
        return 1;
    }
    /* A minute: no message is late. */
    TRY(takt_deadline(out, 60000000000));
    while (fgets(line, sizeof line, stdin) != NULL) {
        bool wants_broker = strcmp(line, "broker\n") == 0;
        struct pollfd came = {in, POLLIN, 0};
        char bytes[16] = "";
        int tries;

        for (tries = 0; tries < 1000; tries++) {
            TRY(takt_deadline_counts(out, &counts));
            if (counts.through_broker == wants_broker) {
                break;
            }
            nanosleep(&moment, NULL);
        }
        if (takt_send(out, (const uint8_t *)"sample", 6, 0) != 6 || poll(&came, 1, 20000) != 1 ||
            recv(in, bytes, sizeof bytes - 1, 0) != 6) {
            return 1;
        }
        TRY(takt_deadline_counts(out, &counts));
        printf("\"%s\" arrived; through a broker: %llu, plain: %llu\n", bytes, (unsigned long long)counts.queued,
               (unsigned long long)counts.plain);
        fflush(stdout);
    }
    TRY(takt_deadline(out, 0));
    close(in);
    close(out);
    return 0;
}
