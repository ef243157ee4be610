/* Private directories: what is made in one belongs to the step alone, and the host's entries are shown in it as they are. */
#ifndef DAYFLY_PRIVATE_H
#define DAYFLY_PRIVATE_H

#include <sys/stat.h>
#include <sys/types.h>

#include "order.h"

enum { PRIVATE_LIMIT = 64 };

/* The file systems made for private directories; whatever lies on one of them belongs to the step alone. */
struct privates {
    dev_t devices[PRIVATE_LIMIT];
    size_t count;
};

/* Gives the directory a memory file system that shows the host's entries as they are, except the inputs and outputs of
 * the order, and keeps whatever is new. */
int privates_lay(struct privates *privates, const struct order *order, const char *path, enum isolation isolation,
                 struct fault *fault);

bool privates_own(const struct privates *privates, const struct stat *status);

#endif
