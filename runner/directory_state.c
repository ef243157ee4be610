#include "directory_state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdalign.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Records the inode of each entry itself, not of a mount on it. In a copy of the mounts an entry may be no mount point.
 * Then it can be renamed there, and the mount moves with it. */
static int read_entries(struct directory_state *state, int folder) {
    struct entry { /* getdents64(2) */
        uint64_t inode, next;
        uint16_t length;
        uint8_t kind;
        char name[];
    };
    alignas(struct entry) static char list[8192];
    struct sha256 sum;
    sha256_begin(&sum);
    for (long got; (got = syscall(SYS_getdents64, folder, list, sizeof list)) != 0;) {
        if (got < 0) return -1;
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(list + at);
            at += entry->length;
            if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) continue;
            sha256_add(&sum, &entry->inode, sizeof entry->inode);
            sha256_add(&sum, entry->name, strlen(entry->name) + 1);
        }
    }
    sha256_hex(&sum, state->entries);
    return 0;
}

static int read_state(struct directory_state *state, int folder) {
    struct stat status;
    struct statfs system;
    if (fstat(folder, &status) < 0 || fstatfs(folder, &system) < 0) return -1;
    state->mode = status.st_mode;
    state->uid = status.st_uid;
    state->gid = status.st_gid;
    /* A direct system call, because C libraries differ in the type of its number. Older kernels have no such flags on a
     * memory file system. */
    if (syscall(SYS_ioctl, folder, FS_IOC_GETFLAGS, &state->flags) < 0 && errno != ENOTTY && errno != EOPNOTSUPP) return -1;
    state->attributes = flistxattr(folder, NULL, 0);
    state->blocks = system.f_blocks;
    state->free_blocks = system.f_bfree;
    state->files = system.f_files;
    state->free_files = system.f_ffree;
    state->options = (uint64_t)system.f_flags;
    return read_entries(state, folder);
}

int directory_state_read(struct directory_state *state, const char *path) {
    memset(state, 0, sizeof *state); /* padding too, because the struct is compared as a whole */
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    int result = read_state(state, folder);
    close(folder);
    return result;
}

bool directory_state_matches(const struct directory_state *state, const char *path) {
    struct directory_state now;
    return directory_state_read(&now, path) == 0 && memcmp(&now, state, sizeof now) == 0;
}
