/* The log of a step on this machine: a file, which is made when there is something to say. */
#ifndef DAYFLY_LOG_FILE_H
#define DAYFLY_LOG_FILE_H

#include "base.h"

/* Where a log can be made that is not there. */
struct log_file {
    int folder; /* the folder two above it */
    char *tail; /* the last two names of its path, which lead from there to it */
};

/* Opens the file at PATH, or without a PATH that in the attempt's directory. *FD is -1 where there is none yet, and
 * FILE then tells whence it can be made. Returns -1 with a fault. */
int log_file_find(struct log_file *file, int dir, const char *path, int *fd, struct fault *fault);

/* Makes the file, of a `struct log_file`. What is private to the step by then is not looked into: the way there begins
 * at a folder that was opened before. -1 where that fails. */
int log_file_make(void *file);

#endif
