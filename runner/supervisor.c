#include "supervisor.h"

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

static void handled_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGCHLD);
}

void supervisor_block_signals(void) {
    sigset_t set;
    handled_signals(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* If the caller ignored SIGCHLD, we inherited that, and every wait would fail. */
    signal(SIGCHLD, SIG_DFL);
}

bool supervisor_is_cancelled(void) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1;
}

static void arm_timer(int timer, int64_t milliseconds) {
    /* Zero would disarm the timer instead of firing it immediately. */
    struct itimerspec when = {.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000000 + 1}};
    timerfd_settime(timer, 0, &when, NULL);
}

/* Returns how many bytes were read; 0 at the end. */
static size_t forward_output(struct supervisor *supervisor) {
    char bytes[65536];
    ssize_t got = read(supervisor->log_pipe, bytes, sizeof bytes);
    if (got > 0) {
        supervisor->print(supervisor->state, bytes, (size_t)got);
        return (size_t)got;
    }
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    close(supervisor->log_pipe);
    supervisor->log_pipe = -1;
    return 0;
}

/* True if there may be another message. */
static bool receive_message(struct supervisor *supervisor, struct step_end *end) {
    struct message message;
    int got = message_receive(supervisor->control, &message, MSG_DONTWAIT);
    if (got < 0) {
        close(supervisor->control);
        supervisor->control = -1;
    }
    if (got <= 0) return false;
    if (message.word == WORD_EXEC) {
        end->not_executable = true;
        end->no_process = message.value != 0;
        end->fault = message.fault;
    } else if (message.word == WORD_ENDED) {
        end->known = true;
        end->status = message.value;
        end->leftovers = message.fault;
    }
    return true;
}

/* Ends the step: SIGTERM the first time, then SIGKILL. */
static void stop(struct supervisor *supervisor, bool *stopping) {
    if (*stopping || supervisor->grace_ms == 0) {
        supervisor->kill(supervisor->state);
    } else {
        supervisor->terminate(supervisor->state);
        arm_timer(supervisor->timer, supervisor->grace_ms);
    }
    *stopping = true;
}

static bool reap_child(struct supervisor *supervisor, bool child_is_program, struct step_end *end) {
    bool ended = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != supervisor->child) continue;
        ended = true;
        if (!child_is_program) continue;
        end->known = true;
        end->status = status;
    }
    return ended;
}

int supervisor_open(struct supervisor *supervisor, struct fault *fault) {
    sigset_t set;
    handled_signals(&set);
    supervisor->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    /* CLOCK_BOOTTIME continues during suspend, so the deadline includes it. */
    supervisor->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (supervisor->signals < 0 || supervisor->timer < 0 || fcntl(supervisor->log_pipe, F_SETFL, O_NONBLOCK) < 0) {
        return fail(fault, "The step cannot be supervised: %s.", strerror(errno));
    }
    return 0;
}

void supervisor_run(struct supervisor *supervisor, bool child_is_program, struct step_end *end) {
    struct signalfd_siginfo caught;
    uint64_t expirations;
    bool stopping = false, ended = false;
    if (supervisor->run_ms > 0) arm_timer(supervisor->timer, supervisor->run_ms);
    while (!ended) {
        struct pollfd polled[] = {{supervisor->signals, POLLIN, 0},
                                  {supervisor->timer, POLLIN, 0},
                                  {supervisor->log_pipe, POLLIN, 0},
                                  {supervisor->control, POLLIN, 0}};
        if (poll(polled, 4, -1) < 0) continue;
        if (polled[2].revents != 0) forward_output(supervisor);
        if (polled[3].revents != 0) receive_message(supervisor, end);
        if (polled[1].revents != 0 && read(supervisor->timer, &expirations, sizeof expirations) > 0) {
            if (!stopping) end->cause = BY_DEADLINE;
            stop(supervisor, &stopping);
        }
        while (read(supervisor->signals, &caught, sizeof caught) == (ssize_t)sizeof caught) {
            if (caught.ssi_signo == SIGCHLD || stopping) continue;
            /* The kernel sets the sender to 0 if it is outside of our PID namespace. */
            if (supervisor->first && caught.ssi_pid != 0) continue;
            end->cause = BY_CANCEL;
            stop(supervisor, &stopping);
        }
        ended = reap_child(supervisor, child_is_program, end);
    }
}

void supervisor_drain(struct supervisor *supervisor, struct step_end *end) {
    /* Reads no further than the current content of the pipe, which includes all of the step's output. A process
     * elsewhere may have received the write end and may print forever. */
    int pipe_size = supervisor->log_pipe >= 0 ? fcntl(supervisor->log_pipe, F_GETPIPE_SZ) : 0;
    size_t max_bytes = pipe_size > 0 ? (size_t)pipe_size : 0;
    for (size_t total = 0, got = 0; total < max_bytes && (got = forward_output(supervisor)) > 0; total += got) {}
    while (supervisor->control >= 0 && receive_message(supervisor, end)) {}
}

const char *step_end_leftovers(const struct step_end *end) {
    return end->cause == BY_ITSELF ? end->leftovers.text : "";
}

void step_end_report(const struct step_end *end, int64_t run_ms, struct receipt *receipt) {
    const char *how = "its end was not observed";
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
        fail(&receipt->detail,
             "The step's processes were killed from outside, and the end of its program was not observed.");
    } else {
        receipt->outcome = WIFSIGNALED(end->status) ? "signaled" : "exited";
        if (WIFSIGNALED(end->status)) fail(&receipt->detail, "The program was ended by signal %d.", code);
    }
}
