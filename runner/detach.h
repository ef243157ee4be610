/* Detaches from the caller's session, terminal and descriptors. */
#ifndef DAYFLY_DETACH_H
#define DAYFLY_DETACH_H

#include <stddef.h>

/* Becomes the leader of a new session. The descriptors in KEPT (COUNT, each may be -1) are renumbered from 3 upwards;
 * all others are closed, and the standard streams are /dev/null. If the caller made us a group leader (a shell does), a
 * parent process waits and returns the exit code. */
int detach(int *const *kept, size_t count);

#endif
