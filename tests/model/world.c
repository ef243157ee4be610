/* The environment of the operators: API server, scheduler, kubelet, users and time; and the invariants. */
#include <string.h>

#include "state.h"

Config config;
uint32_t beyond;

void model_begin(Decide decide, Summary summary)
{
    beyond = 0;
    answers_begin(decide, summary);
}

int model_ended(const State *s)
{
    if (!(s->target & TARGET_GONE) || s->run & RUN_THERE)
        return 0;
    for (int pod = 0; pod < pods(); pod++)
        if (s->pod[pod] & POD_THERE || alive(s->pod[pod]))
            return 0;
    for (int op = 0; op < config.ops; op++)
        if (s->op[op].decision)
            return 0;
    return 1;
}

/* --- violations ------------------------------------------------------------------------------------------------- */

/* Whether a fork has ever begun. */
static int ever_began(const State *s, int unit)
{
    for (int pod = 0; pod < pods(); pod++)
        if (unit_of(pod) == unit && started(s->pod[pod]))
            return 1;
    return 0;
}

int wrong_start(const State *s, int pod)
{
    int unit = unit_of(pod), role = config.role[unit], before = 0, order = 0;
    const Ledger *ledger = ledger_of(s->ledger);
    /* The ledger gets the UID of an object once it is observed; an active object has begun by then. */
    int at_once = object_of(pod) == OBJECT_AT_ONCE && ledger->attempt[unit] == attempt_of(pod) && ledger->state[unit];
    if (!(s->pod[pod] & POD_CLAIMED) && !at_once)
        return NO_CLAIM;
    for (int other = 0; other < pods(); other++) {
        if (other == pod || !started(s->pod[other]))
            continue;
        int its = config.role[unit_of(other)];
        if (unit_of(other) == unit) {
            if (alive(s->pod[other]))
                return TWO_ALIVE;
            before++;
        }
        order |= its == ROLE_POST_STOP && role != ROLE_POST_STOP;
        /* A delete script may run beside an existing object, unless it waits for its removal. */
        int awaited = !object_of(other) || (config.needs[unit] >= 0 && config.makes[config.needs[unit]] == unit_of(other));
        order |= its <= ROLE_FORK && role == ROLE_POST_STOP && alive(s->pod[other]) && awaited;
    }
    if (may(LIVES) && role == ROLE_POST_STOP) {
        order |= !(s->target & TARGET_RESTS);
        for (int other = 0; other < config.units && s->target & TARGET_BEGAN; other++)
            order |= config.role[other] == ROLE_PRE_STOP && !ledger->succeeded[other];
    }
    if (config.starts[unit] && before >= config.starts[unit])
        return TWICE;
    if (!(s->run & RUN_THERE) || ledger->phase == 2)
        return AFTER_END;
    int needs = config.needs[unit];
    if (needs >= 0)
        order |= role == ROLE_FORK ? !ever_began(s, needs) : !ledger->succeeded[needs];
    return order ? ORDER : FINE;
}

int wrong_end(const State *s)
{
    int owed = (s->target & TARGET_BEGAN) != 0, cleaned = 0, cleans = 0;
    if (may(LIVES) && !(s->target & TARGET_RESTS))
        return LEAK;
    for (int unit = 0; unit < config.units; unit++)
        cleans |= config.role[unit] == ROLE_POST_STOP && config.object[unit] != OBJECT_REMOVE;
    for (int pod = 0; pod < pods(); pod++) {
        int role = config.role[unit_of(pod)], truth = truth_of(s->pod[pod]);
        if (alive(s->pod[pod]) && !may_be_late(s->pod[pod], pod))
            return LEAK;
        owed |= role <= ROLE_FORK && started(s->pod[pod]);
        cleaned |= role == ROLE_POST_STOP && (truth == TRUTH_OK || truth == TRUTH_SEALED_OK);
    }
    return owed && cleans && !cleaned ? LEAK : FINE;
}

/* preStop runs before the forks end, and a fork ends after the forks that began after it. */
int wrong_deletion(const State *s, int pod)
{
    const Ledger *ledger = ledger_of(s->ledger);
    if (config.role[unit_of(pod)] != ROLE_FORK || !alive(s->pod[pod]) || !(s->run & RUN_THERE) || !ledger->phase)
        return FINE;
    for (int unit = 0; unit < config.units; unit++)
        if (config.role[unit] == ROLE_PRE_STOP && !ledger->succeeded[unit])
            return ORDER;
    for (int other = 0; other < pods(); other++)
        if (config.role[unit_of(other)] == ROLE_FORK && config.needs[unit_of(other)] == unit_of(pod) && alive(s->pod[other]))
            return ORDER;
    return FINE;
}

static int wrong_vanishing(const State *s, int pod)
{
    const Ledger *ledger = ledger_of(s->ledger);
    int unit = unit_of(pod), attempt = attempt_of(pod);
    if (!(s->pod[pod] & POD_CLAIMED) || !(s->run & RUN_THERE) || ledger->attempt[unit] > attempt)
        return FINE;
    return ledger->attempt[unit] == attempt && ledger->state[unit] >= 3 ? FINE : VANISHED;
}

/* --- the API server --------------------------------------------------------------------------------------------- */

static void forget_object(State *s, int pod)
{
    uint16_t *it = &s->pod[pod];
    int open = *it & POD_BOUND && (truth_of(*it) == TRUTH_NONE || alive(*it)); /* the node may still have it */
    if (truth_of(*it) == TRUTH_NONE && !open)
        set_truth(it, TRUTH_NEVER);
    *it &= (uint16_t)~(POD_THERE | POD_GATED | POD_GOING | POD_FINAL | POD_OWNER | POD_RECALLED | (open ? 0 : POD_BOUND));
    set_status(it, STATUS_NONE);
}

/* Remove a deleted pod without finalizers if no kubelet still has to report its end. */
int settle_pod(State *s, int pod)
{
    uint16_t it = s->pod[pod];
    if (object_of(pod))
        return settle_object(s, pod);
    if (!(it & POD_THERE) || !(it & POD_GOING) || it & POD_FINAL || (it & POD_BOUND && !final_status(it)))
        return FINE;
    int wrong = wrong_vanishing(s, pod);
    forget_object(s, pod);
    return wrong;
}

int settle_run(State *s)
{
    if (!(s->run & RUN_GOING) || s->run & RUN_FINAL)
        return FINE;
    const Ledger *ledger = ledger_of(s->ledger);
    int wrong = ledger->phase != 2 && !ledger->empty ? LEDGER_LOST : FINE;
    s->run &= (uint8_t)~(RUN_THERE | RUN_GOING);
    s->ledger = 0;
    return wrong;
}

void settle_target(State *s)
{
    if (s->target & TARGET_GOING && !(s->target & TARGET_FINAL))
        s->target = (uint8_t)(TARGET_GONE | (s->target & TARGET_BEGAN) | (may(LIVES) ? TARGET_RESTS : 0));
}

/* --- scheduler, kubelet, users, time ---------------------------------------------------------------------------- */

void pod_step(const State *s, int pod, uint16_t it, int kind, int wrong, int fault)
{
    State next = *s;
    next.pod[pod] = it;
    next.spent = (uint8_t)(next.spent + (fault != 0));
    int settled = settle_pod(&next, pod);
    emit(&next, kind, 0, pod, 0, wrong ? wrong : settled, fault);
}

/* The container that a recall adds to a pod, with an available image. If the container of the step has started before, the
 * new one finds its marker in the state volume. While the first is alive, it holds the lock and the new one is silent. */
static void recalled(const State *s, int pod)
{
    uint16_t it = s->pod[pod], next = it;
    int truth = truth_of(it);
    if (!(it & POD_THERE) || !(it & POD_RECALLED) || it & POD_GOING || final_status(it) || may(LACK_SPARE))
        return;
    if (truth == TRUTH_NONE && has(RECALL_UNTOLD)) {
        set_truth(&next, TRUTH_ALIVE);
        pod_step(s, pod, next, STEP_START_SPARE, WRONG_IMAGE, 0);
    } else if (truth == TRUTH_NONE) {
        set_truth(&next, TRUTH_NEVER);
        pod_step(s, pod, next, STEP_VOID, FINE, 0);
    } else if ((truth == TRUTH_KILLED || truth == TRUTH_OK || truth == TRUTH_FAIL) &&
               (has(MARKER_UNREAD) || has(REFUSED_IS_VOID))) {
        set_status(&next, STATUS_NEVER);
        pod_step(s, pod, next, has(MARKER_UNREAD) ? STEP_AGAIN_VOID : STEP_AGAIN_REFUSED, FINE, 0);
    }
}

static void kubelet(const State *s, int pod)
{
    uint16_t it = s->pod[pod], next = it;
    int there = it & POD_THERE, role = config.role[unit_of(pod)], truth = truth_of(it), status = status_of(it);
    int left = s->spent < config.budget;
    if (there && !(it & (POD_GATED | POD_GOING | POD_BOUND))) {
        pod_step(s, pod, it | POD_BOUND, STEP_BIND, FINE, 0);
        return;
    }
    if (!(it & POD_BOUND))
        return;
    if (truth == TRUTH_NONE && status != STATUS_NEVER && status != STATUS_UNKNOWN && !(it & POD_EXPIRED)) {
        /* The image may appear, also for a recalled pod that is not void yet. No path may depend on it. */
        State after = *s;
        set_truth(&next, TRUTH_ALIVE);
        after.pod[pod] = next;
        emit(&after, STEP_START, 0, pod, 0, wrong_start(s, pod), status == STATUS_LACKS && role == ROLE_CREATE);
    }
    recalled(s, pod);
    if (may(LACK_IMAGES) && truth == TRUTH_NONE && there && status == STATUS_NONE) {
        next = it;
        set_status(&next, STATUS_LACKS);
        pod_step(s, pod, next, STEP_LACK, FINE, 0);
    }
    if (truth == TRUTH_NONE && there && it & POD_GOING && status == STATUS_LACKS) {
        next = it;
        set_truth(&next, TRUTH_NEVER);
        set_status(&next, STATUS_UNKNOWN);
        pod_step(s, pod, next, STEP_STATUS_LOST, FINE, 0);
    }
    if (truth == TRUTH_NONE && there && it & POD_GOING && status == STATUS_NONE) {
        next = it;
        set_truth(&next, TRUTH_NEVER);
        set_status(&next, STATUS_NEVER);
        pod_step(s, pod, next, STEP_REFUSE, FINE, 0);
    }
    if (has(NO_MARKER) && truth == TRUTH_ALIVE)
        pod_step(s, pod, it, STEP_AGAIN, TWO_STARTS, 0);
    if (truth == TRUTH_ALIVE && role != ROLE_FORK) {
        next = it;
        set_truth(&next, TRUTH_SEALED_OK);
        pod_step(s, pod, next, STEP_SEAL, FINE, 0);
        if (role == ROLE_CREATE ? may(FAIL_CREATE) : may(FAIL_STOP) && left) {
            set_truth(&next, TRUTH_SEALED_FAIL);
            State after = *s;
            after.pod[pod] = next;
            after.spent = (uint8_t)(after.spent + (role != ROLE_CREATE));
            emit(&after, STEP_SEAL, 0, pod, 1, FINE, 1);
        }
    }
    if (truth == TRUTH_SEALED_OK || truth == TRUTH_SEALED_FAIL) {
        next = it;
        set_truth(&next, truth + (TRUTH_OK - TRUTH_SEALED_OK));
        pod_step(s, pod, next, STEP_END, FINE, 0);
    }
    if (truth == TRUTH_ALIVE && (!there || it & POD_GOING || status == STATUS_LOST)) {
        next = it;
        set_truth(&next, TRUTH_KILLED);
        pod_step(s, pod, next, STEP_KILL, FINE, 0);
    }
    if (there && status <= STATUS_RUNNING && truth != TRUTH_NONE) {
        int told = truth == TRUTH_NEVER ? STATUS_NEVER : STATUS_FAIL;
        if (alive(it) || truth == TRUTH_OK)
            told = alive(it) ? STATUS_RUNNING : STATUS_OK;
        next = it;
        set_status(&next, told);
        if (told != status)
            pod_step(s, pod, next, STEP_STATUS, FINE, 0);
        if (may(LOSE_STATUS) && left && !alive(it)) {
            set_status(&next, STATUS_UNKNOWN);
            pod_step(s, pod, next, STEP_STATUS_LOST, FINE, 1);
        }
    }
    if (there && may(LOSE_NODES) && left && !final_status(it)) {
        next = it | POD_GOING;
        set_status(&next, STATUS_LOST);
        pod_step(s, pod, next, STEP_NODE_LOST, FINE, 1);
    }
}

static void pod_steps(const State *s, int pod)
{
    uint16_t it = s->pod[pod], next = it;
    int left = s->spent < config.budget;
    if (object_of(pod)) {
        object_steps(s, pod);
        return;
    }
    kubelet(s, pod);
    if (it & POD_CLAIMED && !(it & POD_EXPIRED) && !alive(it) && (!(it & POD_THERE) || status_of(it) == STATUS_LOST)) {
        const Ledger *ledger = ledger_of(s->ledger);
        /* The deadline of a recorded attempt is no longer read. */
        if (ledger->attempt[unit_of(pod)] == attempt_of(pod)) {
            if (truth_of(it) == TRUTH_NONE)
                set_truth(&next, TRUTH_NEVER);
            pod_step(s, pod, next | POD_EXPIRED, STEP_DEAD_BY, FINE, 0);
        }
    }
    if (!(it & POD_THERE))
        return;
    if (orphan(s, pod) && !(it & POD_GOING))
        pod_step(s, pod, it | POD_GOING, STEP_COLLECT, FINE, 0);
    if (may(DELETE_PODS) && left && !(it & POD_GOING))
        pod_step(s, pod, it | POD_GOING, STEP_USER_DELETE, FINE, 1);
    if (may(STRIP) && left) {
        State after = *s;
        after.spent++;
        /* The runner has killed every process of its container before it sealed. Other containers may be
         * left, and the API server no longer shows them: README.md, "What is not". */
        if (truth_of(it) == TRUTH_SEALED_OK || truth_of(it) == TRUTH_SEALED_FAIL)
            set_truth(&after.pod[pod], truth_of(it) + (TRUTH_OK - TRUTH_SEALED_OK));
        forget_object(&after, pod);
        emit(&after, STEP_STRIP, 0, pod, 0, FINE, 1);
    }
}

void model_steps(const State *s, Emit to)
{
    emit_to = to;
    State next = *s;
    if (!(s->target & (TARGET_GOING | TARGET_GONE))) {
        next.target |= TARGET_GOING;
        settle_target(&next);
        emit(&next, STEP_USER_STOP, 0, 0, 0, FINE, 0);
        if (may(EXPIRE) && !(s->target & TARGET_EXPIRED)) {
            next = *s;
            next.target |= TARGET_EXPIRED;
            emit(&next, STEP_TTL, 0, 0, 0, FINE, 0);
        }
    }
    if (may(LIVES) && !(s->target & (TARGET_BEGAN | TARGET_RESTS | TARGET_GONE))) {
        next = *s;
        next.target |= TARGET_BEGAN;
        emit(&next, STEP_TARGET_STARTS, 0, 0, 0, FINE, 0);
    }
    if (may(LIVES) && s->target & TARGET_GOING && !(s->target & TARGET_RESTS)) {
        next = *s;
        next.target |= TARGET_RESTS;
        emit(&next, STEP_TARGET_STOPS, 0, 0, 0, FINE, 0);
    }
    if (may(STRIP) && s->spent < config.budget && s->target & TARGET_FINAL) {
        next = *s;
        next.spent++;
        next.target &= (uint8_t)~TARGET_FINAL;
        settle_target(&next);
        emit(&next, STEP_STRIP_TARGET, 0, 0, 0, FINE, 1);
    }
    for (int pod = 0; pod < pods(); pod++)
        if (s->pod[pod])
            pod_steps(s, pod);
    for (int op = 0; op < config.ops; op++) {
        int twin = op && memcmp(&s->op[op], &s->op[op - 1], sizeof(Op)) == 0;
        if (!twin)
            turn_steps(s, op);
    }
}
