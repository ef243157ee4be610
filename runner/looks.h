/* A directory of a step's own, and the memory file system on which it lies, as they look: by this we know whether a step
 * has left them as they were. */
#ifndef DAYFLY_LOOKS_H
#define DAYFLY_LOOKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sha256.h"

struct looks {
    mode_t mode;
    uid_t uid;
    gid_t gid;
    int flags;          /* as `chattr` sets them */
    ssize_t attributes; /* bytes of their names */
    uint64_t room, free_room, files, free_files, options; /* of the file system */
    char entries[SHA256_HEX + 1]; /* their names, each with the inode that has it */
};

/* -1 with errno if they cannot be told. */
int looks_note(struct looks *looks, const char *path);

bool looks_are(const struct looks *looks, const char *path);

#endif
