/* Input files: they appear at the paths of the order, and no file of the host is changed. */
#ifndef DAYFLY_INPUTS_H
#define DAYFLY_INPUTS_H

#include "order.h"
#include "private_mounts.h"

/* Files created on the host, which must be removed (only isolation `none`; otherwise they end with the namespace). */
struct created_files {
    char **directories; /* outer before inner */
    size_t directory_count, needed_count, input_count; /* the first INPUT_COUNT directories are parents of inputs */
    bool outputs; /* true once no declared output existed before */
};

/* Isolation `none`: checks that no input or output exists yet, and records the missing parents. */
int inputs_plan(const struct order *order, struct created_files *created_files, struct fault *fault);

/* Isolation `none`: creates the inputs and parents. After a failure it removes those it has created. */
int inputs_create(const struct order *order, struct created_files *created_files, struct fault *fault);

/* With isolation: puts the inputs into private directories, or mounts them over files of the host, and checks
 * that no output exists yet. STAGE is a directory that may be used as a temporary mount point. */
int inputs_place(const struct order *order, struct private_mounts *private_mounts, const char *stage,
                 struct fault *fault);

/* Removes inputs, outputs and created directories that are empty, and forgets them. */
void inputs_remove(const struct order *order, struct created_files *created_files);

#endif
