#include "mount_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "packet.h"

/* The cache is cleared a second after the last request (`serve.c`). Mounts that arrived later would stay in use. */
enum { MAX_STEP_MS = 500 };

/* The data that a launcher sends with its namespace. */
struct mounts_message {
    unsigned generation;
    size_t count;
    struct mount_record records[MOUNT_RECORD_LIMIT];
};

/* The kernel's ID of the mount of our `/`; -1 if unknown. The caller compares its inode. */
static int root_mount(struct stat *root) {
    char path[64], text[512];
    int mount = -1, folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", folder);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = info < 0 || fstat(folder, root) < 0 ? -1 : read(info, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    const char *found = strstr(text, "mnt_id:");
    if (found != NULL) sscanf(found, "mnt_id: %d", &mount);
    if (info >= 0) close(info);
    close(folder);
    return mount;
}

/* True if our `/` is the root of our mounts. In a chroot it is not, and a copy of the mounts would show another root. */
static bool is_at_root(void) {
    struct stat before, after;
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) < 0) _exit(1);
        int mount = root_mount(&before), own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        _exit(mount < 0 || setns(own, CLONE_NEWNS) < 0 || root_mount(&after) != mount || before.st_ino != after.st_ino);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void mount_cache_open(struct mount_cache *cache) {
    int sockets[2];
    *cache = (struct mount_cache){.receive_socket = -1, .send_socket = -1};
    cache->own_namespace = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    cache->changes = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (cache->own_namespace < 0 || cache->changes < 0 || !is_at_root()) return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) return;
    cache->receive_socket = sockets[0];
    cache->send_socket = sockets[1];
}

int mount_cache_set_folders(struct mount_cache *cache, const char *paths, size_t length) {
    errno = E2BIG;
    if (length >= sizeof cache->folder_text) return -1;
    memcpy(cache->folder_text, paths, length);
    cache->folder_text[length] = '\0';
    cache->folder_count = 0;
    for (const char *path = cache->folder_text; path < cache->folder_text + length; path += strlen(path) + 1) {
        if (cache->folder_count == MOUNT_RECORD_LIMIT) return -1;
        cache->folders[cache->folder_count++] = path;
    }
    return 0;
}

static void close_entries(struct mount_cache *cache) {
    while (cache->count > 0) close(cache->entries[--cache->count].namespace);
}

unsigned mount_cache_generation(struct mount_cache *cache) {
    struct pollfd mount_changes = {cache->changes, POLLPRI, 0};
    if (poll(&mount_changes, 1, 0) == 0) return cache->generation;
    close_entries(cache);
    return ++cache->generation;
}

/* Receives mounts from launchers while there is space for them. */
static void receive_entries(struct mount_cache *cache) {
    struct {
        struct mounts_message message;
        char end;
    } packet;
    struct pollfd waiting_data = {cache->receive_socket, POLLIN, 0};
    while (poll(&waiting_data, 1, 0) > 0) {
        int namespace;
        ssize_t got = packet_receive(cache->receive_socket, (char *)&packet, sizeof packet.message + 1, &namespace);
        if (got <= 0) return;
        bool whole = got == (ssize_t)sizeof packet.message && namespace >= 0;
        if (whole && packet.message.generation == cache->generation && cache->count < MOUNT_CACHE_LIMIT) {
            struct cached_mounts *cached = &cache->entries[cache->count++];
            cached->namespace = namespace;
            cached->count = packet.message.count;
            memcpy(cached->records, packet.message.records, sizeof cached->records);
        } else if (namespace >= 0) {
            close(namespace);
        }
    }
}

static bool is_current(const struct mount_cache *cache, const struct cached_mounts *cached) {
    if (cached->count != cache->folder_count) return false;
    for (size_t i = 0; i < cached->count; i++) {
        if (strcmp(cached->records[i].path, cache->folders[i]) != 0) return false;
        if (!directory_stamp_is_current(&cached->records[i].host, cached->records[i].path)) return false;
    }
    return true;
}

bool mount_cache_pop(struct mount_cache *cache, struct cached_mounts *cached) {
    mount_cache_generation(cache);
    receive_entries(cache);
    while (cache->count > 0) {
        *cached = cache->entries[--cache->count];
        if (is_current(cache, cached)) return true;
        close(cached->namespace);
    }
    return false;
}

void mount_cache_clear(struct mount_cache *cache) {
    receive_entries(cache);
    close_entries(cache);
}

void mount_cache_close(struct mount_cache *cache) {
    close_entries(cache);
    if (cache->receive_socket >= 0) close(cache->receive_socket);
    cache->receive_socket = -1;
}

static bool enter_namespace(const struct mount_cache *cache, const struct cached_mounts *cached,
                            struct preparation *preparation) {
    if (setns(cached->namespace, CLONE_NEWNS) < 0) return false;
    /* The /proc of these mounts belongs to a dead PID namespace. */
    if (umount2("/proc", MNT_DETACH) == 0) preparation_mount_proc(preparation);
    if (preparation->own_proc) return true;
    if (setns(cache->own_namespace, CLONE_NEWNS) < 0) _exit(1);
    return false;
}

void mount_cache_enter(const struct mount_cache *cache, const struct cached_mounts *cached, struct namespaces *namespaces,
                       struct preparation *preparation) {
    preparation->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (preparation->proc < 0 || !enter_namespace(cache, cached, preparation)) {
        if (unshare(CLONE_NEWNS) < 0) _exit(1);
        return;
    }
    for (size_t i = 0; i < cached->count; i++) {
        preparation->folders[i] = cache->folders[i];
        preparation->private_mounts.devices[i] = cached->records[i].device;
        preparation->private_mounts.records[i] = cached->records[i];
    }
    preparation->count = preparation->private_mounts.count = cached->count;
    namespaces->is_set_up = true;
}

struct mount_sender mount_sender_none(void) {
    return (struct mount_sender){.socket = -1, .changes = -1};
}

struct mount_sender mount_sender_for(const struct mount_cache *cache) {
    return (struct mount_sender){cache->send_socket, cache->generation, now_ms(), -1, cache};
}

static bool is_cacheable(const struct mount_sender *sender, const struct private_mounts *mounts) {
    const struct mount_cache *cache = sender->cache;
    if (sender->socket < 0 || !mounts->reusable || mounts->count != cache->folder_count) return false;
    for (size_t i = 0; i < mounts->count; i++) {
        if (strcmp(mounts->records[i].path, cache->folders[i]) != 0) return false;
    }
    return mounts->count > 0;
}

void mount_sender_watch(struct mount_sender *sender, const struct private_mounts *mounts) {
    if (is_cacheable(sender, mounts)) sender->changes = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

/* Removes only a direct entry of FOLDER: a subfolder may be the host's, or a link of the step. */
static void remove_direct_entry(const char *path, const char *folder) {
    if (is_within(path, folder) && strrchr(path, '/') == path + strlen(folder)) unlink(path);
}

/* Removes the order's own inputs and outputs from the directory, while nothing is mounted over them. */
static void remove_files(const struct private_mounts *mounts, const struct order *order) {
    for (size_t i = 0; i < mounts->count; i++) {
        const char *folder = mounts->records[i].path;
        for (size_t k = 0; k < order->output_count; k++) remove_direct_entry(order->outputs[k].path, folder);
        for (size_t k = 0; k < order->input_count; k++) remove_direct_entry(order->inputs[k].path, folder);
    }
}

void mount_sender_send(const struct mount_sender *sender, const struct private_mounts *mounts,
                       const struct order *order) {
    struct pollfd changed = {sender->changes, POLLPRI, 0};
    if (sender->changes < 0 || now_ms() - sender->since >= MAX_STEP_MS) return;
    /* A step may have made its mounts shared. That counts as no change, but later changes of a copy would propagate. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || poll(&changed, 1, 0) != 0) return;
    remove_files(mounts, order);
    for (size_t i = 0; i < mounts->count; i++) {
        if (!directory_state_matches(&mounts->records[i].state, mounts->records[i].path)) return;
    }
    int namespace = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (namespace < 0) return;
    struct mounts_message message = {.generation = sender->generation, .count = mounts->count};
    memcpy(message.records, mounts->records, sizeof message.records);
    packet_send(sender->socket, (const char *)&message, sizeof message, namespace);
    close(namespace);
}
