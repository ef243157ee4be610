#include "frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sha256.h"

struct cursor {
    char *bytes;
    size_t length, at;
};

static int bad(struct fault *fault, size_t offset, const char *problem) {
    return fail(fault, "The work order is damaged at byte %zu: %s.", offset, problem);
}

static bool is_key(const char *key, size_t length) {
    if (length == 0 || length > KEY_LIMIT || key[0] < 'a' || key[0] > 'z') return false;
    for (size_t i = 0; i < length; i++) {
        bool letter = key[i] >= 'a' && key[i] <= 'z';
        bool digit = key[i] >= '0' && key[i] <= '9';
        if (!letter && !digit && key[i] != '-') return false;
    }
    return true;
}

/* Reads one record at the cursor. It must not change the bytes, because their digest is computed later. */
static int next_record(struct cursor *cursor, struct record *record, size_t *key_length, struct fault *fault) {
    char *start = cursor->bytes + cursor->at;
    size_t rest = cursor->length - cursor->at;
    if (rest == 0) return bad(fault, cursor->at, "it ends without an end record");
    char *space = memchr(start, ' ', rest < KEY_LIMIT + 1 ? rest : KEY_LIMIT + 1);
    if (space == NULL || !is_key(start, (size_t)(space - start))) return bad(fault, cursor->at, "no key");
    size_t at = cursor->at + (size_t)(space - start) + 1, first = at;
    uint64_t length = 0;
    while (at < cursor->length && at - first < 10 && cursor->bytes[at] >= '0' && cursor->bytes[at] <= '9') {
        length = length * 10 + (uint64_t)(cursor->bytes[at++] - '0');
    }
    bool padded = at - first > 1 && cursor->bytes[first] == '0';
    if (at == first || padded || at == cursor->length || cursor->bytes[at] != '\n') return bad(fault, first, "no length");
    at++;
    if (length >= cursor->length - at) return bad(fault, at, "the value is cut short");
    if (cursor->bytes[at + length] != '\n') return bad(fault, at + length, "no line end after the value");
    record->key = start;
    record->value = cursor->bytes + at;
    record->length = length;
    *key_length = (size_t)(space - start);
    cursor->at = at + length + 1;
    return 0;
}

static bool key_is(const struct record *record, size_t key_length, const char *key) {
    return strlen(key) == key_length && memcmp(record->key, key, key_length) == 0;
}

static int check_end(const struct cursor *cursor, const struct record *end, size_t offset, struct fault *fault) {
    struct sha256 sum;
    char hex[SHA256_HEX + 1];
    sha256_begin(&sum);
    sha256_add(&sum, cursor->bytes, offset);
    sha256_hex(&sum, hex);
    if (end->length != SHA256_HEX || memcmp(end->value, hex, SHA256_HEX) != 0) {
        return bad(fault, offset, "the digest does not match");
    }
    if (cursor->at != cursor->length) return bad(fault, cursor->at, "bytes follow the end record");
    return 0;
}

int frame_parse(struct document *document, char *bytes, size_t length, const char *kind, struct fault *fault) {
    struct cursor cursor = {bytes, length, 0};
    struct record record;
    size_t key_length, capacity = 0;
    document->records = NULL;
    document->count = 0;
    if (next_record(&cursor, &record, &key_length, fault) < 0) return -1;
    if (!key_is(&record, key_length, kind)) return bad(fault, 0, "another kind of document");
    if (record.length != 1 || record.value[0] != '1') return bad(fault, 0, "a version other than 1");
    for (;;) {
        size_t offset = cursor.at;
        if (next_record(&cursor, &record, &key_length, fault) < 0) return -1;
        if (key_is(&record, key_length, "end")) {
            if (check_end(&cursor, &record, offset, fault) < 0) return -1;
            break;
        }
        if (document->count == capacity) {
            capacity = capacity == 0 ? 64 : capacity * 2;
            struct record *grown = realloc(document->records, capacity * sizeof record);
            if (grown == NULL) return fail(fault, "There is no memory for the work order.");
            document->records = grown;
        }
        document->records[document->count++] = record;
    }
    for (size_t i = 0; i < document->count; i++) {
        *strchr(document->records[i].key, ' ') = '\0';
        document->records[i].value[document->records[i].length] = '\0';
    }
    return 0;
}

void frame_add(struct buffer *buffer, const char *key, const void *value, size_t length) {
    char head[KEY_LIMIT + 24];
    snprintf(head, sizeof head, "%s %zu\n", key, length);
    buffer_text(buffer, head);
    buffer_add(buffer, value, length);
    buffer_text(buffer, "\n");
}

void frame_text(struct buffer *buffer, const char *key, const char *value) {
    frame_add(buffer, key, value, strlen(value));
}

void frame_number(struct buffer *buffer, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    frame_text(buffer, key, text);
}

void frame_begin(struct buffer *buffer, const char *kind) {
    frame_text(buffer, kind, "1");
}

void frame_end(struct buffer *buffer) {
    struct sha256 sum;
    char hex[SHA256_HEX + 1];
    if (buffer->failed) return;
    sha256_begin(&sum);
    sha256_add(&sum, buffer->bytes, buffer->length);
    sha256_hex(&sum, hex);
    frame_text(buffer, "end", hex);
}
