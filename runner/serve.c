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
#include <unistd.h>

#include "ahead.h"
#include "gate.h"
#include "host.h"
#include "packet.h"
#include "rooms.h"
#include "watch.h"

enum { EXIT_USAGE = 64, NOTIFY_FD = 3, IDLE_MS = 1000 };

/* True if the packet begins with this word; the rest follows it. */
static bool takes_word(const char *word, const char **packet) {
    size_t length = strlen(word);
    if (strncmp(*packet, word, length) != 0) return false;
    *packet += length;
    return true;
}

/* Parses the packet: `root ` or `user ` before the path, or only the path. */
static enum isolation read_isolation(const char **path) {
    static const char *const words[] = {[ISOLATION_USER] = "user ", [ISOLATION_ROOT] = "root "};
    for (int each = ISOLATION_USER; each <= ISOLATION_ROOT; each++) {
        if (takes_word(words[each], path)) return (enum isolation)each;
    }
    return ISOLATION_NONE;
}

/* A prepared process that waits in a step's namespaces to become a launcher. */
struct waiting {
    pid_t pid;
    int socket; /* socket for its request; -1 if there is none */
    enum isolation isolation;
    unsigned generation; /* of the mounts that it has copied */
    struct shown shown[LAID_LIMIT]; /* the host's directories below its private ones */
    size_t count;
};

/* The role in which a child returns: a launcher, or a process that waits to become one. */
struct launch {
    bool is_child;
    const char *path;
    struct inside inside;
    struct ahead ahead;
    struct room_sender room_sender;
};

/* A launcher is our caller's child, not ours. The caller reaps it and may hold a descriptor of it, and our exit does not
 * affect it. */
static pid_t fork_for_caller(struct rooms *rooms, struct launch *launch) {
    sigset_t before;
    struct room room;
    bool in_room = spaces_can_share(&launch->inside) && rooms_take(rooms, &room);
    /* The kernel discards signals that the first process of a namespace neither handles nor blocks, and a request to
     * end may arrive before its first instruction. */
    sigprocmask(SIG_SETMASK, NULL, &before);
    watch_block_signals();
    pid_t launcher =
        in_room ? spaces_fork_for_mounts(CLONE_PARENT) : spaces_fork(&launch->inside, launch->inside.isolation, CLONE_PARENT);
    int error = errno;
    if (launcher == 0) {
        launch->room_sender = room_sender_of(rooms);
        if (in_room) rooms_enter(rooms, &room, &launch->inside, &launch->ahead);
        return 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (in_room) close(room.mounts);
    errno = error;
    return launcher;
}

/* Records the state of the directories. A change within the current clock tick could hide another change in that tick. */
static int look(struct waiting *waiting, const struct rooms *rooms) {
    struct stat status;
    for (waiting->count = 0; waiting->count < rooms->folder_count; waiting->count++) {
        if (stat(rooms->folders[waiting->count], &status) < 0) return -1;
        if (shown_note(&waiting->shown[waiting->count], &status) < 0) return -1;
    }
    return 0;
}

static bool all_unchanged(const struct waiting *waiting, struct rooms *rooms) {
    for (size_t i = 0; i < waiting->count; i++) {
        if (!shown_is_unchanged(&waiting->shown[i], rooms->folders[i])) return false;
    }
    return waiting->generation == rooms_generation(rooms);
}

static void dismiss(struct waiting *waiting) {
    if (waiting->socket >= 0) close(waiting->socket); /* its end of the socket closes, so it exits */
    waiting->socket = -1;
}

/* Sends the attempt's directory to the waiting process, if a new one would be forked the same way. After that no
 * process is waiting: our caller kills those that were not used, and must never kill a launcher. */
static bool is_taken(struct waiting *waiting, struct rooms *rooms, const struct launch *launch) {
    if (waiting->socket < 0) return false;
    bool taken = waiting->isolation == launch->inside.isolation && all_unchanged(waiting, rooms) &&
                 packet_send(waiting->socket, launch->path, strlen(launch->path), -1);
    dismiss(waiting);
    return taken;
}

/* Returns the next packet on standard input. An attached descriptor is closed. */
static ssize_t recv_packet(char *packet, size_t size) {
    int descriptor;
    ssize_t got = packet_receive(STDIN_FILENO, packet, size, &descriptor);
    if (descriptor >= 0) close(descriptor);
    return got;
}

/* In the child: prepares, and waits for the request. If the socket closes, our parent has exited or does not need us. */
static void wait_for_folder(struct rooms *rooms, int socket, char *packet, size_t size, struct launch *launch) {
    rooms_close(rooms);
    if (dup2(socket, STDIN_FILENO) < 0) _exit(1);
    close(socket);
    if (launch->ahead.count == 0) ahead_make(&launch->ahead, &launch->inside, rooms->folders, rooms->folder_count);
    if (recv_packet(packet, size) <= 0) _exit(0);
    launch->path = packet;
    launch->room_sender.since = now_ms();
}

/* Forks a process that waits to become a launcher. */
static pid_t fork_ahead(struct waiting *waiting, struct rooms *rooms, char *packet, size_t size, size_t length,
                        struct launch *launch) {
    int sockets[2];
    dismiss(waiting);
    errno = ENOTSUP;
    if (rooms->changes < 0) return -1;
    waiting->generation = rooms_generation(rooms); /* its copy contains all changes so far */
    if (rooms_expect(rooms, launch->path, length) < 0 || look(waiting, rooms) < 0) return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) return -1;
    pid_t child = fork_for_caller(rooms, launch);
    if (child == 0) {
        close(sockets[0]);
        wait_for_folder(rooms, sockets[1], packet, size, launch);
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

/* Drops all rooms after a time without requests: they keep file systems in use that were unmounted in the meantime. */
static void keep_rooms_while_asked(struct rooms *rooms) {
    struct pollfd waiting_data = {STDIN_FILENO, POLLIN, 0};
    if (poll(&waiting_data, 1, IDLE_MS) == 0) rooms_drop(rooms);
}

/* True while there may be more requests. A child returns from here too, inside its namespaces. */
static bool serve_once(struct waiting *waiting, struct rooms *rooms, char *packet, size_t size,
                       struct launch *launch) {
    keep_rooms_while_asked(rooms);
    ssize_t got = recv_packet(packet, size);
    if (got <= 0) return false;
    launch->path = packet;
    if (strcmp(packet, "let go") == 0) {
        dismiss(waiting);
        rooms_drop(rooms);
        return answer(0);
    }
    bool early = takes_word("ahead ", &launch->path);
    launch->inside.isolation = read_isolation(&launch->path);
    pid_t launcher;
    if (launch->inside.own_user && launch->inside.isolation != ISOLATION_USER) {
        launcher = -1; /* its namespaces are not the requested ones */
        errno = EINVAL;
    } else if (early) {
        launcher = fork_ahead(waiting, rooms, packet, size, (size_t)(packet + got - launch->path), launch);
    } else if (is_taken(waiting, rooms, launch)) {
        launcher = waiting->pid;
    } else {
        launcher = fork_for_caller(rooms, launch);
    }
    launch->is_child = launcher == 0;
    if (launch->is_child) return false;
    int32_t number = launcher > 0 ? (int32_t)launcher : (int32_t)-errno;
    return answer(number);
}

/* Descriptor 3, if it is a socket: the caller wants to be notified of receipts there. Otherwise -1. */
static int find_notify_socket(void) {
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(NOTIFY_FD, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET ? NOTIFY_FD : -1;
}

/* Does once what each launcher would do for itself. It allocates and frees memory, so that later allocations of the same
 * sizes need no system calls. */
static void prepare_launchers(void) {
    enum { SMALLEST = 16, LARGEST = 16384, SIZES = 11 };
    void *kept[SIZES];
    size_t size = SMALLEST;
    for (int each = 0; each < SIZES; each++, size *= 2) kept[each] = malloc(size);
    for (int each = 0; each < SIZES; each++) free(kept[each]);
    gate_know_boot();
}

int serve_main(bool user) {
    char packet[PATH_MAX];
    struct launch launch = {.inside = spaces_outside(), .ahead = ahead_nothing(), .room_sender = room_sender_none()};
    struct waiting waiting = {.socket = -1};
    static struct rooms rooms;
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "dayfly-runner: serve needs a sequenced-packet socket as its standard input\n");
        return EXIT_USAGE;
    }
    /* It may run for months, so it must not use a folder of its caller. */
    if (chdir("/") < 0) return EXIT_USAGE;
    int notify_socket = find_notify_socket();
    if (user) spaces_enter_user(&launch.inside);
    rooms_begin(&rooms);
    prepare_launchers();
    while (serve_once(&waiting, &rooms, packet, sizeof packet, &launch)) {}
    struct caller caller = {.notify_socket = notify_socket, .room_sender = launch.room_sender};
    return launch.is_child ? host_main(launch.path, &launch.inside, &launch.ahead, &caller) : 0;
}
