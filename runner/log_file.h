/* The log of a step on this machine: a file that is created at the first byte. */
#ifndef DAYFLY_LOG_FILE_H
#define DAYFLY_LOG_FILE_H

#include "base.h"

/* The path for a missing log. */
struct log_file {
    int folder; /* the folder two levels above the log */
    char *tail; /* the rest of its path: folder and name */
};

/* Opens the log at PATH or, if PATH is NULL, in the attempt's directory. If it does not exist, *FD is -1 and FILE
 * describes where to create it. Returns -1 with a fault. */
int log_file_open(struct log_file *file, int dir, const char *path, int *fd, struct fault *fault);

/* Creates the log of a `struct log_file`. It starts from a folder that was opened earlier, so private directories mounted
 * since then have no effect. Returns -1 on failure. */
int log_file_create(void *file);

#endif
