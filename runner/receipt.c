#include "receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"

static void add_output(struct buffer *buffer, const struct kept_output *output) {
    char value[256];
    int length = snprintf(value, sizeof value, "%s%c%s%c%lld%c%s", output->name, 0, output->state, 0,
                          (long long)output->size, 0, output->sha256);
    frame_add(buffer, "output", value, (size_t)length);
}

static void add_content(struct buffer *buffer, const struct kept_output *output) {
    struct buffer value = {0};
    buffer_add(&value, output->name, strlen(output->name) + 1);
    buffer_add(&value, output->content, (size_t)output->size);
    buffer->failed = buffer->failed || value.failed;
    if (!value.failed) frame_add(buffer, "content", value.bytes, value.length);
    free(value.bytes);
}

static void add_head(struct buffer *buffer, const struct receipt *receipt) {
    frame_begin(buffer, "dayfly-receipt");
    frame_text(buffer, "nonce", receipt->nonce != NULL ? receipt->nonce : "");
    frame_text(buffer, "attempt", receipt->attempt != NULL ? receipt->attempt : "0");
    if (receipt->pod != NULL) frame_text(buffer, "pod", receipt->pod);
    frame_text(buffer, "outcome", receipt->outcome);
    frame_number(buffer, "code", receipt->code);
    if (receipt->detail.text[0] != '\0') frame_text(buffer, "detail", receipt->detail.text);
    frame_number(buffer, "started-ms", receipt->started_ms);
    frame_number(buffer, "ended-ms", receipt->ended_ms);
    if (receipt->oom_kills > 0) {
        frame_number(buffer, "oom-kills", receipt->oom_kills);
        frame_number(buffer, "memory-limit", receipt->memory_limit);
    }
}

static void add_tail(struct buffer *buffer, const struct receipt *receipt) {
    frame_number(buffer, "log-bytes", receipt->log_bytes);
    frame_number(buffer, "log-truncated", receipt->log_truncated);
}

void receipt_encode(const struct receipt *receipt, struct buffer *buffer) {
    add_head(buffer, receipt);
    for (size_t i = 0; i < receipt->output_count; i++) add_output(buffer, &receipt->outputs[i]);
    for (size_t i = 0; i < receipt->output_count; i++) {
        if (receipt->outputs[i].content != NULL) add_content(buffer, &receipt->outputs[i]);
    }
    add_tail(buffer, receipt);
    frame_end(buffer);
}

void base64_lines(struct buffer *buffer, const char *head, const char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < length;) {
        char line[4096];
        size_t used = 0;
        for (; at < length && used < sizeof line; at += 3, used += 4) {
            size_t rest = length - at;
            unsigned group = (unsigned)(unsigned char)bytes[at] << 16;
            if (rest > 1) group |= (unsigned)(unsigned char)bytes[at + 1] << 8;
            if (rest > 2) group |= (unsigned char)bytes[at + 2];
            line[used] = digits[group >> 18];
            line[used + 1] = digits[group >> 12 & 63];
            line[used + 2] = rest > 1 ? digits[group >> 6 & 63] : '=';
            line[used + 3] = rest > 2 ? digits[group & 63] : '=';
        }
        buffer_text(buffer, head);
        buffer_add(buffer, line, used);
        buffer_text(buffer, "\n");
    }
}

/* The message with the contents of the outputs marked in INLINED, if it is short enough; otherwise nothing. If even the
 * outputs' digests do not fit, INLINED is NULL and they are only in the log. */
static bool try_message(const struct receipt *receipt, const char *digest, const bool *inlined, struct buffer *message) {
    struct buffer document = {0};
    char line[80];
    add_head(&document, receipt);
    for (size_t i = 0; inlined != NULL && i < receipt->output_count; i++) {
        const struct kept_output *output = &receipt->outputs[i];
        add_output(&document, output);
        if (output->content == NULL) continue;
        if (inlined[i]) add_content(&document, output);
        else frame_text(&document, "output-in-log", output->name);
    }
    add_tail(&document, receipt);
    frame_text(&document, "log-document", digest);
    frame_end(&document);
    snprintf(line, sizeof line, "dayfly-receipt 1 %s %d\n", receipt->outcome, receipt->code);
    bool fits = !document.failed && strlen(line) + (document.length + 2) / 3 * 4 + 1 <= MESSAGE_LIMIT;
    if (fits) {
        message->length = 0;
        buffer_text(message, line);
        base64_lines(message, "", document.bytes, document.length);
    }
    free(document.bytes);
    return fits;
}

void receipt_message(const struct receipt *receipt, const struct buffer *whole, struct buffer *message) {
    struct sha256 sum;
    char digest[SHA256_HEX + 1];
    bool *inlined = calloc(receipt->output_count + 1, sizeof *inlined);
    sha256_begin(&sum);
    sha256_add(&sum, whole->bytes, whole->length);
    sha256_hex(&sum, digest);
    if (inlined == NULL || !try_message(receipt, digest, inlined, message)) {
        try_message(receipt, digest, NULL, message);
        free(inlined);
        return;
    }
    for (size_t i = 0; i < receipt->output_count; i++) {
        inlined[i] = receipt->outputs[i].content != NULL;
        if (inlined[i] && !try_message(receipt, digest, inlined, message)) inlined[i] = false;
    }
    free(inlined);
}
