/* Private directories: new entries belong only to the step, and the host's entries appear in it unchanged. */
#ifndef DAYFLY_PRIVATE_MOUNTS_H
#define DAYFLY_PRIVATE_MOUNTS_H

#include <sys/stat.h>
#include <sys/types.h>

#include "directory_stamp.h"
#include "directory_state.h"
#include "order.h"

enum { PRIVATE_MOUNT_LIMIT = 64, MOUNT_RECORD_LIMIT = 4, MOUNT_RECORD_PATH_SIZE = 64 };

/* A private directory at the time it was mounted. Comparing shows whether it or the host's has changed since. */
struct mount_record {
    char path[MOUNT_RECORD_PATH_SIZE];
    struct directory_stamp host;
    dev_t device;
    struct directory_state state;
};

/* The file systems mounted for private directories. Any file on one of them belongs only to the step. */
struct private_mounts {
    dev_t devices[PRIVATE_MOUNT_LIMIT];
    size_t count;
    struct mount_record records[MOUNT_RECORD_LIMIT]; /* of the first mounts */
    bool reusable; /* all are recorded and show every entry of the host as itself; other entries are the step's */
};

struct private_mounts private_mounts_none(void);

/* Mounts a memory file system over the directory. It shows the host's entries unchanged, except the inputs and outputs of
 * the order (or NULL), and holds all new entries. */
int private_mounts_add(struct private_mounts *mounts, const struct order *order, const char *path,
                       enum isolation isolation, struct fault *fault);

bool private_mounts_contain(const struct private_mounts *mounts, const struct stat *status);

#endif
