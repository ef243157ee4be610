/* Serve mode: a resident parent that starts a launcher for each requested attempt. */
#ifndef DAYFLY_SERVE_H
#define DAYFLY_SERVE_H

#include <stdbool.h>

/* Serves the sequenced-packet socket on standard input until its other end is closed. Returns the exit code: 0, or 64 if
 * there is no such socket. With USER, all launchers share one user namespace, and other isolations are refused. */
int serve_main(bool user);

#endif
