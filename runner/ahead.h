/* What of a step's space is made before there is its order: it costs the kernel the most, and a processor may be free
 * while another step runs. */
#ifndef DAYFLY_AHEAD_H
#define DAYFLY_AHEAD_H

#include "order.h"
#include "private.h"
#include "spaces.h"

enum { AHEAD_LIMIT = LAID_LIMIT };

struct ahead {
    int proc; /* the caller's /proc, opened before another was laid over it; -1 where nothing was made */
    bool own_proc; /* there is another */
    struct privates privates;
    const char *folders[AHEAD_LIMIT];
    size_t count;
};

/* Nothing is made. */
struct ahead ahead_nothing(void);

/* In fresh namespaces: settles them, and lays a /proc and these private directories over the host's. What cannot be made
 * is left to when there is an order, which hears why. PATHS must stay. */
void ahead_make(struct ahead *ahead, struct inside *inside, const char *const *paths, size_t count);

/* Gives the order its private directories, those that were made ahead only if they are as the order wants them. */
int ahead_furnish(struct ahead *ahead, struct privates *privates, const struct order *order, struct fault *fault);

/* Lays a /proc of our own namespace over the caller's, where that can be and none is there. */
void ahead_mount_proc(struct ahead *ahead);

#endif
