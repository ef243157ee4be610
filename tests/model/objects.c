/* Objects of steps: the actions of operators (execute/object, operator/objects, operator/executors) and of their controllers.
 * A state stores them like pods, and the API server identifies them by name like pods. */
#include "state.h"

/* execute/object/read.py, `is_ours`: by its UID once the ledger holds one, before that by the token of run, unit and attempt. */
static int ours(const State *s, const Ledger *ledger, int unit, int name)
{
    int now = named(s, name), ref = ledger->ref[unit];
    if (now < 0)
        return -1;
    if (ref)
        return now % config.uids + 1 == ref ? now : -1;
    return owner_of(s->pod[now]) == ledger->uid ? now : -1;
}

/* object_observer.py, `removed` */
static Sight sight_of_removal(const State *s, const Ledger *ledger, int maker)
{
    int attempt = ledger->attempt[maker];
    if (!attempt || (ledger->state[maker] == 4 && !ledger->ref[maker]))
        return (Sight){FACT_ENDED_OK, 0};
    int pod = ours(s, ledger, maker, maker * MAX_ATTEMPTS + attempt - 1);
    if (pod < 0)
        return (Sight){FACT_ENDED_OK, 0};
    if (s->pod[pod] & POD_GOING)
        return (Sight){s->pod[pod] & POD_BOUND ? FACT_RUNNING : FACT_ENDED_OK, 0};
    return (Sight){FACT_HELD, 0};
}

/* object_observer.py: each object is read from the API server now; the ledger may be stale. */
Sight sight_of_object(const State *s, const Ledger *ledger, int unit, int attempt)
{
    if (config.object[unit] == OBJECT_REMOVE)
        return sight_of_removal(s, ledger, config.makes[unit]);
    int name = unit * MAX_ATTEMPTS + attempt - 1, pod = ours(s, ledger, unit, name);
    if (pod < 0) { /* `_missing`; turns.c adds that its run must end */
        if (ledger->ref[unit])
            return (Sight){FACT_ENDED_FAIL, 0};
        return (Sight){named(s, name) >= 0 ? FACT_NEVER_RAN : FACT_HELD, 0};
    }
    uint16_t it = s->pod[pod];
    uint8_t seen = (uint8_t)(pod % config.uids + 1);
    if (it & POD_GOING)
        return (Sight){it & POD_BOUND ? FACT_RUNNING : FACT_ENDED_FAIL, seen};
    if (it & POD_GATED)
        return (Sight){FACT_HELD, seen};
    switch (truth_of(it)) {
    case TRUTH_SEALED_OK:
        return (Sight){FACT_ENDED_OK, seen};
    case TRUTH_SEALED_FAIL:
        return (Sight){FACT_ENDED_FAIL, seen};
    default:
        return (Sight){FACT_RUNNING, seen};
    }
}

/* object_executor.py, `_is_permitted`; `made` is the created object, or -1. */
static int permitted(const State *s, int op, int name, int made)
{
    const Ledger *mine = ledger_of(s->op[op].ledger), *now = ledger_of(s->ledger);
    int unit = name / MAX_ATTEMPTS;
    if (!(s->run & RUN_THERE) || born(s) != mine->uid)
        return 0;
    if (now->ref[unit] && !(made >= 0 && has(SEEN_IS_ANOTHERS)))
        return made >= 0 && now->ref[unit] == made % config.uids + 1;
    int waits = now->attempt[unit] == name % MAX_ATTEMPTS + 1 && (now->state[unit] == 1 || now->state[unit] == 2);
    return waits && !now->ref[unit] && now->phase <= (made >= 0);
}

/* Objects.create: only the name prevents a second object. -1 if the name is taken. */
static int post(State *next, int op, int name)
{
    int at_rest = config.object[name / MAX_ATTEMPTS] == OBJECT_AT_REST;
    for (int uid = 0; named(next, name) < 0 && uid < config.uids; uid++) {
        int pod = name * config.uids + uid;
        if (next->pod[pod] & POD_MADE)
            continue;
        next->pod[pod] = (uint16_t)(POD_THERE | POD_MADE | (at_rest && !has(BORN_AT_WORK) ? POD_GATED : 0) |
                                    (at_rest || has(OBJECT_LOOSE) ? 0 : POD_FINAL) |
                                    (ledger_of(next->op[op].ledger)->uid == 2 ? POD_OWNER : 0));
        return pod;
    }
    return -1;
}

/* Objects.delete of an object that was observed as not ready: the request contains its version. */
int is_as_it_was(uint16_t it) { return has(ANY_VERSION_ENDS) || !(truth_of(it) == TRUTH_SEALED_OK || truth_of(it) == TRUTH_SEALED_FAIL); }

/* An operator deletes an object that its run has created and that is still in use. */
int wrong_removal(const State *s, int pod)
{
    const Ledger *ledger = ledger_of(s->ledger);
    int unit = unit_of(pod), known = ledger->ref[unit] == pod % config.uids + 1;
    if (!(s->run & RUN_THERE) || ledger->phase || !known || s->pod[pod] & POD_GOING)
        return FINE;
    return ledger->succeeded[unit] ? ORDER : FINE;
}

static int take_away(State *next, int pod)
{
    int wrong = wrong_removal(next, pod);
    next->pod[pod] |= POD_GOING;
    settle_object(next, pod);
    return wrong;
}

/* One write; `next` is already at the following effect. A creation is a read, the POST, and a second read for each UID that
 * the object may have. Reads of other UIDs are skipped. */
int object_effect(State *next, int op, int kind, int at, int *done)
{
    Op *mine = &next->op[op];
    int pod;
    switch (kind) {
    case EFFECT_OBJECT_LOOK:
        if (!permitted(next, op, at, -1) && !has(MAKE_BLINDLY)) {
            mine->at = (uint8_t)(mine->at + 1 + config.uids);
            return FINE;
        }
        if (may(STILL))
            return FINE;
        mine->at++;
        __attribute__((fallthrough));
    case EFFECT_OBJECT_POST:
        pod = post(next, op, at);
        mine->at = (uint8_t)(mine->at + (pod < 0 || has(LOOK_ONCE) ? config.uids : pod % config.uids));
        *done = pod;
        return FINE;
    case EFFECT_OBJECT_AGAIN: /* `_make`, after the answer */
        mine->at = (uint8_t)(mine->at + config.uids - 1 - at % config.uids);
        if (!(next->pod[at] & POD_THERE) || permitted(next, op, name_of(at), at))
            return FINE;
        next->pod[at] &= (uint16_t)~POD_FINAL;
        return take_away(next, at);
    case EFFECT_OBJECT_RELEASE: /* Objects.change: the patch contains the UID */
        next->pod[at] &= (uint16_t)~POD_GATED;
        return FINE;
    case EFFECT_OBJECT_REMOVE: /* `_remove`: read now, deleted by UID */
        pod = ours(next, ledger_of(mine->ledger), at / MAX_ATTEMPTS, at);
        *done = pod;
        return pod < 0 ? FINE : take_away(next, pod);
    case EFFECT_OBJECT_CLEAR: /* `clear`, for kinds that are not created at rest */
        pod = ours(next, ledger_of(mine->ledger), at / MAX_ATTEMPTS, at);
        if (pod < 0 || has(OBJECT_HELD))
            return FINE;
        next->pod[pod] &= (uint16_t)~POD_FINAL;
        settle_object(next, pod);
        return FINE;
    }
    return FINE;
}

/* --- around them ------------------------------------------------------------------------------------------------ */

int settle_object(State *s, int pod)
{
    uint16_t *it = &s->pod[pod];
    if (!(*it & POD_THERE) || !(*it & POD_GOING) || *it & (POD_FINAL | POD_BOUND))
        return FINE;
    if (truth_of(*it) == TRUTH_NONE)
        set_truth(it, TRUTH_NEVER);
    *it &= (uint16_t)~(POD_THERE | POD_GATED | POD_GOING | POD_OWNER);
    return FINE;
}

/* Its controller, users, and the garbage collector. */
void object_steps(const State *s, int pod)
{
    uint16_t it = s->pod[pod], next = it;
    int truth = truth_of(it);
    if (!(it & POD_THERE))
        return;
    if (truth == TRUTH_NONE && !(it & (POD_GATED | POD_GOING))) {
        next |= POD_BOUND;
        set_truth(&next, TRUTH_ALIVE);
        pod_step(s, pod, next, STEP_OBJECT_BEGINS, may(STILL) && may_be_late(it, pod) ? FINE : wrong_start(s, pod), 0);
    }
    if (truth == TRUTH_ALIVE) {
        next = it;
        set_truth(&next, TRUTH_SEALED_OK);
        pod_step(s, pod, next, STEP_OBJECT_READY, FINE, 0);
        State after = *s;
        set_truth(&after.pod[pod], TRUTH_SEALED_FAIL);
        if (may(FAIL_CREATE))
            emit(&after, STEP_OBJECT_FAILS, 0, pod, 0, FINE, 1);
    }
    if (it & POD_GOING && it & POD_BOUND) {
        next = it & (uint16_t)~POD_BOUND;
        set_truth(&next, TRUTH_KILLED);
        pod_step(s, pod, next, STEP_OBJECT_TAKEN_APART, FINE, 0);
    }
    if (it & POD_GOING)
        return;
    if (!(s->run & RUN_THERE) || owner_of(it) != born(s))
        pod_step(s, pod, it | POD_GOING, STEP_COLLECT, FINE, 0);
    if (may(DELETE_PODS) && s->spent < config.budget)
        pod_step(s, pod, it | POD_GOING, STEP_USER_DELETE, FINE, 1);
}
