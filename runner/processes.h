/* Ends every process of a step: in a PID namespace with one signal, otherwise one by one. */
#ifndef DAYFLY_PROCESSES_H
#define DAYFLY_PROCESSES_H

#include <stdbool.h>

#include "base.h"

/* Call in the first process of a PID namespace: reaps, and returns true if no process that started in it is left. Orphans
 * there become our children, so this is cheaper than a signal to all, which visits each process of the machine. It does
 * not see processes that entered from outside (`nsenter`). */
bool processes_all_ended(void);

/* Call there, or in a child subreaper: names living descendants for the log, like "sleep (12), sh (13) and 2 more". Empty
 * if there are none. */
void processes_describe(struct fault *description);

/* Call in the first process of a PID namespace: kills and reaps all others in it, our children or not. */
void processes_kill_namespace(void);

/* Without a PID namespace the caller must be a child subreaper, so that orphans become its children.
 * Sends SIGNAL once to every living descendant. */
void processes_signal(int signal);

/* Kills and reaps until no descendant is left. A descendant that changed its user cannot be killed, so this waits for it:
 * no receipt is sealed while a process of the step lives. */
void processes_kill_descendants(void);

#endif
