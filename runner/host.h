/* Host mode: one attempt of a step on this machine, from the order in ATTEMPT_DIR to the receipt in it. */
#ifndef DAYFLY_HOST_H
#define DAYFLY_HOST_H

#include "spaces.h"

/* INSIDE tells where we stand: in the namespaces that the order asks for, or in our caller's; then a child runs the
 * attempt in them, and we pass on what we hear. TELLER is a socket to which we send our process id once the receipt is
 * there, since our end takes the kernel a while longer; -1 if there is none.
 * Returns the exit code: 0 a receipt is there, 2 no such directory, 3 another launcher is at it, 4 no receipt could
 * be written. */
int host_main(const char *attempt_dir, const struct inside *inside, int teller);

#endif
