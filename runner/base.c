#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int fail(struct fault *fault, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    return -1;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t length) {
    if (buffer->failed || length == 0) return;
    if (buffer->capacity - buffer->length < length) {
        size_t wanted = (buffer->length + length) * 2;
        char *grown = realloc(buffer->bytes, wanted);
        if (grown == NULL) {
            buffer->failed = true;
            return;
        }
        buffer->bytes = grown;
        buffer->capacity = wanted;
    }
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
}

void buffer_text(struct buffer *buffer, const char *text) {
    buffer_add(buffer, text, strlen(text));
}

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int write_all(int fd, const void *bytes, size_t length) {
    const char *rest = bytes;
    while (length > 0) {
        ssize_t written = write(fd, rest, length);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -1;
        rest += written;
        length -= (size_t)written;
    }
    return 0;
}

int reserve_space(int fd, size_t size) {
    static const char nothing[4096];
    if (posix_fallocate(fd, 0, (off_t)size) == 0) return 0;
    /* The file system does not support it (NFS, 9p, ramfs), so space is allocated at the first write. */
    for (size_t at = 0; at < size;) {
        ssize_t written = pwrite(fd, nothing, size - at < sizeof nothing ? size - at : sizeof nothing, (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -1;
        at += (size_t)written;
    }
    return 0;
}

int write_file(int dir, const char *name, unsigned mode, const void *bytes, size_t length) {
    enum { NEW_FILE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };
    int fd = openat(dir, name, NEW_FILE, mode);
    if (fd < 0 && errno == EEXIST && (unlinkat(dir, name, 0) == 0 || errno == ENOENT)) {
        fd = openat(dir, name, NEW_FILE, mode);
    }
    if (fd < 0) return -1;
    /* fchmod, because open applies the umask. */
    int result = fchmod(fd, mode) < 0 || write_all(fd, bytes, length) < 0 ? -1 : 0;
    int error = errno;
    if (close(fd) < 0 && result == 0) return -1;
    errno = error;
    return result;
}

int read_file(int dir, const char *name, size_t limit, char **bytes, size_t *length) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    struct stat status;
    char *memory = NULL;
    size_t filled = 0;
    int error = 0;
    if (fstat(fd, &status) < 0) error = errno;
    else if (!S_ISREG(status.st_mode)) error = EINVAL;
    else if ((uint64_t)status.st_size > limit) error = EFBIG;
    else if ((memory = malloc((size_t)status.st_size + 1)) == NULL) error = ENOMEM;
    while (error == 0 && filled < (size_t)status.st_size) {
        ssize_t got = read(fd, memory + filled, (size_t)status.st_size - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) error = errno;
        if (got <= 0) break;
        filled += (size_t)got;
    }
    close(fd);
    if (error != 0) {
        free(memory);
        errno = error;
        return -1;
    }
    memory[filled] = '\0';
    *bytes = memory;
    *length = filled;
    return 0;
}

bool is_clean_path(const char *path) {
    if (path[0] != '/') return false;
    if (path[1] == '\0') return true;
    for (const char *part = path; *part != '\0';) {
        const char *name = part + 1;
        size_t length = strcspn(name, "/");
        if (length == 0) return false;
        if (length == 1 && name[0] == '.') return false;
        if (length == 2 && name[0] == '.' && name[1] == '.') return false;
        part = name + length;
    }
    return true;
}

bool is_within(const char *path, const char *dir) {
    size_t length = strlen(dir);
    if (length == 1) return true;
    return strncmp(path, dir, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool image_folder(char *path, size_t size) {
    return getcwd(path, size) != NULL && strcmp(path, "/") != 0 && access(".", W_OK | X_OK) == 0;
}

void close_from(int first) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0U, 0U) == 0) return;
#endif
    long limit = sysconf(_SC_OPEN_MAX);
    for (int fd = first; fd < (limit > 0 && limit < 65536 ? limit : 65536); fd++) close(fd);
}
