/* Private directories: new entries belong only to the step, and the host's entries appear in it unchanged. */
#ifndef DAYFLY_PRIVATE_H
#define DAYFLY_PRIVATE_H

#include <sys/stat.h>
#include <sys/types.h>

#include "looks.h"
#include "order.h"
#include "shown.h"

enum { PRIVATE_LIMIT = 64, LAID_LIMIT = 4, LAID_PATH = 64 };

/* A private directory at the time it was mounted. Comparing shows whether it or the host's has changed since. */
struct laid {
    char path[LAID_PATH];
    struct shown host;
    dev_t device;
    struct looks looks;
};

/* The file systems mounted for private directories. Any file on one of them belongs only to the step. */
struct privates {
    dev_t devices[PRIVATE_LIMIT];
    size_t count;
    struct laid laid[LAID_LIMIT]; /* at most LAID_LIMIT */
    bool plain; /* all are recorded and show every entry of the host as itself; other entries are the step's */
};

struct privates privates_none(void);

/* Mounts a memory file system over the directory. It shows the host's entries unchanged, except the inputs and outputs of
 * the order (or NULL), and holds all new entries. */
int privates_lay(struct privates *privates, const struct order *order, const char *path, enum isolation isolation,
                 struct fault *fault);

bool privates_own(const struct privates *privates, const struct stat *status);

#endif
