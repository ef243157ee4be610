#include "log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void log_write(struct log *log, const char *bytes, size_t length) {
    if (log->cut || length == 0) return;
    size_t room = (size_t)(log->limit - log->kept);
    size_t taken = length < room ? length : room;
    log->cut = taken < length;
    if (taken == 0) return;
    /* A full disk ends the log, never the step. */
    if (write_all(log->fd, bytes, taken) < 0) {
        log->cut = true;
        return;
    }
    log->kept += (int64_t)taken;
    log->last = bytes[taken - 1];
}

void log_close(struct log *log) {
    char line[80];
    if (log->cut) {
        const char *gap = log->kept > 0 && log->last != '\n' ? "\n" : "";
        snprintf(line, sizeof line, "%s[dayfly: log cut at %lld bytes]\n", gap, (long long)log->kept);
        write_all(log->fd, line, strlen(line));
    }
    close(log->fd);
}
