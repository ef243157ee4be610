/* Breadth-first search of all states, so that the first violation has a shortest trace. A backward search then checks that
 * the end can be reached from every state without any fault. */
#include <stdlib.h>
#include <string.h>

#include "search.h"

static State *states;
static uint32_t *parents, *table;
static uint64_t *labels;
static uint32_t count, capacity;
static uint64_t slots;

static uint32_t *edges;
static uint64_t *edges_from, edge_count, edge_capacity;

static uint32_t current;
static Result *result;

static void *grown(void *old, uint64_t items, size_t size)
{
    void *grown = realloc(old, items * size);
    if (!grown)
        abort();
    return grown;
}

static uint64_t hash_of(const State *state)
{
    uint64_t words[(sizeof(State) + 7) / 8] = {0}, h = 0x9E3779B97F4A7C15ull;
    memcpy(words, state, sizeof *state);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    return h;
}

static void rehash(void)
{
    slots = slots ? slots * 2 : 1 << 20;
    free(table);
    table = calloc(slots, sizeof *table);
    if (!table)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = hash_of(&states[i]) & (slots - 1);
        while (table[at])
            at = (at + 1) & (slots - 1);
        table[at] = i + 1;
    }
}

static uint32_t place(const State *state, uint64_t label)
{
    if ((uint64_t)count * 2 >= slots)
        rehash();
    uint64_t at = hash_of(state) & (slots - 1);
    for (; table[at]; at = (at + 1) & (slots - 1))
        if (memcmp(&states[table[at] - 1], state, sizeof *state) == 0)
            return table[at] - 1;
    if (count == capacity) {
        capacity = capacity ? capacity * 2 : 1 << 18;
        states = grown(states, capacity, sizeof *states);
        parents = grown(parents, capacity, sizeof *parents);
        labels = grown(labels, capacity, sizeof *labels);
        edges_from = grown(edges_from, capacity + 1ull, sizeof *edges_from);
    }
    states[count] = *state;
    parents[count] = current;
    labels[count] = label;
    table[at] = ++count;
    return count - 1;
}

static void found(const State *next, uint64_t label, int wrong, int fault)
{
    result->edges++;
    if (result->violation)
        return;
    if (wrong && !(config.ignored >> wrong & 1)) {
        result->violation = wrong;
        result->at = current;
        result->label = label;
        return;
    }
    uint32_t to = place(next, label);
    if (!config.liveness || fault || to == current)
        return;
    if (edge_count == edge_capacity) {
        edge_capacity = edge_capacity ? edge_capacity * 2 : 1 << 20;
        edges = grown(edges, edge_capacity, sizeof *edges);
    }
    edges[edge_count++] = to;
}

/* Mark the states that reach the end: sweep against the order of discovery until nothing changes. */
static void look_for_stuck(void)
{
    uint8_t *good = calloc(count, 1);
    int changed = 1;
    if (!good)
        abort();
    while (changed) {
        changed = 0;
        for (uint32_t i = count; i-- > 0;) {
            int reaches = model_ended(&states[i]);
            if (good[i])
                continue;
            for (uint64_t e = edges_from[i]; !reaches && e < edges_from[i + 1]; e++)
                reaches = good[edges[e]];
            good[i] = (uint8_t)reaches;
            changed |= reaches;
        }
    }
    for (uint32_t i = 0; i < count && !result->violation; i++)
        if (!good[i]) {
            result->violation = STUCK;
            result->at = i;
        }
    free(good);
}

static void clear(void)
{
    free(states), free(parents), free(labels), free(table), free(edges), free(edges_from);
    states = NULL, parents = table = edges = NULL, labels = edges_from = NULL;
    count = capacity = 0;
    slots = edge_count = edge_capacity = 0;
}

void search(const Config *wanted, Decide decide, Summary summary, Result *out)
{
    State first;
    clear();
    config = *wanted;
    result = out;
    memset(out, 0, sizeof *out);
    model_begin(decide, summary);
    memset(&first, 0, sizeof first);
    current = 0;
    place(&first, 0);
    uint32_t level_ends = 1;
    while (current < count && count < config.most && !out->violation) {
        if (current == level_ends) {
            level_ends = count;
            out->depth++;
        }
        edges_from[current] = edge_count;
        State here = states[current]; /* the array may move */
        model_steps(&here, found);
        current++;
        edges_from[current] = edge_count;
    }
    out->complete = current == count;
    if (config.liveness && out->complete && !out->violation)
        look_for_stuck();
    out->states = count;
    out->beyond = beyond;
}

/* Write the path to a state, with the first step last; return the number of its steps. */
uint32_t way_to(uint32_t at, uint32_t most, State *out_states, uint64_t *out_labels)
{
    uint32_t steps = 0;
    while (at && steps < most) {
        out_states[steps] = states[at];
        out_labels[steps++] = labels[at];
        at = parents[at];
    }
    return steps;
}
