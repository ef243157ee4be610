#include "serve.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"
#include "host.h"
#include "watch.h"

enum { EXIT_USAGE = 64, TELLER = 3 };

/* What a child comes back with: the directory for which it is the launcher, and where it stands. */
struct launch {
    const char *path;
    struct inside inside;
};

/* What the packet asks for: `root ` or `user ` before the path, or the path alone. */
static enum isolation read_isolation(const char **path) {
    static const char *const words[] = {[ISOLATION_USER] = "user ", [ISOLATION_ROOT] = "root "};
    for (int each = ISOLATION_USER; each <= ISOLATION_ROOT; each++) {
        size_t length = strlen(words[each]);
        if (strncmp(*path, words[each], length) != 0) continue;
        *path += length;
        return (enum isolation)each;
    }
    return ISOLATION_NONE;
}

/* A launcher is our caller's child, not ours: the caller reaps it and may hold a descriptor of it, and our own end
 * means nothing to it. */
static pid_t fork_for_caller(const struct launch *launch) {
    sigset_t before;
    /* The kernel drops what the first process of a namespace neither handles nor blocks, and a request to end may come
     * before its first instruction. */
    sigprocmask(SIG_SETMASK, NULL, &before);
    watch_block_signals();
    pid_t launcher = spaces_fork(launch->inside.isolation, CLONE_PARENT);
    if (launcher == 0) return 0;
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return launcher;
}

static bool answer(int32_t number) {
    return send(STDIN_FILENO, &number, sizeof number, MSG_NOSIGNAL) == (ssize_t)sizeof number;
}

/* Serves until there is no more to serve, which is false; true in a child, which is a launcher. */
static bool serve(char *packet, size_t size, struct launch *launch) {
    for (;;) {
        ssize_t got;
        do got = recv(STDIN_FILENO, packet, size - 1, 0);
        while (got < 0 && errno == EINTR);
        if (got <= 0) return false;
        packet[got] = '\0';
        launch->path = packet;
        launch->inside.isolation = read_isolation(&launch->path);
        pid_t launcher = fork_for_caller(launch);
        if (launcher == 0) return true;
        if (!answer(launcher > 0 ? (int32_t)launcher : (int32_t)-errno)) return false;
    }
}

/* Descriptor 3, where a caller that wants to be told of receipts has put a socket; -1 if it is none. */
static int find_teller(void) {
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(TELLER, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET ? TELLER : -1;
}

/* What each launcher would do for itself, done once. Memory that was had is had again, size by size, without asking the
 * kernel for more. */
static void prepare_launchers(void) {
    enum { SMALLEST = 16, LARGEST = 16384, SIZES = 11 };
    void *kept[SIZES];
    size_t size = SMALLEST;
    for (int each = 0; each < SIZES; each++, size *= 2) kept[each] = malloc(size);
    for (int each = 0; each < SIZES; each++) free(kept[each]);
    gate_know_boot();
}

int serve_main(void) {
    char packet[PATH_MAX];
    struct launch launch = {.inside = spaces_outside()};
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "dayfly-runner: serve needs a sequenced-packet socket as its standard input\n");
        return EXIT_USAGE;
    }
    /* It may stay for months: it must hold no folder of its caller's. */
    if (chdir("/") < 0) return EXIT_USAGE;
    int teller = find_teller();
    prepare_launchers();
    return serve(packet, sizeof packet, &launch) ? host_main(launch.path, &launch.inside, teller) : 0;
}
