/* A directory of the host's as it was when somebody looked, to be told from what it has become. */
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

/* Notes it. -1 with errno: EAGAIN where it was changed in this very tick of the clock, or of its file system's, so that one
 * more change in it could not be told. */
int shown_note(struct shown *shown, const struct stat *status);

/* True if the directory at PATH is the one that was noted, and nothing was made, removed or renamed in it since. */
bool shown_is_unchanged(const struct shown *shown, const char *path);

#endif
