/* Sensitive values in what a step prints: each becomes three stars before the log has it. */
#ifndef DAYFLY_MASK_H
#define DAYFLY_MASK_H

#include <sys/stat.h>
#include <sys/types.h>

#include "order.h"

enum { MASK_LEAST = 4, MASK_LEAST_LINE = 8, MASK_MOST = 64 << 10, MASK_PATTERNS = 1024 };

struct pattern {
    char *bytes;
    size_t length;
    unsigned short next; /* another one that begins with the same byte, counted from 1; 0 for none */
};

struct mask {
    const struct order *order;
    struct pattern patterns[MASK_PATTERNS];
    size_t count;
    unsigned short begins[256]; /* by its first byte a pattern, counted from 1; 0 for none */
    char *held;       /* the end of what was printed, which may be the beginning of a value */
    size_t held_length;
    struct stat *outputs; /* of each output of the order, as its file was when it was last read */
};

/* Takes the order's own values; its sensitive outputs are read as soon as they are there. */
void mask_begin(struct mask *mask, const struct order *order);

/* Adds a value, in every form in which it is masked. One shorter than MASK_LEAST bytes would mask half a log. */
void mask_add(struct mask *mask, const char *bytes, size_t length);

/* Hands what was printed on, masked. What may be the beginning of a value is held back until more comes, or the end. */
typedef void mask_sink(void *state, const char *bytes, size_t length);
void mask_feed(struct mask *mask, const char *bytes, size_t length, mask_sink *sink, void *state);
void mask_end(struct mask *mask, mask_sink *sink, void *state);

/* Once every process of the step is dead: what it printed of an output before the file was there, from FROM on. */
void mask_file(struct mask *mask, int fd, off_t from);

#endif
