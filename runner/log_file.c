#include "log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { FLAGS = O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC };

/* Called at the first byte of output: most steps print nothing, and creating files is slow on disks. */
int log_file_create(void *state) {
    struct log_file *file = state;
    int fd = openat(file->folder, file->tail, FLAGS | O_CREAT, 0600);
    if (fd >= 0 || errno != ENOENT) return fd;
    char *slash = strrchr(file->tail, '/');
    if (slash == NULL) return -1;
    *slash = '\0';
    mkdirat(file->folder, file->tail, 0700);
    *slash = '/';
    return openat(file->folder, file->tail, FLAGS | O_CREAT, 0600);
}

int log_file_open(struct log_file *file, int dir, const char *path, int *fd, struct fault *fault) {
    *fd = path == NULL ? openat(dir, "log", FLAGS | O_CREAT, 0600) : open(path, FLAGS);
    if (*fd >= 0) return 0;
    if (path == NULL || errno != ENOENT) return fail(fault, "The log cannot be opened: %s.", strerror(errno));
    char *folder = strdup(path), *name = folder == NULL ? NULL : strrchr(folder, '/');
    if (folder == NULL) return fail(fault, "There is no memory for the log's path.");
    char *above = memrchr(folder, '/', (size_t)(name - folder));
    char *tail = above == NULL ? name : above;
    *tail = '\0';
    file->tail = tail + 1;
    file->folder = open(tail == folder ? "/" : folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return file->folder < 0 ? fail(fault, "The log cannot be made: %s: %s.", folder, strerror(errno)) : 0;
}
