/* The steps of operators, each with the code of the product that it mirrors. Decisions come from the product's `decide`
 * (answers.c). */
#include <stdlib.h>
#include <string.h>

#include "state.h"

Emit emit_to;

/* --- an operator's turn ----------------------------------------------------------------------------------------- */

/* Whether an effect can no longer change anything, so that the turn may skip it. */
static int idle_effect(const State *s, int kind, int at)
{
    switch (kind) {
    case EFFECT_LAUNCH:
        return !has(LAUNCH_BY_NAME) && !(s->pod[at] & POD_THERE && s->pod[at] & POD_GATED);
    case EFFECT_DELETE:
        return !(s->pod[at] & POD_THERE) || s->pod[at] & POD_GOING;
    case EFFECT_UNFINALIZE:
        return !(s->pod[at] & POD_THERE) || !(s->pod[at] & POD_FINAL);
    case EFFECT_RECALL:
        return !(s->pod[at] & POD_THERE) || s->pod[at] & POD_RECALLED;
    case EFFECT_OBJECT_RELEASE:
        return !(s->pod[at] & POD_THERE) || !(s->pod[at] & POD_GATED);
    case EFFECT_TARGET_DELETE:
        return (s->target & (TARGET_GOING | TARGET_GONE)) != 0;
    case EFFECT_TARGET_UNFINALIZE:
        return (s->target & TARGET_GONE) != 0;
    case EFFECT_RUN_UNFINALIZE:
        return !(s->run & RUN_THERE) || born(s) != at || !(s->run & RUN_FINAL);
    case EFFECT_UNBORN_UNFINALIZE:
        return !(s->run & RUN_THERE) || born(s) != at || !(s->run & RUN_GOING);
    case EFFECT_RUN_DELETE:
        return !(s->run & RUN_THERE) || born(s) != at || s->run & RUN_GOING;
    default:
        return 0;
    }
}

static int pending_write(const Op *op)
{
    const Decision *decision = &decisions[op->decision];
    if (!op->decision || !decision->ledger)
        return 0;
    return has(EFFECTS_FIRST) ? op->ledger != decision->ledger : op->at == 0;
}

/* Drop writes that will be refused, and effects that change nothing. */
static void settle_op(const State *s, Op *op)
{
    if (!op->decision)
        return;
    const Decision *decision = &decisions[op->decision];
    if (pending_write(op) && op->ledger != s->ledger && !(has(NO_CAS) && s->ledger)) {
        /* runs.py, `replace`: Conflict, and a new read. */
        op->decision = op->at = 0;
        op->ledger = s->ledger;
        return;
    }
    if (op->at == 0)
        return;
    while (op->at <= decision->count && idle_effect(s, decision->kind[op->at - 1], decision->at[op->at - 1]))
        op->at++;
    if (op->at > decision->count && !pending_write(op))
        op->decision = op->at = 0;
}

void emit(State *next, int kind, int op, int at, int detail, int wrong, int fault)
{
    uint64_t order = 0;
    int from[MAX_OPS];
    for (int i = 0; i < config.ops; i++)
        settle_op(next, &next->op[i]);
    /* Operators are interchangeable, so a state does not contain their order. The label has it for the trace. */
    for (int i = 0; i < config.ops; i++) {
        Op it = next->op[i];
        int to = i;
        for (; to > 0 && memcmp(&next->op[to - 1], &it, sizeof it) > 0; to--) {
            next->op[to] = next->op[to - 1];
            from[to] = from[to - 1];
        }
        next->op[to] = it;
        from[to] = i;
    }
    for (int i = 0; i < config.ops; i++)
        order |= (uint64_t)from[i] << (2 * i);
    uint64_t label = (uint64_t)kind << 48 | order << 40 | (uint64_t)op << 36 | (uint64_t)at << 24 | (uint64_t)detail;
    emit_to(next, label, wrong, fault);
}

/* runs.py, `commit`: one PUT with the version that was read. */
static void commit(const State *s, int op)
{
    State next = *s;
    const Decision *decision = &decisions[s->op[op].decision];
    const Ledger *before = ledger_of(s->ledger), *after = ledger_of(decision->ledger);
    int wrong = FINE;
    for (int unit = 0; unit < config.units; unit++) {
        int attempt = after->attempt[unit], ref = after->ref[unit];
        if (!ref || (attempt == before->attempt[unit] && ref == before->ref[unit]))
            continue;
        next.pod[(unit * MAX_ATTEMPTS + attempt - 1) * config.uids + ref - 1] |= POD_CLAIMED;
        if (before->phase && config.role[unit] <= ROLE_FORK && attempt != before->attempt[unit])
            wrong = NOT_CLOSED;
    }
    if (after->phase == 2 && before->phase != 2)
        wrong = wrong_end(s);
    next.ledger = next.op[op].ledger = decision->ledger;
    if (!next.op[op].at)
        next.op[op].at = 1;
    emit(&next, STEP_COMMIT, op, 0, s->op[op].decision, wrong, 0);
}

/* execute/pod/run.py and the operator's `_dissolve`, one API write at a time. */
static void effect(const State *s, int op)
{
    State next = *s;
    const Decision *decision = &decisions[s->op[op].decision];
    int kind = decision->kind[s->op[op].at - 1], at = decision->at[s->op[op].at - 1], wrong = FINE, done = -1;
    next.op[op].at++;
    switch (kind) {
    case EFFECT_PREPARE: /* Pods.prepare */
        for (int uid = 0; named(s, at) < 0 && done < 0 && uid < config.uids; uid++)
            if (!(s->pod[at * config.uids + uid] & POD_MADE))
                done = at * config.uids + uid;
        if (done >= 0)
            next.pod[done] = (uint16_t)(POD_THERE | POD_MADE | (has(NO_GATE) ? 0 : POD_GATED) |
                                        (has(NO_FINALIZER) ? 0 : POD_FINAL) |
                                        (ledger_of(s->op[op].ledger)->uid == 2 ? POD_OWNER : 0));
        break;
    case EFFECT_LAUNCH: /* Pods.remove_gate: the patch tests the UID and the gate */
        if (has(LAUNCH_BY_NAME))
            at = named(s, name_of(at));
        if (at >= 0)
            next.pod[at] &= (uint16_t)~POD_GATED;
        break;
    case EFFECT_DELETE: /* Pods.remove and Objects.delete: the request contains the UID */
        if (object_of(at) && !is_as_it_was(s->pod[at]))
            break;
        wrong = object_of(at) ? wrong_removal(s, at) : wrong_deletion(s, at);
        next.pod[at] |= POD_GOING;
        wrong = settle_pod(&next, at) ? VANISHED : wrong;
        break;
    case EFFECT_RECALL: /* Pods.recall: the patch tests the UID */
        next.pod[at] |= POD_RECALLED;
        break;
    case EFFECT_UNFINALIZE: /* Pods.release, its second write */
        next.pod[at] &= (uint16_t)~POD_FINAL;
        wrong = settle_pod(&next, at);
        break;
    case EFFECT_TARGET_DELETE: /* Targets.release, for a target that has not been deleted */
        next.target |= TARGET_GOING;
        settle_target(&next);
        break;
    case EFFECT_TARGET_UNFINALIZE: /* Targets.release */
        next.target &= (uint8_t)~TARGET_FINAL;
        settle_target(&next);
        break;
    case EFFECT_RUN_UNFINALIZE: /* Cluster.drop_finalizer */
        next.run &= (uint8_t)~RUN_FINAL;
        wrong = settle_run(&next);
        break;
    case EFFECT_RUN_DELETE:
        next.run |= RUN_GOING;
        wrong = settle_run(&next);
        break;
    case EFFECT_UNBORN: /* Targets._unborn: the request contains UID and version */
        if (s->run & RUN_THERE && born(s) == at && s->ledger == s->op[op].ledger) {
            next.run |= RUN_GOING;
            wrong = settle_run(&next);
        }
        break;
    case EFFECT_UNBORN_UNFINALIZE: /* a new read, and a write of that version */
        if (ledger_of(s->ledger)->empty || has(UNBORN_BLINDLY)) {
            next.run &= (uint8_t)~RUN_FINAL;
            wrong = settle_run(&next);
        }
        break;
    default:
        wrong = object_effect(&next, op, kind, at, &done);
        break;
    }
    emit(&next, STEP_EFFECT, op, done >= 0 ? done : at, kind, wrong, 0);
}

static void begin(const State *s, int op, int ledger, int decision, int kind, int at, int fault)
{
    State next = *s;
    next.op[op].ledger = (uint16_t)ledger;
    next.op[op].decision = (uint16_t)decision;
    next.op[op].at = decisions[decision].ledger && !has(EFFECTS_FIRST) ? 0 : 1;
    if (fault && kind == STEP_DECIDE)
        next.spent++;
    emit(&next, kind, op, at, decision, decisions[decision].illegal ? ILLEGAL : FINE, fault);
}

/* execute/pod/read.py, `pod` */
static int read_pod(uint16_t pod)
{
    if (pod & POD_GATED)
        return pod & POD_GOING ? FACT_NEVER_RAN : FACT_HELD;
    switch (status_of(pod)) {
    case STATUS_OK:
        return FACT_ENDED_OK;
    case STATUS_FAIL:
        return FACT_ENDED_FAIL;
    case STATUS_NEVER:
        return FACT_NEVER_RAN;
    case STATUS_UNKNOWN:
        return has(UNKNOWN_IS_VOID) ? FACT_NEVER_RAN : FACT_ENDED_FAIL;
    case STATUS_LOST:
        return pod & POD_EXPIRED || has(DEADLINE_UNREAD) ? FACT_DEAD_BY : FACT_UNCLEAR;
    }
    if (pod & POD_GOING && !(pod & POD_BOUND))
        return FACT_NEVER_RAN;
    if (has(PENDING_IS_VOID) && pod & POD_GOING && status_of(pod) <= STATUS_LACKS)
        return FACT_NEVER_RAN;
    if (status_of(pod) == STATUS_RUNNING)
        return FACT_RUNNING;
    if (pod & POD_RECALLED)
        return has(RECALL_IS_VOID) ? FACT_NEVER_RAN : FACT_RECALLED;
    return status_of(pod) == STATUS_LACKS && !(pod & POD_GOING) ? FACT_LACKS : FACT_WAITING;
}

static int sights_of_claimed(const State *s, const Ledger *ledger, int name, int unit, Sight *out)
{
    int now = named(s, name), ref = ledger->ref[unit], count = 0;
    int pod = name * config.uids + ref - 1;
    if (!ref || now != pod) { /* observe.py, `_missing` and `_read`: there is none of that UID */
        int dead = has(DEADLINE_UNREAD) || !ref || s->pod[pod] & POD_EXPIRED;
        out[0] = (Sight){(uint8_t)(has(MISSING_IS_VOID) ? FACT_NEVER_RAN : dead ? FACT_DEAD_BY : FACT_UNCLEAR), 0};
        return 1;
    }
    out[count++] = (Sight){(uint8_t)read_pod(s->pod[pod]), (uint8_t)ref};
    int truth = truth_of(s->pod[pod]);
    if (out[0].fact == FACT_RECALLED) /* the time since the recall is a free choice */
        out[count++] = (Sight){FACT_MUTE, (uint8_t)ref};
    if (out[0].fact >= FACT_LACKS || out[0].fact == FACT_RUNNING || out[0].fact == FACT_WAITING) { /* observe.py, `_sealed`: the followed log */
        if (truth == TRUTH_SEALED_OK || truth == TRUTH_OK)
            out[count++] = (Sight){has(SEALED_IS_ENDED) ? FACT_ENDED_OK : FACT_SEALED_OK, (uint8_t)ref};
        if (truth == TRUTH_SEALED_FAIL || truth == TRUTH_FAIL)
            out[count++] = (Sight){has(SEALED_IS_ENDED) ? FACT_ENDED_FAIL : FACT_SEALED_FAIL, (uint8_t)ref};
    }
    return count;
}

/* All views that an operator may have of one attempt; its cache of pods may be arbitrarily old. */
static int sights(const State *s, const Ledger *ledger, int unit, int attempt, Sight *out)
{
    int name = unit * MAX_ATTEMPTS + attempt - 1, now = named(s, name), count = 0, at = ledger->attempt[unit];
    if (config.object[unit]) { /* object_executor.py, `observe`: only living attempts are read */
        out[0] = (Sight){FACT_NONE, 0};
        if (attempt == at && (ledger->state[unit] == 1 || ledger->state[unit] == 2))
            out[0] = sight_of_object(s, ledger, unit, attempt);
        return 1;
    }
    if (attempt == at && (ledger->state[unit] == 1 || ledger->state[unit] == 2))
        return sights_of_claimed(s, ledger, name, unit, out);
    if (now >= 0) {
        int fact = read_pod(s->pod[now]);
        if (has(NO_GATE) && attempt > at)
            fact = FACT_HELD;
        if (has(SEALED_IS_ENDED) && attempt <= at && (fact == FACT_RUNNING || fact == FACT_WAITING))
            fact = FACT_NONE;
        out[count++] = (Sight){(uint8_t)fact, (uint8_t)(now % config.uids + 1)};
    }
    if (now < 0 || attempt > at || (attempt == at && has(CACHED_ENDS)))
        out[count++] = (Sight){FACT_NONE, 0};
    for (int uid = 0; attempt > at && uid < config.uids; uid++) {
        uint16_t pod = s->pod[name * config.uids + uid];
        if (pod & POD_MADE && !(pod & POD_THERE && read_pod(pod) == FACT_HELD))
            out[count++] = (Sight){FACT_HELD, (uint8_t)(uid + 1)};
    }
    return count;
}

enum { MAX_ANSWERS = 512 };

typedef struct {
    const State *state;
    const Ledger *ledger;
    Question question;
    int names[MAX_NAMES], count, op;
    uint16_t told[MAX_ANSWERS];
    int told_count;
} Look;

/* object_observer.py, `_missing`: an object missing after its run was closed will never be created. */
static void cancel_unmade(Question *question, const Ledger *ledger)
{
    int closing = question->stop || question->expired;
    if (!ledger->phase && !(closing && has(CLOSING_IS_CLOSED)))
        return;
    for (int name = 0; name < MAX_NAMES; name++) {
        int unit = name / MAX_ATTEMPTS;
        int makes = unit < config.units && config.object[unit] && config.object[unit] != OBJECT_REMOVE;
        if (makes && question->fact[name] == FACT_HELD && !question->seen[name])
            question->fact[name] = FACT_NEVER_RAN;
    }
}

static void conclude(Look *look, int overdue)
{
    look->question.overdue = (uint8_t)overdue;
    Question question = look->question;
    cancel_unmade(&question, look->ledger);
    int number = answer(&question);
    const Decision *decision = &decisions[number];
    for (int i = 0; i < look->told_count; i++)
        if (look->told[i] == number)
            return;
    if (look->told_count == MAX_ANSWERS)
        abort();
    look->told[look->told_count++] = (uint16_t)number;
    if (!decision->ledger && !decision->count && !decision->illegal)
        return;
    if (decision->ledger && look->question.ledger != look->state->ledger && !(has(NO_CAS) && look->state->ledger))
        return; /* it would be refused */
    begin(look->state, look->op, look->question.ledger, number, STEP_DECIDE, look->question.stop, overdue);
}

static void look_around(Look *look, int at)
{
    if (at == look->count) {
        const State *s = look->state;
        int timed = 0;
        for (int name = 0; name < MAX_NAMES; name++)
            timed |= look->question.fact[name] == FACT_WAITING || look->question.fact[name] == FACT_RUNNING ||
                     look->question.fact[name] >= FACT_LACKS;
        look->question.expired = (s->target & TARGET_EXPIRED) != 0;
        look->question.lives = may(LIVES) != 0;
        for (int stop = 0; stop <= ((s->target & (TARGET_GOING | TARGET_GONE)) != 0); stop++)
            for (int late = 0; late <= (may(LIVES) && !look->ledger->phase); late++) { /* targets/: it may be stale while the run is open */
                look->question.stop = (uint8_t)stop;
                look->question.began = !late && s->target & TARGET_BEGAN;
                look->question.rests = !late && s->target & TARGET_RESTS;
                conclude(look, 0);
                if (timed && may(LATE) && s->spent < config.budget)
                    conclude(look, 1);
            }
        return;
    }
    Sight seen[MAX_UIDS + 3];
    int name = look->names[at];
    int count = sights(look->state, look->ledger, name / MAX_ATTEMPTS, name % MAX_ATTEMPTS + 1, seen);
    for (int i = 0; i < count; i++) {
        look->question.fact[name] = seen[i].fact;
        look->question.seen[name] = seen[i].fact ? seen[i].seen : 0;
        look_around(look, at + 1);
    }
}

/* targets.py, `fence`: before the first claim of a Run, its living target must have our finalizer. */
static int fence(const State *s, int op, int ledger)
{
    const Ledger *it = ledger_of(ledger);
    int bit = 1 << (has(FENCE_BY_TARGET) ? 0 : it->uid);
    if (!it->empty || it->phase || s->op[op].fenced & bit || has(NO_FENCE))
        return 1;
    if (s->target & TARGET_GONE || (s->target & TARGET_GOING && has(UNBORN_WHILE_HELD))) {
        Decision decision = {.count = 2, .kind = {EFFECT_UNBORN, EFFECT_UNBORN_UNFINALIZE}, .at = {it->uid, it->uid}};
        begin(s, op, ledger, intern(&decision), STEP_FENCE, 0, 0);
        return 0;
    }
    State next = *s;
    next.op[op].ledger = (uint16_t)ledger;
    next.op[op].fenced |= (uint8_t)bit;
    next.target |= TARGET_FINAL; /* a target that is being deleted has it already, otherwise it would be gone */
    emit(&next, STEP_FENCE, op, 0, 0, FINE, 0);
    return 0;
}

static void idle(const State *s, int op)
{
    int ledgers_seen[2] = {s->op[op].ledger, s->ledger};
    for (int i = 0; i < 2; i++) {
        int ledger = ledgers_seen[i];
        if (!ledger || (i && ledger == ledgers_seen[0]) || !fence(s, op, ledger))
            continue;
        Look look;
        memset(&look, 0, sizeof look);
        look.state = s;
        look.ledger = ledger_of(ledger);
        look.op = op;
        look.question.ledger = (uint16_t)ledger;
        for (int unit = 0; unit < config.units; unit++)
            for (int attempt = 1; attempt <= look.ledger->attempt[unit] + 1 && attempt <= MAX_ATTEMPTS; attempt++)
                look.names[look.count++] = unit * MAX_ATTEMPTS + attempt - 1;
        look_around(&look, 0);
    }
    if (!(s->run & RUN_THERE) && born(s) < 2) { /* sandboxes.py, `_seal`: its cache still contains a living target */
        State next = *s;
        next.run = (uint8_t)(RUN_THERE | RUN_FINAL | (born(s) + 1) << RUN_BORN);
        next.ledger = next.op[op].ledger = (uint16_t)(born(s) + 1); /* Python numbers the empty ledgers 1 and 2 */
        emit(&next, STEP_BIRTH, op, 0, born(s) + 1, FINE, 0);
    }
    for (int pod = 0; pod < pods() && !has(NO_SWEEP) && !(s->run & RUN_THERE); pod++)
        if (!object_of(pod) && s->pod[pod] & POD_THERE && over(s->pod[pod])) { /* sweeper.py, `tidy` */
            Decision decision = {.count = 2, .kind = {EFFECT_DELETE, EFFECT_UNFINALIZE}, .at = {(uint8_t)pod, (uint8_t)pod}};
            begin(s, op, s->op[op].ledger, intern(&decision), STEP_SWEEP, pod, 0);
        }
}

void turn_steps(const State *s, int op)
{
    const Op *it = &s->op[op];
    if (!it->decision) {
        idle(s, op);
        return;
    }
    if (it->at == 0 || it->at > decisions[it->decision].count)
        commit(s, op);
    else
        effect(s, op);
    if (!may(CRASH))
        return;
    State next = *s;
    memset(&next.op[op], 0, sizeof(Op));
    emit(&next, STEP_CRASH, op, 0, 0, FINE, 1);
    next = *s;
    next.op[op].decision = next.op[op].at = 0;
    emit(&next, STEP_ERROR, op, 0, 0, FINE, 1);
}

