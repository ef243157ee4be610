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

static int fail_with_errno(struct fault *fault, const char *path, const char *what) {
    return fail(fault, "The input file %s cannot be placed: %s: %s.", path, what, strerror(errno));
}

static int refuse(struct fault *fault, const char *path, const char *why) {
    return fail(fault, "The input file %s cannot be placed: %s.", path, why);
}

/* Records a directory once. */
static int record_directory(struct created_files *created_files, const char *path) {
    for (size_t i = 0; i < created_files->directory_count; i++) {
        if (strcmp(created_files->directories[i], path) == 0) return 0;
    }
    char **grown = realloc(created_files->directories, (created_files->directory_count + 1) * sizeof *grown);
    if (grown == NULL) return -1;
    created_files->directories = grown;
    grown[created_files->directory_count] = strdup(path);
    return grown[created_files->directory_count++] == NULL ? -1 : 0;
}

/* Handles a missing parent: with `private_mounts` it is created if it will be private, with
 * `created_files` only recorded. */
struct parents {
    const struct private_mounts *private_mounts;
    struct created_files *created_files;
};

static int add_parent(const char *path, const char *prefix, struct parents handling, const struct stat *above,
                      struct fault *fault) {
    if (handling.created_files != NULL) {
        return record_directory(handling.created_files, prefix) < 0 ? refuse(fault, path, "no memory") : 0;
    }
    if (!private_mounts_contain(handling.private_mounts, above)) {
        return refuse(fault, path, "its directory is missing and no private directory would hold it");
    }
    return mkdir(prefix, 0755) < 0 ? fail_with_errno(fault, path, prefix) : 0;
}

/* Walks down the parents of PATH. On success `parent` describes the last existing parent. */
static int walk_parents(const char *path, struct parents handling, struct stat *parent, struct fault *fault) {
    char prefix[PATH_MAX];
    if (stat("/", parent) < 0) return fail_with_errno(fault, path, "/");
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - path), path);
        struct stat here;
        bool missing = stat(prefix, &here) < 0;
        if (missing) {
            if (errno != ENOENT) return fail_with_errno(fault, path, prefix);
            if (add_parent(path, prefix, handling, parent, fault) < 0) return -1;
            if (handling.created_files != NULL) continue;
            if (stat(prefix, &here) < 0) return fail_with_errno(fault, path, prefix);
        }
        if (!S_ISDIR(here.st_mode)) return refuse(fault, path, "one of its parents is no directory");
        *parent = here;
    }
    return 0;
}

/* Creates the parents of outputs if the order requests it. If that fails, the program gets the error when it writes. */
static void walk_output_parents(const struct order *order, struct parents handling) {
    struct stat parent;
    struct fault unused;
    for (size_t i = 0; order->make_folders != 0 && i < order->output_count; i++) {
        const char *path = order->outputs[i].path;
        if (output_path_allowed(path)) walk_parents(path, handling, &parent, &unused);
    }
}

static int create(const struct input *input) {
    int fd = open(input->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0) return -1;
    int result = fchmod(fd, 0400) < 0 || write_all(fd, input->bytes, input->length) < 0 ? -1 : 0;
    int error = errno;
    close(fd);
    /* Remove it here: no other code knows that we created it, and a partial secret would block the next attempt. */
    if (result < 0) unlink(input->path);
    errno = error;
    return result;
}

/* Mounts a staged file over a file of the host. It is written to a memory file system that is mounted on the stage only
 * briefly. The bind mount keeps the file alive, and the secret is never on a disk. */
static int bind_over(const struct input *input, const char *stage, struct fault *fault) {
    char staged[PATH_MAX + 8];
    struct stat host;
    if (lstat(input->path, &host) < 0) {
        return fail_with_errno(fault, input->path, "it is missing and its directory is the host's");
    }
    if (!S_ISREG(host.st_mode)) return refuse(fault, input->path, "the host has something other than a file there");
    if (mount("dayfly", stage, "tmpfs", 0, "mode=700") < 0) return fail_with_errno(fault, input->path, "no stage");
    snprintf(staged, sizeof staged, "%s/staged", stage);
    struct input copy = {staged, input->bytes, input->length};
    int result = create(&copy);
    if (result == 0) result = mount(staged, input->path, NULL, MS_BIND, NULL);
    int error = errno;
    umount2(stage, MNT_DETACH);
    errno = error;
    return result < 0 ? fail_with_errno(fault, input->path, "mounting over the host's file") : 0;
}

static int create_new(const struct input *input, struct fault *fault) {
    if (create(input) == 0) return 0;
    if (errno == EEXIST) return refuse(fault, input->path, "something exists there and would be changed");
    return fail_with_errno(fault, input->path, "writing");
}

/* An existing file would be mistaken for the step's output and, with isolation `none`, be removed. */
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

int inputs_plan(const struct order *order, struct created_files *created_files, struct fault *fault) {
    struct stat status;
    if (check_outputs(order, fault) < 0) return -1;
    for (size_t i = 0; i < order->input_count; i++) {
        const char *path = order->inputs[i].path;
        if (walk_parents(path, (struct parents){NULL, created_files}, &status, fault) < 0) return -1;
        if (lstat(path, &status) == 0) return refuse(fault, path, "something exists there and would be changed");
    }
    created_files->needed_count = created_files->directory_count;
    walk_output_parents(order, (struct parents){NULL, created_files});
    return 0;
}

int inputs_create(const struct order *order, struct created_files *created_files, struct fault *fault) {
    created_files->outputs = true;
    for (size_t i = 0; i < created_files->directory_count; i++) {
        /* Another step may have created it in the meantime. The last step that ends finds it empty. */
        if (mkdir(created_files->directories[i], 0755) < 0 && errno != EEXIST && i < created_files->needed_count) {
            fail_with_errno(fault, created_files->directories[i], "creating the directory");
            inputs_remove(order, created_files);
            return -1;
        }
    }
    for (size_t i = 0; i < order->input_count; i++) {
        if (create_new(&order->inputs[i], fault) < 0) {
            inputs_remove(order, created_files);
            return -1;
        }
        created_files->input_count = i + 1;
    }
    return 0;
}

int inputs_place(const struct order *order, struct private_mounts *private_mounts, const char *stage,
                 struct fault *fault) {
    if (check_outputs(order, fault) < 0) return -1;
    for (size_t i = 0; i < order->input_count; i++) {
        const struct input *input = &order->inputs[i];
        struct stat parent;
        if (walk_parents(input->path, (struct parents){private_mounts, NULL}, &parent, fault) < 0) return -1;
        bool owned = private_mounts_contain(private_mounts, &parent);
        if (!owned) private_mounts->reusable = false;
        if ((owned ? create_new(input, fault) : bind_over(input, stage, fault)) < 0) return -1;
    }
    walk_output_parents(order, (struct parents){private_mounts, NULL});
    return 0;
}

void inputs_remove(const struct order *order, struct created_files *created_files) {
    for (size_t i = 0; i < created_files->input_count; i++) unlink(order->inputs[i].path);
    for (size_t i = 0; created_files->outputs && i < order->output_count; i++) {
        if (output_path_allowed(order->outputs[i].path)) unlink(order->outputs[i].path);
    }
    for (size_t i = created_files->directory_count; i > 0; i--) rmdir(created_files->directories[i - 1]);
    created_files->input_count = created_files->directory_count = 0;
    created_files->outputs = false;
}
