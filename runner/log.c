#include "log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool log_at_line_start(const struct log *log) {
    return log->kept == 0 || log->last == '\n';
}

/* Writes BYTES and doubles a mark at the start of a line, so that no line of the step looks like the runner's own. */
static int write_marked(const struct log *log, const char *bytes, size_t length) {
    const char mark = LOG_MARK;
    bool start = log_at_line_start(log);
    while (length > 0) {
        if (start && bytes[0] == mark && write_all(log->fd, &mark, 1) < 0) return -1;
        const char *end = memchr(bytes, '\n', length);
        /* Writes up to the next line that needs a mark, because a call for each line would be slow for a step with much
         * output. */
        while (end != NULL && end + 1 < bytes + length && end[1] != mark) {
            end = memchr(end + 1, '\n', (size_t)(bytes + length - end - 1));
        }
        size_t taken = end == NULL ? length : (size_t)(end - bytes) + 1;
        if (write_all(log->fd, bytes, taken) < 0) return -1;
        start = end != NULL;
        bytes += taken;
        length -= taken;
    }
    return 0;
}

static void keep(void *state, const char *bytes, size_t length) {
    struct log *log = state;
    if (log->cut || length == 0) return;
    size_t rest = (size_t)(log->limit - log->kept);
    size_t taken = length < rest ? length : rest;
    log->cut = taken < length;
    if (taken == 0) return;
    /* A full disk truncates the log but never ends the step. */
    if (log->fd < 0) log->fd = log->open(log->state);
    /* The time first: bytes without an entry would count as written at the previous time. */
    if (log->fd >= 0 && log->times != NULL) log_times_record(log->times, log->kept, log->now);
    if (log->fd < 0 || (log->marked ? write_marked(log, bytes, taken) : write_all(log->fd, bytes, taken)) < 0) {
        log->cut = true;
        return;
    }
    log->kept += (int64_t)taken;
    log->last = bytes[taken - 1];
}

void log_write(struct log *log, const char *bytes, size_t length) {
    if (log->times != NULL) log->now = now_ms();
    if (log->mask == NULL) keep(log, bytes, length);
    else mask_feed(log->mask, bytes, length, keep, log);
}

void log_finish(struct log *log, const char *leftovers) {
    char line[800];
    if (log->times != NULL) log->now = now_ms();
    if (log->mask != NULL) mask_end(log->mask, keep, log);
    if (leftovers[0] != '\0') {
        snprintf(line, sizeof line, "%s[dayfly: the step's program has ended, and processes that it left were ended: %s]\n",
                 log_at_line_start(log) ? "" : "\n", leftovers);
        keep(log, line, strlen(line));
    }
    if (log->cut && log->fd >= 0) {
        snprintf(line, sizeof line, "%s[dayfly: log cut at %lld bytes]\n", log_at_line_start(log) ? "" : "\n",
                 (long long)log->kept);
        write_all(log->fd, line, strlen(line));
    }
}
