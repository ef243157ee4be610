#include "preparation.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

struct preparation preparation_none(void) {
    return (struct preparation){.proc = -1, .private_mounts = private_mounts_none()};
}

void preparation_mount_proc(struct preparation *preparation) {
    if (preparation->own_proc) return;
    /* The kernel refuses this if parts of /proc are masked. Then the step sees the caller's /proc, which also knows
     * it. */
    preparation->own_proc = mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

static int undo(struct preparation *preparation) {
    int result = 0;
    for (; preparation->count > 0; preparation->count--) {
        if (umount2(preparation->folders[preparation->count - 1], MNT_DETACH) < 0) result = -1;
    }
    preparation->private_mounts = private_mounts_none();
    return result;
}

/* True if another file system has been mounted over the directory, which was on this device. */
static bool is_mounted_over(const char *path, dev_t device) {
    struct stat now;
    return stat(path, &now) == 0 && now.st_dev != device;
}

void preparation_make(struct preparation *preparation, struct namespaces *namespaces, const char *const *paths,
                      size_t count) {
    struct fault unused;
    if (count > PREPARATION_LIMIT || namespaces_set_up(namespaces, &unused) < 0) return;
    preparation->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (preparation->proc < 0) return;
    preparation_mount_proc(preparation);
    for (size_t i = 0; i < count; i++) {
        struct stat host;
        if (stat(paths[i], &host) < 0) break;
        struct private_mounts *mounts = &preparation->private_mounts;
        bool is_made = private_mounts_add(mounts, NULL, paths[i], namespaces->isolation, &unused) == 0;
        if (is_made || is_mounted_over(paths[i], host.st_dev)) preparation->folders[preparation->count++] = paths[i];
        if (!is_made) break;
        if (i + 1 == count) return;
    }
    undo(preparation);
}

/* True if the order requests PATH as private, and no directory that contains it. */
static bool is_requested(const char *folder, const struct order *order) {
    bool found = false;
    for (size_t i = 0; i < order->private_count; i++) {
        const char *path = order->private_paths[i];
        if (strcmp(path, folder) == 0) found = true;
        else if (path[1] == '\0' || is_within(folder, path)) return false;
    }
    return found;
}

static bool are_all_requested(const struct preparation *preparation, const struct order *order) {
    for (size_t i = 0; i < preparation->count; i++) {
        if (!is_requested(preparation->folders[i], order)) return false;
    }
    return true;
}

/* Removes the host's entry at the path of an input or output. A directory made for the order would not show it. */
static int remove_entry(struct preparation *preparation, const char *path) {
    const char *name = strrchr(path, '/');
    bool is_prepared_folder = false;
    for (size_t i = 0; i < preparation->count; i++) {
        size_t length = strlen(preparation->folders[i]);
        bool is_parent = length == (size_t)(name - path) && memcmp(preparation->folders[i], path, length) == 0;
        is_prepared_folder = is_prepared_folder || is_parent;
    }
    struct stat found;
    if (!is_prepared_folder || lstat(path, &found) < 0) return 0;
    preparation->private_mounts.reusable = false;
    if (!S_ISLNK(found.st_mode) && umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0) return -1;
    return unlinkat(AT_FDCWD, path, S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

static int remove_entries(struct preparation *preparation, const struct order *order) {
    for (size_t i = 0; i < order->input_count; i++) {
        if (remove_entry(preparation, order->inputs[i].path) < 0) return -1;
    }
    for (size_t i = 0; i < order->output_count; i++) {
        if (remove_entry(preparation, order->outputs[i].path) < 0) return -1;
    }
    return 0;
}

static bool is_prepared(const struct preparation *preparation, const char *path) {
    for (size_t i = 0; i < preparation->count; i++) {
        if (strcmp(preparation->folders[i], path) == 0) return true;
    }
    return false;
}

int preparation_apply(struct preparation *preparation, struct private_mounts *mounts, const struct order *order,
                      struct fault *fault) {
    bool is_usable = are_all_requested(preparation, order) && remove_entries(preparation, order) == 0;
    if (!is_usable && undo(preparation) < 0) {
        return fail(fault, "The prepared private directories cannot be unmounted: %s.", strerror(errno));
    }
    *mounts = preparation->private_mounts;
    for (size_t i = 0; i < order->private_count; i++) {
        const char *path = order->private_paths[i];
        if (is_within("/proc", path)) preparation->own_proc = false; /* the mount of PATH will hide it */
        if (is_prepared(preparation, path)) continue;
        if (private_mounts_add(mounts, order, path, order->isolation, fault) < 0) return -1;
    }
    return 0;
}
