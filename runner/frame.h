/* The framed document: the format of work orders and receipts (README.md has the grammar).
 * Its twin is src/dayfly/spec/frames.py; both must accept and refuse the same bytes. */
#ifndef DAYFLY_FRAME_H
#define DAYFLY_FRAME_H

#include "base.h"

#define KEY_LIMIT 32

/* One record. The parser adds a NUL after key and value; a value may contain further NULs. */
struct record {
    const char *key;
    char *value;
    size_t length;
};

/* The records between the kind and the end record; they point into the bytes that were parsed. */
struct document {
    struct record *records;
    size_t count;
};

/* Parses BYTES as a document of this kind. It takes ownership of BYTES and changes them in place. */
int frame_parse(struct document *document, char *bytes, size_t length, const char *kind, struct fault *fault);

void frame_begin(struct buffer *buffer, const char *kind);
void frame_add(struct buffer *buffer, const char *key, const void *value, size_t length);
void frame_text(struct buffer *buffer, const char *key, const char *value);
void frame_number(struct buffer *buffer, const char *key, int64_t value);
/* Completes the document with the digest of all bytes before. */
void frame_end(struct buffer *buffer);

#endif
