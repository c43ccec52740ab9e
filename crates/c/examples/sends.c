/* A program that calls takt_deadline and then the plain send, sendto, sendmsg and write. The first argument is
 * the path of a broker. Without it the messages go straight to the kernel. */
#define _POSIX_C_SOURCE 200809L
#define TAKT_DEADLINE_SENDS

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define REFUSED(call, error)  \
    do {                      \
        errno = 0;            \
        SO((call) == -1);     \
        SO(errno == (error)); \
    } while (0)
#define ARRIVES(in, call)          \
    do {                           \
        SO((call) == 6);           \
        SO(arrives(in, "sample")); \
    } while (0)

static struct sockaddr_in loopback(void) {
    struct sockaddr_in here;

    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return here;
}

/* Whether a datagram with that text comes. */
static int arrives(int in, const char *text) {
    struct pollfd came = {in, POLLIN, 0};
    char bytes[16] = "";

    return poll(&came, 1, 20000) == 1 && recv(in, bytes, sizeof bytes - 1, 0) == (ssize_t)strlen(text) &&
           strcmp(bytes, text) == 0;
}

static ssize_t plain_write(int fd, const void *bytes, size_t length) {
#ifdef __cplusplus
    /* In C++ write stays the call of the system. */
    return send(fd, bytes, length, 0);
#else
    return write(fd, bytes, length);
#endif
}

/* A peer that takes nothing. */
static int stream(void) {
    static char much[65536];
    struct sockaddr_in here = loopback();
    socklen_t size = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t sent;

    SO(bind(listener, (struct sockaddr *)&here, size) == 0 && listen(listener, 1) == 0);
    SO(getsockname(listener, (struct sockaddr *)&here, &size) == 0);
    SO(connect(out, (struct sockaddr *)&here, size) == 0);
    OK(takt_deadline(out, 60000000000));
    do {
        sent = send(out, much, sizeof much, MSG_DONTWAIT);
    } while (sent > 0);
    SO(sent == -1 && errno == EAGAIN);
    /* Bytes may wait for the peer until the end. */
    (void)takt_deadline(out, 0);
    close(out);
    close(listener);
    return 0;
}

int main(int argc, char **argv) {
    static char much[65537];
    char sam[] = "sam", ple[] = "ple";
    struct iovec parts[] = {{sam, 3}, {ple, 3}}, too_long[] = {{sam, 3}, {much, sizeof much - 3}};
    struct sockaddr_in here = loopback();
    socklen_t size = sizeof here;
    struct msghdr message;
    takt_sent counts;
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    int other = socket(AF_INET, SOCK_DGRAM, 0);

    setenv("TAKT_BROKER", argc > 1 ? argv[1] : "/nonexistent/broker", 1);
    SO(bind(in, (struct sockaddr *)&here, size) == 0 && getsockname(in, (struct sockaddr *)&here, &size) == 0);
    SO(connect(out, (struct sockaddr *)&here, size) == 0 && connect(other, (struct sockaddr *)&here, size) == 0);
    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = 2;

    OK(takt_deadline(out, 60000000000));
    UNTIL(takt_deadline_counts(out, &counts) == TAKT_STATUS_OK && (argc < 2 || counts.through_broker));
    ARRIVES(in, send(out, "sample", 6, 0));
    ARRIVES(in, sendto(out, "sample", 6, MSG_NOSIGNAL, (struct sockaddr *)&here, size));
    ARRIVES(in, sendto(out, "sample", 6, 0, NULL, 0));
    ARRIVES(in, sendmsg(out, &message, 0));
    message.msg_name = &here;
    message.msg_namelen = size;
    ARRIVES(in, sendmsg(out, &message, MSG_DONTWAIT));
    ARRIVES(in, plain_write(out, "sample", 6));

    /* On this socket takt refuses MSG_OOB with EINVAL. The kernel does with EOPNOTSUPP. */
    REFUSED(send(out, "sample", 6, MSG_OOB), EINVAL);
    REFUSED(send(other, "sample", 6, MSG_OOB), EOPNOTSUPP);
    REFUSED(send(out, much, sizeof much, 0), EMSGSIZE);
    message.msg_control = much;
    message.msg_controllen = CMSG_LEN(sizeof(int));
    REFUSED(sendmsg(out, &message, 0), EOPNOTSUPP);
    message.msg_control = NULL;
    message.msg_controllen = 0;
    message.msg_iov = too_long;
    REFUSED(sendmsg(out, &message, 0), EMSGSIZE);
    message.msg_iov = parts;
    REFUSED(send(-1, "sample", 6, 0), EBADF);
    REFUSED(sendto(-1, "sample", 6, 0, (struct sockaddr *)&here, size), EBADF);
    REFUSED(sendmsg(-1, &message, 0), EBADF);
    REFUSED(plain_write(-1, "sample", 6), EBADF);

    ARRIVES(in, send(other, "sample", 6, 0));
    ARRIVES(in, sendto(other, "sample", 6, 0, (struct sockaddr *)&here, size));
    ARRIVES(in, sendmsg(other, &message, 0));
    ARRIVES(in, plain_write(other, "sample", 6));
    OK(takt_deadline_counts(out, &counts));
    printf("6 messages came: %llu through a broker, %llu straight\n", (unsigned long long)counts.queued,
           (unsigned long long)counts.plain);

    OK(takt_deadline(out, 0));
    REFUSED(send(out, "sample", 6, MSG_OOB), EOPNOTSUPP);
    ARRIVES(in, send(out, "sample", 6, 0));
    ARRIVES(in, plain_write(out, "sample", 6));
    if (stream() != 0) {
        return 1;
    }
    printf("each call answered as it should\n");
    close(in);
    close(out);
    close(other);
    return 0;
}
