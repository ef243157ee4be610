/* Namespaces: what keeps two steps on one machine out of each other's way. */
#ifndef DAYFLY_SPACES_H
#define DAYFLY_SPACES_H

#include <sys/types.h>

#include "order.h"

/* Where a process stands: in which namespaces, and who it was before it was put into them. */
struct inside {
    enum isolation isolation; /* ISOLATION_NONE: in its caller's */
    uid_t uid;
    gid_t gid;
};

/* A process in the namespaces of its caller. */
struct inside spaces_outside(void);

/* Forks, as `fork` does but with FLAGS of `clone`: the child is the first process of the namespaces WANTED, and enters
 * them before it mounts anything. */
pid_t spaces_fork(enum isolation wanted, unsigned long flags);

/* Returns as the first process of the namespaces WANTED. Whoever has forked us into them has spared us a process; else
 * a child returns, and dies with us. SIGTERM, SIGINT and SIGCHLD are blocked. */
int spaces_enter(struct inside *inside, enum isolation wanted, struct fault *fault);

/* The strongest isolation this kernel grants to this caller, by trying it in a child. */
enum isolation spaces_probe(void);

#endif
