/* The log of a step: its output, up to a limit. */
#ifndef DAYFLY_LOG_H
#define DAYFLY_LOG_H

#include "base.h"
#include "log_times.h"
#include "mask.h"

/* Marks the runner's own lines if log and runner share a stream (pod mode). */
#define LOG_MARK '\x1e'

struct log {
    int fd;                   /* -1: none yet */
    int (*open)(void *state); /* called at the first byte; -1 on failure */
    void *state;
    int64_t limit, kept;
    bool marked; /* a second mark is added to a line of the step that begins with one */
    struct mask *mask; /* NULL: no masking */
    struct log_times *times; /* NULL: no times are recorded */
    int64_t now;         /* time of the current write */
    bool cut;    /* bytes were dropped: the limit is reached or the disk is full */
    char last;   /* the last byte kept */
};

void log_write(struct log *log, const char *bytes, size_t length);
/* Adds a last line if processes of the step were ended after its program (LEFTOVERS names them), or if the log was cut. */
void log_finish(struct log *log, const char *leftovers);
/* True if the next byte begins a line. */
bool log_at_line_start(const struct log *log);

#endif
