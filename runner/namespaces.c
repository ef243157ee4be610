#include "namespaces.h"

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

struct namespaces namespaces_of_caller(void) {
    return (struct namespaces){ISOLATION_NONE, geteuid(), getegid(), false, false};
}

void namespaces_enter_user(struct namespaces *namespaces) {
    /* In a child first, because it cannot be undone. */
    pid_t child = fork();
    int status;
    if (child == 0) _exit(unshare(CLONE_NEWUSER) < 0 || map_ids(namespaces->uid, namespaces->gid) < 0);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return;
    if (unshare(CLONE_NEWUSER) < 0) return;
    if (map_ids(namespaces->uid, namespaces->gid) < 0) _exit(1);
    namespaces->own_user = true;
}

pid_t namespaces_fork(const struct namespaces *namespaces, enum isolation wanted, unsigned long flags) {
    unsigned long new = wanted == ISOLATION_NONE ? 0 : CLONE_NEWNS | CLONE_NEWPID;
    if (wanted == ISOLATION_USER && !namespaces->own_user) new |= CLONE_NEWUSER;
    pid_t child = (pid_t)syscall(SYS_clone, flags | new | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child >= 0 || errno != EINVAL || new == 0 || flags != 0) return child;
    /* CPU emulators do not support namespaces in `clone`. From here on this process only supervises its child. */
    return unshare((int)new) < 0 ? -1 : fork();
}

bool namespaces_can_share_mounts(const struct namespaces *namespaces) {
    return namespaces->isolation == ISOLATION_ROOT || (namespaces->isolation == ISOLATION_USER && namespaces->own_user);
}

pid_t namespaces_fork_without_mounts(unsigned long flags) {
    return (pid_t)syscall(SYS_clone, flags | CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
}

int namespaces_set_up(struct namespaces *namespaces, struct fault *fault) {
    if (namespaces->is_set_up) return 0;
    bool is_new_user = namespaces->isolation == ISOLATION_USER && !namespaces->own_user;
    if (is_new_user && map_ids(namespaces->uid, namespaces->gid) < 0) {
        return fail(fault, "The kernel refuses the step's user mapping: %s.", strerror(errno));
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return fail(fault, "The step's mounts cannot be made private: %s.", strerror(errno));
    }
    namespaces->is_set_up = true;
    return 0;
}

/* Supervises the child that runs the attempt: forwards termination signals, and returns its exit. */
static _Noreturn void supervise_child(pid_t child) {
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGTERM);
    sigaddset(&handled, SIGINT);
    sigaddset(&handled, SIGCHLD);
    for (int status;;) {
        int number = sigwaitinfo(&handled, NULL);
        if (number == SIGTERM || number == SIGINT) kill(child, SIGTERM);
        if (number == SIGCHLD && waitpid(child, &status, WNOHANG) == child) {
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
    }
}

int namespaces_enter(struct namespaces *namespaces, enum isolation wanted, struct fault *fault) {
    if (namespaces->isolation == wanted) return namespaces_set_up(namespaces, fault);
    if (namespaces->isolation != ISOLATION_NONE) {
        return fail(fault, "The work order asks for another isolation than the launcher was started in.");
    }
    int alive[2];
    pid_t child = pipe2(alive, O_CLOEXEC) < 0 ? -1 : namespaces_fork(namespaces, wanted, 0);
    if (child < 0) {
        return fail(fault, "The kernel refuses the step's namespaces: %s. Ask `dayfly-runner probe` what it grants.",
                    strerror(errno));
    }
    if (child > 0) supervise_child(child);
    /* If our parent died before this call, the pipe is closed; that is detected before anything starts. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return fail(fault, "No parent-death signal: %s.", strerror(errno));
    close(alive[1]);
    struct pollfd parent = {alive[0], POLLIN, 0};
    if (poll(&parent, 1, 0) != 0) _exit(1);
    close(alive[0]);
    namespaces->isolation = wanted;
    return namespaces_set_up(namespaces, fault);
}

static bool is_granted(enum isolation isolation) {
    struct namespaces namespaces = namespaces_of_caller();
    namespaces.isolation = isolation;
    pid_t child = namespaces_fork(&namespaces, isolation, 0);
    if (child == 0) {
        struct fault fault;
        if (namespaces_set_up(&namespaces, &fault) < 0) _exit(1);
        /* Some kernels grant the namespace but refuse every mount in it, or every child. */
        if (mount("dayfly", "/", "tmpfs", 0, NULL) < 0) _exit(1);
        pid_t other = fork();
        if (other == 0) _exit(0);
        _exit(other < 0 || waitpid(other, NULL, 0) < 0);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

enum isolation namespaces_probe(void) {
    if (is_granted(ISOLATION_ROOT)) return ISOLATION_ROOT;
    return is_granted(ISOLATION_USER) ? ISOLATION_USER : ISOLATION_NONE;
}
