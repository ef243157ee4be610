#include "spaces.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_map(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = write_all(fd, text, strlen(text));
    close(fd);
    return result;
}

/* In the user namespace the caller keeps its ids, so files it owns outside stay its own inside. */
static int map_ids(uid_t uid, gid_t gid) {
    char text[64];
    if (write_map("/proc/self/setgroups", "deny") < 0 && errno != ENOENT) return -1;
    snprintf(text, sizeof text, "%u %u 1", uid, uid);
    if (write_map("/proc/self/uid_map", text) < 0) return -1;
    snprintf(text, sizeof text, "%u %u 1", gid, gid);
    return write_map("/proc/self/gid_map", text);
}

struct inside spaces_outside(void) {
    return (struct inside){ISOLATION_NONE, geteuid(), getegid(), false};
}

pid_t spaces_fork(enum isolation isolation, unsigned long flags) {
    unsigned long own = isolation == ISOLATION_NONE ? 0 : CLONE_NEWNS | CLONE_NEWPID;
    if (isolation == ISOLATION_USER) own |= CLONE_NEWUSER;
    pid_t child = (pid_t)syscall(SYS_clone, flags | own | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child >= 0 || errno != EINVAL || own == 0 || flags != 0) return child;
    /* An emulator of another processor knows no namespaces in `clone`. Whoever asks only stands by from here on. */
    return unshare((int)own) < 0 ? -1 : fork();
}

int spaces_settle(struct inside *inside, struct fault *fault) {
    if (inside->settled) return 0;
    if (inside->isolation == ISOLATION_USER && map_ids(inside->uid, inside->gid) < 0) {
        return fail(fault, "The kernel refuses the step's user mapping: %s.", strerror(errno));
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return fail(fault, "The step's mounts cannot be made private: %s.", strerror(errno));
    }
    inside->settled = true;
    return 0;
}

/* Stands by while the child runs the attempt: passes on a request to end, and how it ended. */
static _Noreturn void stand_by(pid_t child) {
    sigset_t heard;
    sigemptyset(&heard);
    sigaddset(&heard, SIGTERM);
    sigaddset(&heard, SIGINT);
    sigaddset(&heard, SIGCHLD);
    for (int status;;) {
        int number = sigwaitinfo(&heard, NULL);
        if (number == SIGTERM || number == SIGINT) kill(child, SIGTERM);
        if (number == SIGCHLD && waitpid(child, &status, WNOHANG) == child) {
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
    }
}

int spaces_enter(struct inside *inside, enum isolation wanted, struct fault *fault) {
    if (inside->isolation == wanted) return spaces_settle(inside, fault);
    if (inside->isolation != ISOLATION_NONE) {
        return fail(fault, "The work order asks for another isolation than the launcher was started in.");
    }
    int alive[2];
    pid_t child = pipe2(alive, O_CLOEXEC) < 0 ? -1 : spaces_fork(wanted, 0);
    if (child < 0) {
        return fail(fault, "The kernel refuses the step's namespaces: %s. Ask `dayfly-runner probe` what it grants.",
                    strerror(errno));
    }
    if (child > 0) stand_by(child);
    /* Had our parent died before this call, the pipe would be at its end, which is seen before anything is started. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return fail(fault, "No parent-death signal: %s.", strerror(errno));
    close(alive[1]);
    struct pollfd parent = {alive[0], POLLIN, 0};
    if (poll(&parent, 1, 0) != 0) _exit(1);
    close(alive[0]);
    inside->isolation = wanted;
    return spaces_settle(inside, fault);
}

/* One directory on its way to being private: the host's own, and the fresh one laid over it. */
struct layer {
    const char *path;   /* as the order names it */
    const char *target; /* where the fresh directory can be reached by path */
    int host, fresh;
    bool root_rights;
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
    /* In a sticky directory the kernel follows a link only for its owner, so the owner matters. */
    if (layer->root_rights) return fchownat(layer->fresh, name, status.st_uid, status.st_gid, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* What kind of entry it is (DT_DIR, ...). A file system that does not say so in its listing is asked; DT_UNKNOWN, with
 * errno set, when it cannot say it then either. */
static unsigned char kind_of(const struct layer *layer, const struct dirent *entry) {
    struct stat status;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type;
    return fstatat(layer->host, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN : IFTODT(status.st_mode);
}

/* Shows one entry of the host's directory in the fresh one. The working directory is the host's directory: a bind
 * mount takes its source by name, and by that name only it can still be reached below the new mount. */
static int show_entry(const struct layer *layer, const struct dirent *entry, struct fault *fault) {
    char target[8192];
    const char *name = entry->d_name;
    unsigned char kind = kind_of(layer, entry);
    if (kind == DT_UNKNOWN) return errno == ENOENT ? 0 : bad_entry(layer, name, fault);
    if (kind == DT_LNK) {
        return copy_link(layer, name) < 0 && errno != ENOENT ? bad_entry(layer, name, fault) : 0;
    }
    bool directory = kind == DT_DIR;
    int made = directory ? mkdirat(layer->fresh, name, 0700) : mknodat(layer->fresh, name, S_IFREG | 0600, 0);
    if (made < 0) return bad_entry(layer, name, fault);
    snprintf(target, sizeof target, "%s/%s", layer->target, name);
    if (mount(name, target, NULL, MS_BIND | MS_REC, NULL) == 0) return 0;
    if (errno != ENOENT) return bad_entry(layer, name, fault);
    /* It went away between listing and binding, as entries of /tmp do. */
    unlinkat(layer->fresh, name, directory ? AT_REMOVEDIR : 0);
    return 0;
}

/* Takes the host's directory for its own, and closes it. */
static int show_entries(const struct layer *layer, const struct order *order, struct fault *fault) {
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
    }
    closedir(list);
    return result;
}

/* Lays a memory file system with the host directory's mode and owner over it. In a user namespace the host's owner
 * is often nobody we could name; then the directory is the caller's, which is the one who must write there. */
static int lay_over(struct layer *layer, struct stat *fresh, struct fault *fault) {
    struct stat host;
    char options[128];
    if (fstat(layer->host, &host) < 0) return fail(fault, "%s: %s.", layer->path, strerror(errno));
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

int spaces_make_private(struct spaces *spaces, const struct order *order, const char *path, enum isolation isolation,
                        struct fault *fault) {
    bool whole = path[1] == '\0';
    /* A mount over `/` does not move us: "/" is still the host's root, and "/.." steps up into what lies over it. */
    struct layer layer = {path, whole ? "/.." : path, -1, -1, isolation == ISOLATION_ROOT};
    struct stat fresh;
    if (spaces->count == PRIVATE_LIMIT) {
        return fail(fault, "The work order names more than %d private directories.", PRIVATE_LIMIT);
    }
    layer.host = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (layer.host < 0) {
        return fail(fault, "The private directory %s cannot be opened: %s.", path, strerror(errno));
    }
    int result = lay_over(&layer, &fresh, fault);
    if (result == 0) {
        spaces->devices[spaces->count++] = fresh.st_dev;
        result = show_entries(&layer, order, fault);
    } else {
        close(layer.host);
    }
    if (result == 0 && whole && (fchdir(layer.fresh) < 0 || chroot(".") < 0)) {
        result = fail(fault, "The step's own root cannot be entered: %s.", strerror(errno));
    }
    if (layer.fresh >= 0) close(layer.fresh);
    return chdir("/") < 0 ? fail(fault, "The root directory cannot be entered: %s.", strerror(errno)) : result;
}

bool spaces_owns(const struct spaces *spaces, const struct stat *status) {
    for (size_t i = 0; i < spaces->count; i++) {
        if (spaces->devices[i] == status->st_dev) return true;
    }
    return false;
}

static bool grants(enum isolation isolation) {
    struct inside inside = spaces_outside();
    inside.isolation = isolation;
    pid_t child = spaces_fork(isolation, 0);
    if (child == 0) {
        struct fault fault;
        if (spaces_settle(&inside, &fault) < 0) _exit(1);
        /* Some kernels grant the namespace and then refuse every mount in it, or any child. */
        if (mount("dayfly", "/", "tmpfs", 0, NULL) < 0) _exit(1);
        pid_t other = fork();
        if (other == 0) _exit(0);
        _exit(other < 0 || waitpid(other, NULL, 0) < 0);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

enum isolation spaces_probe(void) {
    if (grants(ISOLATION_ROOT)) return ISOLATION_ROOT;
    return grants(ISOLATION_USER) ? ISOLATION_USER : ISOLATION_NONE;
}
