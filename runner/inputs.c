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

/* Records a directory once. */
static int note_directory(struct traces *traces, const char *path) {
    for (size_t i = 0; i < traces->directory_count; i++) {
        if (strcmp(traces->directories[i], path) == 0) return 0;
    }
    char **grown = realloc(traces->directories, (traces->directory_count + 1) * sizeof *grown);
    if (grown == NULL) return -1;
    traces->directories = grown;
    grown[traces->directory_count] = strdup(path);
    return grown[traces->directory_count++] == NULL ? -1 : 0;
}

/* Handles a missing parent: with `privates` it is created if it will be private, with `traces` only recorded. */
struct parents {
    const struct privates *privates;
    struct traces *traces;
};

static int add_parent(const char *path, const char *prefix, struct parents how, const struct stat *above,
                      struct fault *fault) {
    if (how.traces != NULL) return note_directory(how.traces, prefix) < 0 ? refuse(fault, path, "no memory") : 0;
    if (!privates_own(how.privates, above)) {
        return refuse(fault, path, "its directory is missing and no private directory would hold it");
    }
    return mkdir(prefix, 0755) < 0 ? bad(fault, path, prefix) : 0;
}

/* Walks down the parents of PATH. On success `parent` describes the last existing parent. */
static int walk_parents(const char *path, struct parents how, struct stat *parent, struct fault *fault) {
    char prefix[PATH_MAX];
    if (stat("/", parent) < 0) return bad(fault, path, "/");
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - path), path);
        struct stat here;
        bool missing = stat(prefix, &here) < 0;
        if (missing) {
            if (errno != ENOENT) return bad(fault, path, prefix);
            if (add_parent(path, prefix, how, parent, fault) < 0) return -1;
            if (how.traces != NULL) continue;
            if (stat(prefix, &here) < 0) return bad(fault, path, prefix);
        }
        if (!S_ISDIR(here.st_mode)) return refuse(fault, path, "one of its parents is no directory");
        *parent = here;
    }
    return 0;
}

/* Creates the parents of outputs if the order requests it. If that fails, the program gets the error when it writes. */
static void walk_output_parents(const struct order *order, struct parents how) {
    struct stat parent;
    struct fault unused;
    for (size_t i = 0; order->make_folders != 0 && i < order->output_count; i++) {
        if (output_path_allowed(order->outputs[i].path)) walk_parents(order->outputs[i].path, how, &parent, &unused);
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
    if (lstat(input->path, &host) < 0) return bad(fault, input->path, "it is missing and its directory is the host's");
    if (!S_ISREG(host.st_mode)) return refuse(fault, input->path, "the host has something other than a file there");
    if (mount("dayfly", stage, "tmpfs", 0, "mode=700") < 0) return bad(fault, input->path, "no stage");
    snprintf(staged, sizeof staged, "%s/staged", stage);
    struct input copy = {staged, input->bytes, input->length};
    int result = create(&copy);
    if (result == 0) result = mount(staged, input->path, NULL, MS_BIND, NULL);
    int error = errno;
    umount2(stage, MNT_DETACH);
    errno = error;
    return result < 0 ? bad(fault, input->path, "laying over the host's file") : 0;
}

static int create_new(const struct input *input, struct fault *fault) {
    if (create(input) == 0) return 0;
    if (errno == EEXIST) return refuse(fault, input->path, "something exists there and would be changed");
    return bad(fault, input->path, "writing");
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

int inputs_plan(const struct order *order, struct traces *traces, struct fault *fault) {
    struct stat status;
    if (check_outputs(order, fault) < 0) return -1;
    for (size_t i = 0; i < order->input_count; i++) {
        const char *path = order->inputs[i].path;
        if (walk_parents(path, (struct parents){NULL, traces}, &status, fault) < 0) return -1;
        if (lstat(path, &status) == 0) return refuse(fault, path, "something exists there and would be changed");
    }
    traces->needed_count = traces->directory_count;
    walk_output_parents(order, (struct parents){NULL, traces});
    return 0;
}

int inputs_create(const struct order *order, struct traces *traces, struct fault *fault) {
    traces->outputs = true;
    for (size_t i = 0; i < traces->directory_count; i++) {
        /* Another step may have created it in the meantime. The last step that ends finds it empty. */
        if (mkdir(traces->directories[i], 0755) < 0 && errno != EEXIST && i < traces->needed_count) {
            bad(fault, traces->directories[i], "creating the directory");
            inputs_remove(order, traces);
            return -1;
        }
    }
    for (size_t i = 0; i < order->input_count; i++) {
        if (create_new(&order->inputs[i], fault) < 0) {
            inputs_remove(order, traces);
            return -1;
        }
        traces->input_count = i + 1;
    }
    return 0;
}

int inputs_place(const struct order *order, struct privates *privates, const char *stage, struct fault *fault) {
    if (check_outputs(order, fault) < 0) return -1;
    for (size_t i = 0; i < order->input_count; i++) {
        const struct input *input = &order->inputs[i];
        struct stat parent;
        if (walk_parents(input->path, (struct parents){privates, NULL}, &parent, fault) < 0) return -1;
        bool owned = privates_own(privates, &parent);
        if (!owned) privates->plain = false;
        if ((owned ? create_new(input, fault) : bind_over(input, stage, fault)) < 0) return -1;
    }
    walk_output_parents(order, (struct parents){privates, NULL});
    return 0;
}

void inputs_remove(const struct order *order, struct traces *traces) {
    for (size_t i = 0; i < traces->input_count; i++) unlink(order->inputs[i].path);
    for (size_t i = 0; traces->outputs && i < order->output_count; i++) {
        if (output_path_allowed(order->outputs[i].path)) unlink(order->outputs[i].path);
    }
    for (size_t i = traces->directory_count; i > 0; i--) rmdir(traces->directories[i - 1]);
    traces->input_count = traces->directory_count = 0;
    traces->outputs = false;
}
