#include "receipt.h"

#include <stdio.h>
#include <string.h>

#include "frame.h"

static void add_output(struct buffer *buffer, const struct kept_output *output) {
    char value[256];
    int length = snprintf(value, sizeof value, "%s%c%s%c%lld%c%s", output->name, 0, output->state, 0,
                          (long long)output->size, 0, output->sha256);
    frame_add(buffer, "output", value, (size_t)length);
}

void receipt_encode(const struct receipt *receipt, struct buffer *buffer) {
    frame_begin(buffer, "dayfly-receipt");
    frame_text(buffer, "nonce", receipt->nonce != NULL ? receipt->nonce : "");
    frame_text(buffer, "attempt", receipt->attempt != NULL ? receipt->attempt : "0");
    frame_text(buffer, "outcome", receipt->outcome);
    frame_number(buffer, "code", receipt->code);
    if (receipt->detail.text[0] != '\0') frame_text(buffer, "detail", receipt->detail.text);
    frame_number(buffer, "started-ms", receipt->started_ms);
    frame_number(buffer, "ended-ms", receipt->ended_ms);
    for (size_t i = 0; i < receipt->output_count; i++) add_output(buffer, &receipt->outputs[i]);
    frame_number(buffer, "log-bytes", receipt->log_bytes);
    frame_number(buffer, "log-truncated", receipt->log_truncated);
    frame_end(buffer);
}
