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

#include "host.h"
#include "mount_cache.h"
#include "packet.h"
#include "preparation.h"
#include "start_marker.h"
#include "supervisor.h"

enum { EXIT_USAGE = 64, NOTIFY_FD = 3, IDLE_MS = 1000 };

/* True if the packet begins with this word; the rest follows it. */
static bool skip_word(const char *word, const char **packet) {
    size_t length = strlen(word);
    if (strncmp(*packet, word, length) != 0) return false;
    *packet += length;
    return true;
}

/* Parses the packet: `root ` or `user ` before the path, or only the path. */
static enum isolation read_isolation(const char **path) {
    static const char *const words[] = {[ISOLATION_USER] = "user ", [ISOLATION_ROOT] = "root "};
    for (int each = ISOLATION_USER; each <= ISOLATION_ROOT; each++) {
        if (skip_word(words[each], path)) return (enum isolation)each;
    }
    return ISOLATION_NONE;
}

/* A prepared process that waits in a step's namespaces to become a launcher. */
struct prepared {
    pid_t pid;
    int socket; /* socket for its request; -1 if there is none */
    enum isolation isolation;
    unsigned generation; /* of the mounts that it has copied */
    struct directory_stamp stamps[MOUNT_RECORD_LIMIT]; /* the host's directories below its private ones */
    size_t count;
};

/* The role in which a child returns: a launcher, or a process that waits to become one. */
struct launch {
    bool is_child;
    const char *path;
    struct namespaces namespaces;
    struct preparation preparation;
    struct mount_sender mount_sender;
};

/* A launcher is our caller's child, not ours. The caller reaps it and may hold a descriptor of it, and our exit does not
 * affect it. */
static pid_t fork_for_caller(struct mount_cache *cache, struct launch *launch) {
    sigset_t before;
    struct cached_mounts cached;
    bool in_cached_mounts = namespaces_can_share_mounts(&launch->namespaces) && mount_cache_pop(cache, &cached);
    /* The kernel discards signals that the first process of a namespace neither handles nor blocks, and a request to
     * end may arrive before its first instruction. */
    sigprocmask(SIG_SETMASK, NULL, &before);
    supervisor_block_signals();
    pid_t launcher = in_cached_mounts
                         ? namespaces_fork_without_mounts(CLONE_PARENT)
                         : namespaces_fork(&launch->namespaces, launch->namespaces.isolation, CLONE_PARENT);
    int error = errno;
    if (launcher == 0) {
        launch->mount_sender = mount_sender_for(cache);
        if (in_cached_mounts) mount_cache_enter(cache, &cached, &launch->namespaces, &launch->preparation);
        return 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (in_cached_mounts) close(cached.namespace);
    errno = error;
    return launcher;
}

/* Records the state of the directories. A change within the current clock tick could hide another change in that tick. */
static int record_folders(struct prepared *prepared, const struct mount_cache *cache) {
    struct stat status;
    for (prepared->count = 0; prepared->count < cache->folder_count; prepared->count++) {
        if (stat(cache->folders[prepared->count], &status) < 0) return -1;
        if (directory_stamp_record(&prepared->stamps[prepared->count], &status) < 0) return -1;
    }
    return 0;
}

static bool all_unchanged(const struct prepared *prepared, struct mount_cache *cache) {
    for (size_t i = 0; i < prepared->count; i++) {
        if (!directory_stamp_is_current(&prepared->stamps[i], cache->folders[i])) return false;
    }
    return prepared->generation == mount_cache_generation(cache);
}

static void release_prepared(struct prepared *prepared) {
    if (prepared->socket >= 0) close(prepared->socket); /* its end of the socket closes, so it exits */
    prepared->socket = -1;
}

/* Sends the attempt's directory to the waiting process, if a new one would be forked the same way. After that no
 * process is waiting: our caller kills those that were not used, and must never kill a launcher. */
static bool send_to_prepared(struct prepared *prepared, struct mount_cache *cache, const struct launch *launch) {
    if (prepared->socket < 0) return false;
    bool sent = prepared->isolation == launch->namespaces.isolation && all_unchanged(prepared, cache) &&
                packet_send(prepared->socket, launch->path, strlen(launch->path), -1);
    release_prepared(prepared);
    return sent;
}

/* Returns the next packet on standard input. An attached descriptor is closed. */
static ssize_t recv_packet(char *packet, size_t size) {
    int descriptor;
    ssize_t got = packet_receive(STDIN_FILENO, packet, size, &descriptor);
    if (descriptor >= 0) close(descriptor);
    return got;
}

/* In the child: prepares, and waits for the request. If the socket closes, our parent has exited or does not need us. */
static void wait_for_folder(struct mount_cache *cache, int socket, char *packet, size_t size, struct launch *launch) {
    mount_cache_close(cache);
    if (dup2(socket, STDIN_FILENO) < 0) _exit(1);
    close(socket);
    if (launch->preparation.count == 0) {
        preparation_make(&launch->preparation, &launch->namespaces, cache->folders, cache->folder_count);
    }
    if (recv_packet(packet, size) <= 0) _exit(0);
    launch->path = packet;
    launch->mount_sender.since = now_ms();
}

/* Forks a process that waits to become a launcher. */
static pid_t fork_prepared(struct prepared *prepared, struct mount_cache *cache, char *packet, size_t size, size_t length,
                           struct launch *launch) {
    int sockets[2];
    release_prepared(prepared);
    errno = ENOTSUP;
    if (cache->changes < 0) return -1;
    prepared->generation = mount_cache_generation(cache); /* its copy contains all changes so far */
    if (mount_cache_set_folders(cache, launch->path, length) < 0 || record_folders(prepared, cache) < 0) return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) return -1;
    pid_t child = fork_for_caller(cache, launch);
    if (child == 0) {
        close(sockets[0]);
        wait_for_folder(cache, sockets[1], packet, size, launch);
        return 0;
    }
    int error = errno;
    close(sockets[1]);
    prepared->pid = child;
    prepared->socket = sockets[0];
    prepared->isolation = launch->namespaces.isolation;
    if (child < 0) release_prepared(prepared);
    errno = error;
    return child;
}

static bool send_response(int32_t number) {
    return send(STDIN_FILENO, &number, sizeof number, MSG_NOSIGNAL) == (ssize_t)sizeof number;
}

/* Clears the cache after a time without requests: it keeps file systems in use that were unmounted in the meantime. */
static void clear_cache_if_idle(struct mount_cache *cache) {
    struct pollfd waiting_data = {STDIN_FILENO, POLLIN, 0};
    if (poll(&waiting_data, 1, IDLE_MS) == 0) mount_cache_clear(cache);
}

/* True while there may be more requests. A child returns from here too, inside its namespaces. */
static bool serve_once(struct prepared *prepared, struct mount_cache *cache, char *packet, size_t size,
                       struct launch *launch) {
    clear_cache_if_idle(cache);
    ssize_t got = recv_packet(packet, size);
    if (got <= 0) return false;
    launch->path = packet;
    if (strcmp(packet, "release") == 0) {
        release_prepared(prepared);
        mount_cache_clear(cache);
        return send_response(0);
    }
    bool is_preparation = skip_word("prepare ", &launch->path);
    launch->namespaces.isolation = read_isolation(&launch->path);
    pid_t launcher;
    if (launch->namespaces.own_user && launch->namespaces.isolation != ISOLATION_USER) {
        launcher = -1; /* its namespaces are not the requested ones */
        errno = EINVAL;
    } else if (is_preparation) {
        launcher = fork_prepared(prepared, cache, packet, size, (size_t)(packet + got - launch->path), launch);
    } else if (send_to_prepared(prepared, cache, launch)) {
        launcher = prepared->pid;
    } else {
        launcher = fork_for_caller(cache, launch);
    }
    launch->is_child = launcher == 0;
    if (launch->is_child) return false;
    int32_t number = launcher > 0 ? (int32_t)launcher : (int32_t)-errno;
    return send_response(number);
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
    start_marker_cache_boot_id();
}

int serve_main(bool user) {
    char packet[PATH_MAX];
    struct launch launch = {.namespaces = namespaces_of_caller(),
                            .preparation = preparation_none(),
                            .mount_sender = mount_sender_none()};
    struct prepared prepared = {.socket = -1};
    static struct mount_cache cache;
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET) {
        fprintf(stderr, "dayfly-runner: serve needs a sequenced-packet socket as its standard input\n");
        return EXIT_USAGE;
    }
    /* It may run for months, so it must not use a folder of its caller. */
    if (chdir("/") < 0) return EXIT_USAGE;
    int notify_socket = find_notify_socket();
    if (user) namespaces_enter_user(&launch.namespaces);
    mount_cache_open(&cache);
    prepare_launchers();
    while (serve_once(&prepared, &cache, packet, sizeof packet, &launch)) {}
    struct caller caller = {.notify_socket = notify_socket, .mount_sender = launch.mount_sender};
    return launch.is_child ? host_main(launch.path, &launch.namespaces, &launch.preparation, &caller) : 0;
}
