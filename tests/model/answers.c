/* A cache of Python's answers: summaries of ledgers, and the decision of `decide` for each question. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

enum { MAX_QUESTIONS = 1 << 22 };

static Decide ask;
static Summary summarize;
static Ledger ledgers[1 << 16];
static uint8_t known[1 << 16];
Decision decisions[MAX_DECISIONS];
static uint32_t decision_index[MAX_DECISIONS * 2];
static int decision_count;
static struct { Question question; uint16_t answer; uint8_t used; } *questions;
static uint32_t question_count;

static uint64_t hash_bytes(const void *data, size_t size)
{
    uint64_t words[8] = {0}, h = 0x9E3779B97F4A7C15ull;
    memcpy(words, data, size);
    for (size_t i = 0; i < (size + 7) / 8; i++) {
        h = (h ^ words[i]) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    return h;
}

const Ledger *ledger_of(int number)
{
    if (!known[number]) {
        memset(&ledgers[number], 0, sizeof ledgers[number]);
        summarize(number, &ledgers[number]);
        known[number] = 1;
    }
    return &ledgers[number];
}

const Decision *model_decision(int number) { return &decisions[number]; }

int intern(const Decision *decision)
{
    uint32_t at = (uint32_t)hash_bytes(decision, sizeof *decision) % (MAX_DECISIONS * 2);
    while (decision_index[at]) {
        if (memcmp(&decisions[decision_index[at]], decision, sizeof *decision) == 0)
            return (int)decision_index[at];
        at = (at + 1) % (MAX_DECISIONS * 2);
    }
    if (++decision_count >= MAX_DECISIONS)
        abort();
    decisions[decision_count] = *decision;
    decision_index[at] = (uint32_t)decision_count;
    return decision_count;
}

int answer(const Question *question)
{
    uint32_t at = (uint32_t)(hash_bytes(question, sizeof *question) % MAX_QUESTIONS);
    while (questions[at].used) {
        if (memcmp(&questions[at].question, question, sizeof *question) == 0)
            return questions[at].answer;
        at = (at + 1) % MAX_QUESTIONS;
    }
    if (++question_count >= MAX_QUESTIONS / 2)
        abort();
    Decision decision;
    memset(&decision, 0, sizeof decision);
    beyond += (uint32_t)ask(question, &decision);
    questions[at].question = *question;
    questions[at].answer = (uint16_t)intern(&decision);
    questions[at].used = 1;
    return questions[at].answer;
}

void answers_begin(Decide decide, Summary summary)
{
    ask = decide;
    summarize = summary;
    memset(known, 0, sizeof known);
    memset(decision_index, 0, sizeof decision_index);
    decision_count = 0;
    free(questions);
    questions = calloc(MAX_QUESTIONS, sizeof *questions);
    if (!questions)
        abort();
    question_count = 0;
}
