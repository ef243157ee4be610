/* The times of a log: a file beside it that maps byte offsets to times. */
#ifndef DAYFLY_TIMES_H
#define DAYFLY_TIMES_H

#include "log_file.h"

/* Output within this many ms gets one entry. */
enum { TIMES_STEP_MS = 10 };
/* At most TIMES_FREE entries, plus one for each TIMES_SHARE bytes of the log. */
enum { TIMES_ENTRY = 16, TIMES_FREE = 4096, TIMES_SHARE = 64 };

struct times {
    bool kept; /* times are recorded */
    int fd;    /* -1: none yet */
    struct log_file file;
    int64_t begin; /* bytes in the log before this step */
    int64_t noted; /* time of the last entry; times never decrease, even if the clock does */
    int64_t entries;
};

/* The times of LOG, NAME.log, go to NAME.times. If that is impossible, there are none; a step never fails because of
 * them. */
void times_find(struct times *times, int dir, const char *log, int64_t begin);

/* Records that the bytes after the first LENGTH of our part of the log are written at NOW (Unix time in ms). */
void times_note(struct times *times, int64_t length, int64_t now);

#endif
