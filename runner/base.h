/* Small things every other file needs: faults with a sentence, whole reads and writes, the clock. */
#ifndef DAYFLY_BASE_H
#define DAYFLY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERSION "1"

/* Why something could not be done: one English sentence that ends up in the receipt's `detail`. */
struct fault {
    char text[700];
};

/* Fills the fault and returns -1, so that a caller can say `return fail(fault, ...)`. */
__attribute__((format(printf, 2, 3))) int fail(struct fault *fault, const char *format, ...);

/* A byte string that grows. `failed` is set once memory ran out; later appends do nothing. */
struct buffer {
    char *bytes;
    size_t length, capacity;
    bool failed;
};

void buffer_add(struct buffer *buffer, const void *bytes, size_t length);
void buffer_text(struct buffer *buffer, const char *text);

/* Unix wall clock in milliseconds. */
int64_t now_ms(void);

/* Writes all bytes or returns -1 with errno set. Interrupted and short writes are continued. */
int write_all(int fd, const void *bytes, size_t length);

/* Takes room on the disk for the first SIZE bytes of a file, whose content counts for nothing. Returns 0, or -1 with errno. */
int take_room(int fd, size_t size);

/* Creates NAME in DIR afresh (a left-over of that name is removed first) with exactly MODE and these bytes. */
int write_file(int dir, const char *name, unsigned mode, const void *bytes, size_t length);

/* Reads a regular file of at most LIMIT bytes into malloc'd memory with a NUL behind it. -1 with errno set
 * (EFBIG when longer, EINVAL when it is no regular file). */
int read_file(int dir, const char *name, size_t limit, char **bytes, size_t *length);

/* True for an absolute path without empty, `.` and `..` components and without a slash at its end. */
bool is_clean_path(const char *path);

/* True when PATH is DIR or lies below it. Both are clean paths. */
bool is_within(const char *path, const char *dir);

/* Fills PATH with the folder in which we were begun if an image names it and we may write there: not `/`, which is what
 * images without one have. */
bool image_folder(char *path, size_t size);

/* Closes every descriptor from FIRST upwards: a caller's descriptors are none of the step's business. */
void close_from(int first);

#endif
