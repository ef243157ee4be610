/* Namespaces isolate the steps on one machine from each other. */
#ifndef DAYFLY_SPACES_H
#define DAYFLY_SPACES_H

#include <sys/types.h>

#include "order.h"

/* A process: its namespaces, and its ids before it entered them. */
struct inside {
    enum isolation isolation; /* ISOLATION_NONE: the caller's namespaces */
    uid_t uid;
    gid_t gid;
    bool own_user; /* the caller's user namespace is for steps, so no new one is made */
    bool settled; /* ids and mounts are as a step needs them */
};

/* A process in its caller's namespaces. */
struct inside spaces_outside(void);

/* Enters a user namespace, which all later children share. If that fails, nothing has changed, and each child gets its
 * own. */
void spaces_enter_user(struct inside *inside);

/* Forks like `fork`, with FLAGS for `clone`. The child is the first process of the namespaces WANTED, and it must enter
 * them before it mounts anything. */
pid_t spaces_fork(const struct inside *inside, enum isolation wanted, unsigned long flags);

/* True if such a process may enter the mount namespace of another one. */
bool spaces_can_share(const struct inside *inside);

/* The same for a child that brings its own mounts (`rooms.h`): it shares its caller's mounts until it enters them. */
pid_t spaces_fork_for_mounts(unsigned long flags);

/* Sets up ids and mounts in our own namespaces for a step. Parts that are already done are skipped. */
int spaces_settle(struct inside *inside, struct fault *fault);

/* Returns as the first process of the namespaces WANTED. If we were not forked into them, a child returns instead and
 * dies with us. SIGTERM, SIGINT and SIGCHLD are blocked. */
int spaces_enter(struct inside *inside, enum isolation wanted, struct fault *fault);

/* The strongest isolation that this kernel grants this caller. It tries each in a child. */
enum isolation spaces_probe(void);

#endif
