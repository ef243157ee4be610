/* Pod mode: first process of a pod's only container. Order and secrets come from mounted files, the state of the
 * attempt lies in a volume that outlives the container, the receipt goes to the termination message and the log. */
#ifndef DAYFLY_POD_H
#define DAYFLY_POD_H

#include <stdbool.h>

#define POD_ORDER "/dayfly/order"
#define POD_UID "/dayfly/uid"
#define POD_STATE "/dayfly-state"
#define POD_MESSAGE "/dev/termination-log"

/* Runs the step, unless it is RECALLED: then the step may not start any more, and the receipt says whether it did.
 * Returns the container's exit code: the script's own, 128 + signal, 127 not executable, 3 another instance is at it,
 * 125 everything else. */
int pod_main(bool recalled);

#endif
