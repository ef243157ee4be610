/* The times of a log: a file beside it that maps byte offsets to times. */
#ifndef DAYFLY_LOG_TIMES_H
#define DAYFLY_LOG_TIMES_H

#include "log_file.h"

/* Output within this many ms gets one entry. */
enum { LOG_TIMES_STEP_MS = 10 };
/* At most LOG_TIMES_FREE_ENTRIES entries, plus one for each LOG_TIMES_BYTES_PER_ENTRY bytes of the log. */
enum { LOG_TIMES_ENTRY_BYTES = 16, LOG_TIMES_FREE_ENTRIES = 4096, LOG_TIMES_BYTES_PER_ENTRY = 64 };

struct log_times {
    bool recorded; /* times are recorded */
    int fd;        /* -1: none yet */
    struct log_file file;
    int64_t begin; /* bytes in the log before this step */
    int64_t last_ms; /* time of the last entry; times never decrease, even if the clock does */
    int64_t entries;
};

/* The times of LOG, NAME.log, go to NAME.times. If that is impossible, there are none; a step never fails because of
 * them. */
void log_times_open(struct log_times *times, int dir, const char *log, int64_t begin);

/* Records that the bytes after the first LENGTH of our part of the log are written at NOW (Unix time in ms). */
void log_times_record(struct log_times *times, int64_t length, int64_t now);

#endif
