#include "inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "outputs.h"

static int bad(struct fault *fault, const char *path, const char *what) {
    return fail(fault, "The input file %s cannot be placed: %s: %s.", path, what, strerror(errno));
}

static int refuse(struct fault *fault, const char *path, const char *why) {
    return fail(fault, "The input file %s cannot be placed: %s.", path, why);
}

static int note_directory(struct traces *traces, const char *path) {
    char **grown = realloc(traces->directories, (traces->directory_count + 1) * sizeof *grown);
    char *copy = strdup(path);
    if (grown != NULL) traces->directories = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return -1;
    }
    traces->directories[traces->directory_count++] = copy;
    return 0;
}

/* Creates the missing parents of PATH. With isolation they are created in private directories only. On success
 * `parent` tells about the last of them. */
static int make_parents(const char *path, bool isolated, const struct spaces *spaces, struct traces *traces,
                        struct stat *parent, struct fault *fault) {
    char prefix[PATH_MAX];
    if (stat("/", parent) < 0) return bad(fault, path, "/");
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - path), path);
        struct stat here;
        if (stat(prefix, &here) < 0) {
            if (errno != ENOENT) return bad(fault, path, prefix);
            if (isolated && !spaces_owns(spaces, parent)) {
                return refuse(fault, path, "its directory is missing and no private directory would hold it");
            }
            if (mkdir(prefix, 0755) < 0 || stat(prefix, &here) < 0) return bad(fault, path, prefix);
            if (!isolated && note_directory(traces, prefix) < 0) return refuse(fault, path, "no memory");
        } else if (!S_ISDIR(here.st_mode)) {
            return refuse(fault, path, "one of its parents is no directory");
        }
        *parent = here;
    }
    return 0;
}

static int create(const struct input *input) {
    int fd = open(input->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0) return -1;
    int result = fchmod(fd, 0400) < 0 || write_all(fd, input->bytes, input->length) < 0 ? -1 : 0;
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

/* Lays a staged file over a file of the host. The stage is a memory file system laid over ATTEMPT_DIR for a moment:
 * the bind mount keeps its file alive, and the secret never lies on a disk. */
static int bind_over(const struct input *input, const struct spaces *spaces, struct fault *fault) {
    char staged[sizeof spaces->attempt_dir + 8];
    struct stat host;
    if (lstat(input->path, &host) < 0) return bad(fault, input->path, "it is missing and its directory is the host's");
    if (!S_ISREG(host.st_mode)) return refuse(fault, input->path, "the host has something other than a file there");
    if (mount("dayfly", spaces->attempt_dir, "tmpfs", 0, "mode=700") < 0) return bad(fault, input->path, "no stage");
    snprintf(staged, sizeof staged, "%s/staged", spaces->attempt_dir);
    struct input copy = {staged, input->bytes, input->length};
    int result = create(&copy);
    if (result == 0) result = mount(staged, input->path, NULL, MS_BIND, NULL);
    int error = errno;
    umount2(spaces->attempt_dir, MNT_DETACH);
    errno = error;
    return result < 0 ? bad(fault, input->path, "laying over the host's file") : 0;
}

static int place(const struct input *input, bool isolated, const struct spaces *spaces, struct traces *traces,
                 struct fault *fault) {
    struct stat parent;
    if (make_parents(input->path, isolated, spaces, traces, &parent, fault) < 0) return -1;
    if (isolated && !spaces_owns(spaces, &parent)) return bind_over(input, spaces, fault);
    if (create(input) == 0) return 0;
    if (errno == EEXIST) return refuse(fault, input->path, "something exists there and would be changed");
    return bad(fault, input->path, "writing");
}

/* A file that is there beforehand would be taken for the step's output, and with isolation `none` be removed. */
static int check_outputs(const struct order *order, struct fault *fault) {
    for (size_t i = 0; i < order->output_count; i++) {
        const struct output *output = &order->outputs[i];
        struct stat status;
        bool is_input = false;
        for (size_t k = 0; k < order->input_count; k++) {
            is_input = is_input || strcmp(order->inputs[k].path, output->path) == 0;
        }
        if (!output_path_allowed(output->path) || is_input || lstat(output->path, &status) < 0) continue;
        return fail(fault, "The output %s cannot be told from what is there: %s exists before the step runs.",
                    output->name, output->path);
    }
    return 0;
}

int inputs_place(const struct order *order, const struct spaces *spaces, struct traces *traces, struct fault *fault) {
    bool isolated = order->isolation != ISOLATION_NONE;
    if (check_outputs(order, fault) < 0) return -1;
    traces->outputs = !isolated;
    for (size_t i = 0; i < order->input_count; i++) {
        if (place(&order->inputs[i], isolated, spaces, traces, fault) < 0) return -1;
        if (!isolated) traces->input_count = i + 1;
    }
    return 0;
}

void inputs_remove(const struct order *order, const struct traces *traces) {
    for (size_t i = 0; i < traces->input_count; i++) unlink(order->inputs[i].path);
    for (size_t i = 0; traces->outputs && i < order->output_count; i++) {
        if (output_path_allowed(order->outputs[i].path)) unlink(order->outputs[i].path);
    }
    for (size_t i = traces->directory_count; i > 0; i--) rmdir(traces->directories[i - 1]);
}
