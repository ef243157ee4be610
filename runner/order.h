/* The work order: the program, its inputs and its limits. README.md lists the keys. */
#ifndef DAYFLY_ORDER_H
#define DAYFLY_ORDER_H

#include "base.h"
#include "frame.h"

#define ORDER_LIMIT (16 << 20)

enum isolation { ISOLATION_NONE, ISOLATION_USER, ISOLATION_ROOT };

/* An input file: it appears at `path` with these bytes. */
struct input {
    const char *path;
    const char *bytes;
    size_t length;
};

/* An output: the file at `path` is kept as `name` when the step has ended. */
struct output {
    const char *name;
    const char *path;
    bool sensitive; /* masked in the log */
};

/* A value that is masked in the log. */
struct masked {
    const char *bytes;
    size_t length;
};

/* A secret of a pod: a mounted file whose content becomes an environment variable or a file elsewhere. */
struct secret {
    const char *name; /* the variable, or the path of the new file */
    const char *file; /* its mount path */
    bool variable;
    bool sensitive;
};

struct order {
    const char *nonce;
    const char *attempt;
    const char *script; /* NULL when `arguments` are given */
    size_t script_length;
    char **arguments; /* NULL-terminated, as is `environment` */
    char **environment;
    int64_t expand; /* nonzero: expand `$(NAME)` in arguments after the first */
    int64_t make_folders; /* nonzero: create missing folders of outputs if possible */
    int64_t inherit_env; /* host, nonzero: add the caller's variables that `environment` does not set */
    const char *cwd; /* NULL: the mode's default */
    int64_t inherit_cwd; /* host, nonzero: prefer the caller's folder (an image's) if it has one */
    const char *log; /* NULL: the file `log` in the attempt's folder */
    struct input *inputs;
    size_t input_count;
    struct output *outputs;
    size_t output_count;
    struct secret *secrets;
    size_t secret_count;
    struct masked *masked;
    size_t masked_count;
    const char **private_paths; /* outer before inner, each once */
    size_t private_count;
    enum isolation isolation;
    int64_t run_ms, grace_ms, start_before_ms, unit_limit, log_limit; /* 0: no deadline, no last start */
};

/* Parses BYTES (malloc'd; the order keeps pointing into them). On failure `nonce` and `attempt` are set if they were
 * legible, so that a refusal can name the attempt. */
int order_parse(struct order *order, char *bytes, size_t length, struct fault *fault);

/* Adds another environment to the order's: an image's, when we run in its container. */
int order_inherit(struct order *order, char **environment, struct fault *fault);

/* Expands variables in the arguments, once the environment is complete. */
int order_expand(struct order *order, struct fault *fault);

/* True if PATH is the path of an input or output. */
bool order_declares(const struct order *order, const char *path);

#endif
