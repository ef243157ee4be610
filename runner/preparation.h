/* Prepares the namespaces of a step before its order arrives. This is the most expensive part for the kernel, and a
 * processor may be idle while another step runs. */
#ifndef DAYFLY_PREPARATION_H
#define DAYFLY_PREPARATION_H

#include "namespaces.h"
#include "order.h"
#include "private_mounts.h"

enum { PREPARATION_LIMIT = MOUNT_RECORD_LIMIT };

struct preparation {
    int proc; /* the caller's /proc, opened before another was mounted over it; -1 if nothing was prepared */
    bool own_proc; /* a /proc of the step's own namespace is mounted over it */
    struct private_mounts private_mounts;
    const char *folders[PREPARATION_LIMIT];
    size_t count;
};

/* A preparation with no part done yet. */
struct preparation preparation_none(void);

/* Sets up new namespaces: mounts a /proc and these private directories over the host's. A part that fails is retried
 * when the order arrives, so that the receipt can report the reason. PATHS must stay valid. */
void preparation_make(struct preparation *preparation, struct namespaces *namespaces, const char *const *paths,
                      size_t count);

/* Makes the order's private directories. Prepared ones are used only if they match the order. */
int preparation_apply(struct preparation *preparation, struct private_mounts *mounts, const struct order *order,
                      struct fault *fault);

/* Mounts a /proc of our own namespace over the caller's, if that is possible and not done yet. */
void preparation_mount_proc(struct preparation *preparation);

#endif
