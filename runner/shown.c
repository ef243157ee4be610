#include "shown.h"

#include <errno.h>
#include <time.h>

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* The time after which another change gets another timestamp. Some file systems store whole seconds (ext4 with small
 * inodes), or two. */
static int64_t settled(int64_t stamp) {
    enum { SECOND = 1000000000 };
    return stamp % SECOND == 0 ? stamp + 2LL * SECOND : stamp;
}

static struct shown of(const struct stat *status) {
    return (struct shown){
        status->st_dev, status->st_ino, nanoseconds(&status->st_mtim), nanoseconds(&status->st_ctim)};
}

int shown_note(struct shown *shown, const struct stat *status) {
    struct timespec now;
    *shown = of(status);
    /* The clock for file timestamps advances in ticks. */
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0) return -1;
    errno = EAGAIN;
    return settled(shown->modified) < nanoseconds(&now) && settled(shown->changed) < nanoseconds(&now) ? 0 : -1;
}

bool shown_is_unchanged(const struct shown *shown, const char *path) {
    struct stat status;
    if (stat(path, &status) < 0) return false;
    struct shown now = of(&status);
    return now.device == shown->device && now.inode == shown->inode && now.modified == shown->modified &&
           now.changed == shown->changed;
}
