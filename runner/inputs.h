/* Input files: they are put where the order wants them without changing a file of the host. */
#ifndef DAYFLY_INPUTS_H
#define DAYFLY_INPUTS_H

#include "order.h"
#include "spaces.h"

/* What was created on the host and must go again (isolation `none` only; elsewhere it goes with its namespace). */
struct traces {
    char **directories; /* outer before inner */
    size_t directory_count, input_count;
    bool outputs; /* true once it is certain that no declared output was there before */
};

/* Creates the inputs and their missing parents, and sees to it that no declared output exists yet. */
int inputs_place(const struct order *order, const struct spaces *spaces, struct traces *traces, struct fault *fault);

/* Removes what isolation `none` left on the host: inputs, outputs, created directories that are empty. */
void inputs_remove(const struct order *order, const struct traces *traces);

#endif
