#include "private.h"

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
    int host, fresh;
    bool root_rights;
    struct shown before; /* the host's state before its entries were listed */
    bool plain;          /* every entry of the host appears as itself */
};

static int bad_entry(const struct layer *layer, const char *name, struct fault *fault) {
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
    if (symlinkat(target, layer->fresh, name) < 0) return -1;
    /* In a sticky directory the kernel follows a link only for its owner, so the owner is copied. */
    if (layer->root_rights) return fchownat(layer->fresh, name, status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* The type of an entry (DT_DIR, ...). Some file systems do not list it, so it is requested with fstatat. DT_UNKNOWN, with
 * errno set, if that fails too. */
static unsigned char kind_of(const struct layer *layer, const struct dirent *entry) {
    struct stat status;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type;
    return fstatat(layer->host, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN : IFTODT(status.st_mode);
}

/* Shows one entry of the host's directory in the new one. The working directory is the host's directory, because a bind
 * mount takes its source by path, and only a relative path still reaches it below the new mount. */
static int show_entry(struct layer *layer, const struct dirent *entry, struct fault *fault) {
    char target[8192];
    const char *name = entry->d_name;
    unsigned char kind = kind_of(layer, entry);
    if (kind == DT_UNKNOWN) return errno == ENOENT ? 0 : bad_entry(layer, name, fault);
    if (kind == DT_LNK) {
        layer->plain = false; /* a step could replace it */
        return copy_link(layer, name) < 0 && errno != ENOENT ? bad_entry(layer, name, fault) : 0;
    }
    bool directory = kind == DT_DIR;
    int made = directory ? mkdirat(layer->fresh, name, 0700) : mknodat(layer->fresh, name, S_IFREG | 0600, 0);
    if (made < 0) return bad_entry(layer, name, fault);
    snprintf(target, sizeof target, "%s/%s", layer->target, name);
    if (mount(name, target, NULL, MS_BIND | MS_REC, NULL) == 0) return 0;
    if (errno != ENOENT) return bad_entry(layer, name, fault);
    /* It disappeared between listing and mounting, as entries of /tmp do. */
    unlinkat(layer->fresh, name, directory ? AT_REMOVEDIR : 0);
    return 0;
}

/* Enters the host's directory, and closes the descriptor. */
static int show_entries(struct layer *layer, const struct order *order, struct fault *fault) {
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
        if (order == NULL || !order_declares(order, path)) result = show_entry(layer, entry, fault);
        else layer->plain = false;
    }
    closedir(list);
    return result;
}

/* Mounts a memory file system with the mode and owner of the host's directory. A user namespace often has no mapping for
 * that owner; then the directory belongs to the caller, who must be able to write to it. */
static int lay_over(struct layer *layer, struct stat *fresh, struct fault *fault) {
    struct stat host;
    char options[128];
    if (fstat(layer->host, &host) < 0) return fail(fault, "%s: %s.", layer->path, strerror(errno));
    if (shown_note(&layer->before, &host) < 0) layer->plain = false;
    uid_t uid = layer->root_rights ? host.st_uid : geteuid();
    gid_t gid = layer->root_rights ? host.st_gid : getegid();
    snprintf(options, sizeof options, "mode=%o,uid=%u,gid=%u", host.st_mode & 07777, uid, gid);
    if (mount("dayfly", layer->path, "tmpfs", 0, options) < 0) {
        return fail(fault, "No private file system can be laid over %s: %s.", layer->path, strerror(errno));
    }
    layer->fresh = openat(AT_FDCWD, layer->target, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (layer->fresh < 0 || fstat(layer->fresh, fresh) < 0 || fresh->st_dev == host.st_dev) {
        return fail(fault, "The private file system over %s cannot be reached.", layer->path);
    }
    return 0;
}

struct privates privates_none(void) {
    return (struct privates){.plain = true};
}

/* Records the mount, if there is space for the record. */
static void note(struct privates *privates, const struct layer *layer, const struct stat *fresh) {
    size_t length = strlen(layer->path);
    if (privates->count >= LAID_LIMIT || length >= LAID_PATH || length == 1 || !layer->plain) {
        privates->plain = false;
        return;
    }
    struct laid *laid = &privates->laid[privates->count];
    if (looks_note(&laid->looks, layer->path) < 0) privates->plain = false;
    memcpy(laid->path, layer->path, length + 1);
    laid->host = layer->before;
    laid->device = fresh->st_dev;
}

int privates_lay(struct privates *privates, const struct order *order, const char *path, enum isolation isolation,
                 struct fault *fault) {
    bool whole = path[1] == '\0';
    /* A mount over `/` does not move us: "/" is still the host's root, and "/.." leads to the file system mounted over
     * it. */
    struct layer layer = {.path = path, .target = whole ? "/.." : path, .host = -1, .fresh = -1,
                          .root_rights = isolation == ISOLATION_ROOT, .plain = true};
    struct stat fresh;
    if (privates->count == PRIVATE_LIMIT) {
        return fail(fault, "The work order names more than %d private directories.", PRIVATE_LIMIT);
    }
    layer.host = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (layer.host < 0) {
        return fail(fault, "The private directory %s cannot be opened: %s.", path, strerror(errno));
    }
    int result = lay_over(&layer, &fresh, fault);
    if (result == 0) {
        result = show_entries(&layer, order, fault);
        note(privates, &layer, &fresh);
        privates->devices[privates->count++] = fresh.st_dev;
    } else {
        close(layer.host);
    }
    if (result == 0 && whole && (fchdir(layer.fresh) < 0 || chroot(".") < 0)) {
        result = fail(fault, "The step's own root cannot be entered: %s.", strerror(errno));
    }
    if (layer.fresh >= 0) close(layer.fresh);
    return chdir("/") < 0 ? fail(fault, "The root directory cannot be entered: %s.", strerror(errno)) : result;
}

bool privates_own(const struct privates *privates, const struct stat *status) {
    for (size_t i = 0; i < privates->count; i++) {
        if (privates->devices[i] == status->st_dev) return true;
    }
    return false;
}
