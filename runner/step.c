#include "step.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env_program.h"
#include "processes.h"

bool message_send(int socket, int word, int value, const struct fault *fault) {
    struct message message = {.word = word, .value = value};
    if (fault != NULL) message.fault = *fault;
    return send(socket, &message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message;
}

int message_receive(int socket, struct message *message, int flags) {
    for (;;) {
        ssize_t got = recv(socket, message, sizeof *message, flags);
        if (got == (ssize_t)sizeof *message) return 1;
        if (got < 0 && errno == EINTR) continue;
        return got < 0 && errno == EAGAIN ? 0 : -1;
    }
}

/* The cause of a failed exec. A file may exist although its loader does not. */
static const char *cause(const char *program, int error) {
    if (error == ENOEXEC) return "it is no program of this machine's architecture";
    if (error != ENOENT || strchr(program, '/') == NULL || access(program, F_OK) < 0) return strerror(error);
    return "it exists, but the loader or interpreter that it names does not";
}

/* Whether `env`, as a script's interpreter or as the program itself, will find its program. Once `env` runs, its exit
 * code cannot be distinguished from that program's, so the runner checks before. */
static bool env_finds(const struct step *step, struct fault *fault) {
    struct first_line line;
    if (step->program == NULL) return env_program_check(step->order->arguments, false, fault);
    return !first_line_read(&line, step->order->script, step->program) || env_program_check(line.arguments, true, fault);
}

/* Describes why exec failed, and names the file to repair; for a script that is usually the interpreter. */
static void explain(const struct step *step, int error, struct fault *fault) {
    const char *program = step->program != NULL ? step->program : step->order->arguments[0];
    const char *script = step->order->script;
    if (script == NULL) {
        fail(fault, "The program %s cannot be executed: %s.", program, cause(program, error));
        return;
    }
    if (step->order->script_length < 3 || strncmp(script, "#!", 2) != 0) {
        fail(fault, "The script does not begin with #! and the path of its interpreter, e.g. #!/bin/sh.");
        return;
    }
    const char *interpreter = script + 2 + strspn(script + 2, " \t");
    int length = (int)strcspn(interpreter, " \t\n");
    if (length > 200) length = 200;
    bool windows = length > 0 && interpreter[length - 1] == '\r';
    if (windows) length--;
    if (windows) {
        fail(fault, "The script's first line, #!%.*s, ends in a carriage return: save it with Unix line ends.", length,
             interpreter);
        return;
    }
    char path[256];
    snprintf(path, sizeof path, "%.*s", length, interpreter);
    if (error == ENOENT && access(path, F_OK) < 0) {
        fail(fault, "The script's interpreter %s does not exist here: %s.", path, strerror(error));
    } else {
        fail(fault, "The script cannot be executed by its interpreter %s: %s.", path, cause(path, error));
    }
}

/* Searches for a bare name in the order's own PATH. Not execvp, because it runs files without #! in a shell. */
static void execute_service(char **arguments) {
    char path[PATH_MAX];
    const char *rest = getenv("PATH");
    if (strchr(arguments[0], '/') != NULL) {
        execve(arguments[0], arguments, environ);
        return;
    }
    int seen = ENOENT;
    while (rest != NULL && *rest != '\0') {
        size_t length = strcspn(rest, ":");
        int needed = snprintf(path, sizeof path, "%.*s/%s", (int)length, rest, arguments[0]);
        errno = ENOENT;
        if (needed > 0 && (size_t)needed < sizeof path) execve(path, arguments, environ);
        /* Like a shell, continue if this entry cannot be entered or executed; the error is reported if no other is
         * found. */
        if (errno == EACCES) seen = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR) return;
        rest += length + (rest[length] == ':');
    }
    errno = seen;
}

/* A direct system call, because the C library reserves signals 32 and 33 and refuses to change them. If a server was
 * started with these ignored, every script would inherit that. */
static void reset_signals(void) {
    static const unsigned long standard[8];
    for (int number = 1; number < NSIG; number++) syscall(SYS_rt_sigaction, number, standard, NULL, sizeof(uint64_t));
}

static _Noreturn void execute(struct step *step) {
    sigset_t none;
    setsid();
    dup2(step->log, STDOUT_FILENO);
    dup2(step->log, STDERR_FILENO);
    reset_signals();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    environ = step->order->environment;
    if (!env_finds(step, &step->fault)) {
        step->failed = true;
        _exit(127);
    }
    if (step->program != NULL) {
        char *arguments[] = {(char *)step->program, NULL};
        execve(step->program, arguments, environ);
    } else {
        execute_service(step->order->arguments);
    }
    explain(step, errno, &step->fault);
    step->failed = true;
    _exit(127);
}

pid_t step_start(struct step *step) {
    /* The child shares our memory until its exec or exit. It changes only `environ`, which we do not use, and the report
     * of a failed exec. A copy of the memory would cost more than everything else here. */
    pid_t program = vfork();
    if (program == 0) execute(step);
    return program;
}

int step_enter_folder(const struct order *order, struct fault *fault) {
    const char *cwd = order->cwd != NULL ? order->cwd : "/";
    return chdir(cwd) < 0 ? fail(fault, "The working directory %s cannot be entered: %s.", cwd, strerror(errno)) : 0;
}

static int prepare(const struct step *step, struct fault *fault) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        return fail(fault, "The step's processes cannot be adopted: %s.", strerror(errno));
    }
    if (step_enter_folder(step->order, fault) < 0) return -1;
    /* Here and not in the launcher, because we survive if it is killed and can remove the files. */
    return inputs_create(step->order, step->created_files, fault);
}

/* The launcher is gone, or releases us before the start. Files that the step left on the host must be removed. */
static _Noreturn void abandon(const struct step *step) {
    processes_kill_descendants();
    inputs_remove(step->order, step->created_files);
    _exit(1);
}

/* Reaps all ended children. Returns true if PROGRAM was among them. */
static bool reap(pid_t program, int *status) {
    bool ended = false;
    int any;
    for (pid_t pid; (pid = waitpid(-1, &any, WNOHANG)) > 0;) {
        if (pid != program) continue;
        *status = any;
        ended = true;
    }
    return ended;
}

_Noreturn void step_init(struct step *step) {
    struct fault fault;
    struct message message;
    sigset_t child;
    int status = 0;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || prepare(step, &fault) < 0) {
        if (signals < 0) fail(&fault, "The step's signals cannot be read: %s.", strerror(errno));
        message_send(step->control, WORD_FAULT, 0, &fault);
        _exit(1);
    }
    if (!message_send(step->control, WORD_READY, 0, NULL)) abandon(step);
    if (message_receive(step->control, &message, 0) < 0 || message.word != WORD_GO) abandon(step);
    pid_t program = step_start(step);
    if (program < 0) {
        fail(&fault, "The step's process cannot be created: %s.", strerror(errno));
        message_send(step->control, WORD_EXEC, errno, &fault);
        _exit(1);
    }
    if (step->failed) message_send(step->control, WORD_EXEC, 0, &step->fault);
    close(step->log);
    for (struct pollfd polled[2] = {{signals, POLLIN, 0}, {step->control, POLLIN, 0}};;) {
        struct signalfd_siginfo ignored;
        if (poll(polled, 2, -1) < 0) continue;
        if (polled[1].revents != 0) {
            int got = message_receive(step->control, &message, MSG_DONTWAIT);
            if (got < 0) abandon(step);
            if (got > 0 && message.word == WORD_TERMINATE) processes_signal(SIGTERM);
        }
        if (polled[0].revents != 0) {
            while (read(signals, &ignored, sizeof ignored) > 0) {}
            if (reap(program, &status)) break;
        }
    }
    processes_describe(&fault);
    processes_kill_descendants();
    message_send(step->control, WORD_ENDED, status, &fault);
    _exit(0);
}
