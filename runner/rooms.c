#include "rooms.h"

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

/* Rooms are dropped a second after the last request (`serve.c`). A room that arrived later would stay in use. */
enum { MAX_STEP_MS = 500 };

/* The data that a launcher sends with its namespace. */
struct room_message {
    unsigned generation;
    size_t count;
    struct laid laid[LAID_LIMIT];
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

void rooms_begin(struct rooms *rooms) {
    int sockets[2];
    *rooms = (struct rooms){.receive_socket = -1, .send_socket = -1};
    rooms->own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    rooms->changes = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (rooms->own < 0 || rooms->changes < 0 || !is_at_root()) return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) return;
    rooms->receive_socket = sockets[0];
    rooms->send_socket = sockets[1];
}

int rooms_expect(struct rooms *rooms, const char *paths, size_t length) {
    errno = E2BIG;
    if (length >= sizeof rooms->usual) return -1;
    memcpy(rooms->usual, paths, length);
    rooms->usual[length] = '\0';
    rooms->folder_count = 0;
    for (const char *path = rooms->usual; path < rooms->usual + length; path += strlen(path) + 1) {
        if (rooms->folder_count == LAID_LIMIT) return -1;
        rooms->folders[rooms->folder_count++] = path;
    }
    return 0;
}

static void drop_kept(struct rooms *rooms) {
    while (rooms->count > 0) close(rooms->kept[--rooms->count].mounts);
}

unsigned rooms_generation(struct rooms *rooms) {
    struct pollfd mount_changes = {rooms->changes, POLLPRI, 0};
    if (poll(&mount_changes, 1, 0) == 0) return rooms->generation;
    drop_kept(rooms);
    return ++rooms->generation;
}

/* Receives rooms from launchers while there is space for them. */
static void receive(struct rooms *rooms) {
    struct {
        struct room_message message;
        char end;
    } packet;
    struct pollfd waiting_data = {rooms->receive_socket, POLLIN, 0};
    while (poll(&waiting_data, 1, 0) > 0) {
        int mounts;
        ssize_t got = packet_receive(rooms->receive_socket, (char *)&packet, sizeof packet.message + 1, &mounts);
        if (got <= 0) return;
        bool whole = got == (ssize_t)sizeof packet.message && mounts >= 0;
        if (whole && packet.message.generation == rooms->generation && rooms->count < ROOMS_LIMIT) {
            struct room *room = &rooms->kept[rooms->count++];
            room->mounts = mounts;
            room->count = packet.message.count;
            memcpy(room->laid, packet.message.laid, sizeof room->laid);
        } else if (mounts >= 0) {
            close(mounts);
        }
    }
}

static bool is_as_new(const struct rooms *rooms, const struct room *room) {
    if (room->count != rooms->folder_count) return false;
    for (size_t i = 0; i < room->count; i++) {
        if (strcmp(room->laid[i].path, rooms->folders[i]) != 0) return false;
        if (!shown_is_unchanged(&room->laid[i].host, room->laid[i].path)) return false;
    }
    return true;
}

bool rooms_take(struct rooms *rooms, struct room *room) {
    rooms_generation(rooms);
    receive(rooms);
    while (rooms->count > 0) {
        *room = rooms->kept[--rooms->count];
        if (is_as_new(rooms, room)) return true;
        close(room->mounts);
    }
    return false;
}

void rooms_drop(struct rooms *rooms) {
    receive(rooms);
    drop_kept(rooms);
}

void rooms_close(struct rooms *rooms) {
    drop_kept(rooms);
    if (rooms->receive_socket >= 0) close(rooms->receive_socket);
    rooms->receive_socket = -1;
}

static bool enter(const struct rooms *rooms, const struct room *room, struct ahead *ahead) {
    if (setns(room->mounts, CLONE_NEWNS) < 0) return false;
    /* The room's /proc belongs to a dead PID namespace. */
    if (umount2("/proc", MNT_DETACH) == 0) ahead_mount_proc(ahead);
    if (ahead->own_proc) return true;
    if (setns(rooms->own, CLONE_NEWNS) < 0) _exit(1);
    return false;
}

void rooms_enter(const struct rooms *rooms, const struct room *room, struct inside *inside, struct ahead *ahead) {
    ahead->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ahead->proc < 0 || !enter(rooms, room, ahead)) {
        if (unshare(CLONE_NEWNS) < 0) _exit(1);
        return;
    }
    for (size_t i = 0; i < room->count; i++) {
        ahead->folders[i] = rooms->folders[i];
        ahead->privates.devices[i] = room->laid[i].device;
        ahead->privates.laid[i] = room->laid[i];
    }
    ahead->count = ahead->privates.count = room->count;
    inside->settled = true;
}

struct room_sender room_sender_none(void) {
    return (struct room_sender){.socket = -1, .changes = -1};
}

struct room_sender room_sender_of(const struct rooms *rooms) {
    return (struct room_sender){rooms->send_socket, rooms->generation, now_ms(), -1, rooms};
}

static bool is_usual(const struct room_sender *room_sender, const struct privates *privates) {
    const struct rooms *rooms = room_sender->rooms;
    if (room_sender->socket < 0 || !privates->plain || privates->count != rooms->folder_count) return false;
    for (size_t i = 0; i < privates->count; i++) {
        if (strcmp(privates->laid[i].path, rooms->folders[i]) != 0) return false;
    }
    return privates->count > 0;
}

void room_sender_watch(struct room_sender *room_sender, const struct privates *privates) {
    if (is_usual(room_sender, privates)) room_sender->changes = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
}

/* Removes only a direct entry of FOLDER: a subfolder may be the host's, or a link of the step. */
static void clear_place(const char *path, const char *folder) {
    if (is_within(path, folder) && strrchr(path, '/') == path + strlen(folder)) unlink(path);
}

/* Removes the order's own inputs and outputs from the directory, while nothing is mounted over them. */
static void clear(const struct privates *privates, const struct order *order) {
    for (size_t i = 0; i < privates->count; i++) {
        const char *folder = privates->laid[i].path;
        for (size_t k = 0; k < order->output_count; k++) clear_place(order->outputs[k].path, folder);
        for (size_t k = 0; k < order->input_count; k++) clear_place(order->inputs[k].path, folder);
    }
}

void room_sender_send(const struct room_sender *room_sender, const struct privates *privates, const struct order *order) {
    struct pollfd changed = {room_sender->changes, POLLPRI, 0};
    if (room_sender->changes < 0 || now_ms() - room_sender->since >= MAX_STEP_MS) return;
    /* A step may have made its mounts shared. That counts as no change, but later changes of a copy would propagate. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || poll(&changed, 1, 0) != 0) return;
    clear(privates, order);
    for (size_t i = 0; i < privates->count; i++) {
        if (!looks_are(&privates->laid[i].looks, privates->laid[i].path)) return;
    }
    int mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (mounts < 0) return;
    struct room_message message = {.generation = room_sender->generation, .count = privates->count};
    memcpy(message.laid, privates->laid, sizeof message.laid);
    packet_send(room_sender->socket, (const char *)&message, sizeof message, mounts);
    close(mounts);
}
