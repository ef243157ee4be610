/* The receipt: the runner's own sealed report of how one attempt ended. README.md lists the keys. */
#ifndef DAYFLY_RECEIPT_H
#define DAYFLY_RECEIPT_H

#include "base.h"
#include "sha256.h"

/* How one output fared. */
struct kept_output {
    const char *name;
    const char *state; /* present, missing, too-large, refused */
    int64_t size;
    char sha256[SHA256_HEX + 1]; /* empty unless present */
};

struct receipt {
    const char *nonce, *attempt; /* may be NULL: the order was illegible */
    const char *outcome;         /* exited, signaled, deadline, cancelled, not-executable, void, refused, lost */
    int code;                    /* exit code, or the signal's number when a signal ended the script */
    struct fault detail;         /* empty when plainly exited */
    int64_t started_ms, ended_ms;
    struct kept_output *outputs;
    size_t output_count;
    int64_t log_bytes;
    bool log_truncated;
};

/* The receipt as a framed document. */
void receipt_encode(const struct receipt *receipt, struct buffer *buffer);

#endif
