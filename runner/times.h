/* When a log was written: a file beside it that says from which byte on which time holds. */
#ifndef DAYFLY_TIMES_H
#define DAYFLY_TIMES_H

#include "log_file.h"

/* What is printed within so many ms counts as printed at once. */
enum { TIMES_STEP_MS = 10 };
/* There are so many entries at most, and one for each so many bytes of the log. */
enum { TIMES_ENTRY = 16, TIMES_FREE = 4096, TIMES_SHARE = 64 };

struct times {
    bool kept; /* there is a place for them */
    int fd;    /* -1: none yet */
    struct log_file file;
    int64_t begin; /* bytes of the log that are not ours */
    int64_t noted; /* the time of the last entry; no later one is before it, whatever the clock says */
    int64_t entries;
};

/* Beside a LOG named NAME.log it is NAME.times. Where that cannot be there are none: no step fails for it. */
void times_find(struct times *times, int dir, const char *log, int64_t begin);

/* What comes behind LENGTH bytes of our part of the log is written at NOW (Unix time in ms). */
void times_note(struct times *times, int64_t length, int64_t now);

#endif
