/* Ending every process of a step: in a PID namespace by the kernel's one word to all of it, and without one by hand. */
#ifndef DAYFLY_SWEEP_H
#define DAYFLY_SWEEP_H

#include <stdbool.h>

#include "base.h"

/* For the first process of a PID namespace: reaps, and is true if nothing that was begun in it is left. Whoever loses its
 * parent in there becomes our child, so it costs less than a signal to all, which is shown to each process of the machine;
 * what somebody brought in from outside (`nsenter`) it does not see. */
bool sweep_finds_none(void);

/* For the same, or a child subreaper: names living descendants for a reader, like "sleep (12), sh (13) and 2 more". Empty
 * if there is none. */
void sweep_describe(struct fault *left);

/* For the first process of a PID namespace: kills and reaps all others in it, children of ours or not. */
void sweep_space(void);

/* Without one the caller must be a child subreaper, so that whatever is orphaned becomes its child.
 * Sends SIGNAL once to every living descendant. */
void sweep_signal(int signal);

/* Kills and reaps until no descendant is left. A descendant that may not be killed (it changed its user) is waited
 * for: nothing is sealed while something of the step lives. */
void sweep_away(void);

#endif
