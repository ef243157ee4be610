/* The state volume of a pod's attempt, so that a second instance of the container repeats nothing: the lock, the start
 * marker, the sealed receipt. Each is synced to disk before it takes effect. */
#ifndef DAYFLY_POD_STATE_H
#define DAYFLY_POD_STATE_H

#include "base.h"
#include "receipt.h"
#include "start_marker.h"

/* Opens the state directory and takes its lock. Returns 1 if we have it, 0 if another instance has it, -1 with a
 * fault. */
int pod_state_open(int *state, struct fault *fault);

/* Creates the marker with the word `started` or `void`. Word and name are on disk when this returns START_PERMITTED. */
enum start_state pod_state_mark(int state, const char *word, struct fault *fault);

/* Encodes, stores and prints the receipt. Returns the container's exit code. STATE is -1 without a state volume. */
int pod_state_seal(int state, const struct receipt *receipt, bool line_start);

/* Prints the receipt that an earlier instance stored, and returns its exit code; -1 if there is none. */
int pod_state_repeat(int state);

#endif
