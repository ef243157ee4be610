/* Ending every descendant where no PID namespace does it for us. The caller must be a child subreaper, so that
 * whatever is orphaned becomes its child. */
#ifndef DAYFLY_SWEEP_H
#define DAYFLY_SWEEP_H

/* Sends SIGNAL once to every living descendant. */
void sweep_signal(int signal);

/* Kills and reaps until no descendant is left. A descendant that may not be killed (it changed its user) is waited
 * for: nothing is sealed while something of the step lives. */
void sweep_away(void);

#endif
