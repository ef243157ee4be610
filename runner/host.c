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
#include "inputs.h"
#include "log.h"
#include "log_file.h"
#include "log_times.h"
#include "namespaces.h"
#include "outputs.h"
#include "processes.h"
#include "start_marker.h"
#include "step.h"
#include "supervisor.h"

enum { EXIT_NO_DIRECTORY = 2, EXIT_TAKEN = 3, EXIT_NO_RECEIPT = 4 };

struct host {
    int dir;  /* ATTEMPT_DIR, opened before any mount is made */
    int proc; /* the caller's /proc, opened before any mount is made */
    struct order order;
    struct receipt receipt;
    struct private_mounts private_mounts;
    char attempt_dir[4096]; /* absolute path of ATTEMPT_DIR */
    struct created_files created_files;
    struct log log;
    struct mask mask;
    off_t log_begin; /* size of the log before this step; earlier content is not masked */
    struct log_file log_file;
    struct log_times times;
    struct supervisor supervisor;
    int log_writer, control_peer; /* the step's ends of the log pipe and of the control socket */
    bool isolated; /* the step has a PID namespace; after `namespaces_enter` we are its first process */
    struct namespaces namespaces;
    struct preparation preparation;
    struct step step;
    pid_t pid; /* our process id in the caller's PID namespace */
    struct caller caller;
    int receipt_file; /* descriptor of the receipt's file; -1 until it is opened */
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
    if (host->receipt_file < 0) {
        host->receipt_file = openat(host->dir, "receipt.tmp", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return host->receipt_file;
}

/* Reserves disk space for the receipt before the step starts, because the step may fill the disk. */
static int reserve_receipt(struct host *host, struct fault *fault) {
    if (open_receipt(host) < 0 || reserve_space(host->receipt_file, 4096 + 256 * host->order.output_count) < 0) {
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
        .open = log_file_create, .state = &host->log_file, .limit = host->order.log_limit, .mask = &host->mask,
        .times = &host->times};
    if (log_file_open(&host->log_file, host->dir, host->order.log, &host->log.fd, fault) < 0) return -1;
    host->log_begin = host->log.fd < 0 ? 0 : lseek(host->log.fd, 0, SEEK_END);
    log_times_open(&host->times, host->dir, host->order.log, host->log_begin);
    if (pipe2(pipes, O_CLOEXEC) < 0 ||
        (!host->isolated && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)) {
        return fail(fault, "The step's channels cannot be opened: %s.", strerror(errno));
    }
    host->supervisor.run_ms = host->order.run_ms;
    host->supervisor.grace_ms = host->order.grace_ms;
    host->supervisor.log_pipe = pipes[0];
    host->log_writer = pipes[1];
    host->supervisor.control = sockets[0];
    host->supervisor.first = host->isolated;
    host->control_peer = sockets[1];
    return supervisor_open(&host->supervisor, fault);
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
static pid_t read_own_pid(int proc) {
    char text[32];
    ssize_t length = readlinkat(proc, "self", text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (pid_t)atoi(text) : -1;
}

/* Does everything that may fail before the start marker is linked. No program of the user runs here. */
static int prepare(struct host *host, char *program, size_t size, struct fault *fault) {
    if (fchdir(host->dir) < 0 || getcwd(host->attempt_dir, sizeof host->attempt_dir) == NULL ||
        chdir("/") < 0) {
        return fail(fault, "The attempt's directory has no path: %s.", strerror(errno));
    }
    if (order_expand(&host->order, fault) < 0) return -1;
    if (host->isolated && namespaces_enter(&host->namespaces, host->order.isolation, fault) < 0) return -1;
    host->pid = host->isolated ? read_own_pid(host->proc) : getpid();
    if (host->pid < 0) return fail(fault, "The runner cannot find its process ID without /proc. Mount /proc.");
    if (reserve_receipt(host, fault) < 0 || open_channels(host, fault) < 0) return -1;
    if (write_script(host, program, size, fault) < 0) return -1;
    if (host->isolated) {
        if (preparation_apply(&host->preparation, &host->private_mounts, &host->order, fault) < 0) return -1;
        if (inputs_place(&host->order, &host->private_mounts, host->attempt_dir, fault) < 0) return -1;
        preparation_mount_proc(&host->preparation);
        if (namespaces_can_share_mounts(&host->namespaces) && host->preparation.own_proc) {
            mount_sender_watch(&host->caller.mount_sender, &host->private_mounts);
        }
        return step_enter_folder(&host->order, fault);
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        return fail(fault, "The step's processes cannot be adopted: %s.", strerror(errno));
    }
    if (faccessat(host->proc, "self/stat", R_OK, 0) < 0) {
        return fail(fault, "The runner cannot find the step's processes without /proc. Mount /proc.");
    }
    return inputs_plan(&host->order, &host->created_files, fault);
}

/* Without a PID namespace: forks the init process that replaces it, and waits until init is ready. */
static int fork_init(struct host *host, struct fault *fault) {
    struct message message;
    host->supervisor.child = fork();
    if (host->supervisor.child == 0) {
        close(host->supervisor.control);
        close(host->supervisor.log_pipe);
        if (host->log.fd >= 0) close(host->log.fd);
        if (host->times.fd >= 0) close(host->times.fd);
        step_init(&host->step);
    }
    close(host->control_peer);
    close(host->log_writer);
    if (host->supervisor.child < 0) {
        return fail(fault, "The step's first process cannot be created: %s.", strerror(errno));
    }
    if (message_receive(host->supervisor.control, &message, 0) < 0) message.word = 0;
    if (message.word == WORD_READY) return 0;
    if (message.word == WORD_FAULT) *fault = message.fault;
    else fail(fault, "The step's first process died while it prepared.");
    return -1;
}

/* Releases the waiting init without running the program. Init removes the files that it created. */
static void release_init(struct host *host) {
    if (host->isolated) return;
    close(host->supervisor.control);
    while (waitpid(host->supervisor.child, NULL, 0) < 0 && errno == EINTR) {}
}

static void on_print(void *state, const char *bytes, size_t length) {
    struct host *host = state;
    log_write(&host->log, bytes, length);
}

static void on_terminate(void *state) {
    struct host *host = state;
    if (host->isolated) kill(-1, SIGTERM);
    else message_send(host->supervisor.control, WORD_TERMINATE, 0, NULL);
}

/* Without a PID namespace, only init is killed here. Its children become ours then, and
 * `processes_kill_descendants` kills them. */
static void on_kill(void *state) {
    struct host *host = state;
    kill(host->isolated ? -1 : host->supervisor.child, SIGKILL);
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

/* After the start marker is linked: starts the program, and returns when every process of the step is dead. */
static void run_program(struct host *host, struct step_end *end) {
    if (!host->isolated) {
        message_send(host->supervisor.control, WORD_GO, 0, NULL);
        /* From here on we must remove the files that init created. */
        host->created_files.input_count = host->order.input_count;
        host->created_files.outputs = true;
        supervisor_run(&host->supervisor, false, end);
        processes_kill_descendants();
        return;
    }
    host->supervisor.child = step_start(&host->step);
    end->no_process = host->supervisor.child < 0;
    end->not_executable = end->no_process || host->step.failed;
    end->fault = host->step.fault;
    if (host->supervisor.child < 0) fail(&end->fault, "The step's process cannot be created: %s.", strerror(errno));
    close(host->log_writer);
    if (host->supervisor.child > 0) supervisor_run(&host->supervisor, true, end);
    processes_describe(&end->leftovers);
    if (end->leftovers.text[0] != '\0') processes_kill_namespace();
}

static int run(struct host *host) {
    struct step_end end = {.cause = BY_ITSELF};
    run_program(host, &end);
    supervisor_drain(&host->supervisor, &end);
    log_finish(&host->log, step_end_leftovers(&end));
    if (host->log.fd >= 0) {
        /* Masking overwrites parts of the log, so it must not be in append mode. */
        fcntl(host->log.fd, F_SETFL, 0);
        mask_file(&host->mask, host->log.fd, host->log_begin);
        close(host->log.fd);
    }
    host->receipt.log_bytes = host->log.kept;
    host->receipt.log_truncated = host->log.cut;
    step_end_report(&end, host->order.run_ms, &host->receipt);
    if (!end.not_executable && host->order.output_count > 0) {
        host->receipt.outputs = calloc(host->order.output_count, sizeof *host->receipt.outputs);
        if (host->receipt.outputs == NULL) return EXIT_NO_RECEIPT;
        host->receipt.output_count = host->order.output_count;
        struct fault fault = {""};
        outputs_collect(&host->order, (struct output_sink){keep_output, host}, host->receipt.outputs, &fault);
        if (host->receipt.detail.text[0] == '\0') host->receipt.detail = fault;
    }
    inputs_remove(&host->order, &host->created_files);
    /* Script and order are no longer needed, and the order contains the values of inputs. */
    unlinkat(host->dir, "script", 0);
    unlinkat(host->dir, "order", 0);
    return seal(host);
}

/* Writes the receipt for a step that this launcher does not run. The outcome depends on the start marker. */
static int seal_not_run(struct host *host, enum start_state start) {
    if (start == START_USED) {
        start_marker_wait_for_end(host->dir, host->proc);
        fail(&host->receipt.detail, "An earlier launcher started this attempt and left no receipt.");
        return seal_unstarted(host, "lost");
    }
    if (host->receipt.detail.text[0] == '\0') fail(&host->receipt.detail, "The attempt was voided before it started.");
    return seal_unstarted(host, start == START_FAULT ? "refused" : "void");
}

static int seal_cancelled(struct host *host) {
    fail(&host->receipt.detail, "The step was cancelled before it started.");
    return seal_not_run(host, start_marker_void(host->dir, &host->receipt.detail));
}

static bool is_late(const struct host *host) {
    return host->order.start_before_ms > 0 && now_ms() >= host->order.start_before_ms;
}

static int seal_late(struct host *host) {
    fail(&host->receipt.detail, "The step came too late: its start deadline was %lld (Unix time in ms).",
         (long long)host->order.start_before_ms);
    return seal_not_run(host, start_marker_void(host->dir, &host->receipt.detail));
}

static int attempt(struct host *host) {
    struct fault *fault = &host->receipt.detail;
    char program[sizeof host->attempt_dir + 8] = "";
    if (read_order(host, fault) < 0) return seal_unstarted(host, "refused");
    enum start_state start = start_marker_read(host->dir);
    if (start != START_PERMITTED) return seal_not_run(host, start);
    if (is_late(host)) return seal_late(host);
    if (supervisor_is_cancelled()) return seal_cancelled(host);
    if (prepare(host, program, sizeof program, fault) < 0) return seal_unstarted(host, "refused");
    host->step = (struct step){.order = &host->order, .program = program[0] != '\0' ? program : NULL,
                               .control = host->control_peer, .log = host->log_writer,
                               .created_files = &host->created_files};
    if (!host->isolated && fork_init(host, fault) < 0) return seal_unstarted(host, "refused");
    bool late = is_late(host);
    if (late || supervisor_is_cancelled()) {
        release_init(host);
        return late ? seal_late(host) : seal_cancelled(host);
    }
    host->receipt.started_ms = now_ms();
    pid_t init = host->isolated ? host->pid : host->supervisor.child;
    start = start_marker_write(host->dir, host->proc, host->pid, init, host->receipt.started_ms, fault);
    if (start == START_PERMITTED) return run(host);
    host->receipt.started_ms = 0;
    release_init(host);
    return seal_not_run(host, start);
}

/* Reports to the caller that the receipt is in place. The message may be lost, because our exit reports the same. */
static void report_receipt(const struct host *host) {
    int32_t pid = (int32_t)host->pid;
    int notify = host->caller.notify_socket;
    if (notify >= 0 && pid > 0) send(notify, &pid, sizeof pid, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int host_main(const char *attempt_dir, const struct namespaces *namespaces, const struct preparation *preparation,
              const struct caller *caller) {
    static struct host host; /* static, because only the used part is then zeroed; on the stack, all of it would be */
    host.dir = open(attempt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    host.namespaces = *namespaces;
    host.preparation = *preparation;
    host.proc = preparation->proc;
    host.caller = *caller;
    host.receipt_file = -1;
    if (host.dir < 0) {
        fprintf(stderr, "dayfly-runner: %s: %s\n", attempt_dir, strerror(errno));
        return EXIT_NO_DIRECTORY;
    }
    if (!image_folder(host.image_folder, sizeof host.image_folder)) host.image_folder[0] = '\0';
    supervisor_block_signals();
    int *kept[] = {&host.dir, &host.caller.notify_socket, &host.caller.mount_sender.socket, &host.proc};
    if (detach(kept, sizeof kept / sizeof *kept) < 0) return EXIT_NO_RECEIPT;
    int locked = attempt_lock(host.dir);
    if (locked <= 0) return locked < 0 ? EXIT_NO_RECEIPT : EXIT_TAKEN;
    if (faccessat(host.dir, "receipt", F_OK, 0) == 0) return 0;
    if (host.proc < 0) host.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    host.supervisor =
        (struct supervisor){.print = on_print, .terminate = on_terminate, .kill = on_kill, .state = &host};
    host.receipt.outcome = "refused";
    int code = attempt(&host);
    if (code != 0) return code;
    report_receipt(&host);
    mount_sender_send(&host.caller.mount_sender, &host.private_mounts, &host.order);
    return 0;
}
