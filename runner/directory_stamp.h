/* The recorded state of a host's directory, to detect later changes. */
#ifndef DAYFLY_DIRECTORY_STAMP_H
#define DAYFLY_DIRECTORY_STAMP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct directory_stamp {
    dev_t device;
    ino_t inode;
    int64_t modified, changed; /* nanoseconds of Unix time */
};

/* Records the state. -1 with errno: EAGAIN if it was changed within the current tick of the clock, or of its file system,
 * because another change in the same tick could not be detected. */
int directory_stamp_record(struct directory_stamp *recorded, const struct stat *status);

/* True if the directory at PATH is the recorded one, and no entry was created, removed or renamed since. */
bool directory_stamp_is_current(const struct directory_stamp *recorded, const char *path);

#endif
