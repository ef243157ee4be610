/* Outputs: read after every process of the step is dead, verbatim, within the unit's limit. */
#ifndef DAYFLY_OUTPUTS_H
#define DAYFLY_OUTPUTS_H

#include "order.h"
#include "receipt.h"

/* Stores one output's content; returns -1 with errno set on failure. */
struct output_sink {
    int (*keep)(void *state, const char *name, const char *bytes, size_t length);
    void *state;
};

/* False for a path that is not normalised, or below /proc, /sys or /dev. */
bool output_path_allowed(const char *path);

/* Fills RESULTS (one per output of the order) and passes each present output to the sink. If an output could not be
 * kept, FAULT gets a sentence with the reason, unless its state already shows it. */
void outputs_collect(const struct order *order, struct output_sink sink, struct kept_output *results,
                     struct fault *fault);

#endif
