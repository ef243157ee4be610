/* Rooms: the mounts of a step that has left its private directories as they were serve a later step. To make them takes
 * a launcher more than all else that it does, and the more the more entries they show. */
#ifndef DAYFLY_ROOMS_H
#define DAYFLY_ROOMS_H

#include <limits.h>
#include <stdint.h>

#include "ahead.h"
#include "private.h"
#include "spaces.h"

enum { ROOMS_LIMIT = 32 };

/* The mounts of one that has ended: its namespace, and how its private directories were laid. */
struct room {
    int mounts;
    size_t count;
    struct laid laid[LAID_LIMIT];
};

/* What a resident runner keeps. Each room is a copy of its own mounts and keeps what is unmounted in use, so none stays
 * for long. */
struct rooms {
    int taker, giver; /* launchers send into the one what we take from the other; -1 where rooms cannot be kept */
    int own;          /* our own mounts */
    int changes;      /* tells of each change of them; -1 where nobody can tell */
    unsigned generation; /* how often they have changed */
    char usual[PATH_MAX]; /* the private directories of every step: rooms have just these */
    const char *folders[LAID_LIMIT];
    size_t folder_count;
    struct room kept[ROOMS_LIMIT];
    size_t count;
};

void rooms_begin(struct rooms *rooms);

/* Notes which private directories every step has; PATHS with a NUL between them. -1 with errno if they are too many. */
int rooms_expect(struct rooms *rooms, const char *paths, size_t length);

/* How often our own mounts have changed until now. No room is older than the last change. */
unsigned rooms_generation(struct rooms *rooms);

/* Takes a room that is still as a new one would be. Its namespace is the caller's to close. */
bool rooms_take(struct rooms *rooms, struct room *room);

/* Lets go of all, and of those that came meanwhile. */
void rooms_let_go(struct rooms *rooms);

/* In a child that stays: the rooms are none of its own. */
void rooms_close(struct rooms *rooms);

/* In a child that `spaces_fork_for_mounts` made: enters the room. If that cannot be it stands in fresh mounts, as any
 * other that is forked into the namespaces of its order. */
void rooms_enter(const struct rooms *rooms, const struct room *room, struct inside *inside, struct ahead *ahead);

/* What a launcher gives its room on with. */
struct giver {
    int socket; /* -1: nobody would take it */
    unsigned generation;
    int64_t since; /* when it was asked for, in Unix ms */
    int changes;   /* tells whether the step has changed its mounts; -1 until `giver_watch` */
    const struct rooms *rooms;
};

struct giver giver_none(void);
struct giver giver_of(const struct rooms *rooms);

/* All is laid for the step: from now on a change is the step's. */
void giver_watch(struct giver *giver, const struct privates *privates);

/* Nothing of the step lives any more, and its outputs are kept: gives the room on if it is as it was. */
void giver_give(const struct giver *giver, const struct privates *privates, const struct order *order);

#endif
