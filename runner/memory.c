#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define GROUPS "/sys/fs/cgroup"

/* Version 1 writes "no limit" as the largest number of whole pages, which is more than any machine has. */
static const int64_t BOUNDLESS = (int64_t)1 << 60;

int64_t memory_number(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        const char *digits = line + length;
        if (strncmp(line, name, length) == 0 && (length == 0 || *digits++ == ' ')) {
            size_t count = strspn(digits, "0123456789");
            int64_t number = 0;
            if (count == 0 || count > 19 || (digits[count] != '\n' && digits[count] != '\0')) return -1;
            for (size_t i = 0; i < count; i++) {
                if (__builtin_mul_overflow(number, 10, &number)) return -1;
                if (__builtin_add_overflow(number, digits[i] - '0', &number)) return -1;
            }
            return number;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return -1;
}

/* Kernel files report size 0, so this reads to the end. */
static int64_t read_number(const char *path, const char *name) {
    char text[4096];
    size_t filled = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    while (filled < sizeof text - 1) {
        ssize_t got = read(fd, text + filled, sizeof text - 1 - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        filled += (size_t)got;
    }
    close(fd);
    text[filled] = '\0';
    return memory_number(text, name);
}

/* The paths at which runtimes mount a container's own control group, version 2 and version 1. In version 2 the root
 * group of a machine has no such file, so a machine's number is never mistaken for a container's. */
int64_t memory_kills(void) {
    int64_t kills = read_number(GROUPS "/memory.events", "oom_kill");
    return kills >= 0 ? kills : read_number(GROUPS "/memory/memory.oom_control", "oom_kill");
}

int64_t memory_limit(void) {
    int64_t limit = read_number(GROUPS "/memory.max", "");
    if (limit < 0) limit = read_number(GROUPS "/memory/memory.limit_in_bytes", "");
    return limit > 0 && limit < BOUNDLESS ? limit : 0;
}
