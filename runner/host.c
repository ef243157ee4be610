#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "detach.h"
#include "gate.h"
#include "inputs.h"
#include "log.h"
#include "log_file.h"
#include "outputs.h"
#include "spaces.h"
#include "step.h"
#include "sweep.h"
#include "times.h"
#include "watch.h"

enum { EXIT_NO_DIRECTORY = 2, EXIT_TAKEN = 3, EXIT_NO_RECEIPT = 4 };

struct host {
    int dir;  /* ATTEMPT_DIR, opened before any mount is made */
    int proc; /* the caller's /proc, opened before any mount is made */
    struct order order;
    struct receipt receipt;
    struct privates privates;
    char attempt_dir[4096]; /* absolute path of ATTEMPT_DIR */
    struct traces traces;
    struct log log;
    struct mask mask;
    off_t log_begin; /* size of the log before this step; earlier content is not masked */
    struct log_file log_file;
    struct times times;
    struct watch watch;
    int log_writer, control_peer; /* the step's ends of the log pipe and of the control socket */
    bool isolated; /* the step has a PID namespace; after `spaces_enter` we are its first process */
    struct inside inside;
    struct ahead ahead;
    struct step step;
    pid_t pid; /* our process id in the caller's PID namespace */
    struct caller caller;
    int draft;  /* descriptor of the receipt's file; -1 until it is opened */
    char image_folder[4096]; /* working directory that an image sets, or empty */
};

static int read_order(struct host *host, struct fault *fault) {
    char *bytes;
    size_t length;
    if (read_file(host->dir, "order", ORDER_LIMIT, &bytes, &length) < 0) {
        return fail(fault, "The work order cannot be read: %s.", strerror(errno));
    }
    int result = order_parse(&host->order, bytes, length, fault);
    if (result == 0 && host->order.secret_count > 0) {
        result = fail(fault, "The work order names a pod's secrets; on a host they come as `env` and `file`.");
    }
    if (result == 0 && host->order.inherit_env != 0) result = order_inherit(&host->order, environ, fault);
    if (result == 0 && host->order.inherit_cwd != 0 && host->image_folder[0] != '\0') {
        host->order.cwd = host->image_folder;
    }
    host->receipt.nonce = host->order.nonce;
    host->receipt.attempt = host->order.attempt;
    host->isolated = host->order.isolation != ISOLATION_NONE;
    return result;
}

/* Returns the descriptor of the file that becomes the receipt. It is opened only once. */
static int open_receipt(struct host *host) {
    if (host->draft < 0) {
        host->draft = openat(host->dir, "receipt.tmp", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return host->draft;
}

/* Reserves disk space for the receipt before the step starts, because the step may fill the disk. */
static int reserve_receipt(struct host *host, struct fault *fault) {
    if (open_receipt(host) < 0 || take_room(host->draft, 4096 + 256 * host->order.output_count) < 0) {
        return fail(fault, "There is no room for the receipt: %s.", strerror(errno));
    }
    return 0;
}

static int seal(struct host *host) {
    struct buffer buffer = {0};
    host->receipt.ended_ms = now_ms();
    receipt_encode(&host->receipt, &buffer);
    int fd = open_receipt(host);
    bool written = fd >= 0 && !buffer.failed && write_all(fd, buffer.bytes, buffer.length) == 0 &&
                   ftruncate(fd, (off_t)buffer.length) == 0;
    if (fd >= 0 && close(fd) < 0) written = false;
    if (!written || renameat(host->dir, "receipt.tmp", host->dir, "receipt") < 0) return EXIT_NO_RECEIPT;
    return 0;
}

/* Ends an attempt in which no program ran. */
static int seal_unstarted(struct host *host, const char *outcome) {
    host->receipt.outcome = outcome;
    return seal(host);
}

static int open_channels(struct host *host, struct fault *fault) {
    /* With isolation, the launcher itself is the first process of the namespace, so it needs no socket to it. */
    int pipes[2], sockets[2] = {-1, -1};
    mask_begin(&host->mask, &host->order);
    host->log = (struct log){
        .open = log_file_make, .state = &host->log_file, .limit = host->order.log_limit, .mask = &host->mask,
        .times = &host->times};
    if (log_file_find(&host->log_file, host->dir, host->order.log, &host->log.fd, fault) < 0) return -1;
    host->log_begin = host->log.fd < 0 ? 0 : lseek(host->log.fd, 0, SEEK_END);
    times_find(&host->times, host->dir, host->order.log, host->log_begin);
    if (pipe2(pipes, O_CLOEXEC) < 0 ||
        (!host->isolated && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)) {
        return fail(fault, "The step's channels cannot be opened: %s.", strerror(errno));
    }
    host->watch.run_ms = host->order.run_ms;
    host->watch.grace_ms = host->order.grace_ms;
    host->watch.log_pipe = pipes[0];
    host->log_writer = pipes[1];
    host->watch.control = sockets[0];
    host->watch.first = host->isolated;
    host->control_peer = sockets[1];
    return watch_open(&host->watch, fault);
}

static int write_script(struct host *host, char *path, size_t size, struct fault *fault) {
    if (host->order.script == NULL) return 0;
    snprintf(path, size, "%s/script", host->attempt_dir);
    if (write_file(host->dir, "script", 0700, host->order.script, host->order.script_length) < 0) {
        int error = errno;
        unlinkat(host->dir, "script", 0);
        return fail(fault, "The script cannot be written: %s.", strerror(error));
    }
    return 0;
}

/* Returns our process id in the caller's /proc, or -1. */
static pid_t seen_from(int proc) {
    char text[32];
    ssize_t length = readlinkat(proc, "self", text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (pid_t)atoi(text) : -1;
}

/* Does everything that may fail before the gate. No program of the user runs here. */
static int prepare(struct host *host, char *program, size_t size, struct fault *fault) {
    if (fchdir(host->dir) < 0 || getcwd(host->attempt_dir, sizeof host->attempt_dir) == NULL ||
        chdir("/") < 0) {
        return fail(fault, "The attempt's directory has no path: %s.", strerror(errno));
    }
    if (order_expand(&host->order, fault) < 0) return -1;
    if (host->isolated && spaces_enter(&host->inside, host->order.isolation, fault) < 0) return -1;
    host->pid = host->isolated ? seen_from(host->proc) : getpid();
    if (host->pid < 0) return fail(fault, "The runner cannot find its process ID without /proc. Mount /proc.");
    if (reserve_receipt(host, fault) < 0 || open_channels(host, fault) < 0) return -1;
    if (write_script(host, program, size, fault) < 0) return -1;
    if (host->isolated) {
        if (ahead_furnish(&host->ahead, &host->privates, &host->order, fault) < 0) return -1;
        if (inputs_place(&host->order, &host->privates, host->attempt_dir, fault) < 0) return -1;
        ahead_mount_proc(&host->ahead);
        if (spaces_can_share(&host->inside) && host->ahead.own_proc) {
            room_sender_watch(&host->caller.room_sender, &host->privates);
        }
        return step_enter_folder(&host->order, fault);
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        return fail(fault, "The step's processes cannot be adopted: %s.", strerror(errno));
    }
    if (faccessat(host->proc, "self/stat", R_OK, 0) < 0) {
        return fail(fault, "The runner cannot find the step's processes without /proc. Mount /proc.");
    }
    return inputs_plan(&host->order, &host->traces, fault);
}

/* Without a PID namespace: forks the init process that replaces it, and waits until init is ready at the gate. */
static int fork_init(struct host *host, struct fault *fault) {
    struct message message;
    host->watch.child = fork();
    if (host->watch.child == 0) {
        close(host->watch.control);
        close(host->watch.log_pipe);
        if (host->log.fd >= 0) close(host->log.fd);
        if (host->times.fd >= 0) close(host->times.fd);
        step_init(&host->step);
    }
    close(host->control_peer);
    close(host->log_writer);
    if (host->watch.child < 0) return fail(fault, "The step's first process cannot be created: %s.", strerror(errno));
    if (message_receive(host->watch.control, &message, 0) < 0) message.word = 0;
    if (message.word == WORD_READY) return 0;
    if (message.word == WORD_FAULT) *fault = message.fault;
    else fail(fault, "The step's first process died while it prepared.");
    return -1;
}

/* Releases the waiting init without running the program. Init removes the files that it created. */
static void dismiss_init(struct host *host) {
    if (host->isolated) return;
    close(host->watch.control);
    while (waitpid(host->watch.child, NULL, 0) < 0 && errno == EINTR) {}
}

static void on_print(void *state, const char *bytes, size_t length) {
    struct host *host = state;
    log_write(&host->log, bytes, length);
}

static void on_terminate(void *state) {
    struct host *host = state;
    if (host->isolated) kill(-1, SIGTERM);
    else message_send(host->watch.control, WORD_TERMINATE, 0, NULL);
}

/* Without a PID namespace, only init is killed here. Its children become ours then, and `sweep_away` kills them. */
static void on_kill(void *state) {
    struct host *host = state;
    kill(host->isolated ? -1 : host->watch.child, SIGKILL);
}

static int keep_output(void *state, const char *name, const char *bytes, size_t length) {
    struct host *host = state;
    char path[80];
    snprintf(path, sizeof path, "out.%s", name);
    if (write_file(host->dir, "out.tmp", 0600, bytes, length) == 0 &&
        renameat(host->dir, "out.tmp", host->dir, path) == 0) {
        return 0;
    }
    int error = errno;
    unlinkat(host->dir, "out.tmp", 0);
    errno = error;
    return -1;
}

/* After the gate: starts the program, and returns when every process of the step is dead. */
static void run_program(struct host *host, struct end *end) {
    if (!host->isolated) {
        message_send(host->watch.control, WORD_GO, 0, NULL);
        /* From here on we must remove the files that init created. */
        host->traces.input_count = host->order.input_count;
        host->traces.outputs = true;
        watch_run(&host->watch, false, end);
        sweep_away();
        return;
    }
    host->watch.child = step_start(&host->step);
    end->no_process = host->watch.child < 0;
    end->not_executable = end->no_process || host->step.failed;
    end->fault = host->step.fault;
    if (host->watch.child < 0) fail(&end->fault, "The step's process cannot be created: %s.", strerror(errno));
    close(host->log_writer);
    if (host->watch.child > 0) watch_run(&host->watch, true, end);
    sweep_describe(&end->left);
    if (end->left.text[0] != '\0') sweep_space();
}

static int run(struct host *host) {
    struct end end = {.cause = BY_ITSELF};
    run_program(host, &end);
    watch_drain(&host->watch, &end);
    log_finish(&host->log, watch_left(&end));
    if (host->log.fd >= 0) {
        /* Masking overwrites parts of the log, so it must not be in append mode. */
        fcntl(host->log.fd, F_SETFL, 0);
        mask_file(&host->mask, host->log.fd, host->log_begin);
        close(host->log.fd);
    }
    host->receipt.log_bytes = host->log.kept;
    host->receipt.log_truncated = host->log.cut;
    watch_report(&end, host->order.run_ms, &host->receipt);
    if (!end.not_executable && host->order.output_count > 0) {
        host->receipt.outputs = calloc(host->order.output_count, sizeof *host->receipt.outputs);
        if (host->receipt.outputs == NULL) return EXIT_NO_RECEIPT;
        host->receipt.output_count = host->order.output_count;
        struct fault note = {""};
        outputs_collect(&host->order, (struct keeper){keep_output, host}, host->receipt.outputs, &note);
        if (host->receipt.detail.text[0] == '\0') host->receipt.detail = note;
    }
    inputs_remove(&host->order, &host->traces);
    /* Script and order are no longer needed, and the order contains the values of inputs. */
    unlinkat(host->dir, "script", 0);
    unlinkat(host->dir, "order", 0);
    return seal(host);
}

/* Writes the receipt for a step that this launcher does not run. The outcome depends on the state of the gate. */
static int seal_at_gate(struct host *host, enum gate gate) {
    if (gate == GATE_USED) {
        gate_settle(host->dir, host->proc);
        fail(&host->receipt.detail, "An earlier launcher started this attempt and left no receipt.");
        return seal_unstarted(host, "lost");
    }
    if (host->receipt.detail.text[0] == '\0') fail(&host->receipt.detail, "The attempt was voided before it started.");
    return seal_unstarted(host, gate == GATE_FAULT ? "refused" : "void");
}

static int seal_cancelled(struct host *host) {
    fail(&host->receipt.detail, "The step was cancelled before it started.");
    return seal_at_gate(host, gate_void(host->dir, &host->receipt.detail));
}

static bool is_late(const struct host *host) {
    return host->order.start_before_ms > 0 && now_ms() >= host->order.start_before_ms;
}

static int seal_late(struct host *host) {
    fail(&host->receipt.detail, "The step came too late: its start deadline was %lld (Unix time in ms).",
         (long long)host->order.start_before_ms);
    return seal_at_gate(host, gate_void(host->dir, &host->receipt.detail));
}

static int attempt(struct host *host) {
    struct fault *fault = &host->receipt.detail;
    char program[sizeof host->attempt_dir + 8] = "";
    if (read_order(host, fault) < 0) return seal_unstarted(host, "refused");
    enum gate seen = gate_look(host->dir);
    if (seen != GATE_OPEN) return seal_at_gate(host, seen);
    if (is_late(host)) return seal_late(host);
    if (watch_cancelled()) return seal_cancelled(host);
    if (prepare(host, program, sizeof program, fault) < 0) return seal_unstarted(host, "refused");
    host->step = (struct step){.order = &host->order, .program = program[0] != '\0' ? program : NULL,
                               .control = host->control_peer, .log = host->log_writer, .traces = &host->traces};
    if (!host->isolated && fork_init(host, fault) < 0) return seal_unstarted(host, "refused");
    bool late = is_late(host);
    if (late || watch_cancelled()) {
        dismiss_init(host);
        return late ? seal_late(host) : seal_cancelled(host);
    }
    host->receipt.started_ms = now_ms();
    pid_t init = host->isolated ? host->pid : host->watch.child;
    enum gate gate = gate_start(host->dir, host->proc, host->pid, init, host->receipt.started_ms, fault);
    if (gate == GATE_OPEN) return run(host);
    host->receipt.started_ms = 0;
    dismiss_init(host);
    return seal_at_gate(host, gate);
}

/* Reports to the caller that the receipt is in place. The message may be lost, because our exit reports the same. */
static void report_receipt(const struct host *host) {
    int32_t pid = (int32_t)host->pid;
    int notify = host->caller.notify_socket;
    if (notify >= 0 && pid > 0) send(notify, &pid, sizeof pid, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int host_main(const char *attempt_dir, const struct inside *inside, const struct ahead *ahead,
              const struct caller *caller) {
    static struct host host; /* static, because only the used part is then zeroed; on the stack, all of it would be */
    host.dir = open(attempt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    host.inside = *inside;
    host.ahead = *ahead;
    host.proc = ahead->proc;
    host.caller = *caller;
    host.draft = -1;
    if (host.dir < 0) {
        fprintf(stderr, "dayfly-runner: %s: %s\n", attempt_dir, strerror(errno));
        return EXIT_NO_DIRECTORY;
    }
    if (!image_folder(host.image_folder, sizeof host.image_folder)) host.image_folder[0] = '\0';
    watch_block_signals();
    int *kept[] = {&host.dir, &host.caller.notify_socket, &host.caller.room_sender.socket, &host.proc};
    if (detach(kept, sizeof kept / sizeof *kept) < 0) return EXIT_NO_RECEIPT;
    int locked = gate_lock(host.dir);
    if (locked <= 0) return locked < 0 ? EXIT_NO_RECEIPT : EXIT_TAKEN;
    if (faccessat(host.dir, "receipt", F_OK, 0) == 0) return 0;
    if (host.proc < 0) host.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    host.watch = (struct watch){.print = on_print, .terminate = on_terminate, .kill = on_kill, .state = &host};
    host.receipt.outcome = "refused";
    int code = attempt(&host);
    if (code != 0) return code;
    report_receipt(&host);
    room_sender_send(&host.caller.room_sender, &host.privates, &host.order);
    return 0;
}
