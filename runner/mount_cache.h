/* A cache of mounts: a later step reuses the mounts of a step that left its private directories unchanged. Making them is
 * the most expensive part of a launcher's work, and the cost grows with the number of entries. */
#ifndef DAYFLY_MOUNT_CACHE_H
#define DAYFLY_MOUNT_CACHE_H

#include <limits.h>
#include <stdint.h>

#include "namespaces.h"
#include "preparation.h"
#include "private_mounts.h"

enum { MOUNT_CACHE_LIMIT = 32 };

/* The mounts of an ended step: its namespace, and how its private directories were mounted. */
struct cached_mounts {
    int namespace;
    size_t count;
    struct mount_record records[MOUNT_RECORD_LIMIT];
};

/* The cache of a resident runner. Each entry is a copy of the runner's mounts and keeps unmounted file systems in use, so
 * all are dropped after a short time. */
struct mount_cache {
    int receive_socket, send_socket; /* a socket pair, from launchers to the runner; -1 if mounts cannot be cached */
    int own_namespace; /* the namespace of our own mounts */
    int changes; /* poll() reports each change of our own mounts; -1 if unsupported */
    unsigned generation; /* how often they have changed */
    char folder_text[PATH_MAX]; /* the private directories of every step and of each entry */
    const char *folders[MOUNT_RECORD_LIMIT];
    size_t folder_count;
    struct cached_mounts entries[MOUNT_CACHE_LIMIT];
    size_t count;
};

void mount_cache_open(struct mount_cache *cache);

/* Records the private directories of every step; PATHS are separated by NUL. -1 with errno if they are too long. */
int mount_cache_set_folders(struct mount_cache *cache, const char *paths, size_t length);

/* How often our own mounts have changed. Entries that are older than the last change are dropped. */
unsigned mount_cache_generation(struct mount_cache *cache);

/* Removes and returns an entry that is equivalent to new mounts. The caller must close its namespace. */
bool mount_cache_pop(struct mount_cache *cache, struct cached_mounts *cached);

/* Drops all entries, and those that have just arrived. */
void mount_cache_clear(struct mount_cache *cache);

/* Call in a long-lived child: it closes its copies of the entries. */
void mount_cache_close(struct mount_cache *cache);

/* Call in a child of `namespaces_fork_without_mounts`: enters these mounts. If that fails, the child makes new ones, like
 * any other child in the namespaces of its order. */
void mount_cache_enter(const struct mount_cache *cache, const struct cached_mounts *cached, struct namespaces *namespaces,
                       struct preparation *preparation);

/* The state that a launcher needs to send its mounts to the cache. */
struct mount_sender {
    int socket; /* -1: mounts are not cached */
    unsigned generation;
    int64_t since; /* time of the request, in Unix ms */
    int changes;   /* poll() reports a change by the step; -1 before `mount_sender_watch` */
    const struct mount_cache *cache;
};

struct mount_sender mount_sender_none(void);
struct mount_sender mount_sender_for(const struct mount_cache *cache);

/* All mounts for the step are made: every change from now on is the step's. */
void mount_sender_watch(struct mount_sender *mount_sender, const struct private_mounts *private_mounts);

/* Call when every process of the step is dead and its outputs are kept: sends the mounts if they are unchanged. */
void mount_sender_send(const struct mount_sender *mount_sender, const struct private_mounts *private_mounts,
                       const struct order *order);

#endif
