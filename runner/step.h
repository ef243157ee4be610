/* The exec of the user's program, and the process that supervises it if there is no PID namespace. */
#ifndef DAYFLY_STEP_H
#define DAYFLY_STEP_H

#include <sys/types.h>

#include "inputs.h"
#include "order.h"

/* Messages between launcher and step over a sequenced-packet socket. */
enum word {
    WORD_READY = 'r',     /* step: prepared, waiting for the start. */
    WORD_FAULT = 'f',     /* step: preparation failed, nothing ran. */
    WORD_EXEC = 'e',      /* step: the program could not be executed. `value`: the error if no process could be made. */
    WORD_ENDED = 'x',     /* step: the program ended. `value`: its wait status. */
    WORD_GO = 'g',        /* launcher: the start marker is linked. */
    WORD_TERMINATE = 't', /* launcher: send SIGTERM to every process of the step. */
};

struct message {
    int word;
    int value;
    struct fault fault;
};

struct step {
    const struct order *order;
    const char *program; /* absolute path of the script, or NULL for a service */
    int control;         /* the step's end of the socket */
    int log;             /* write end of the log pipe */
    struct created_files *created_files; /* files created on the host */
    bool failed;           /* the program could not be executed, and `fault` says why */
    struct fault fault;
};

/* False if the peer is gone. */
bool message_send(int socket, int word, int value, const struct fault *fault);
/* Returns 1 for a message, 0 if none is waiting (with MSG_DONTWAIT in FLAGS), -1 if the peer is gone. */
int message_receive(int socket, struct message *message, int flags);

/* Changes to the working directory of the step. */
int step_enter_folder(const struct order *order, struct fault *fault);

/* The main function of the process that replaces a PID namespace: it prepares, waits for the start, runs the program, and
 * outlives its children. */
_Noreturn void step_init(struct step *step);

/* Forks the program with a new session, default signals, empty standard input, and output to the log pipe. Returns once
 * it runs or, with `failed` set, has ended; -1 with errno set if no process could be created. */
pid_t step_start(struct step *step);

#endif
