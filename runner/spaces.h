/* Namespaces and private directories: what keeps two steps on one machine out of each other's way. */
#ifndef DAYFLY_SPACES_H
#define DAYFLY_SPACES_H

#include <sys/stat.h>

#include "order.h"

#define PRIVATE_LIMIT 64

/* The file systems made for private directories; whatever lies on one of them belongs to the step alone. */
struct spaces {
    dev_t devices[PRIVATE_LIMIT];
    size_t count;
    char attempt_dir[4096]; /* absolute path of ATTEMPT_DIR, valid before and after the move */
};

/* Moves this process into namespaces of its own: mounts now, process ids for its next children. */
int spaces_enter(enum isolation isolation, struct fault *fault);

/* Gives each private directory of the order a memory file system that shows the host's entries as they are,
 * except the order's own inputs and outputs, and keeps whatever is new. */
int spaces_make_private(struct spaces *spaces, const struct order *order, struct fault *fault);

bool spaces_owns(const struct spaces *spaces, const struct stat *status);

/* The strongest isolation this kernel grants to this caller, by trying it in a child. */
enum isolation spaces_probe(void);

#endif
