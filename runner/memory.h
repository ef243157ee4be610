/* The memory state of our container: its out-of-memory kills and its limit. */
#ifndef DAYFLY_MEMORY_H
#define DAYFLY_MEMORY_H

#include "base.h"

/* How many of the container's processes the kernel has killed because it was out of memory; -1 if unknown. */
int64_t memory_kills(void);

/* The container's own limit in bytes; 0 if there is none or it is unknown. */
int64_t memory_limit(void);

/* The number after NAME in TEXT ("oom_kill 3
"). If NAME is empty, the line is the number.
 * -1 unless it is a plain decimal number of at most 19 digits. */
int64_t memory_number(const char *text, const char *name);

#endif
