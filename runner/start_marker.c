#include "start_marker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* High enough that a script's own `exec 3>file` does not close its copy of the lock. */
#define LOCK_DESCRIPTOR 200

int attempt_lock(int dir) {
    int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) return errno == EWOULDBLOCK ? 0 : -1;
    if (fcntl(fd, F_DUPFD, LOCK_DESCRIPTOR) < 0 && fcntl(fd, F_SETFD, 0) < 0) return -1;
    return 1;
}

enum start_state start_marker_read(int dir) {
    char *text;
    size_t length;
    if (read_file(dir, "marker", 4096, &text, &length) < 0) return errno == ENOENT ? START_PERMITTED : START_USED;
    bool is_void = strncmp(text, "void", 4) == 0 && (text[4] == '\0' || text[4] == '\n');
    free(text);
    /* If the marker is not clearly `void`, the step may have run. */
    return is_void ? START_VOID : START_USED;
}

/* START_PERMITTED if our own marker is in place. */
static enum start_state link_marker(int dir, const char *text, struct fault *fault) {
    /* A new file, never a rewritten one: an old marker.tmp may be a second name of the marker. */
    bool written = write_file(dir, "marker.tmp", 0600, text, strlen(text)) == 0;
    bool linked = written && linkat(dir, "marker.tmp", dir, "marker", 0) == 0;
    int error = errno;
    unlinkat(dir, "marker.tmp", 0);
    if (linked) return START_PERMITTED;
    if (written && error == EEXIST) return start_marker_read(dir);
    fail(fault, "The start marker cannot be put in place: %s.", strerror(error));
    return START_FAULT;
}

enum start_state start_marker_void(int dir, struct fault *fault) {
    enum start_state start = link_marker(dir, "void\n", fault);
    return start == START_PERMITTED ? START_VOID : start;
}

/* A resident runner reads it before it forks a launcher. */
static char cached_boot_id[64];

/* The kernel's boot ID, or "-" if there is no /proc. */
static void read_boot_id(int proc, char *text, size_t size) {
    if (cached_boot_id[0] != '\0') {
        snprintf(text, size, "%s", cached_boot_id);
        return;
    }
    int fd = openat(proc, "sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0') snprintf(text, size, "-");
}

void start_marker_cache_boot_id(void) {
    int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0) return;
    read_boot_id(proc, cached_boot_id, sizeof cached_boot_id);
    if (strcmp(cached_boot_id, "-") == 0) cached_boot_id[0] = '\0';
    close(proc);
}

/* The start time of a living process in clock ticks since boot; 0 if it is dead or not visible. */
static unsigned long long start_ticks(int proc, int pid) {
    char path[32], text[1024], state;
    unsigned long long ticks;
    snprintf(path, sizeof path, "%d/stat", pid);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = '\0';
    /* The command's name is in parentheses and may contain any character. */
    const char *behind = strrchr(text, ')');
    const char *format = ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu";
    if (behind == NULL || sscanf(behind, format, &state, &ticks) != 2) return 0;
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

enum start_state start_marker_write(int dir, int proc, pid_t launcher, pid_t init, int64_t started_ms,
                                    struct fault *fault) {
    char text[256], boot_id[64];
    struct stat pid_namespace;
    read_boot_id(proc, boot_id, sizeof boot_id);
    if (fstatat(proc, "self/ns/pid_for_children", &pid_namespace, 0) < 0) pid_namespace.st_ino = 0;
    snprintf(text, sizeof text, "started\n%d\n%d\n%s\n%lld\n%llu\n%llu\n", (int)launcher, (int)init, boot_id,
             (long long)started_ms, (unsigned long long)pid_namespace.st_ino, start_ticks(proc, init));
    return link_marker(dir, text, fault);
}

void start_marker_wait_for_end(int dir, int proc) {
    char *text, boot_id[64], marked_boot_id[64];
    size_t length;
    int init;
    unsigned long long ticks;
    if (read_file(dir, "marker", 4096, &text, &length) < 0) return;
    int read = sscanf(text, "started\n%*d\n%d\n%63s\n%*d\n%*u\n%llu", &init, marked_boot_id, &ticks);
    free(text);
    read_boot_id(proc, boot_id, sizeof boot_id);
    if (read != 3 || strcmp(boot_id, marked_boot_id) != 0 || ticks == 0) return;
    while (start_ticks(proc, init) == ticks) usleep(500);
}
