/* Pod mode: first process of a pod's only container. Order and secrets come from mounted files. The attempt's state is in
 * a volume that outlives the container. The receipt goes to the termination message and the log. */
#ifndef DAYFLY_POD_H
#define DAYFLY_POD_H

#include <stdbool.h>

#define POD_ORDER "/dayfly/order"
#define POD_UID "/dayfly/uid"
#define POD_STATE "/dayfly-state"
#define POD_MESSAGE "/dev/termination-log"

/* Runs the step. If it is RECALLED, the step may no longer start, and the receipt reports whether it ran.
 * Returns the container's exit code: the script's own, 128 + signal, 127 not executable, 3 another instance is running,
 * 125 everything else. */
int pod_main(bool recalled);

#endif
