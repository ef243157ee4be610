/* Supervises a step: its output, its end, its deadline, a cancel request. */
#ifndef DAYFLY_SUPERVISOR_H
#define DAYFLY_SUPERVISOR_H

#include <sys/types.h>

#include "base.h"
#include "receipt.h"

struct supervisor {
    pid_t child;     /* the process whose end is the step's end */
    int control;     /* our end of the socket to the step */
    int log_pipe;    /* read end; -1 after end of file */
    int signals, timer;
    bool first;      /* we are the first process of a PID namespace: signals from the step itself are ignored */
    int64_t run_ms;  /* 0: no deadline */
    int64_t grace_ms;
    void (*print)(void *state, const char *bytes, size_t length);
    void (*terminate)(void *state); /* SIGTERM to every process of the step */
    void (*kill)(void *state);      /* SIGKILL likewise */
    void *state;
};

/* How the step ended. */
struct step_end {
    enum { BY_ITSELF, BY_DEADLINE, BY_CANCEL } cause;
    bool known;  /* `status` is the program's wait status */
    int status;
    bool not_executable;
    struct fault leftovers; /* the processes that outlived the program and were killed, or empty */
    bool no_process; /* the kernel could not create a process; a retry may succeed */
    struct fault fault;
};

/* Blocks the signals that the supervisor reads. Call it before the first fork. */
void supervisor_block_signals(void);
/* True if SIGTERM or SIGINT is pending. */
bool supervisor_is_cancelled(void);

/* Opens the descriptors of the supervisor. Call it before the start marker is linked, because nothing may fail after
 * that. */
int supervisor_open(struct supervisor *supervisor, struct fault *fault);

/* Returns once the child is reaped. If the child is the program itself, and not an init that reports on it, `end` gets
 * its wait status. */
void supervisor_run(struct supervisor *supervisor, bool child_is_program, struct step_end *end);

/* Reads the rest of the log pipe and the control socket. Every process of the step must be dead. */
void supervisor_drain(struct supervisor *supervisor, struct step_end *end);

/* The processes that outlived the program of a step that ended by itself; empty if there were none. */
const char *step_end_leftovers(const struct step_end *end);

/* Sets outcome, code and detail of a step that was started. */
void step_end_report(const struct step_end *end, int64_t run_ms, struct receipt *receipt);

#endif
