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

/* A launcher is our caller's child, not ours: the caller reaps it and may hold a descriptor of it, and our own end
 * means nothing to it. */
static pid_t fork_for_caller(enum isolation isolation) {
    sigset_t before;
    /* The kernel drops what the first process of a namespace neither handles nor blocks, and a request to end may come
     * before its first instruction. */
    sigprocmask(SIG_SETMASK, NULL, &before);
    watch_block_signals();
    pid_t launcher = spaces_fork(isolation, CLONE_PARENT);
    if (launcher != 0) sigprocmask(SIG_SETMASK, &before, NULL);
    return launcher;
}

/* What the packet asks for: `root ` or `user ` before the path, or the path alone. */
static enum isolation read_isolation(const char **path) {
    static const char *const words[] = {[ISOLATION_USER] = "user ", [ISOLATION_ROOT] = "root "};
    for (int each = ISOLATION_USER; each <= ISOLATION_ROOT; each++) {
        if (strncmp(*path, words[each], 5) != 0) continue;
        *path += 5;
        return (enum isolation)each;
    }
    return ISOLATION_NONE;
}

/* True while there may be more to serve. A child comes back from here with `path` set, and stands inside. */
static bool serve_once(char *packet, size_t size, const char **path, struct inside *inside, bool *is_launcher) {
    ssize_t got = recv(STDIN_FILENO, packet, size - 1, 0);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    packet[got] = '\0';
    *path = packet;
    inside->isolation = read_isolation(path);
    pid_t launcher = fork_for_caller(inside->isolation);
    *is_launcher = launcher == 0;
    if (*is_launcher) return false;
    int32_t answer = launcher > 0 ? (int32_t)launcher : (int32_t)-errno;
    return send(STDIN_FILENO, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
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
    const char *path = packet;
    struct inside inside = spaces_outside();
    bool is_launcher = false;
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "dayfly-runner: serve needs a sequenced-packet socket as its standard input\n");
        return EXIT_USAGE;
    }
    /* It may stay for months: it must hold no folder of its caller's. */
    if (chdir("/") < 0) return EXIT_USAGE;
    prepare_launchers();
    while (serve_once(packet, sizeof packet, &path, &inside, &is_launcher)) {}
    return is_launcher ? host_main(path, &inside, find_teller()) : 0;
}
