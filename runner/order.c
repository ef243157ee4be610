#include "order.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The field for each key. Keys up to ISOLATION may appear once; the others may repeat. */
enum shape { TEXT, NUMBER, PATH, SCRIPT, ISOLATION, ARGUMENT, ENVIRONMENT, INPUT, OUTPUT, PRIVATE, MASKED, SECRET_ENV, SECRET_FILE };

struct key {
    const char *name;
    enum shape shape;
    size_t offset;
};

static const struct key keys[] = {
    {"nonce", TEXT, offsetof(struct order, nonce)},
    {"attempt", TEXT, offsetof(struct order, attempt)},
    {"script", SCRIPT, offsetof(struct order, script)},
    {"arg", ARGUMENT, 0},
    {"expand", NUMBER, offsetof(struct order, expand)},
    {"make-folders", NUMBER, offsetof(struct order, make_folders)},
    {"cwd", PATH, offsetof(struct order, cwd)},
    {"log", PATH, offsetof(struct order, log)},
    {"env", ENVIRONMENT, 0},
    {"inherit-env", NUMBER, offsetof(struct order, inherit_env)},
    {"inherit-cwd", NUMBER, offsetof(struct order, inherit_cwd)},
    {"file", INPUT, 0},
    {"output", OUTPUT, 0},
    {"sensitive-output", OUTPUT, 1},
    {"mask", MASKED, 0},
    {"private", PRIVATE, 0},
    {"secret-env", SECRET_ENV, 0},
    {"secret-file", SECRET_FILE, 0},
    {"sensitive-env", SECRET_ENV, 1},
    {"sensitive-file", SECRET_FILE, 1},
    {"isolation", ISOLATION, 0},
    {"run-ms", NUMBER, offsetof(struct order, run_ms)},
    {"grace-ms", NUMBER, offsetof(struct order, grace_ms)},
    {"start-before-ms", NUMBER, offsetof(struct order, start_before_ms)},
    {"unit-limit", NUMBER, offsetof(struct order, unit_limit)},
    {"log-limit", NUMBER, offsetof(struct order, log_limit)},
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static int bad(struct fault *fault, const struct record *record, const char *problem) {
    return fail(fault, "The work order's record \"%s\" %s.", record->key, problem);
}

static int read_number(int64_t *number, const struct record *record, struct fault *fault) {
    int64_t value = 0;
    if (record->length == 0 || record->length > 15) return bad(fault, record, "is not a number of 1 to 15 digits");
    for (size_t i = 0; i < record->length; i++) {
        if (record->value[i] < '0' || record->value[i] > '9') return bad(fault, record, "is not a decimal number");
        value = value * 10 + (record->value[i] - '0');
    }
    *number = value;
    return 0;
}

static int read_isolation(struct order *order, const struct record *record, struct fault *fault) {
    static const char *const names[] = {"none", "user", "root"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(record->value, names[i]) == 0) {
            order->isolation = (enum isolation)i;
            return 0;
        }
    }
    return bad(fault, record, "is none of root, user, none");
}

/* Splits "FIRST NUL REST" and returns REST, or NULL when there is no NUL. */
static const char *behind_nul(const struct record *record) {
    size_t first = strlen(record->value);
    return first < record->length ? record->value + first + 1 : NULL;
}

static int read_input(struct order *order, const struct record *record, struct fault *fault) {
    const char *bytes = behind_nul(record);
    if (bytes == NULL) return bad(fault, record, "has no NUL between path and content");
    if (!is_clean_path(record->value) || strlen(record->value) >= PATH_MAX || record->value[1] == '\0') {
        return bad(fault, record, "does not begin with an absolute, normalised path");
    }
    for (size_t i = 0; i < order->input_count; i++) {
        if (strcmp(order->inputs[i].path, record->value) == 0) return bad(fault, record, "names a path twice");
    }
    size_t length = record->length - (size_t)(bytes - record->value);
    order->inputs[order->input_count++] = (struct input){record->value, bytes, length};
    return 0;
}

static int read_output(struct order *order, const struct record *record, bool sensitive, struct fault *fault) {
    const char *path = behind_nul(record);
    size_t length = strlen(record->value);
    if (path == NULL) return bad(fault, record, "has no NUL between name and path");
    if (strlen(path) != record->length - length - 1) return bad(fault, record, "has a NUL inside its path");
    bool named = length > 0 && length <= 64 &&
                 strspn(record->value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == length;
    if (!named) return bad(fault, record, "needs a name of 1 to 64 letters, digits, - and _");
    for (size_t i = 0; i < order->output_count; i++) {
        if (strcmp(order->outputs[i].name, record->value) == 0) return bad(fault, record, "names an output twice");
    }
    order->outputs[order->output_count++] = (struct output){record->value, path, sensitive};
    return 0;
}

static int read_secret(struct order *order, const struct record *record, bool variable, bool sensitive,
                       struct fault *fault) {
    const char *file = behind_nul(record);
    if (file == NULL) return bad(fault, record, "has no NUL between name and file");
    if (strlen(file) != record->length - strlen(record->value) - 1 || !is_clean_path(file)) {
        return bad(fault, record, "does not end in an absolute, normalised path");
    }
    if (variable ? record->value[0] == '\0' || strchr(record->value, '=') != NULL
                 : !is_clean_path(record->value) || record->value[1] == '\0') {
        return bad(fault, record, variable ? "does not begin with a variable's name" : "does not begin with a clean path");
    }
    order->secrets[order->secret_count++] = (struct secret){record->value, file, variable, sensitive};
    return 0;
}

/* Keeps the list sorted: in byte order a directory precedes everything below it. */
static int read_private(struct order *order, const struct record *record, struct fault *fault) {
    if (!is_clean_path(record->value)) return bad(fault, record, "is not an absolute, normalised path");
    size_t at = order->private_count;
    for (size_t i = 0; i < order->private_count; i++) {
        if (strcmp(order->private_paths[i], record->value) == 0) return 0;
    }
    while (at > 0 && strcmp(order->private_paths[at - 1], record->value) > 0) {
        order->private_paths[at] = order->private_paths[at - 1];
        at--;
    }
    order->private_paths[at] = record->value;
    order->private_count++;
    return 0;
}

static int read_record(struct order *order, const struct key *key, const struct record *record, size_t counts[2],
                       struct fault *fault) {
    char *field = (char *)order + key->offset;
    bool binary = key->shape == SCRIPT || key->shape == INPUT || key->shape == OUTPUT || key->shape >= MASKED;
    if (!binary && strlen(record->value) != record->length) return bad(fault, record, "holds a NUL");
    switch (key->shape) {
    case TEXT:
        if (record->length == 0 || record->length > 128) return bad(fault, record, "is not 1 to 128 bytes long");
        *(const char **)field = record->value;
        return 0;
    case NUMBER:
        return read_number((int64_t *)field, record, fault);
    case PATH:
        if (!is_clean_path(record->value)) return bad(fault, record, "is not an absolute, normalised path");
        *(const char **)field = record->value;
        return 0;
    case SCRIPT:
        order->script = record->value;
        order->script_length = record->length;
        return 0;
    case ISOLATION:
        return read_isolation(order, record, fault);
    case ARGUMENT:
        order->arguments[counts[0]++] = record->value;
        return 0;
    case ENVIRONMENT:
        if (strchr(record->value, '=') == NULL || record->value[0] == '=') return bad(fault, record, "is not NAME=value");
        order->environment[counts[1]++] = record->value;
        return 0;
    case INPUT:
        return read_input(order, record, fault);
    case OUTPUT:
        return read_output(order, record, key->offset != 0, fault);
    case MASKED:
        order->masked[order->masked_count++] = (struct masked){record->value, record->length};
        return 0;
    case PRIVATE:
        return read_private(order, record, fault);
    case SECRET_ENV:
    case SECRET_FILE:
        return read_secret(order, record, key->shape == SECRET_ENV, key->offset != 0, fault);
    }
    return bad(fault, record, "has no reader");
}

static bool may_repeat(enum shape shape) {
    return shape >= ARGUMENT;
}

static int read_all(struct order *order, const struct document *document, struct fault *fault) {
    bool seen[KEY_COUNT] = {false};
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < document->count; i++) {
        const struct record *record = &document->records[i];
        size_t k = 0;
        while (k < KEY_COUNT && strcmp(keys[k].name, record->key) != 0) k++;
        /* An unknown key may carry a condition that would be violated by ignoring it. */
        if (k == KEY_COUNT) return bad(fault, record, "is unknown to this runner (version " VERSION ")");
        if (seen[k] && !may_repeat(keys[k].shape)) return bad(fault, record, "comes twice");
        seen[k] = true;
        if (read_record(order, &keys[k], record, counts, fault) < 0) return -1;
    }
    if (order->nonce == NULL) return fail(fault, "The work order has no record \"nonce\".");
    if (order->attempt == NULL) return fail(fault, "The work order has no record \"attempt\".");
    if (strspn(order->attempt, "0123456789") != strlen(order->attempt)) {
        return fail(fault, "The work order's attempt is not a decimal number.");
    }
    if ((order->script == NULL) == (counts[0] == 0)) {
        return fail(fault, "The work order needs either one record \"script\" or records \"arg\".");
    }
    return 0;
}

int order_parse(struct order *order, char *bytes, size_t length, struct fault *fault) {
    *order = (struct order){.grace_ms = 10000, .unit_limit = 524288, .log_limit = 64 << 20};
    struct document document;
    if (frame_parse(&document, bytes, length, "dayfly-order", fault) < 0) {
        free(document.records);
        return -1;
    }
    size_t capacity = document.count + 1;
    order->arguments = calloc(capacity, sizeof *order->arguments);
    order->environment = calloc(capacity, sizeof *order->environment);
    order->inputs = calloc(capacity, sizeof *order->inputs);
    order->outputs = calloc(capacity, sizeof *order->outputs);
    order->private_paths = calloc(capacity, sizeof *order->private_paths);
    order->secrets = calloc(capacity, sizeof *order->secrets);
    order->masked = calloc(capacity, sizeof *order->masked);
    int result = -1;
    if (!order->arguments || !order->environment || !order->inputs || !order->outputs || !order->private_paths ||
        !order->secrets || !order->masked) {
        fail(fault, "There is no memory for the work order.");
    } else {
        result = read_all(order, &document, fault);
    }
    free(document.records);
    return result;
}

/* The variable whose name has LENGTH bytes at NAME, or NULL. */
static const char *variable(const struct order *order, const char *name, size_t length) {
    for (char **entry = order->environment; *entry != NULL; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
    }
    return NULL;
}

static bool has_variable(char **environment, const char *name) {
    size_t length = strcspn(name, "=");
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') return true;
    }
    return false;
}

int order_inherit(struct order *order, char **environment, struct fault *fault) {
    size_t own = 0, inherited = 0;
    while (order->environment[own] != NULL) own++;
    while (environment[inherited] != NULL) inherited++;
    char **merged = realloc(order->environment, (own + inherited + 1) * sizeof *merged);
    if (merged == NULL) return fail(fault, "There is no memory for the environment.");
    order->environment = merged;
    for (char **entry = environment; *entry != NULL; entry++) {
        if (has_variable(merged, *entry)) continue;
        merged[own++] = *entry;
        merged[own] = NULL;
    }
    return 0;
}

/* Kubernetes' rule: `$(NAME)` becomes a variable's value, `$$` a dollar sign. Unknown names are left unchanged. Values
 * are not expanded again. It stops when the result exceeds ROOM, because each of thousands of names may have a large
 * value. */
static struct buffer expanded(const struct order *order, const char *word, size_t limit) {
    struct buffer buffer = {0};
    while (buffer.length <= limit) {
        size_t plain = strcspn(word, "$");
        buffer_add(&buffer, word, plain);
        word += plain;
        if (*word == '\0') break;
        const char *close = word[1] == '(' ? strchr(word, ')') : NULL;
        const char *value = close == NULL ? NULL : variable(order, word + 2, (size_t)(close - word) - 2);
        if (value != NULL) buffer_add(&buffer, value, strlen(value));
        else buffer_add(&buffer, word, close == NULL ? 1 : (size_t)(close - word) + 1);
        word += close != NULL ? (size_t)(close - word) + 1 : word[1] == '$' ? 2 : 1;
    }
    buffer_add(&buffer, "", 1);
    return buffer;
}

int order_expand(struct order *order, struct fault *fault) {
    if (order->expand == 0 || order->arguments[0] == NULL) return 0;
    size_t limit = ORDER_LIMIT; /* the limit of a whole order; no kernel starts a program with that much */
    /* The first argument is not expanded: inputs must not decide which program runs. */
    for (char **word = order->arguments + 1; *word != NULL; word++) {
        struct buffer whole = expanded(order, *word, limit);
        if (whole.failed) return fail(fault, "There is no memory for the program's arguments.");
        if (whole.length > limit) {
            free(whole.bytes);
            return fail(fault, "With the variables in them the program's arguments have more than %d bytes: "
                               "give long values as files.", ORDER_LIMIT);
        }
        limit -= whole.length;
        *word = whole.bytes;
    }
    return 0;
}

bool order_declares(const struct order *order, const char *path) {
    for (size_t i = 0; i < order->input_count; i++) {
        if (strcmp(order->inputs[i].path, path) == 0) return true;
    }
    for (size_t i = 0; i < order->output_count; i++) {
        if (strcmp(order->outputs[i].path, path) == 0) return true;
    }
    return false;
}
