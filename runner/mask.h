/* Sensitive values in a step's output: each becomes three stars before it is written to the log. */
#ifndef DAYFLY_MASK_H
#define DAYFLY_MASK_H

#include <sys/stat.h>
#include <sys/types.h>

#include "order.h"

enum { MASK_MIN_BYTES = 4, MASK_MIN_LINE_BYTES = 8, MASK_MAX_BYTES = 64 << 10, MASK_PATTERNS = 1024 };

struct pattern {
    char *bytes;
    size_t length;
    unsigned short next; /* index + 1 of the next pattern with the same first byte; 0: none */
};

struct mask {
    const struct order *order;
    struct pattern patterns[MASK_PATTERNS];
    size_t count;
    unsigned short begins[256]; /* by first byte: index + 1 of a pattern; 0: none */
    char *held;       /* the last bytes, if a value may begin there */
    size_t held_length;
    struct stat *outputs; /* of each output file when it was last read */
};

/* Takes the order's values. Its sensitive outputs are read as soon as their files exist. */
void mask_begin(struct mask *mask, const struct order *order);

/* Adds a value in every masked form. Values shorter than MASK_MIN_BYTES are ignored, because they would mask half a
 * log. */
void mask_add(struct mask *mask, const char *bytes, size_t length);

/* Forwards output, masked. Bytes that may begin a value are held back until more arrives, or the end. */
typedef void mask_sink(void *state, const char *bytes, size_t length);
void mask_feed(struct mask *mask, const char *bytes, size_t length, mask_sink *sink, void *state);
void mask_end(struct mask *mask, mask_sink *sink, void *state);

/* Call when every process of the step is dead. Masks values printed before their output file existed, from FROM on. */
void mask_file(struct mask *mask, int fd, off_t from);

#endif
