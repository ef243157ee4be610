/* Input files: they are put where the order wants them without changing a file of the host. */
#ifndef DAYFLY_INPUTS_H
#define DAYFLY_INPUTS_H

#include "order.h"
#include "private.h"

/* What is created on the host and must go again (isolation `none` only; elsewhere it goes with its namespace). */
struct traces {
    char **directories; /* outer before inner */
    size_t directory_count, needed_count, input_count; /* the first so many directories are those of inputs */
    bool outputs; /* true once it is certain that no declared output was there before */
};

/* Isolation `none`: sees to it that no input or output exists yet and notes the parents that are to be created. */
int inputs_plan(const struct order *order, struct traces *traces, struct fault *fault);

/* Isolation `none`: creates what was planned. What it created before it failed is removed again. */
int inputs_create(const struct order *order, struct traces *traces, struct fault *fault);

/* With isolation: puts the inputs into private directories, or over files of the host without changing them, and
 * sees to it that no output exists yet. STAGE is a directory that may be laid over for a moment. */
int inputs_place(const struct order *order, struct privates *privates, const char *stage, struct fault *fault);

/* Removes inputs, outputs, created directories that are empty; and forgets them. */
void inputs_remove(const struct order *order, struct traces *traces);

#endif
