/* The work order: what is to be run, with what, and for how long. README.md lists the keys. */
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

/* An output: the file at `path` is kept under `name` when the step has ended. */
struct output {
    const char *name;
    const char *path;
    bool sensitive; /* its value must not stand in the log */
};

/* A value that must not stand in the log. */
struct masked {
    const char *bytes;
    size_t length;
};

/* A secret of a pod: a mounted file whose content becomes an environment variable or a file elsewhere. */
struct secret {
    const char *name; /* the variable, or the path of the file to be */
    const char *file; /* where it is mounted */
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
    int64_t expand; /* other than 0: `$(NAME)` in an argument behind the first is that variable */
    int64_t make_folders; /* other than 0: missing folders of outputs are made, where that can be */
    int64_t inherit_env; /* host: other than 0 takes the caller's variables as well, where `environment` has none */
    const char *cwd; /* NULL: the mode's default */
    int64_t inherit_cwd; /* host: other than 0 prefers the caller's folder (an image's), where it names one */
    const char *log; /* NULL: the file `log` in the attempt's folder */
    struct input *inputs;
    size_t input_count;
    struct output *outputs;
    size_t output_count;
    struct secret *secrets;
    size_t secret_count;
    struct masked *masked;
    size_t masked_count;
    const char **privates; /* outer before inner, each once */
    size_t private_count;
    enum isolation isolation;
    int64_t run_ms, grace_ms, start_before_ms, unit_limit, log_limit; /* 0: no deadline, no last start */
};

/* Parses BYTES (malloc'd; the order keeps pointing into them). On failure `nonce` and `attempt` are set as far as
 * they were legible, so that even a refusal says what it refuses. */
int order_parse(struct order *order, char *bytes, size_t length, struct fault *fault);

/* Adds what another environment says to what the order says (an image's: we run in its container). */
int order_inherit(struct order *order, char **environment, struct fault *fault);

/* Puts the environment, when it is whole, into the arguments that name parts of it. */
int order_expand(struct order *order, struct fault *fault);

/* True when PATH is an input's or an output's own place. */
bool order_declares(const struct order *order, const char *path);

#endif
