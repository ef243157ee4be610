/* The exec of the user's program, and the process that stands over it where there is no PID namespace. */
#ifndef DAYFLY_STEP_H
#define DAYFLY_STEP_H

#include <sys/types.h>

#include "inputs.h"
#include "order.h"

/* What the launcher and the step say to each other over a sequenced-packet socket. */
enum word {
    WORD_READY = 'r',     /* step: all is prepared, waiting for the gate */
    WORD_FAULT = 'f',     /* step: preparation failed, nothing ran */
    WORD_EXEC = 'e',      /* step: the program could not be executed; `value` is the error if there was no process */
    WORD_ENDED = 'x',     /* step: the program ended, `value` is its wait status */
    WORD_GO = 'g',        /* launcher: the gate is passed */
    WORD_TERMINATE = 't', /* launcher: SIGTERM to every process of the step */
};

struct message {
    int word;
    int value;
    struct fault fault;
};

struct step {
    const struct order *order;
    const char *program; /* absolute path of the script file, NULL for a service */
    int control;         /* the step's end of the socket */
    int log;             /* write end of the log pipe */
    struct traces *traces; /* what to create on the host */
    bool failed;           /* the program could not be executed, and `fault` says why */
    struct fault fault;
};

/* False when the peer is gone. */
bool message_send(int socket, int word, int value, const struct fault *fault);
/* 1: a message; 0: none is waiting (with MSG_DONTWAIT in FLAGS); -1: the peer is gone. */
int message_receive(int socket, struct message *message, int flags);

/* Moves to where the step begins. */
int step_enter_folder(const struct order *order, struct fault *fault);

/* Life of the process that stands for a PID namespace: prepare, wait for the gate, run the program, outlive its
 * children. */
_Noreturn void step_init(struct step *step);

/* Forks the program: a session of its own, default signals, standard input empty, output into the log pipe. Returns once
 * it runs or, with `failed` set, has ended; -1 with errno set when there is no process to be had. */
pid_t step_start(struct step *step);

#endif
