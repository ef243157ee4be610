/* Host mode: one attempt of a step on this machine, from the order in ATTEMPT_DIR to the receipt in it. */
#ifndef DAYFLY_HOST_H
#define DAYFLY_HOST_H

#include "ahead.h"
#include "spaces.h"

/* INSIDE tells where we stand: in the namespaces that the order asks for, or in our caller's; then a child runs the
 * attempt in them, and we pass on what we hear. AHEAD tells what is made there already. Once the receipt is there, TELLER (a socket, or -1) is told who we are:
 * our end takes the kernel a while longer, and nobody need wait for it.
 * Returns the exit code: 0 a receipt is there, 2 no such directory, 3 another launcher is at it, 4 no receipt could
 * be written. */
int host_main(const char *attempt_dir, const struct inside *inside, const struct ahead *ahead, int teller);

#endif
