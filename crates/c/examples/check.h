/* What the examples that check themselves have in common: a call or a condition that fails ends its function with 1. */
#ifndef TAKT_EXAMPLES_CHECK_H
#define TAKT_EXAMPLES_CHECK_H

#include <stdio.h>
#include <time.h>

#include "takt.h"

static inline void doze(void) {
    struct timespec ms = {0, 1000000};
    nanosleep(&ms, NULL);
}

static inline int wrong(const char *what, takt_status is) {
    printf("%s: %s; %s\n", what, takt_status_text((uint32_t)is), takt_last_error());
    return 1;
}

#define IS(call, status)             \
    do {                             \
        takt_status is = (call);     \
        if (is != (status)) {        \
            return wrong(#call, is); \
        }                            \
    } while (0)
#define OK(call) IS(call, TAKT_STATUS_OK)
#define SO(so)                                 \
    do {                                       \
        if (!(so)) {                           \
            printf("it is not so: %s\n", #so); \
            return 1;                          \
        }                                      \
    } while (0)

/* Waits until something is so, for 20 s at most. */
#define UNTIL(so)                               \
    for (int looks = 0; !(so); looks++) {       \
        if (looks > 20000) {                    \
            printf("it never came: %s\n", #so); \
            return 1;                           \
        }                                       \
        doze();                                 \
    }

#endif
