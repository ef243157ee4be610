#include "log_times.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void log_times_open(struct log_times *times, int dir, const char *log, int64_t begin) {
    char path[PATH_MAX];
    struct fault ignored;
    size_t length = log == NULL ? 0 : strlen(log);
    *times = (struct log_times){.fd = -1, .begin = begin};
    if (length < 4 || strcmp(log + length - 4, ".log") != 0) return;
    if (snprintf(path, sizeof path, "%.*s.times", (int)(length - 4), log) >= (int)sizeof path) return;
    times->recorded = log_file_open(&times->file, dir, path, &times->fd, &ignored) == 0;
}

static void put_number(unsigned char *bytes, int64_t number) {
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)number >> (56 - 8 * i));
}

void log_times_record(struct log_times *times, int64_t length, int64_t now) {
    if (!times->recorded || (times->entries > 0 && now < times->last_ms + LOG_TIMES_STEP_MS)) return;
    if (times->entries >= LOG_TIMES_FREE_ENTRIES + length / LOG_TIMES_BYTES_PER_ENTRY) return;
    if (times->fd < 0) times->fd = log_file_create(&times->file);
    unsigned char entry[LOG_TIMES_ENTRY_BYTES];
    put_number(entry, times->begin + length);
    put_number(entry + 8, now);
    /* After a partial entry (the disk is full) no further entry could be read. */
    times->recorded = times->fd >= 0 && write(times->fd, entry, sizeof entry) == (ssize_t)sizeof entry;
    times->last_ms = now;
    times->entries++;
}
