/* The start marker of host mode: a file that can be linked into place only once. The first process to link it decides
 * whether the step ever runs: the launcher links `started`, a server that cancels the attempt links `void`. */
#ifndef DAYFLY_START_MARKER_H
#define DAYFLY_START_MARKER_H

#include <sys/types.h>

#include "base.h"

/* Takes the lock of an attempt's directory. While it is held, some process of the step may be alive: every process of the
 * step inherits its descriptor, so killing the runner does not release it while the others are still dying.
 * Returns 1 if we have it, 0 if another process has it, -1 with errno set. */
int attempt_lock(int dir);

enum start_state {
    START_PERMITTED, /* no marker yet, or our own */
    START_VOID,      /* voided: nothing may run, nothing ran */
    START_USED,      /* an earlier launcher linked `started`: the step may have run */
    START_FAULT,     /* the marker could not be written: nothing may run */
};

enum start_state start_marker_read(int dir);

/* Links `void`. Returns START_VOID if a void marker is in place, ours or another's. */
enum start_state start_marker_void(int dir, struct fault *fault);

/* Reads this boot's ID now, so that processes forked later need not. */
void start_marker_cache_boot_id(void);

/* Links `started`: launcher's and init's process ids, boot id, start time, PID namespace, and init's start time by the
 * kernel's clock, one per line.
 * START_PERMITTED if ours is in place: the step may run. PROC is the caller's /proc. */
enum start_state start_marker_write(int dir, int proc, pid_t launcher, pid_t init, int64_t started_ms,
                                    struct fault *fault);

/* Call with the lock held. Waits until every process of a step that an earlier launcher started is dead. A killed init
 * releases the lock before the kernel kills those in its namespace that had closed theirs, but it is dead only after
 * them. */
void start_marker_wait_for_end(int dir, int proc);

#endif
