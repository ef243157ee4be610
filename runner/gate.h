/* The gate of host mode: a file that can be linked into place only once. Whoever links first decides whether the
 * step ever runs: the launcher links `started`, a server that gave it up links `void`. */
#ifndef DAYFLY_GATE_H
#define DAYFLY_GATE_H

#include <sys/types.h>

#include "base.h"

enum gate {
    GATE_OPEN,  /* nobody has linked, or we have just done so */
    GATE_VOID,  /* voided: nothing may run, nothing ran */
    GATE_USED,  /* an earlier launcher passed: something may have run */
    GATE_FAULT, /* the marker could not be written: nothing may run */
};

enum gate gate_look(int dir);

/* Links `void`; GATE_VOID when it is in place, ours or another's. */
enum gate gate_void(int dir, struct fault *fault);

/* Links `started`: launcher's and init's process ids, boot id, start time, PID namespace, one to a line.
 * GATE_OPEN when ours is in place: the step may run. PROC is the caller's /proc. */
enum gate gate_start(int dir, int proc, pid_t init, int64_t started_ms, struct fault *fault);

#endif
