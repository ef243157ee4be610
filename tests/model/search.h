/* The model's vocabulary: the state, the guards that may be taken away, and what Python is asked.
 * `checker.py` reads the enums of this file, so each name stands here only once. */
#ifndef DAYFLY_MODEL_SEARCH_H
#define DAYFLY_MODEL_SEARCH_H

#include <stdint.h>

enum { MAX_UNITS = 3, MAX_ATTEMPTS = 3, MAX_UIDS = 2, MAX_NAMES = 9, MAX_PODS = 18, MAX_OPS = 3, MAX_EFFECTS = 16 };

/* What a unit is. A fork is a kept unit: it does not end by itself. */
enum Role { ROLE_CREATE, ROLE_FORK, ROLE_PRE_STOP, ROLE_POST_STOP };

/* What a unit does to an object of the API server: make one that is born at rest, one that acts at once, or remove it. */
enum Object { OBJECT_NONE, OBJECT_AT_REST, OBJECT_AT_ONCE, OBJECT_REMOVE };

/* Facts about one attempt, as `plan.world` names them. */
enum Fact {
    FACT_NONE, FACT_HELD, FACT_NEVER_RAN, FACT_WAITING, FACT_RUNNING, FACT_SEALED_OK, FACT_SEALED_FAIL,
    FACT_ENDED_OK, FACT_ENDED_FAIL, FACT_UNCLEAR, FACT_DEAD_BY, FACT_LACKS, FACT_RECALLED, FACT_MUTE
};

/* Effects, each one write to the API server; an effect of `plan.actions` is one or several of them. */
enum Effect {
    EFFECT_PREPARE, EFFECT_LAUNCH, EFFECT_DELETE, EFFECT_UNFINALIZE, EFFECT_TARGET_DELETE, EFFECT_TARGET_UNFINALIZE,
    EFFECT_RUN_UNFINALIZE, EFFECT_RUN_DELETE, EFFECT_UNBORN, EFFECT_UNBORN_UNFINALIZE, EFFECT_RECALL,
    EFFECT_OBJECT_LOOK, EFFECT_OBJECT_POST, EFFECT_OBJECT_AGAIN, EFFECT_OBJECT_RELEASE, EFFECT_OBJECT_REMOVE,
    EFFECT_OBJECT_CLEAR
};

/* Guards of the protocol. A set bit takes the guard away. */
enum Mutation {
    NO_GATE = 1 << 0,              /* pods are born without a gate */
    NO_CAS = 1 << 1,               /* ledger writes do not look at the version */
    MISSING_IS_VOID = 1 << 2,      /* a claimed pod that is gone is tried again */
    LAUNCH_BY_NAME = 1 << 3,       /* the gate is taken off whatever has the name */
    NO_FINALIZER = 1 << 4,         /* pods are born without our finalizer */
    NO_FENCE = 1 << 5,             /* no finalizer on the target before the first claim */
    FENCE_BY_TARGET = 1 << 6,      /* that a target was fenced is remembered by its UID, not by the Run's */
    EFFECTS_FIRST = 1 << 7,        /* effects before the ledger's write */
    CACHED_ENDS = 1 << 8,          /* a recorded attempt without a pod in the cache has ended */
    PENDING_IS_VOID = 1 << 9,      /* deleted while its status says that it has not started: it never ran */
    NO_MARKER = 1 << 10,           /* a container that is started twice runs twice */
    DEADLINE_UNREAD = 1 << 11,     /* what cannot be seen is dead at once */
    UNBORN_WHILE_HELD = 1 << 12,   /* an empty Run is taken away although its target carries our finalizer */
    RUN_FIRST = 1 << 13,           /* at the end the Run goes before the target's finalizer */
    NO_SWEEP = 1 << 14,            /* pods of Runs that are gone stay */
    SEALED_IS_ENDED = 1 << 15,     /* a receipt in the log proves the end of every container */
    TARGET_LEFT = 1 << 16,         /* a run that ended by its time to live leaves its target there */
    UNKNOWN_IS_VOID = 1 << 17,     /* an end that the kubelet knows nothing of, not even a start, is no start */
    UNBORN_BLINDLY = 1 << 18,      /* an empty Run that goes is not looked at again */
    RECALL_IS_VOID = 1 << 19,      /* a recalled pod of which no start is reported never ran, whatever is sealed */
    REFUSED_IS_VOID = 1 << 20,     /* that the container of a recall could not look for the marker is proof, as of any other */
    MARKER_UNREAD = 1 << 21,       /* the container of a recall does not look whether the step has started */
    RECALL_UNTOLD = 1 << 22,       /* the container of a recall starts the step in its own image */
    MAKE_BLINDLY = 1 << 23,        /* an object is made without a look at the ledger as it is now */
    LOOK_ONCE = 1 << 24,           /* once it is made nobody looks whether that was still permitted */
    SEEN_IS_ANOTHERS = 1 << 25,    /* what a peer has seen before its maker heard of it is taken back */
    OBJECT_LOOSE = 1 << 26,        /* an object that acts at once is born without our finalizer */
    BORN_AT_WORK = 1 << 27,        /* no object is born at rest */
    ANY_VERSION_ENDS = 1 << 28,    /* what was seen not to be ready is deleted though it may be by now */
    CLOSING_IS_CLOSED = 1 << 29,   /* what is not there when its run is to be closed is never made */
    OBJECT_HELD = 1 << 30          /* at the end our finalizer stays on what is left of an object */
};

/* What users and the weather may do. A set bit allows it. */
enum Fault {
    DELETE_PODS = 1 << 0,   /* a user deletes a pod; our finalizer keeps it */
    STRIP = 1 << 1,         /* a user takes our finalizer off the target, or off a pod and deletes it by force */
    LOSE_NODES = 1 << 2,    /* a node falls silent: its pods are marked failed, its processes may live */
    EXPIRE = 1 << 3,        /* the target has a time to live */
    LATE = 1 << 4,          /* a start or run deadline passes */
    FAIL_CREATE = 1 << 5,   /* create scripts may fail */
    FAIL_STOP = 1 << 6,     /* stop scripts may fail */
    CRASH = 1 << 7,         /* operators crash and lose answers */
    LOSE_STATUS = 1 << 8,   /* a kubelet finds no trace of a container any more, and says ContainerStatusUnknown */
    LACK_IMAGES = 1 << 9,   /* images are missing, and may come; deleted meanwhile, an end tells nothing of a start */
    LACK_SPARE = 1 << 10,   /* so is the image of a recall, for ever */
    LIVES = 1 << 11,        /* no fault: the target starts and stops by itself, and its adapter tells */
    STILL = 1 << 12         /* an operator may stand still between its look at the ledger and the POST of an object */
};

enum Violation {
    FINE, TWO_ALIVE, TWICE, NO_CLAIM, ORDER, AFTER_END, LEAK, VANISHED, LEDGER_LOST, ILLEGAL, TWO_STARTS, NOT_CLOSED,
    WRONG_IMAGE, STUCK
};

/* Labels of steps: kind, operator, pod and detail, for the prose. */
enum Step {
    STEP_BIRTH, STEP_FENCE, STEP_DECIDE, STEP_COMMIT, STEP_EFFECT, STEP_CRASH, STEP_ERROR, STEP_SWEEP, STEP_USER_STOP,
    STEP_TTL, STEP_USER_DELETE, STEP_STRIP, STEP_BIND, STEP_START, STEP_SEAL, STEP_END, STEP_KILL, STEP_STATUS,
    STEP_REFUSE, STEP_NODE_LOST, STEP_DEAD_BY, STEP_COLLECT, STEP_AGAIN, STEP_STATUS_LOST, STEP_STRIP_TARGET,
    STEP_LACK, STEP_VOID, STEP_AGAIN_VOID, STEP_AGAIN_REFUSED, STEP_START_SPARE, STEP_TARGET_STARTS, STEP_TARGET_STOPS,
    STEP_OBJECT_BEGINS, STEP_OBJECT_READY, STEP_OBJECT_FAILS, STEP_OBJECT_TAKEN_APART
};

/* A ledger as the search sees it; Python keeps the real one under the same number. */
typedef struct {
    uint8_t phase;                 /* 0 open, 1 closed, 2 cleaned or abandoned */
    uint8_t uid;                   /* which Run object: 1, 2 */
    uint8_t empty;                 /* it has no units */
    uint8_t attempt[MAX_UNITS];
    uint8_t state[MAX_UNITS];      /* 0 none, 1 claimed, 2 unknown, 3 done, 4 void */
    uint8_t succeeded[MAX_UNITS];
    uint8_t ref[MAX_UNITS];        /* which pod of that name: 1, 2; 0 for none */
} Ledger;

/* What one look at the world leads to. `ledger` is 0 where nothing is to be written. */
typedef struct {
    uint16_t ledger;
    uint8_t count, illegal;
    uint8_t kind[MAX_EFFECTS];
    uint8_t at[MAX_EFFECTS];       /* the pod; for EFFECT_PREPARE, and of an object that was not seen, the name */
} Decision;

typedef struct {
    uint16_t ledger;
    uint8_t stop, expired, overdue;
    uint8_t lives, began, rests;   /* whether the target lives by itself; that it is told to have started, and stopped */
    uint8_t fact[MAX_NAMES];       /* Fact */
    uint8_t seen[MAX_NAMES];       /* which pod of that name it is about: 0, 1, 2 */
} Question;

typedef struct {
    int units, ops, uids;
    int role[MAX_UNITS];
    int starts[MAX_UNITS];         /* how many attempts of it may ever start; 0: any number */
    int needs[MAX_UNITS];          /* the unit whose output it reads, or the fork after which this one begins; or -1 */
    int object[MAX_UNITS];         /* Object */
    int makes[MAX_UNITS];          /* of a unit that removes an object: the one that makes it */
    uint32_t mutations, faults;
    int budget;                    /* how many faults there may be on one path (crashes are not counted) */
    uint32_t most;                 /* states at most */
    uint32_t ignored;              /* violations that are passed over, by bit, to see what follows from them */
    int liveness;                  /* look for states from which the end cannot be reached */
} Config;

typedef struct {
    uint32_t states, depth;
    uint32_t beyond;               /* attempts that were asked for and for which there is no room */
    uint64_t edges;
    int violation;
    uint32_t at;                   /* the state from which the violating step goes */
    uint64_t label;                /* that step */
    int complete;
} Result;

/* One operator: what it last saw of the ledger, and the rest of the turn it is in. */
typedef struct {
    uint16_t ledger, decision;
    uint8_t at;                    /* 0: the ledger's write comes next; n: the nth effect does */
    uint8_t fenced;                /* bit n: Run n's target carries our finalizer, as far as it knows */
} Op;

typedef struct {
    uint16_t ledger;               /* 0 while there is no Run */
    uint8_t run;                   /* RUN_ bits, and above them how many Runs there ever were */
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
 * What the API server says of the container, and what is true of it; an object is ALIVE once its controller has begun. */
enum { STATUS_NONE, STATUS_LACKS, STATUS_RUNNING, STATUS_OK, STATUS_FAIL, STATUS_LOST, STATUS_NEVER, STATUS_UNKNOWN };
enum { TRUTH_NONE, TRUTH_ALIVE, TRUTH_SEALED_OK, TRUTH_SEALED_FAIL, TRUTH_OK, TRUTH_FAIL, TRUTH_KILLED, TRUTH_NEVER };

typedef int (*Decide)(const Question *question, Decision *answer);
typedef void (*Summary)(int ledger, Ledger *out);

/* model.c calls it for each step that a state allows. `wrong` is a Violation; `fault` says that nobody may count on it. */
typedef void (*Emit)(const State *next, uint64_t label, int wrong, int fault);

extern Config config;
extern uint32_t beyond;
void model_begin(Decide decide, Summary summary);
void model_steps(const State *state, Emit emit);
int model_ended(const State *state);
const Decision *model_decision(int number);

#endif
