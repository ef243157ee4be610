/* Types of the model: the state, the guards that a mutant may lack, and the questions to Python.
 * `engine.py` reads the enums of this file, so each name is defined only here. */
#ifndef DAYFLY_MODEL_SEARCH_H
#define DAYFLY_MODEL_SEARCH_H

#include <stdint.h>

enum { MAX_UNITS = 3, MAX_ATTEMPTS = 3, MAX_UIDS = 2, MAX_NAMES = 9, MAX_PODS = 18, MAX_OPS = 3, MAX_EFFECTS = 16 };

/* Kinds of units. A fork is a kept unit: it does not end by itself. */
enum Role { ROLE_CREATE, ROLE_FORK, ROLE_PRE_STOP, ROLE_POST_STOP };

/* Effects of a unit on an object: create it at rest (suspended), create it active, or remove it. */
enum Object { OBJECT_NONE, OBJECT_AT_REST, OBJECT_AT_ONCE, OBJECT_REMOVE };

/* Facts about one attempt, with the names of `plan.world`. */
enum Fact {
    FACT_NONE, FACT_HELD, FACT_NEVER_RAN, FACT_WAITING, FACT_RUNNING, FACT_SEALED_OK, FACT_SEALED_FAIL,
    FACT_ENDED_OK, FACT_ENDED_FAIL, FACT_UNCLEAR, FACT_DEAD_BY, FACT_LACKS, FACT_RECALLED, FACT_MUTE
};

/* Effects: each is one write to the API server. An effect of `plan.actions` is one or several of them. */
enum Effect {
    EFFECT_PREPARE, EFFECT_LAUNCH, EFFECT_DELETE, EFFECT_UNFINALIZE, EFFECT_TARGET_DELETE, EFFECT_TARGET_UNFINALIZE,
    EFFECT_RUN_UNFINALIZE, EFFECT_RUN_DELETE, EFFECT_UNBORN, EFFECT_UNBORN_UNFINALIZE, EFFECT_RECALL,
    EFFECT_OBJECT_LOOK, EFFECT_OBJECT_POST, EFFECT_OBJECT_AGAIN, EFFECT_OBJECT_RELEASE, EFFECT_OBJECT_REMOVE,
    EFFECT_OBJECT_CLEAR
};

/* Guards of the protocol. A set bit removes the guard. */
enum Mutation {
    NO_GATE = 1 << 0,              /* pods are created without a gate */
    NO_CAS = 1 << 1,               /* ledger writes do not check the version */
    MISSING_IS_VOID = 1 << 2,      /* the step of a claimed pod that is gone is retried */
    LAUNCH_BY_NAME = 1 << 3,       /* the gate is removed from any pod of that name */
    NO_FINALIZER = 1 << 4,         /* pods are created without our finalizer */
    NO_FENCE = 1 << 5,             /* no finalizer on the target before the first claim */
    FENCE_BY_TARGET = 1 << 6,      /* fenced targets are remembered by their UID, not by the Run's */
    EFFECTS_FIRST = 1 << 7,        /* effects are sent before the ledger is written */
    CACHED_ENDS = 1 << 8,          /* a recorded attempt without a pod in the cache counts as ended */
    PENDING_IS_VOID = 1 << 9,      /* a pod deleted before its status reports a start never ran */
    NO_MARKER = 1 << 10,           /* a container that is started twice runs twice */
    DEADLINE_UNREAD = 1 << 11,     /* an attempt without an observation is dead at once */
    UNBORN_WHILE_HELD = 1 << 12,   /* an empty Run is deleted although its target has our finalizer */
    RUN_FIRST = 1 << 13,           /* at the end the Run is deleted before the target's finalizer */
    NO_SWEEP = 1 << 14,            /* pods of deleted Runs are kept */
    SEALED_IS_ENDED = 1 << 15,     /* a receipt in the log proves the end of every container */
    TARGET_LEFT = 1 << 16,         /* a run that ended by its time to live keeps its target */
    UNKNOWN_IS_VOID = 1 << 17,     /* an end without a reported start counts as no start */
    UNBORN_BLINDLY = 1 << 18,      /* an empty Run is deleted without a new read */
    RECALL_IS_VOID = 1 << 19,      /* a recalled pod without a reported start never ran, whatever its receipt */
    REFUSED_IS_VOID = 1 << 20,     /* it is proof that the container of a recall could not read the marker */
    MARKER_UNREAD = 1 << 21,       /* the container of a recall does not check whether the step has started */
    RECALL_UNTOLD = 1 << 22,       /* the container of a recall starts the step in its own image */
    MAKE_BLINDLY = 1 << 23,        /* an object is created without reading the current ledger */
    LOOK_ONCE = 1 << 24,           /* after its creation the permission is not checked again */
    SEEN_IS_ANOTHERS = 1 << 25,    /* an object is deleted again although a peer has already seen it */
    OBJECT_LOOSE = 1 << 26,        /* an active object is created without our finalizer */
    BORN_AT_WORK = 1 << 27,        /* no object is created at rest */
    ANY_VERSION_ENDS = 1 << 28,    /* an object that was not ready is deleted at any later version */
    CLOSING_IS_CLOSED = 1 << 29,   /* an object missing before the close counts as never created */
    OBJECT_HELD = 1 << 30          /* at the end an object keeps our finalizer */
};

/* Faults that a search may inject. A set bit permits one. */
enum Fault {
    DELETE_PODS = 1 << 0,   /* a user deletes a pod; our finalizer keeps it */
    STRIP = 1 << 1,         /* a user removes our finalizer from the target, or from a pod and deletes it by force */
    LOSE_NODES = 1 << 2,    /* a node is unreachable: its pods are marked failed, its processes may live */
    EXPIRE = 1 << 3,        /* the target has a time to live */
    LATE = 1 << 4,          /* a start or run deadline passes */
    FAIL_CREATE = 1 << 5,   /* create scripts may fail */
    FAIL_STOP = 1 << 6,     /* stop scripts may fail */
    CRASH = 1 << 7,         /* operators crash and lose answers */
    LOSE_STATUS = 1 << 8,   /* a kubelet has lost a container and reports ContainerStatusUnknown */
    LACK_IMAGES = 1 << 9,   /* images are missing, and may appear; the end of a pod deleted until then proves no start */
    LACK_SPARE = 1 << 10,   /* the image of a recall is missing forever */
    LIVES = 1 << 11,        /* no fault: the target starts and stops by itself, and its adapter reports it */
    STILL = 1 << 12         /* an operator may pause between reading the ledger and the POST of an object */
};

enum Violation {
    FINE, TWO_ALIVE, TWICE, NO_CLAIM, ORDER, AFTER_END, LEAK, VANISHED, LEDGER_LOST, ILLEGAL, TWO_STARTS, NOT_CLOSED,
    WRONG_IMAGE, STUCK
};

/* Labels of steps: kind, operator, pod and detail, for the text of a trace. */
enum Step {
    STEP_BIRTH, STEP_FENCE, STEP_DECIDE, STEP_COMMIT, STEP_EFFECT, STEP_CRASH, STEP_ERROR, STEP_SWEEP, STEP_USER_STOP,
    STEP_TTL, STEP_USER_DELETE, STEP_STRIP, STEP_BIND, STEP_START, STEP_SEAL, STEP_END, STEP_KILL, STEP_STATUS,
    STEP_REFUSE, STEP_NODE_LOST, STEP_DEAD_BY, STEP_COLLECT, STEP_AGAIN, STEP_STATUS_LOST, STEP_STRIP_TARGET,
    STEP_LACK, STEP_VOID, STEP_AGAIN_VOID, STEP_AGAIN_REFUSED, STEP_START_SPARE, STEP_TARGET_STARTS, STEP_TARGET_STOPS,
    STEP_OBJECT_BEGINS, STEP_OBJECT_READY, STEP_OBJECT_FAILS, STEP_OBJECT_TAKEN_APART
};

/* The summary of a ledger for the search. Python has the real ledger under the same number. */
typedef struct {
    uint8_t phase;                 /* 0 open, 1 closed, 2 cleaned or abandoned */
    uint8_t uid;                   /* the number of the Run object: 1, 2 */
    uint8_t empty;                 /* whether it has no units */
    uint8_t attempt[MAX_UNITS];
    uint8_t state[MAX_UNITS];      /* 0 none, 1 claimed, 2 unknown, 3 done, 4 void */
    uint8_t succeeded[MAX_UNITS];
    uint8_t ref[MAX_UNITS];        /* the number of the pod of that name: 1, 2; 0 for none */
} Ledger;

/* The decision of one turn. `ledger` is 0 if nothing is written. */
typedef struct {
    uint16_t ledger;
    uint8_t count, illegal;
    uint8_t kind[MAX_EFFECTS];
    uint8_t at[MAX_EFFECTS];       /* the pod; the name for EFFECT_PREPARE and for objects that were not seen */
} Decision;

typedef struct {
    uint16_t ledger;
    uint8_t stop, expired, overdue;
    uint8_t lives, began, rests;   /* whether the target lives by itself; its reported start and stop */
    uint8_t fact[MAX_NAMES];       /* Fact */
    uint8_t seen[MAX_NAMES];       /* the number of the pod of that name: 0, 1, 2 */
} Question;

typedef struct {
    int units, ops, uids;
    int role[MAX_UNITS];
    int starts[MAX_UNITS];         /* the maximum number of started attempts; 0: any number */
    int needs[MAX_UNITS];          /* the unit whose output it reads, or the fork that must begin first; or -1 */
    int object[MAX_UNITS];         /* Object */
    int makes[MAX_UNITS];          /* for a unit that removes an object: the unit that creates it */
    uint32_t mutations, faults;
    int budget;                    /* the maximum number of faults on one path (crashes are not counted) */
    uint32_t most;                 /* the maximum number of states */
    uint32_t ignored;              /* violations to ignore, by bit, to find the violations that follow */
    int liveness;                  /* search for states from which the end cannot be reached */
} Config;

typedef struct {
    uint32_t states, depth;
    uint32_t beyond;               /* requested attempts beyond MAX_ATTEMPTS */
    uint64_t edges;
    int violation;
    uint32_t at;                   /* the state before the violating step */
    uint64_t label;                /* the violating step */
    int complete;
} Result;

/* One operator: the last ledger that it has read, and the rest of its current turn. */
typedef struct {
    uint16_t ledger, decision;
    uint8_t at;                    /* the next write, 0: of the ledger; n: the nth effect */
    uint8_t fenced;                /* bit n: the target of Run n has our finalizer, by its last read */
} Op;

typedef struct {
    uint16_t ledger;               /* 0 without a Run */
    uint8_t run;                   /* RUN_ bits, and above them the number of created Runs */
    uint8_t target;                /* TARGET_ bits */
    uint8_t spent;                 /* faults so far */
    uint8_t pad;
    uint16_t pod[MAX_PODS];        /* POD_ bits */
    Op op[MAX_OPS];
} State;

enum { RUN_THERE = 1, RUN_FINAL = 2, RUN_GOING = 4, RUN_BORN = 4 /* shift */ };
enum { TARGET_GOING = 1, TARGET_GONE = 2, TARGET_FINAL = 4, TARGET_EXPIRED = 8, TARGET_BEGAN = 16, TARGET_RESTS = 32 };
enum {
    POD_THERE = 1, POD_GATED = 2, POD_GOING = 4, POD_BOUND = 8, POD_FINAL = 16, POD_STATUS = 5 /* shift */,
    POD_TRUTH = 8 /* shift */, POD_MADE = 1 << 11, POD_CLAIMED = 1 << 12, POD_EXPIRED = 1 << 13, POD_OWNER = 1 << 14,
    POD_RECALLED = 1 << 15
};
/* An object has the bits of a pod: GATED at rest, BOUND while its controller's finalizer is on it, FINAL while ours is.
 * STATUS is the reported state of the container, TRUTH its real state. An object is ALIVE once its controller has begun. */
enum { STATUS_NONE, STATUS_LACKS, STATUS_RUNNING, STATUS_OK, STATUS_FAIL, STATUS_LOST, STATUS_NEVER, STATUS_UNKNOWN };
enum { TRUTH_NONE, TRUTH_ALIVE, TRUTH_SEALED_OK, TRUTH_SEALED_FAIL, TRUTH_OK, TRUTH_FAIL, TRUTH_KILLED, TRUTH_NEVER };

typedef int (*Decide)(const Question *question, Decision *answer);
typedef void (*Summary)(int ledger, Ledger *out);

/* world.c and others call it for each step that a state permits. `wrong` is a Violation. `fault`: the step is a fault, so no
 * path to the end may depend on it. */
typedef void (*Emit)(const State *next, uint64_t label, int wrong, int fault);

extern Config config;
extern uint32_t beyond;
void model_begin(Decide decide, Summary summary);
void model_steps(const State *state, Emit emit);
int model_ended(const State *state);
const Decision *model_decision(int number);

#endif
