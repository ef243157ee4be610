/* Host mode: one attempt of a step on this machine, from the order in ATTEMPT_DIR to the receipt in it. */
#ifndef DAYFLY_HOST_H
#define DAYFLY_HOST_H

#include "ahead.h"
#include "rooms.h"
#include "spaces.h"

/* The sockets of a caller that stays with a launcher; each is -1 where there is none. */
struct caller {
    int teller; /* told who we are once the receipt is there: our end takes the kernel a while longer */
    struct giver giver; /* who may take our mounts when we have no more use for them */
};

/* INSIDE tells where we stand: in the namespaces that the order asks for, or in our caller's; then a child runs the
 * attempt in them, and we pass on what we hear. AHEAD tells what is made there already.
 * Returns the exit code: 0 a receipt is there, 2 no such directory, 3 another launcher is at it, 4 no receipt could
 * be written. */
int host_main(const char *attempt_dir, const struct inside *inside, const struct ahead *ahead,
              const struct caller *caller);

#endif
