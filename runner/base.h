/* Common functions: faults with a message, complete reads and writes, the clock. */
#ifndef DAYFLY_BASE_H
#define DAYFLY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERSION "1"

/* Why an action failed: one English sentence, which becomes the receipt's `detail`. */
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

/* Reserves disk space for the first SIZE bytes of a file, whatever they contain. Returns 0, or -1 with errno. */
int reserve_space(int fd, size_t size);

/* Creates NAME in DIR with exactly MODE and these bytes. An existing file of that name is removed first. */
int write_file(int dir, const char *name, unsigned mode, const void *bytes, size_t length);

/* Reads a regular file of at most LIMIT bytes into malloc'd memory and appends a NUL. -1 with errno set
 * (EFBIG if it is longer, EINVAL if it is not a regular file). */
int read_file(int dir, const char *name, size_t limit, char **bytes, size_t *length);

/* True for an absolute path without empty, `.` and `..` components and without a slash at its end. */
bool is_clean_path(const char *path);

/* True if PATH is DIR or below it. Both are clean paths. */
bool is_within(const char *path, const char *dir);

/* Fills PATH with our working directory if an image sets it and we may write to it. `/` does not count, because images
 * without a setting have it. */
bool image_folder(char *path, size_t size);

/* Closes every descriptor from FIRST upwards, so that the step inherits none of the caller's. */
void close_from(int first);

#endif
