/* Waiting for a step: its output, its end, its deadline, a request to cancel it. */
#ifndef DAYFLY_WATCH_H
#define DAYFLY_WATCH_H

#include <sys/types.h>

#include "base.h"
#include "receipt.h"

struct watch {
    pid_t child;     /* the process whose end is the step's end */
    int control;     /* our end of the socket to the step */
    int log_pipe;    /* read end; -1 once it is at its end */
    int signals, timer;
    bool first;      /* we are the first process of a PID namespace: what the step itself sends us is no request */
    int64_t run_ms;  /* 0: no deadline */
    int64_t grace_ms;
    void (*print)(void *state, const char *bytes, size_t length);
    void (*terminate)(void *state); /* SIGTERM to every process of the step */
    void (*kill)(void *state);      /* SIGKILL likewise */
    void *state;
};

/* How it ended. */
struct end {
    enum { BY_ITSELF, BY_DEADLINE, BY_CANCEL } cause;
    bool known;  /* `status` is the program's wait status */
    int status;
    bool not_executable;
    struct fault left; /* names the processes that lived on after the program and were ended; empty if there were none */
    bool no_process; /* and that because the kernel made no process for it, which another try may change */
    struct fault fault;
};

/* Blocks the signals the watch will read; before the first fork. */
void watch_block_signals(void);
/* True when SIGTERM or SIGINT is waiting. */
bool watch_cancelled(void);

/* Opens what the watch waits on; before the gate, because afterwards nothing may fail any more. */
int watch_open(struct watch *watch, struct fault *fault);

/* Returns once the child is reaped. A child that is the program itself (and not an init that reports on it) leaves
 * its wait status in `end`. */
void watch_run(struct watch *watch, bool child_is_program, struct end *end);

/* Reads what is left in the log pipe and the control socket; every process of the step is dead. */
void watch_drain(struct watch *watch, struct end *end);

/* The processes that lived on after the program of a step that ended by itself; empty if there were none. */
const char *watch_left(const struct end *end);

/* Outcome, code and detail of a step that was started. */
void watch_report(const struct end *end, int64_t run_ms, struct receipt *receipt);

#endif
