/* Leaving a caller's session, terminal and descriptors behind. */
#ifndef DAYFLY_DETACH_H
#define DAYFLY_DETACH_H

#include <stddef.h>

/* Becomes the leader of a session of its own. What is KEPT (COUNT descriptors, each -1 if there is none) is renumbered
 * from 3 on; nothing else stays open, and nothing is heard or said. A caller that made us a group leader (a shell) gets a
 * parent that waits and passes the exit code on. */
int detach(int *const *kept, size_t count);

#endif
