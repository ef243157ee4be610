/* What the kernel says of the memory of the container we are in: whether it killed for want of it, and the limit. */
#ifndef DAYFLY_MEMORY_H
#define DAYFLY_MEMORY_H

#include "base.h"

/* How many of the container's processes the kernel has killed for want of memory; -1 where it does not say. */
int64_t memory_kills(void);

/* The container's own limit in bytes; 0 where it has none, or where that cannot be told. */
int64_t memory_limit(void);

/* The number behind NAME on a line of its own in TEXT ("oom_kill 3\n"); with an empty NAME the line is the number.
 * -1 where there is none that is a plain decimal of at most 19 digits. */
int64_t memory_number(const char *text, const char *name);

#endif
