#include "outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

bool output_path_allowed(const char *path) {
    return is_clean_path(path) && path[1] != '\0' && !is_within(path, "/proc") && !is_within(path, "/sys") &&
           !is_within(path, "/dev");
}

/* A link in a parent directory may still lead into one of the kernel's file systems. */
static bool on_kernel_file_system(int fd) {
    struct statfs system;
    if (fstatfs(fd, &system) < 0) return true;
    return system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC || system.f_type == DEVPTS_SUPER_MAGIC ||
           system.f_type == CGROUP_SUPER_MAGIC || system.f_type == CGROUP2_SUPER_MAGIC;
}

/* Reads at most SIZE bytes. All processes that could extend the file are dead. */
static ssize_t read_whole(int fd, char *bytes, size_t size) {
    size_t filled = 0;
    while (filled < size) {
        ssize_t got = read(fd, bytes + filled, size - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        filled += (size_t)got;
    }
    return (ssize_t)filled;
}

static void keep(int fd, struct output_sink sink, struct kept_output *result, struct fault *fault) {
    struct sha256 sum;
    char *bytes = malloc((size_t)result->size + 1);
    ssize_t length = bytes == NULL ? -1 : read_whole(fd, bytes, (size_t)result->size);
    if (length >= 0 && sink.keep(sink.state, result->name, bytes, (size_t)length) == 0) {
        sha256_begin(&sum);
        sha256_add(&sum, bytes, (size_t)length);
        sha256_hex(&sum, result->sha256);
        result->size = length;
        result->state = "present";
    } else {
        fail(fault, "The output %s could not be kept: %s.", result->name, strerror(errno));
    }
    free(bytes);
}

static void collect(const struct output *output, int64_t rest, struct output_sink sink, struct kept_output *result,
                    struct fault *fault) {
    *result = (struct kept_output){.name = output->name, .state = "refused"};
    if (!output_path_allowed(output->path)) return;
    /* O_NONBLOCK, so that a FIFO at this path does not block us. */
    int fd = open(output->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR) result->state = "missing";
        return;
    }
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && !on_kernel_file_system(fd)) {
        result->size = status.st_size;
        if (status.st_size > rest) result->state = "too-large";
        else keep(fd, sink, result, fault);
    }
    close(fd);
}

void outputs_collect(const struct order *order, struct output_sink sink, struct kept_output *results,
                     struct fault *fault) {
    int64_t rest = order->unit_limit;
    for (size_t i = 0; i < order->output_count; i++) {
        collect(&order->outputs[i], rest, sink, &results[i], fault);
        if (strcmp(results[i].state, "present") == 0) rest -= results[i].size;
    }
}
