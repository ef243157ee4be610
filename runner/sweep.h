/* Ending every process of a step: in a PID namespace by the kernel's one word to all of it, and without one by hand. */
#ifndef DAYFLY_SWEEP_H
#define DAYFLY_SWEEP_H

/* For the first process of a PID namespace: kills and reaps all others in it, children of ours or not. */
void sweep_space(void);

/* Without one the caller must be a child subreaper, so that whatever is orphaned becomes its child.
 * Sends SIGNAL once to every living descendant. */
void sweep_signal(int signal);

/* Kills and reaps until no descendant is left. A descendant that may not be killed (it changed its user) is waited
 * for: nothing is sealed while something of the step lives. */
void sweep_away(void);

#endif
