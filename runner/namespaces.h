/* Namespaces isolate the steps on one machine from each other. */
#ifndef DAYFLY_NAMESPACES_H
#define DAYFLY_NAMESPACES_H

#include <sys/types.h>

#include "order.h"

/* A process: its namespaces, and its ids before it entered them. */
struct namespaces {
    enum isolation isolation; /* ISOLATION_NONE: the caller's namespaces */
    uid_t uid;
    gid_t gid;
    bool own_user; /* the caller's user namespace is for steps, so no new one is made */
    bool is_set_up; /* ids and mounts are as a step needs them */
};

/* A process in its caller's namespaces. */
struct namespaces namespaces_of_caller(void);

/* Enters a user namespace, which all later children share. If that fails, nothing has changed, and each child gets its
 * own. */
void namespaces_enter_user(struct namespaces *namespaces);

/* Forks like `fork`, with FLAGS for `clone`. The child is the first process of the namespaces WANTED, and it must enter
 * them before it mounts anything. */
pid_t namespaces_fork(const struct namespaces *namespaces, enum isolation wanted, unsigned long flags);

/* True if a process in these namespaces may enter the mount namespace of another one. */
bool namespaces_can_share_mounts(const struct namespaces *namespaces);

/* The same for a child that will enter cached mounts (`mount_cache.h`). Until then it shares its caller's mounts. */
pid_t namespaces_fork_without_mounts(unsigned long flags);

/* Sets up ids and mounts in our own namespaces for a step. Parts that are already done are skipped. */
int namespaces_set_up(struct namespaces *namespaces, struct fault *fault);

/* Returns as the first process of the namespaces WANTED. If we were not forked into them, a child returns instead and
 * dies with us. SIGTERM, SIGINT and SIGCHLD are blocked. */
int namespaces_enter(struct namespaces *namespaces, enum isolation wanted, struct fault *fault);

/* The strongest isolation that this kernel grants this caller. It tries each in a child. */
enum isolation namespaces_probe(void);

#endif
