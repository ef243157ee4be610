#include "times.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void times_find(struct times *times, int dir, const char *log, int64_t begin) {
    char path[PATH_MAX];
    struct fault ignored;
    size_t length = log == NULL ? 0 : strlen(log);
    *times = (struct times){.fd = -1, .begin = begin};
    if (length < 4 || strcmp(log + length - 4, ".log") != 0) return;
    if (snprintf(path, sizeof path, "%.*s.times", (int)(length - 4), log) >= (int)sizeof path) return;
    times->kept = log_file_find(&times->file, dir, path, &times->fd, &ignored) == 0;
}

static void put(unsigned char *bytes, int64_t number) {
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)number >> (56 - 8 * i));
}

void times_note(struct times *times, int64_t length, int64_t now) {
    if (!times->kept || (times->entries > 0 && now < times->noted + TIMES_STEP_MS)) return;
    if (times->entries >= TIMES_FREE + length / TIMES_SHARE) return;
    if (times->fd < 0) times->fd = log_file_make(&times->file);
    unsigned char entry[TIMES_ENTRY];
    put(entry, times->begin + length);
    put(entry + 8, now);
    /* After a partial entry (the disk is full) no further entry could be read. */
    times->kept = times->fd >= 0 && write(times->fd, entry, sizeof entry) == (ssize_t)sizeof entry;
    times->noted = now;
    times->entries++;
}
