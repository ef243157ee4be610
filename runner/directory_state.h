/* The observable state of a private directory and its memory file system. Comparing two of them shows whether a step has
 * left the directory unchanged. */
#ifndef DAYFLY_DIRECTORY_STATE_H
#define DAYFLY_DIRECTORY_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sha256.h"

struct directory_state {
    mode_t mode;
    uid_t uid;
    gid_t gid;
    int flags;          /* as `chattr` sets them */
    ssize_t attributes; /* bytes of their names */
    uint64_t blocks, free_blocks, files, free_files, options; /* of the file system */
    char entries[SHA256_HEX + 1]; /* digest of their names and inodes */
};

/* -1 with errno if the state cannot be read. */
int directory_state_read(struct directory_state *state, const char *path);

bool directory_state_matches(const struct directory_state *state, const char *path);

#endif
