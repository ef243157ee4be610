/* Namespaces and private directories: what keeps two steps on one machine out of each other's way. */
#ifndef DAYFLY_SPACES_H
#define DAYFLY_SPACES_H

#include <sys/stat.h>
#include <sys/types.h>

#include "order.h"

#define PRIVATE_LIMIT 64

/* The file systems made for private directories; whatever lies on one of them belongs to the step alone. */
struct spaces {
    dev_t devices[PRIVATE_LIMIT];
    size_t count;
    char attempt_dir[4096]; /* absolute path of ATTEMPT_DIR, valid before and after the move */
};

/* Where a process stands: in which namespaces, and who it was before it was put into them. */
struct inside {
    enum isolation isolation; /* ISOLATION_NONE: in its caller's */
    uid_t uid;
    gid_t gid;
    bool settled; /* ids and mounts are as a step needs them */
};

/* A process in the namespaces of its caller. */
struct inside spaces_outside(void);

/* Forks, as `fork` does but with FLAGS of `clone`: the child is the first process of namespaces of its own, and enters
 * them before it mounts anything. */
pid_t spaces_fork(enum isolation isolation, unsigned long flags);

/* Makes ids and mounts in our own namespaces what a step needs; what is done is not done again. */
int spaces_settle(struct inside *inside, struct fault *fault);

/* Returns as the first process of the namespaces WANTED. Whoever has forked us into them has spared us a process; else
 * a child returns, and dies with us. SIGTERM, SIGINT and SIGCHLD are blocked. */
int spaces_enter(struct inside *inside, enum isolation wanted, struct fault *fault);

/* Gives the directory a memory file system that shows the host's entries as they are, except the inputs and outputs of
 * an order (or NULL), and keeps whatever is new. */
int spaces_make_private(struct spaces *spaces, const struct order *order, const char *path, enum isolation isolation,
                        struct fault *fault);

bool spaces_owns(const struct spaces *spaces, const struct stat *status);

/* The strongest isolation this kernel grants to this caller, by trying it in a child. */
enum isolation spaces_probe(void);

#endif
