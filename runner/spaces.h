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
    bool own_user; /* its caller's user namespace is made for steps: it takes no other one */
    bool settled; /* ids and mounts are as a step needs them */
};

/* A process in the namespaces of its caller. */
struct inside spaces_outside(void);

/* Enters a user namespace for good, of which all that is forked from here on has a part. Nothing has changed where that
 * cannot be; then each one has its own. */
void spaces_enter_user(struct inside *inside);

/* Forks, as `fork` does but with FLAGS of `clone`: the child is the first process of the namespaces WANTED, and enters
 * them before it mounts anything. */
pid_t spaces_fork(const struct inside *inside, enum isolation wanted, unsigned long flags);

/* True if one that stands there may enter the mounts of another one. */
bool spaces_can_share(const struct inside *inside);

/* The same for who brings mounts of its own (`rooms.h`): it shares its caller's until it enters them. */
pid_t spaces_fork_for_mounts(unsigned long flags);

/* Makes ids and mounts in our own namespaces what a step needs; what is done is not done again. */
int spaces_settle(struct inside *inside, struct fault *fault);

/* Returns as the first process of the namespaces WANTED. Whoever has forked us into them has spared us a process; else
 * a child returns, and dies with us. SIGTERM, SIGINT and SIGCHLD are blocked. */
int spaces_enter(struct inside *inside, enum isolation wanted, struct fault *fault);

/* The strongest isolation this kernel grants to this caller, by trying it in a child. */
enum isolation spaces_probe(void);

#endif
