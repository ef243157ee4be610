#include "serve.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host.h"

enum { EXIT_USAGE = 64 };

/* A launcher is our caller's child, not ours: the caller reaps it and may hold a descriptor of it, and our own end
 * means nothing to it. */
static pid_t fork_for_caller(void) {
    return (pid_t)syscall(SYS_clone, (unsigned long)CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
}

/* True while there may be more to serve. A child comes back from here with `directory` set. */
static bool serve_once(char *directory, size_t size, bool *is_launcher) {
    ssize_t got = recv(STDIN_FILENO, directory, size - 1, 0);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    directory[got] = '\0';
    pid_t launcher = fork_for_caller();
    *is_launcher = launcher == 0;
    if (*is_launcher) return false;
    int32_t answer = launcher > 0 ? (int32_t)launcher : (int32_t)-errno;
    return send(STDIN_FILENO, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
}

int serve_main(void) {
    char directory[PATH_MAX];
    bool is_launcher = false;
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "dayfly-runner: serve needs a sequenced-packet socket as its standard input\n");
        return EXIT_USAGE;
    }
    /* It may stay for months: it must hold no folder of its caller's. */
    if (chdir("/") < 0) return EXIT_USAGE;
    while (serve_once(directory, sizeof directory, &is_launcher)) {}
    return is_launcher ? host_main(directory) : 0;
}
