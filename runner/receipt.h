/* The receipt: the runner's sealed report on one attempt. README.md lists the keys. */
#ifndef DAYFLY_RECEIPT_H
#define DAYFLY_RECEIPT_H

#include "base.h"
#include "sha256.h"

/* The result of one output. */
struct kept_output {
    const char *name;
    const char *state; /* present, missing, too-large, refused */
    int64_t size;
    char sha256[SHA256_HEX + 1]; /* empty unless present */
    char *content;               /* NULL if it is kept as a file */
};

struct receipt {
    const char *nonce, *attempt; /* NULL if the order was illegible */
    const char *pod;             /* the pod's UID, or NULL */
    const char *outcome;         /* exited, signaled, deadline, cancelled, not-executable, void, refused, lost */
    int code;                    /* exit code, or number of the signal */
    struct fault detail;         /* empty after a normal exit */
    int64_t started_ms, ended_ms;
    struct kept_output *outputs;
    size_t output_count;
    int64_t oom_kills;    /* processes that the kernel killed for lack of memory */
    int64_t memory_limit; /* of the container, 0 if unlimited */
    int64_t log_bytes;
    bool log_truncated;
};

/* The receipt as a framed document, with the outputs' contents if they are in memory. */
void receipt_encode(const struct receipt *receipt, struct buffer *buffer);

/* The limit of Kubernetes for a termination message. */
#define MESSAGE_LIMIT 4096

/* The receipt as a termination message: one readable line, then base64 of a document. It has as many outputs as fit, the
 * names of the others, and the digest of the whole document (which is in the log). */
void receipt_message(const struct receipt *receipt, const struct buffer *whole, struct buffer *message);

/* Base64 in lines of at most 4096 characters, each between HEAD and a line end. */
void base64_lines(struct buffer *buffer, const char *head, const char *bytes, size_t length);

#endif
