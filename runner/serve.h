/* Serve mode: a resident parent that puts a launcher before each attempt it is told of. */
#ifndef DAYFLY_SERVE_H
#define DAYFLY_SERVE_H

#include <stdbool.h>

/* Serves the sequenced-packet socket on standard input until its other end is closed. Returns the exit code: 0, or 64
 * when there is no such socket. With USER it has a user namespace for all its launchers, and forks no others. */
int serve_main(bool user);

#endif
