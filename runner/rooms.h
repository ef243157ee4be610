/* Rooms: a later step reuses the mounts of a step that left its private directories unchanged. Making them is the most
 * expensive part of a launcher's work, and the cost grows with the number of entries. */
#ifndef DAYFLY_ROOMS_H
#define DAYFLY_ROOMS_H

#include <limits.h>
#include <stdint.h>

#include "ahead.h"
#include "private.h"
#include "spaces.h"

enum { ROOMS_LIMIT = 32 };

/* The mounts of an ended step: its namespace, and how its private directories were mounted. */
struct room {
    int mounts;
    size_t count;
    struct laid laid[LAID_LIMIT];
};

/* The rooms of a resident runner. Each is a copy of the runner's mounts and keeps unmounted file systems in use, so all
 * are dropped after a short time. */
struct rooms {
    int receive_socket, send_socket; /* a socket pair, from launchers to the runner; -1 if rooms are not possible */
    int own;          /* our own mounts */
    int changes;      /* poll() reports each change of our mounts; -1 if unsupported */
    unsigned generation; /* how often they have changed */
    char usual[PATH_MAX]; /* the private directories of every step and of each room */
    const char *folders[LAID_LIMIT];
    size_t folder_count;
    struct room kept[ROOMS_LIMIT];
    size_t count;
};

void rooms_begin(struct rooms *rooms);

/* Records the private directories of every step; PATHS are separated by NUL. -1 with errno if they are too long. */
int rooms_expect(struct rooms *rooms, const char *paths, size_t length);

/* How often our own mounts have changed. Rooms that are older than the last change are dropped. */
unsigned rooms_generation(struct rooms *rooms);

/* Takes a room that is equivalent to a new one. The caller must close its namespace. */
bool rooms_take(struct rooms *rooms, struct room *room);

/* Drops all rooms, and those that have just arrived. */
void rooms_drop(struct rooms *rooms);

/* Call in a long-lived child: it gives up its copies of the rooms. */
void rooms_close(struct rooms *rooms);

/* Call in a child of `spaces_fork_for_mounts`: enters the room. If that fails, the child makes fresh mounts, like any
 * other child in the namespaces of its order. */
void rooms_enter(const struct rooms *rooms, const struct room *room, struct inside *inside, struct ahead *ahead);

/* The state that a launcher needs to hand over its room. */
struct room_sender {
    int socket; /* -1: rooms are not collected */
    unsigned generation;
    int64_t since; /* time of the request, in Unix ms */
    int changes;   /* poll() reports a change by the step; -1 before `room_sender_watch` */
    const struct rooms *rooms;
};

struct room_sender room_sender_none(void);
struct room_sender room_sender_of(const struct rooms *rooms);

/* All mounts for the step are made: every change from now on is the step's. */
void room_sender_watch(struct room_sender *room_sender, const struct privates *privates);

/* Call when every process of the step is dead and its outputs are kept: hands over the room if it is unchanged. */
void room_sender_send(const struct room_sender *room_sender, const struct privates *privates, const struct order *order);

#endif
