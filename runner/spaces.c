#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_map(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = write_all(fd, text, strlen(text));
    close(fd);
    return result;
}

/* In the user namespace the caller keeps its ids, so it also owns its files inside. */
static int map_ids(uid_t uid, gid_t gid) {
    char text[64];
    if (write_map("/proc/self/setgroups", "deny") < 0 && errno != ENOENT) return -1;
    snprintf(text, sizeof text, "%u %u 1", uid, uid);
    if (write_map("/proc/self/uid_map", text) < 0) return -1;
    snprintf(text, sizeof text, "%u %u 1", gid, gid);
    return write_map("/proc/self/gid_map", text);
}

struct inside spaces_outside(void) {
    return (struct inside){ISOLATION_NONE, geteuid(), getegid(), false, false};
}

void spaces_enter_user(struct inside *inside) {
    /* In a child first, because it cannot be undone. */
    pid_t child = fork();
    int status;
    if (child == 0) _exit(unshare(CLONE_NEWUSER) < 0 || map_ids(inside->uid, inside->gid) < 0);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return;
    if (unshare(CLONE_NEWUSER) < 0) return;
    if (map_ids(inside->uid, inside->gid) < 0) _exit(1);
    inside->own_user = true;
}

pid_t spaces_fork(const struct inside *inside, enum isolation wanted, unsigned long flags) {
    unsigned long own = wanted == ISOLATION_NONE ? 0 : CLONE_NEWNS | CLONE_NEWPID;
    if (wanted == ISOLATION_USER && !inside->own_user) own |= CLONE_NEWUSER;
    pid_t child = (pid_t)syscall(SYS_clone, flags | own | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child >= 0 || errno != EINVAL || own == 0 || flags != 0) return child;
    /* CPU emulators do not support namespaces in `clone`. From here on this process only supervises its child. */
    return unshare((int)own) < 0 ? -1 : fork();
}

bool spaces_can_share(const struct inside *inside) {
    return inside->isolation == ISOLATION_ROOT || (inside->isolation == ISOLATION_USER && inside->own_user);
}

pid_t spaces_fork_for_mounts(unsigned long flags) {
    return (pid_t)syscall(SYS_clone, flags | CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
}

int spaces_settle(struct inside *inside, struct fault *fault) {
    if (inside->settled) return 0;
    if (inside->isolation == ISOLATION_USER && !inside->own_user && map_ids(inside->uid, inside->gid) < 0) {
        return fail(fault, "The kernel refuses the step's user mapping: %s.", strerror(errno));
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return fail(fault, "The step's mounts cannot be made private: %s.", strerror(errno));
    }
    inside->settled = true;
    return 0;
}

/* Supervises the child that runs the attempt: forwards termination signals, and returns its exit. */
static _Noreturn void stand_by(pid_t child) {
    sigset_t heard;
    sigemptyset(&heard);
    sigaddset(&heard, SIGTERM);
    sigaddset(&heard, SIGINT);
    sigaddset(&heard, SIGCHLD);
    for (int status;;) {
        int number = sigwaitinfo(&heard, NULL);
        if (number == SIGTERM || number == SIGINT) kill(child, SIGTERM);
        if (number == SIGCHLD && waitpid(child, &status, WNOHANG) == child) {
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
    }
}

int spaces_enter(struct inside *inside, enum isolation wanted, struct fault *fault) {
    if (inside->isolation == wanted) return spaces_settle(inside, fault);
    if (inside->isolation != ISOLATION_NONE) {
        return fail(fault, "The work order asks for another isolation than the launcher was started in.");
    }
    int alive[2];
    pid_t child = pipe2(alive, O_CLOEXEC) < 0 ? -1 : spaces_fork(inside, wanted, 0);
    if (child < 0) {
        return fail(fault, "The kernel refuses the step's namespaces: %s. Ask `dayfly-runner probe` what it grants.",
                    strerror(errno));
    }
    if (child > 0) stand_by(child);
    /* If our parent died before this call, the pipe is closed; that is detected before anything starts. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return fail(fault, "No parent-death signal: %s.", strerror(errno));
    close(alive[1]);
    struct pollfd parent = {alive[0], POLLIN, 0};
    if (poll(&parent, 1, 0) != 0) _exit(1);
    close(alive[0]);
    inside->isolation = wanted;
    return spaces_settle(inside, fault);
}

static bool grants(enum isolation isolation) {
    struct inside inside = spaces_outside();
    inside.isolation = isolation;
    pid_t child = spaces_fork(&inside, isolation, 0);
    if (child == 0) {
        struct fault fault;
        if (spaces_settle(&inside, &fault) < 0) _exit(1);
        /* Some kernels grant the namespace but refuse every mount in it, or every child. */
        if (mount("dayfly", "/", "tmpfs", 0, NULL) < 0) _exit(1);
        pid_t other = fork();
        if (other == 0) _exit(0);
        _exit(other < 0 || waitpid(other, NULL, 0) < 0);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

enum isolation spaces_probe(void) {
    if (grants(ISOLATION_ROOT)) return ISOLATION_ROOT;
    return grants(ISOLATION_USER) ? ISOLATION_USER : ISOLATION_NONE;
}
