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
    char *content;               /* NULL where it is kept as a file */
};

struct receipt {
    const char *nonce, *attempt; /* may be NULL: the order was illegible */
    const char *pod;             /* the pod's UID; NULL on a host, or where it is not mounted */
    const char *outcome;         /* exited, signaled, deadline, cancelled, not-executable, void, refused, lost */
    int code;                    /* exit code, or the signal's number when a signal ended the script */
    struct fault detail;         /* empty when plainly exited */
    int64_t started_ms, ended_ms;
    struct kept_output *outputs;
    size_t output_count;
    int64_t oom_kills;    /* processes of the step that the kernel killed for want of memory */
    int64_t memory_limit; /* of their container; 0: none */
    int64_t log_bytes;
    bool log_truncated;
};

/* The receipt as a framed document, with the outputs' contents where they are held. */
void receipt_encode(const struct receipt *receipt, struct buffer *buffer);

/* Kubernetes takes no more of a termination message. */
#define MESSAGE_LIMIT 4096

/* The receipt as a termination message: one line for people, then base64 of a document that carries as many outputs
 * as fit, names the rest, and holds the digest of the whole document (which is in the log). */
void receipt_message(const struct receipt *receipt, const struct buffer *whole, struct buffer *message);

/* Base64 in lines of at most 4096 characters, each between HEAD and a line end. */
void base64_lines(struct buffer *buffer, const char *head, const char *bytes, size_t length);

#endif
