/* The recorded state of a host's directory, to detect later changes. */
#ifndef DAYFLY_SHOWN_H
#define DAYFLY_SHOWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct shown {
    dev_t device;
    ino_t inode;
    int64_t modified, changed; /* nanoseconds of Unix time */
};

/* Records the state. -1 with errno: EAGAIN if it was changed within the current tick of the clock, or of its file system,
 * because another change in the same tick could not be detected. */
int shown_note(struct shown *shown, const struct stat *status);

/* True if the directory at PATH is the recorded one, and no entry was created, removed or renamed since. */
bool shown_is_unchanged(const struct shown *shown, const char *path);

#endif
