#include "directory_stamp.h"

#include <errno.h>
#include <time.h>

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* The time after which another change gets another timestamp. Some file systems store whole seconds (ext4 with small
 * inodes), or two. */
static int64_t ambiguous_until(int64_t stamp) {
    enum { SECOND = 1000000000 };
    return stamp % SECOND == 0 ? stamp + 2LL * SECOND : stamp;
}

static struct directory_stamp make_stamp(const struct stat *status) {
    return (struct directory_stamp){
        status->st_dev, status->st_ino, nanoseconds(&status->st_mtim), nanoseconds(&status->st_ctim)};
}

int directory_stamp_record(struct directory_stamp *recorded, const struct stat *status) {
    struct timespec now;
    *recorded = make_stamp(status);
    /* The clock for file timestamps advances in ticks. */
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0) return -1;
    int64_t modified = ambiguous_until(recorded->modified), changed = ambiguous_until(recorded->changed);
    errno = EAGAIN;
    return modified < nanoseconds(&now) && changed < nanoseconds(&now) ? 0 : -1;
}

bool directory_stamp_is_current(const struct directory_stamp *recorded, const char *path) {
    struct stat status;
    if (stat(path, &status) < 0) return false;
    struct directory_stamp now = make_stamp(&status);
    return now.device == recorded->device && now.inode == recorded->inode && now.modified == recorded->modified &&
           now.changed == recorded->changed;
}
