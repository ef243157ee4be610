/* Prepares the namespaces of a step before its order arrives. This is the most expensive part for the kernel, and a
 * processor may be idle while another step runs. */
#ifndef DAYFLY_AHEAD_H
#define DAYFLY_AHEAD_H

#include "order.h"
#include "private.h"
#include "spaces.h"

enum { AHEAD_LIMIT = LAID_LIMIT };

struct ahead {
    int proc; /* the caller's /proc, opened before another was laid over it; -1 if nothing was prepared */
    bool own_proc; /* a /proc of the step's own namespace is mounted over it */
    struct privates privates;
    const char *folders[AHEAD_LIMIT];
    size_t count;
};

/* Sets "nothing prepared". */
struct ahead ahead_nothing(void);

/* Sets up fresh namespaces: mounts a /proc and these private directories over the host's. A part that fails is retried
 * when the order arrives, so that the receipt can report the reason. PATHS must stay valid. */
void ahead_make(struct ahead *ahead, struct inside *inside, const char *const *paths, size_t count);

/* Makes the order's private directories. Prepared ones are used only if they match the order. */
int ahead_furnish(struct ahead *ahead, struct privates *privates, const struct order *order, struct fault *fault);

/* Mounts a /proc of our own namespace over the caller's, if that is possible and not done yet. */
void ahead_mount_proc(struct ahead *ahead);

#endif
