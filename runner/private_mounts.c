#include "private_mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* One directory while it becomes private: the host's, and the new one mounted over it. */
struct layer {
    const char *path;   /* path in the order */
    const char *target; /* a path that leads to the new directory */
    int host, mounted;
    bool root_rights;
    struct directory_stamp before; /* the host's state before its entries were listed */
    bool reusable; /* every entry of the host appears as itself */
};

static int fail_entry(const struct layer *layer, const char *name, struct fault *fault) {
    return fail(fault, "The host's entry %s of the private directory %s cannot be shown to the step: %s.", name,
                layer->path, strerror(errno));
}

static int copy_link(const struct layer *layer, const char *name) {
    char target[4096];
    struct stat status;
    if (fstatat(layer->host, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return -1;
    ssize_t length = readlinkat(layer->host, name, target, sizeof target - 1);
    if (length < 0) return -1;
    target[length] = '\0';
    if (symlinkat(target, layer->mounted, name) < 0) return -1;
    /* In a sticky directory the kernel follows a link only for its owner, so the owner is copied. */
    if (layer->root_rights) return fchownat(layer->mounted, name, status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* The type of an entry (DT_DIR, ...). Some file systems do not list it, so it is requested with fstatat. DT_UNKNOWN, with
 * errno set, if that fails too. */
static unsigned char entry_type(const struct layer *layer, const struct dirent *entry) {
    struct stat status;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type;
    return fstatat(layer->host, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN : IFTODT(status.st_mode);
}

/* Shows one entry of the host's directory in the new one. The working directory is the host's directory, because a bind
 * mount takes its source by path, and only a relative path still reaches it below the new mount. */
static int bind_entry(struct layer *layer, const struct dirent *entry, struct fault *fault) {
    char target[8192];
    const char *name = entry->d_name;
    unsigned char type = entry_type(layer, entry);
    if (type == DT_UNKNOWN) return errno == ENOENT ? 0 : fail_entry(layer, name, fault);
    if (type == DT_LNK) {
        layer->reusable = false; /* a step could replace it */
        return copy_link(layer, name) < 0 && errno != ENOENT ? fail_entry(layer, name, fault) : 0;
    }
    bool directory = type == DT_DIR;
    int made = directory ? mkdirat(layer->mounted, name, 0700) : mknodat(layer->mounted, name, S_IFREG | 0600, 0);
    if (made < 0) return fail_entry(layer, name, fault);
    snprintf(target, sizeof target, "%s/%s", layer->target, name);
    if (mount(name, target, NULL, MS_BIND | MS_REC, NULL) == 0) return 0;
    if (errno != ENOENT) return fail_entry(layer, name, fault);
    /* It disappeared between listing and mounting, as entries of /tmp do. */
    unlinkat(layer->mounted, name, directory ? AT_REMOVEDIR : 0);
    return 0;
}

/* Enters the host's directory, and closes the descriptor. */
static int bind_entries(struct layer *layer, const struct order *order, struct fault *fault) {
    char path[8192];
    DIR *list = fdopendir(layer->host);
    if (list == NULL) close(layer->host);
    if (list == NULL || fchdir(layer->host) < 0) {
        if (list != NULL) closedir(list);
        return fail(fault, "The private directory %s cannot be read: %s.", layer->path, strerror(errno));
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", layer->path[1] == '\0' ? "" : layer->path, entry->d_name);
        if (order == NULL || !order_declares(order, path)) result = bind_entry(layer, entry, fault);
        else layer->reusable = false;
    }
    closedir(list);
    return result;
}

/* Mounts a memory file system with the mode and owner of the host's directory. A user namespace often has no mapping for
 * that owner; then the directory belongs to the caller, who must be able to write to it. */
static int mount_over(struct layer *layer, struct stat *mounted, struct fault *fault) {
    struct stat host;
    char options[128];
    if (fstat(layer->host, &host) < 0) return fail(fault, "%s: %s.", layer->path, strerror(errno));
    if (directory_stamp_record(&layer->before, &host) < 0) layer->reusable = false;
    uid_t uid = layer->root_rights ? host.st_uid : geteuid();
    gid_t gid = layer->root_rights ? host.st_gid : getegid();
    snprintf(options, sizeof options, "mode=%o,uid=%u,gid=%u", host.st_mode & 07777, uid, gid);
    if (mount("dayfly", layer->path, "tmpfs", 0, options) < 0) {
        return fail(fault, "No private file system can be mounted over %s: %s.", layer->path, strerror(errno));
    }
    layer->mounted = openat(AT_FDCWD, layer->target, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (layer->mounted < 0 || fstat(layer->mounted, mounted) < 0 || mounted->st_dev == host.st_dev) {
        return fail(fault, "The private file system over %s cannot be reached.", layer->path);
    }
    return 0;
}

struct private_mounts private_mounts_none(void) {
    return (struct private_mounts){.reusable = true};
}

/* Records the mount, if there is space for the record. */
static void record_mount(struct private_mounts *mounts, const struct layer *layer, const struct stat *mounted) {
    size_t length = strlen(layer->path);
    if (mounts->count >= MOUNT_RECORD_LIMIT || length >= MOUNT_RECORD_PATH_SIZE || length == 1 || !layer->reusable) {
        mounts->reusable = false;
        return;
    }
    struct mount_record *record = &mounts->records[mounts->count];
    if (directory_state_read(&record->state, layer->path) < 0) mounts->reusable = false;
    memcpy(record->path, layer->path, length + 1);
    record->host = layer->before;
    record->device = mounted->st_dev;
}

int private_mounts_add(struct private_mounts *mounts, const struct order *order, const char *path,
                       enum isolation isolation, struct fault *fault) {
    bool is_root = path[1] == '\0';
    /* A mount over `/` does not move us: "/" is still the host's root, and "/.." leads to the file system mounted over
     * it. */
    struct layer layer = {.path = path, .target = is_root ? "/.." : path, .host = -1, .mounted = -1,
                          .root_rights = isolation == ISOLATION_ROOT, .reusable = true};
    struct stat mounted;
    if (mounts->count == PRIVATE_MOUNT_LIMIT) {
        return fail(fault, "The work order names more than %d private directories.", PRIVATE_MOUNT_LIMIT);
    }
    layer.host = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (layer.host < 0) {
        return fail(fault, "The private directory %s cannot be opened: %s.", path, strerror(errno));
    }
    int result = mount_over(&layer, &mounted, fault);
    if (result == 0) {
        result = bind_entries(&layer, order, fault);
        record_mount(mounts, &layer, &mounted);
        mounts->devices[mounts->count++] = mounted.st_dev;
    } else {
        close(layer.host);
    }
    if (result == 0 && is_root && (fchdir(layer.mounted) < 0 || chroot(".") < 0)) {
        result = fail(fault, "The step's own root cannot be entered: %s.", strerror(errno));
    }
    if (layer.mounted >= 0) close(layer.mounted);
    return chdir("/") < 0 ? fail(fault, "The root directory cannot be entered: %s.", strerror(errno)) : result;
}

bool private_mounts_contain(const struct private_mounts *mounts, const struct stat *status) {
    for (size_t i = 0; i < mounts->count; i++) {
        if (mounts->devices[i] == status->st_dev) return true;
    }
    return false;
}
