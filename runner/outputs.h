/* Outputs: read after every process of the step is dead, verbatim, within the unit's limit. */
#ifndef DAYFLY_OUTPUTS_H
#define DAYFLY_OUTPUTS_H

#include "order.h"
#include "receipt.h"

/* Takes one output's content; returns -1 with errno set when it cannot be kept. */
struct keeper {
    int (*keep)(void *state, const char *name, const char *bytes, size_t length);
    void *state;
};

/* False for a path with `..` or other detours, and for one under /proc, /sys and /dev. */
bool output_path_allowed(const char *path);

/* Fills RESULTS (one per output of the order) and hands each present output to the keeper. NOTE receives a sentence
 * when an output could not be kept for a reason that its state alone does not tell. */
void outputs_collect(const struct order *order, struct keeper keeper, struct kept_output *results, struct fault *note);

#endif
