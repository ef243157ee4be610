/* What a pod's attempt leaves in its state volume, so that a second instance of the container repeats nothing:
 * the lock, the start marker, the sealed receipt. Everything is on disk before it counts. */
#ifndef DAYFLY_STORE_H
#define DAYFLY_STORE_H

#include "base.h"
#include "gate.h"
#include "receipt.h"

/* Opens the state directory and takes its lock. -1: fault; 0: taken by another instance; 1: ours. */
int store_open(int *state, struct fault *fault);

/* Creates the marker with the word `started` or `void`; word and name are on disk when this returns GATE_OPEN. */
enum gate store_mark(int state, const char *word, struct fault *fault);

/* Encodes the receipt, stores it, says it. Returns the container's exit code. STATE is -1 when there is none. */
int store_seal(int state, const struct receipt *receipt, bool line_start);

/* Says the receipt an earlier instance stored. -1 when there is none; else the exit code stored with it. */
int store_repeat(int state);

#endif
