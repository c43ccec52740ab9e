/* Messages with deadlines on UDP sockets. There is no broker where TAKT_BROKER points to: the
 * messages go straight to the kernel, and the program is told so. */
#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "takt.h"

#define TRY(call)                                                   \
    do {                                                            \
        if ((call) != TAKT_STATUS_OK) {                             \
            fprintf(stderr, "%s: %s\n", #call, takt_last_error());  \
            return 1;                                               \
        }                                                           \
    } while (0)

int main(void) {
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    char bytes[16] = "";
    takt_sent counts;
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);

    setenv("TAKT_BROKER", "/nonexistent/broker", 1);
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
    printf("a pipe: %s\n", takt_deadline(STDOUT_FILENO, 1) == TAKT_STATUS_INVALID ? takt_last_error() : "?");
    close(in);
    close(out);
    return 0;
}
