#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ahead.h"
#include "gate.h"
#include "host.h"
#include "packet.h"
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

/* True if the packet begins with this word; what is asked for is behind it then. */
static bool takes_word(const char *word, const char **packet) {
    size_t length = strlen(word);
    if (strncmp(*packet, word, length) != 0) return false;
    *packet += length;
    return true;
}

/* What the packet asks for: `root ` or `user ` before the path, or the path alone. */
static enum isolation read_isolation(const char **path) {
    static const char *const words[] = {[ISOLATION_USER] = "user ", [ISOLATION_ROOT] = "root "};
    for (int each = ISOLATION_USER; each <= ISOLATION_ROOT; each++) {
        if (takes_word(words[each], path)) return (enum isolation)each;
    }
    return ISOLATION_NONE;
}

/* A directory of the caller's that a private one shows, as it was before anybody looked. */
struct shown {
    const char *path;
    struct stat before;
};

/* Who is to become a launcher: it stands in the namespaces of a step and waits for its folder. */
struct waiting {
    pid_t pid;
    int socket; /* where it is told; -1 if there is none */
    enum isolation isolation;
    int mounts; /* tells of each change of the caller's mounts, of which it has a copy; -1 where nobody can tell */
    char paths[PATH_MAX];
    struct shown shown[AHEAD_LIMIT];
    size_t count;
};

/* What a child comes back with: it is a launcher, or it is to become one. */
struct launch {
    bool is_child;
    const char *path;
    int go; /* whence it is told that it may pass its gate; -1 if it need not be told */
    struct inside inside;
    struct ahead ahead;
};

static bool mounts_changed(const struct waiting *waiting) {
    struct pollfd told = {waiting->mounts, POLLPRI, 0};
    return poll(&told, 1, 0) != 0;
}

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Notes the directories (NUL between them) as they are. One that was changed in this very tick of the clock may be changed
 * once more in it, and nobody could tell. */
static int look(struct waiting *waiting, const char *paths, size_t length) {
    struct timespec now;
    memcpy(waiting->paths, paths, length);
    waiting->paths[length] = '\0';
    waiting->count = 0;
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0) return -1;
    for (const char *path = waiting->paths; path < waiting->paths + length; path += strlen(path) + 1) {
        errno = E2BIG;
        if (waiting->count == AHEAD_LIMIT) return -1;
        struct shown *shown = &waiting->shown[waiting->count++];
        shown->path = path;
        if (stat(path, &shown->before) < 0) return -1;
        errno = EAGAIN;
        if (nanoseconds(&shown->before.st_mtim) >= nanoseconds(&now)) return -1;
        if (nanoseconds(&shown->before.st_ctim) >= nanoseconds(&now)) return -1;
    }
    return 0;
}

static bool is_unchanged(const struct shown *shown) {
    struct stat now;
    const struct stat *before = &shown->before;
    return stat(shown->path, &now) == 0 && now.st_dev == before->st_dev && now.st_ino == before->st_ino &&
           nanoseconds(&now.st_mtim) == nanoseconds(&before->st_mtim) &&
           nanoseconds(&now.st_ctim) == nanoseconds(&before->st_ctim);
}

static bool all_unchanged(const struct waiting *waiting) {
    for (size_t i = 0; i < waiting->count; i++) {
        if (!is_unchanged(&waiting->shown[i])) return false;
    }
    return !mounts_changed(waiting);
}

static void dismiss(struct waiting *waiting) {
    if (waiting->socket >= 0) close(waiting->socket); /* it ends then */
    waiting->socket = -1;
}

/* Tells the folder to who waits, if it would still be forked just so. Nobody waits afterwards: our caller ends who was
 * not taken, and must never end a launcher. */
static bool is_taken(struct waiting *waiting, const struct launch *launch) {
    if (waiting->socket < 0) return false;
    bool taken = waiting->isolation == launch->inside.isolation && all_unchanged(waiting) &&
                 packet_send(waiting->socket, launch->path, strlen(launch->path), launch->go);
    dismiss(waiting);
    return taken;
}

/* In the child: prepares, and waits to be told. Whoever forked us is gone, or does not want us, once nobody can tell. */
static void wait_for_folder(const struct waiting *waiting, int socket, char *packet, size_t size,
                            struct launch *launch) {
    const char *paths[AHEAD_LIMIT];
    for (size_t i = 0; i < waiting->count; i++) paths[i] = waiting->shown[i].path;
    if (dup2(socket, STDIN_FILENO) < 0) _exit(1);
    close(socket);
    ahead_make(&launch->ahead, &launch->inside, paths, waiting->count);
    if (packet_receive(STDIN_FILENO, packet, size, &launch->go) <= 0) _exit(0);
    launch->path = packet;
}

/* Forks who is to become a launcher. */
static pid_t fork_ahead(struct waiting *waiting, char *packet, size_t size, size_t length, struct launch *launch) {
    int sockets[2];
    dismiss(waiting);
    errno = ENOTSUP;
    if (waiting->mounts < 0) return -1;
    mounts_changed(waiting); /* what was changed until now is in its copy */
    if (look(waiting, launch->path, length) < 0) return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) return -1;
    pid_t child = fork_for_caller(launch->inside.isolation);
    if (child == 0) {
        close(sockets[0]);
        wait_for_folder(waiting, sockets[1], packet, size, launch);
        return 0;
    }
    int error = errno;
    close(sockets[1]);
    waiting->pid = child;
    waiting->socket = sockets[0];
    waiting->isolation = launch->inside.isolation;
    if (child < 0) dismiss(waiting);
    errno = error;
    return child;
}

static bool answer(int32_t number) {
    return send(STDIN_FILENO, &number, sizeof number, MSG_NOSIGNAL) == (ssize_t)sizeof number;
}

/* True while there may be more to serve. A child comes back from here, and stands inside. */
static bool serve_once(struct waiting *waiting, char *packet, size_t size, struct launch *launch) {
    ssize_t got = packet_receive(STDIN_FILENO, packet, size, &launch->go);
    if (got <= 0) return false;
    launch->path = packet;
    if (strcmp(packet, "let go") == 0) {
        dismiss(waiting);
        if (launch->go >= 0) close(launch->go);
        return answer(0);
    }
    bool early = takes_word("ahead ", &launch->path);
    bool held = !early && takes_word("hold ", &launch->path);
    launch->inside.isolation = read_isolation(&launch->path);
    pid_t launcher;
    if (held && launch->go < 0) {
        launcher = -1; /* it would not be held */
        errno = EINVAL;
    } else if (early) {
        launcher = fork_ahead(waiting, packet, size, (size_t)(packet + got - launch->path), launch);
    } else if (is_taken(waiting, launch)) {
        launcher = waiting->pid;
    } else {
        launcher = fork_for_caller(launch->inside.isolation);
    }
    launch->is_child = launcher == 0;
    if (launch->is_child) return false;
    int32_t number = launcher > 0 ? (int32_t)launcher : (int32_t)-errno;
    if (launch->go >= 0) close(launch->go);
    return answer(number);
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
    struct launch launch = {.go = -1, .inside = spaces_outside(), .ahead = ahead_nothing()};
    struct waiting waiting = {.socket = -1};
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "dayfly-runner: serve needs a sequenced-packet socket as its standard input\n");
        return EXIT_USAGE;
    }
    /* It may stay for months: it must hold no folder of its caller's. */
    if (chdir("/") < 0) return EXIT_USAGE;
    int teller = find_teller();
    waiting.mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    prepare_launchers();
    while (serve_once(&waiting, packet, sizeof packet, &launch)) {}
    struct caller caller = {.teller = teller, .go = launch.go};
    return launch.is_child ? host_main(launch.path, &launch.inside, &launch.ahead, &caller) : 0;
}
