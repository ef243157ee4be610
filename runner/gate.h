/* The gate of host mode: a file that can be linked into place only once. Whoever links first decides whether the
 * step ever runs: the launcher links `started`, a server that gave it up links `void`. */
#ifndef DAYFLY_GATE_H
#define DAYFLY_GATE_H

#include <sys/types.h>

#include "base.h"

/* Takes the lock of an attempt's directory. It proves that something of the step may live: its descriptor goes into
 * every process of the step, so that a killed runner does not free it while they are dying.
 * 1: ours; 0: another has it; -1 with errno set. */
int gate_lock(int dir);

enum gate {
    GATE_OPEN,  /* nobody has linked, or we have just done so */
    GATE_VOID,  /* voided: nothing may run, nothing ran */
    GATE_USED,  /* an earlier launcher passed: something may have run */
    GATE_FAULT, /* the marker could not be written: nothing may run */
};

enum gate gate_look(int dir);

/* Links `void`; GATE_VOID when it is in place, ours or another's. */
enum gate gate_void(int dir, struct fault *fault);

/* Reads the name of this boot now: whoever is forked from here on need not. */
void gate_know_boot(void);

/* Links `started`: launcher's and init's process ids, boot id, start time, PID namespace, init's beginning by the
 * kernel's clock, one to a line.
 * GATE_OPEN when ours is in place: the step may run. PROC is the caller's /proc. */
enum gate gate_start(int dir, int proc, pid_t launcher, pid_t init, int64_t started_ms, struct fault *fault);

/* With the lock ours: waits until nothing lives of the step that an earlier launcher started. A killed init lets go of
 * the lock before the kernel kills those of its namespace that had closed theirs; it is itself dead only after them. */
void gate_settle(int dir, int proc);

#endif
