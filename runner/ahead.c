#include "ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

struct ahead ahead_nothing(void) {
    return (struct ahead){.proc = -1, .privates = privates_none()};
}

void ahead_mount_proc(struct ahead *ahead) {
    if (ahead->own_proc) return;
    /* The kernel refuses this if parts of /proc are masked. Then the step sees the caller's /proc, which also knows
     * it. */
    ahead->own_proc = mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

static int undo(struct ahead *ahead) {
    int result = 0;
    for (; ahead->count > 0; ahead->count--) {
        if (umount2(ahead->folders[ahead->count - 1], MNT_DETACH) < 0) result = -1;
    }
    ahead->privates = privates_none();
    return result;
}

/* True if another file system has been mounted over the directory, which was on this device. */
static bool is_laid_over(const char *path, dev_t device) {
    struct stat now;
    return stat(path, &now) == 0 && now.st_dev != device;
}

void ahead_make(struct ahead *ahead, struct inside *inside, const char *const *paths, size_t count) {
    struct fault unused;
    if (count > AHEAD_LIMIT || spaces_settle(inside, &unused) < 0) return;
    ahead->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ahead->proc < 0) return;
    ahead_mount_proc(ahead);
    for (size_t i = 0; i < count; i++) {
        struct stat host;
        if (stat(paths[i], &host) < 0) break;
        bool is_made = privates_lay(&ahead->privates, NULL, paths[i], inside->isolation, &unused) == 0;
        if (is_made || is_laid_over(paths[i], host.st_dev)) ahead->folders[ahead->count++] = paths[i];
        if (!is_made) break;
        if (i + 1 == count) return;
    }
    undo(ahead);
}

/* True if the order requests PATH as private, and no directory that contains it. */
static bool is_wanted(const char *folder, const struct order *order) {
    bool found = false;
    for (size_t i = 0; i < order->private_count; i++) {
        const char *path = order->privates[i];
        if (strcmp(path, folder) == 0) found = true;
        else if (path[1] == '\0' || is_within(folder, path)) return false;
    }
    return found;
}

static bool is_wanted_all(const struct ahead *ahead, const struct order *order) {
    for (size_t i = 0; i < ahead->count; i++) {
        if (!is_wanted(ahead->folders[i], order)) return false;
    }
    return true;
}

/* The path of an input or output: here the host's entry would have been left out. */
static int clear_place(struct ahead *ahead, const char *path) {
    const char *name = strrchr(path, '/');
    bool is_ours = false;
    for (size_t i = 0; i < ahead->count; i++) {
        size_t length = strlen(ahead->folders[i]);
        is_ours = is_ours || (length == (size_t)(name - path) && memcmp(ahead->folders[i], path, length) == 0);
    }
    struct stat found;
    if (!is_ours || lstat(path, &found) < 0) return 0;
    ahead->privates.plain = false;
    if (!S_ISLNK(found.st_mode) && umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0) return -1;
    return unlinkat(AT_FDCWD, path, S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

static int clear_places(struct ahead *ahead, const struct order *order) {
    for (size_t i = 0; i < order->input_count; i++) {
        if (clear_place(ahead, order->inputs[i].path) < 0) return -1;
    }
    for (size_t i = 0; i < order->output_count; i++) {
        if (clear_place(ahead, order->outputs[i].path) < 0) return -1;
    }
    return 0;
}

static bool has(const struct ahead *ahead, const char *path) {
    for (size_t i = 0; i < ahead->count; i++) {
        if (strcmp(ahead->folders[i], path) == 0) return true;
    }
    return false;
}

int ahead_furnish(struct ahead *ahead, struct privates *privates, const struct order *order, struct fault *fault) {
    bool is_good = is_wanted_all(ahead, order) && clear_places(ahead, order) == 0;
    if (!is_good && undo(ahead) < 0) {
        return fail(fault, "What was made ready for a step cannot be taken away: %s.", strerror(errno));
    }
    *privates = ahead->privates;
    for (size_t i = 0; i < order->private_count; i++) {
        const char *path = order->privates[i];
        if (is_within("/proc", path)) ahead->own_proc = false; /* the mount of PATH will hide it */
        if (!has(ahead, path) && privates_lay(privates, order, path, order->isolation, fault) < 0) return -1;
    }
    return 0;
}
