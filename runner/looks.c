#include "looks.h"

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
static int note_entries(struct looks *looks, int folder) {
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
    sha256_hex(&sum, looks->entries);
    return 0;
}

static int note(struct looks *looks, int folder) {
    struct stat status;
    struct statfs system;
    if (fstat(folder, &status) < 0 || fstatfs(folder, &system) < 0) return -1;
    looks->mode = status.st_mode;
    looks->uid = status.st_uid;
    looks->gid = status.st_gid;
    /* A direct system call, because C libraries differ in the type of its number. Older kernels have no such flags on a
     * memory file system. */
    if (syscall(SYS_ioctl, folder, FS_IOC_GETFLAGS, &looks->flags) < 0 && errno != ENOTTY && errno != EOPNOTSUPP) return -1;
    looks->attributes = flistxattr(folder, NULL, 0);
    looks->room = system.f_blocks;
    looks->free_room = system.f_bfree;
    looks->files = system.f_files;
    looks->free_files = system.f_ffree;
    looks->options = (uint64_t)system.f_flags;
    return note_entries(looks, folder);
}

int looks_note(struct looks *looks, const char *path) {
    memset(looks, 0, sizeof *looks); /* padding too, because the struct is compared as a whole */
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    int result = note(looks, folder);
    close(folder);
    return result;
}

bool looks_are(const struct looks *looks, const char *path) {
    struct looks now;
    return looks_note(&now, path) == 0 && memcmp(&now, looks, sizeof now) == 0;
}
