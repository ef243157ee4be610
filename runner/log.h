/* The log of a step: what it printed, up to a limit. */
#ifndef DAYFLY_LOG_H
#define DAYFLY_LOG_H

#include "base.h"

struct log {
    int fd;
    int64_t limit, kept;
    bool cut;  /* bytes were dropped: the limit is reached or the disk is full */
    char last; /* the last byte kept */
};

void log_write(struct log *log, const char *bytes, size_t length);
/* Says in a last line whether the log was cut, and closes it. */
void log_close(struct log *log);

#endif
