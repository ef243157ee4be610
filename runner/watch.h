/* Watches a step: its output, its end, its deadline, a cancel request. */
#ifndef DAYFLY_WATCH_H
#define DAYFLY_WATCH_H

#include <sys/types.h>

#include "base.h"
#include "receipt.h"

struct watch {
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
struct end {
    enum { BY_ITSELF, BY_DEADLINE, BY_CANCEL } cause;
    bool known;  /* `status` is the program's wait status */
    int status;
    bool not_executable;
    struct fault left; /* the processes that outlived the program and were killed, or empty */
    bool no_process; /* the kernel could not create a process; a retry may succeed */
    struct fault fault;
};

/* Blocks the signals that the watch reads. Call it before the first fork. */
void watch_block_signals(void);
/* True if SIGTERM or SIGINT is pending. */
bool watch_cancelled(void);

/* Opens the descriptors of the watch. Call it before the gate, because nothing may fail after it. */
int watch_open(struct watch *watch, struct fault *fault);

/* Returns once the child is reaped. If the child is the program itself, and not an init that reports on it, `end` gets
 * its wait status. */
void watch_run(struct watch *watch, bool child_is_program, struct end *end);

/* Reads the rest of the log pipe and the control socket. Every process of the step must be dead. */
void watch_drain(struct watch *watch, struct end *end);

/* The processes that outlived the program of a step that ended by itself; empty if there were none. */
const char *watch_left(const struct end *end);

/* Sets outcome, code and detail of a step that was started. */
void watch_report(const struct end *end, int64_t run_ms, struct receipt *receipt);

#endif
