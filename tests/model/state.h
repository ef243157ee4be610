/* Access to the parts of a state, shared by world.c and turns.c. */
#ifndef DAYFLY_MODEL_STATE_H
#define DAYFLY_MODEL_STATE_H

#include "search.h"

static inline int has(uint32_t mutation) { return (config.mutations & mutation) != 0; }
static inline int may(uint32_t fault) { return (config.faults & fault) != 0; }
static inline int pods(void) { return config.units * MAX_ATTEMPTS * config.uids; }
static inline int name_of(int pod) { return pod / config.uids; }
static inline int unit_of(int pod) { return name_of(pod) / MAX_ATTEMPTS; }
static inline int attempt_of(int pod) { return name_of(pod) % MAX_ATTEMPTS + 1; }
static inline int status_of(uint16_t pod) { return pod >> POD_STATUS & 7; }
static inline int truth_of(uint16_t pod) { return pod >> POD_TRUTH & 7; }
static inline int alive(uint16_t pod) { return truth_of(pod) >= TRUTH_ALIVE && truth_of(pod) <= TRUTH_SEALED_FAIL; }
static inline int started(uint16_t pod) { return truth_of(pod) >= TRUTH_ALIVE && truth_of(pod) <= TRUTH_KILLED; }
static inline int born(const State *s) { return s->run >> RUN_BORN; }
static inline int owner_of(uint16_t pod) { return pod & POD_OWNER ? 2 : 1; }
static inline void set_status(uint16_t *pod, int status)
{
    *pod = (uint16_t)((*pod & ~(7 << POD_STATUS)) | status << POD_STATUS);
}
static inline void set_truth(uint16_t *pod, int truth) { *pod = (uint16_t)((*pod & ~(7 << POD_TRUTH)) | truth << POD_TRUTH); }
static inline int object_of(int pod) { return config.object[unit_of(pod)]; }
/* An active object may be created too late and is deleted then (README.md); no operator has seen it yet. */
static inline int may_be_late(uint16_t it, int pod) { return object_of(pod) == OBJECT_AT_ONCE && !(it & POD_CLAIMED); }
static inline int final_status(uint16_t pod) { return status_of(pod) >= STATUS_OK; }

/* The current pod of this name, or -1. */
static inline int named(const State *s, int name)
{
    for (int uid = 0; uid < config.uids; uid++)
        if (s->pod[name * config.uids + uid] & POD_THERE)
            return name * config.uids + uid;
    return -1;
}

static inline int orphan(const State *s, int pod)
{
    return (s->pod[pod] & POD_THERE) && !((s->run & RUN_THERE) && owner_of(s->pod[pod]) == born(s));
}

/* Whether all its processes have ended or can never start, and the API server reports it. */
static inline int over(uint16_t pod)
{
    return pod & POD_GATED || final_status(pod) || (pod & POD_GOING && !(pod & POD_BOUND));
}

/* world.c */
int wrong_deletion(const State *state, int pod);
int wrong_end(const State *state);
int settle_pod(State *state, int pod);
int wrong_start(const State *state, int pod);
void pod_step(const State *state, int pod, uint16_t it, int kind, int wrong, int fault);
int settle_run(State *state);
void settle_target(State *state);

/* answers.c */
enum { MAX_DECISIONS = 1 << 16 };
extern Decision decisions[MAX_DECISIONS];
void answers_begin(Decide decide, Summary summary);
const Ledger *ledger_of(int number);
int intern(const Decision *decision);
int answer(const Question *question);

/* objects.c */
typedef struct { uint8_t fact, seen; } Sight;
Sight sight_of_object(const State *state, const Ledger *ledger, int unit, int attempt);
int object_effect(State *next, int op, int kind, int at, int *done);
void object_steps(const State *state, int pod);
int settle_object(State *state, int pod);
int is_as_it_was(uint16_t object);
int wrong_removal(const State *state, int pod);

/* turns.c */
void turn_steps(const State *state, int op);
void emit(State *next, int kind, int op, int at, int detail, int wrong, int fault);
extern Emit emit_to;

#endif
