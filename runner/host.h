/* Host mode: one attempt of a step on this machine. It reads the order in ATTEMPT_DIR and writes the receipt there. */
#ifndef DAYFLY_HOST_H
#define DAYFLY_HOST_H

#include "mount_cache.h"
#include "namespaces.h"
#include "preparation.h"

/* The sockets of a resident parent; each may be -1. */
struct caller {
    int notify_socket; /* gets our process id once the receipt is in place, because our exit takes the kernel longer */
    struct mount_sender mount_sender; /* where our mounts go after the step */
};

/* NAMESPACES describes our namespaces: either those of the order or the caller's. In the caller's, a child runs the
 * attempt and we forward signals and its exit. PREPARATION describes the parts that are already done. Returns the exit code:
 * 0 a receipt is in place, 2 no such directory, 3 another launcher has the attempt, 4 no receipt could be written. */
int host_main(const char *attempt_dir, const struct namespaces *namespaces, const struct preparation *preparation,
              const struct caller *caller);

#endif
