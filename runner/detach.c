#include "detach.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base.h"

enum { FIRST = 3 };

/* If the caller has no standard streams, open() may have returned one of their numbers. Any KEPT descriptor may also
 * have the number that another one needs. */
static int keep_descriptors(int *const *kept, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (*kept[i] >= 0 && (*kept[i] = fcntl(*kept[i], F_DUPFD_CLOEXEC, FIRST + (int)count)) < 0) return -1;
    }
    int next = FIRST;
    for (size_t i = 0; i < count; i++) {
        if (*kept[i] < 0) continue;
        if (dup3(*kept[i], next, O_CLOEXEC) < 0) return -1;
        *kept[i] = next++;
    }
    int null = open("/dev/null", O_RDWR);
    if (null < 0) return -1;
    for (int fd = 0; fd < FIRST; fd++) dup2(null, fd);
    close_from(next);
    return 0;
}

int detach(int *const *kept, size_t count) {
    if (setsid() < 0) {
        pid_t child = fork();
        if (child < 0) return -1;
        if (child > 0) {
            int status;
            while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
        setsid();
    }
    if (keep_descriptors(kept, count) < 0) return -1;
    umask(022);
    return 0;
}
