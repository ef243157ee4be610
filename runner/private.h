/* Private directories: what is made in one belongs to the step alone, and the host's entries are shown in it as they are. */
#ifndef DAYFLY_PRIVATE_H
#define DAYFLY_PRIVATE_H

#include <sys/stat.h>
#include <sys/types.h>

#include "looks.h"
#include "order.h"
#include "shown.h"

enum { PRIVATE_LIMIT = 64, LAID_LIMIT = 4, LAID_PATH = 64 };

/* A private directory as it was laid over the host's: by this we know whether either has been changed since. */
struct laid {
    char path[LAID_PATH];
    struct shown host;
    dev_t device;
    struct looks looks;
};

/* The file systems made for private directories; whatever lies on one of them belongs to the step alone. */
struct privates {
    dev_t devices[PRIVATE_LIMIT];
    size_t count;
    struct laid laid[LAID_LIMIT]; /* of the first ones */
    bool plain; /* of all of them, and each shows every entry of the host's as itself: what else is there is the step's */
};

struct privates privates_none(void);

/* Gives the directory a memory file system that shows the host's entries as they are, except the inputs and outputs of
 * an order (or NULL), and keeps whatever is new. */
int privates_lay(struct privates *privates, const struct order *order, const char *path, enum isolation isolation,
                 struct fault *fault);

bool privates_own(const struct privates *privates, const struct stat *status);

#endif
