#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "step.h"

static void watched_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGCHLD);
}

void watch_block_signals(void) {
    sigset_t set;
    watched_signals(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* If the caller ignored SIGCHLD, we inherited that, and every wait would fail. */
    signal(SIGCHLD, SIG_DFL);
}

bool watch_cancelled(void) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

static void arm(int timer, int64_t milliseconds) {
    /* Zero would disarm the timer instead of firing it immediately. */
    struct itimerspec when = {.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000000 + 1}};
    timerfd_settime(timer, 0, &when, NULL);
}

/* Returns how many bytes were read; 0 at the end. */
static size_t pump(struct watch *watch) {
    char bytes[65536];
    ssize_t got = read(watch->log_pipe, bytes, sizeof bytes);
    if (got > 0) {
        watch->print(watch->state, bytes, (size_t)got);
        return (size_t)got;
    }
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    close(watch->log_pipe);
    watch->log_pipe = -1;
    return 0;
}

/* True if there may be another message. */
static bool listen_once(struct watch *watch, struct end *end) {
    struct message message;
    int got = message_receive(watch->control, &message, MSG_DONTWAIT);
    if (got < 0) {
        close(watch->control);
        watch->control = -1;
    }
    if (got <= 0) return false;
    if (message.word == WORD_EXEC) {
        end->not_executable = true;
        end->no_process = message.value != 0;
        end->fault = message.fault;
    } else if (message.word == WORD_ENDED) {
        end->known = true;
        end->status = message.value;
        end->left = message.fault;
    }
    return true;
}

/* Ends the step: SIGTERM the first time, then SIGKILL. */
static void stop(struct watch *watch, bool *stopping) {
    if (*stopping || watch->grace_ms == 0) {
        watch->kill(watch->state);
    } else {
        watch->terminate(watch->state);
        arm(watch->timer, watch->grace_ms);
    }
    *stopping = true;
}

static bool reaped(struct watch *watch, bool child_is_program, struct end *end) {
    bool gone = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != watch->child) continue;
        gone = true;
        if (!child_is_program) continue;
        end->known = true;
        end->status = status;
    }
    return gone;
}

int watch_open(struct watch *watch, struct fault *fault) {
    sigset_t set;
    watched_signals(&set);
    watch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    /* CLOCK_BOOTTIME continues during suspend, so the deadline includes it. */
    watch->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (watch->signals < 0 || watch->timer < 0 || fcntl(watch->log_pipe, F_SETFL, O_NONBLOCK) < 0) {
        return fail(fault, "The step cannot be watched: %s.", strerror(errno));
    }
    return 0;
}

void watch_run(struct watch *watch, bool child_is_program, struct end *end) {
    struct signalfd_siginfo caught;
    uint64_t expirations;
    bool stopping = false, gone = false;
    if (watch->run_ms > 0) arm(watch->timer, watch->run_ms);
    while (!gone) {
        struct pollfd polled[] = {
            {watch->signals, POLLIN, 0}, {watch->timer, POLLIN, 0}, {watch->log_pipe, POLLIN, 0}, {watch->control, POLLIN, 0}};
        if (poll(polled, 4, -1) < 0) continue;
        if (polled[2].revents != 0) pump(watch);
        if (polled[3].revents != 0) listen_once(watch, end);
        if (polled[1].revents != 0 && read(watch->timer, &expirations, sizeof expirations) > 0) {
            if (!stopping) end->cause = BY_DEADLINE;
            stop(watch, &stopping);
        }
        while (read(watch->signals, &caught, sizeof caught) == (ssize_t)sizeof caught) {
            if (caught.ssi_signo == SIGCHLD || stopping) continue;
            /* The kernel sets the sender to 0 if it is outside of our PID namespace. */
            if (watch->first && caught.ssi_pid != 0) continue;
            end->cause = BY_CANCEL;
            stop(watch, &stopping);
        }
        gone = reaped(watch, child_is_program, end);
    }
}

void watch_drain(struct watch *watch, struct end *end) {
    /* Reads no further than the current content of the pipe, which includes all of the step's output. A process
     * elsewhere may have received the write end and may print forever. */
    int held = watch->log_pipe >= 0 ? fcntl(watch->log_pipe, F_GETPIPE_SZ) : 0;
    size_t most = held > 0 ? (size_t)held : 0;
    for (size_t all = 0, got = 0; all < most && (got = pump(watch)) > 0; all += got) {}
    while (watch->control >= 0 && listen_once(watch, end)) {}
}

const char *watch_left(const struct end *end) {
    return end->cause == BY_ITSELF ? end->left.text : "";
}

void watch_report(const struct end *end, int64_t run_ms, struct receipt *receipt) {
    const char *how = "its end was not seen";
    int code = 0;
    if (end->known) {
        code = WIFSIGNALED(end->status) ? WTERMSIG(end->status) : WEXITSTATUS(end->status);
        how = WIFSIGNALED(end->status) ? "ended by signal" : "ended with code";
    }
    receipt->code = code;
    if (end->not_executable) {
        receipt->outcome = end->no_process ? "refused" : "not-executable";
        receipt->code = 127;
        receipt->detail = end->fault;
    } else if (end->cause != BY_ITSELF) {
        receipt->outcome = end->cause == BY_DEADLINE ? "deadline" : "cancelled";
        if (!end->known) {
            /* Our SIGKILL also killed the process that would have reported the exit. */
            receipt->code = SIGKILL;
            how = "ended by signal";
        }
        if (end->cause == BY_DEADLINE) {
            fail(&receipt->detail, "The step ran longer than its %lld ms; %s %d.", (long long)run_ms, how,
                 receipt->code);
        } else {
            fail(&receipt->detail, "The step was cancelled; %s %d.", how, receipt->code);
        }
    } else if (!end->known) {
        receipt->outcome = "lost";
        fail(&receipt->detail, "The step's processes were killed from outside and nobody saw how its program ended.");
    } else {
        receipt->outcome = WIFSIGNALED(end->status) ? "signaled" : "exited";
        if (WIFSIGNALED(end->status)) fail(&receipt->detail, "The program was ended by signal %d.", code);
    }
}
