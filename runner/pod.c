#include "pod.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"
#include "outputs.h"
#include "pod_state.h"
#include "processes.h"
#include "step.h"
#include "supervisor.h"

enum { EXIT_TAKEN = 3, SECRET_LIMIT = 16 << 20 };

struct pod {
    int state;  /* descriptor of the directory POD_STATE; -1 until it is opened */
    bool first; /* we are the first process of the PID namespace, so all others in it belong to the step */
    struct order order;
    struct receipt receipt;
    struct log log;
    struct mask mask;
    struct supervisor supervisor;
};

enum { UID_LIMIT = 128 };

static int read_order(struct pod *pod, struct fault *fault) {
    char *bytes;
    size_t length;
    if (read_file(AT_FDCWD, POD_ORDER, ORDER_LIMIT, &bytes, &length) < 0) {
        return fail(fault, "The work order %s cannot be read: %s.", POD_ORDER, strerror(errno));
    }
    int result = order_parse(&pod->order, bytes, length, fault);
    char *uid;
    size_t uid_length;
    /* Logs are found by the pod's name. The UID shows the reader which pod of that name wrote this log. */
    if (read_file(AT_FDCWD, POD_UID, UID_LIMIT, &uid, &uid_length) == 0) pod->receipt.pod = uid;
    pod->receipt.nonce = pod->order.nonce;
    pod->receipt.attempt = pod->order.attempt;
    if (result == 0 && (pod->order.private_count > 0 || pod->order.isolation != ISOLATION_NONE)) {
        return fail(fault, "The work order asks for private directories; in a pod the whole container is private.");
    }
    if (result == 0 && pod->order.log != NULL) {
        return fail(fault, "The work order names a log file; a pod's log is its standard output.");
    }
    return result;
}

/* Returns the entry of a variable in ENVIRONMENT, or NULL. NAME may be a whole "NAME=value". */
static char **find_variable(char **environment, const char *name) {
    size_t length = strcspn(name, "=");
    for (char **entry = environment; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return entry;
    }
    return NULL;
}

/* Sets a variable. The array must have room for another entry. */
static void put_variable(char **environment, char *assignment) {
    char **place = find_variable(environment, assignment);
    if (place == NULL) {
        for (place = environment; *place != NULL; place++) {}
        place[1] = NULL;
    }
    *place = assignment;
}

/* Merges the container's environment with the order's, which overrides it. There is room for the variables of secrets,
 * which `take_secret` adds and which override both. */
static int merge_environment(struct pod *pod, struct fault *fault) {
    size_t count = 1 + pod->order.secret_count;
    for (char **entry = environ; *entry != NULL; entry++) count++;
    for (char **entry = pod->order.environment; *entry != NULL; entry++) count++;
    char **merged = calloc(count, sizeof *merged);
    if (merged == NULL) return fail(fault, "There is no memory for the environment.");
    for (char **entry = environ; *entry != NULL; entry++) put_variable(merged, *entry);
    for (char **entry = pod->order.environment; *entry != NULL; entry++) put_variable(merged, *entry);
    free(pod->order.environment);
    pod->order.environment = merged;
    return 0;
}

/* Creates the missing parents of PATH if possible. After an error, the later write to PATH fails and is reported. */
static void make_folders(const char *path) {
    char prefix[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - path), path);
        if (mkdir(prefix, 0755) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES) break;
    }
}

static int write_input(const char *path, const char *bytes, size_t length, struct fault *fault) {
    make_folders(path);
    if (write_file(AT_FDCWD, path, 0400, bytes, length) == 0) return 0;
    return fail(fault, "The input file %s cannot be written: %s. Give the step a volume there.", path, strerror(errno));
}

static int take_secret(struct pod *pod, const struct secret *secret, struct fault *fault) {
    char *bytes;
    size_t length;
    if (read_file(AT_FDCWD, secret->file, SECRET_LIMIT, &bytes, &length) < 0) {
        return fail(fault, "The secret %s cannot be read from %s: %s.", secret->name, secret->file, strerror(errno));
    }
    int result = 0;
    if (secret->sensitive) mask_add(&pod->mask, bytes, length);
    if (!secret->variable) {
        result = write_input(secret->name, bytes, length, fault);
    } else if (strlen(bytes) != length) {
        result = fail(fault, "The secret %s contains a NUL byte, so it cannot be a variable. Use it as a file.",
                      secret->name);
    } else {
        char *assignment = malloc(strlen(secret->name) + length + 2);
        if (assignment == NULL) {
            result = fail(fault, "There is no memory for the secret %s.", secret->name);
        } else {
            sprintf(assignment, "%s=%s", secret->name, bytes);
            put_variable(pod->order.environment, assignment);
        }
    }
    free(bytes);
    return result;
}

/* Enters the working directory: that of the order, otherwise the container's own (`image_folder`), otherwise the empty
 * folder POD_STATE/work. */
static int enter_folder(const struct pod *pod, struct fault *fault) {
    char own[PATH_MAX];
    if (pod->order.cwd == NULL && image_folder(own, sizeof own)) return 0;
    const char *folder = pod->order.cwd != NULL ? pod->order.cwd : POD_STATE "/work";
    if (pod->order.cwd == NULL && mkdir(folder, 0700) < 0 && errno != EEXIST) {
        return fail(fault, "The step's folder %s cannot be made: %s.", folder, strerror(errno));
    }
    if (chdir(folder) == 0) return 0;
    return fail(fault, "The working directory %s cannot be entered: %s.", folder, strerror(errno));
}

static int prepare(struct pod *pod, struct fault *fault) {
    umask(022);
    if (merge_environment(pod, fault) < 0) return -1;
    mask_begin(&pod->mask, &pod->order);
    for (size_t i = 0; i < pod->order.input_count; i++) {
        const struct input *input = &pod->order.inputs[i];
        if (write_input(input->path, input->bytes, input->length, fault) < 0) return -1;
    }
    for (size_t i = 0; i < pod->order.secret_count; i++) {
        if (take_secret(pod, &pod->order.secrets[i], fault) < 0) return -1;
    }
    for (size_t i = 0; pod->order.make_folders != 0 && i < pod->order.output_count; i++) {
        if (output_path_allowed(pod->order.outputs[i].path)) make_folders(pod->order.outputs[i].path);
    }
    if (order_expand(&pod->order, fault) < 0) return -1;
    if (pod->order.script != NULL &&
        write_file(pod->state, "script", 0700, pod->order.script, pod->order.script_length) < 0) {
        return fail(fault, "The script cannot be written: %s.", strerror(errno));
    }
    if (enter_folder(pod, fault) < 0) return -1;
    if (!pod->first && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        return fail(fault, "The step's processes cannot be adopted: %s.", strerror(errno));
    }
    return 0;
}

static void on_print(void *state, const char *bytes, size_t length) {
    struct pod *pod = state;
    log_write(&pod->log, bytes, length);
}

static void signal_step(const struct pod *pod, int number) {
    if (pod->first) kill(-1, number);
    else processes_signal(number);
}

static void on_terminate(void *state) {
    signal_step(state, SIGTERM);
}

static void on_kill(void *state) {
    signal_step(state, SIGKILL);
}

/* Kills all processes of the step and waits for their end: all others in our PID namespace, or our descendants. */
static void end_all(const struct pod *pod) {
    if (pod->first) processes_kill_namespace();
    else processes_kill_descendants();
}

static int keep_output(void *state, const char *name, const char *bytes, size_t length) {
    struct pod *pod = state;
    for (size_t i = 0; i < pod->order.output_count; i++) {
        struct kept_output *output = &pod->receipt.outputs[i];
        if (output->name == NULL || strcmp(output->name, name) != 0) continue;
        output->content = malloc(length + 1);
        if (output->content == NULL) return -1;
        memcpy(output->content, bytes, length);
    }
    return 0;
}

static void collect(struct pod *pod) {
    struct fault fault = {""};
    pod->receipt.outputs = calloc(pod->order.output_count + 1, sizeof *pod->receipt.outputs);
    if (pod->receipt.outputs == NULL) return;
    outputs_collect(&pod->order, (struct output_sink){keep_output, pod}, pod->receipt.outputs, &fault);
    pod->receipt.output_count = pod->order.output_count;
    if (pod->receipt.detail.text[0] == '\0') pod->receipt.detail = fault;
}

static int seal(struct pod *pod, const char *outcome) {
    if (outcome != NULL) pod->receipt.outcome = outcome;
    pod->receipt.ended_ms = now_ms();
    return pod_state_seal(pod->state, &pod->receipt, log_at_line_start(&pod->log) || pod->log.cut);
}

/* Ends an attempt that never ran. The marker `void` first ensures that no later instance of the container runs it. */
static int seal_unstarted(struct pod *pod, const char *outcome) {
    struct fault unused;
    pod_state_mark(pod->state, "void\n", &unused);
    return seal(pod, outcome);
}

static int open_channels(struct pod *pod, struct step *step, struct fault *fault) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        return fail(fault, "The step's channels cannot be opened: %s.", strerror(errno));
    }
    pod->log = (struct log){.fd = STDOUT_FILENO, .limit = pod->order.log_limit, .marked = true,
                            .mask = &pod->mask};
    pod->supervisor = (struct supervisor){.run_ms = pod->order.run_ms, .grace_ms = pod->order.grace_ms,
                                          .log_pipe = pipes[0],
                                .control = -1, .print = on_print, .terminate = on_terminate,
                                .kill = on_kill, .state = pod};
    *step = (struct step){.order = &pod->order, .control = -1, .log = pipes[1]};
    if (pod->order.script != NULL) step->program = POD_STATE "/script";
    return supervisor_open(&pod->supervisor, fault);
}

/* Records how many processes the kernel has killed for lack of memory since KILLS was read. All of them belong to the
 * step, because nothing else runs in the container. */
static void count_kills(struct pod *pod, int64_t kills) {
    int64_t now = kills < 0 ? -1 : memory_kills();
    if (now <= kills) return;
    pod->receipt.oom_kills = now - kills;
    pod->receipt.memory_limit = memory_limit();
}

static int run(struct pod *pod, struct step *step) {
    struct step_end end = {.cause = BY_ITSELF};
    int64_t kills = memory_kills();
    pod->supervisor.child = step_start(step);
    if (pod->supervisor.child < 0) {
        fail(&pod->receipt.detail, "The step's process cannot be created: %s.", strerror(errno));
        return seal(pod, "refused");
    }
    end.not_executable = step->failed;
    end.fault = step->fault;
    close(step->log);
    supervisor_run(&pod->supervisor, true, &end);
    processes_describe(&end.leftovers);
    end_all(pod);
    count_kills(pod, kills);
    supervisor_drain(&pod->supervisor, &end);
    log_finish(&pod->log, step_end_leftovers(&end));
    pod->receipt.log_bytes = pod->log.kept;
    pod->receipt.log_truncated = pod->log.cut;
    step_end_report(&end, pod->order.run_ms, &pod->receipt);
    if (!end.not_executable) collect(pod);
    return seal(pod, NULL);
}

static int attempt(struct pod *pod, bool recalled) {
    struct fault *fault = &pod->receipt.detail;
    struct step step;
    int legible = read_order(pod, fault);
    enum start_state start = start_marker_read(pod->state);
    if (start != START_PERMITTED) {
        fail(fault, start == START_VOID ? "An earlier instance of the container voided the step before it started."
                                      : "An earlier instance of the container started the step and left no receipt.");
        return seal(pod, start == START_VOID ? "void" : "lost");
    }
    if (legible < 0) return seal_unstarted(pod, "refused");
    if (recalled) {
        fail(fault, "The step was recalled before it started.");
        return seal_unstarted(pod, "void");
    }
    if (pod->order.start_before_ms > 0 && now_ms() >= pod->order.start_before_ms) {
        fail(fault, "The step came too late: its start deadline was %lld (Unix time in ms).",
             (long long)pod->order.start_before_ms);
        return seal_unstarted(pod, "void");
    }
    if (prepare(pod, fault) < 0 || open_channels(pod, &step, fault) < 0) return seal_unstarted(pod, "refused");
    if (supervisor_is_cancelled()) {
        fail(fault, "The step was cancelled before it started.");
        return seal_unstarted(pod, "void");
    }
    if (pod_state_mark(pod->state, "started\n", fault) != START_PERMITTED) return seal(pod, "refused");
    pod->receipt.started_ms = now_ms();
    return run(pod, &step);
}

int pod_main(bool recalled) {
    struct pod pod = {.first = getpid() == 1, .state = -1};
    pod.receipt.outcome = "refused";
    /* Secrets pass through this process, so other processes of the same user must not read its memory. */
    prctl(PR_SET_DUMPABLE, 0);
    supervisor_block_signals();
    close_from(3);
    int opened = pod_state_open(&pod.state, &pod.receipt.detail);
    if (opened == 0) return EXIT_TAKEN;
    if (opened < 0) return seal(&pod, "refused");
    int repeated = pod_state_repeat(pod.state);
    return repeated >= 0 ? repeated : attempt(&pod, recalled);
}
