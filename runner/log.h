/* The log of a step: what it printed, up to a limit. */
#ifndef DAYFLY_LOG_H
#define DAYFLY_LOG_H

#include "base.h"
#include "mask.h"
#include "times.h"

/* Begins each line that is the runner's own where the log shares a stream with it (pod mode). */
#define LOG_MARK '\x1e'

struct log {
    int fd;                   /* -1: none yet */
    int (*open)(void *state); /* makes it when the first byte comes; -1 where that fails */
    void *state;
    int64_t limit, kept;
    bool marked; /* a line of the step that begins with the mark gets one more mark in front */
    struct mask *mask; /* NULL: all goes in as it is printed */
    struct times *times; /* NULL: nobody notes when it was written */
    int64_t now;         /* of what is being written */
    bool cut;    /* bytes were dropped: the limit is reached or the disk is full */
    char last;   /* the last byte kept */
};

void log_write(struct log *log, const char *bytes, size_t length);
/* Adds a last line if processes of the step were ended after its program (LEFT names them), or if the log was cut. */
void log_finish(struct log *log, const char *left);
/* True when what comes next begins a line. */
bool log_at_line_start(const struct log *log);

#endif
