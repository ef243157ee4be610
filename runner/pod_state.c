#include "pod_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "pod.h"
#include "sha256.h"

/* The contents of outputs may be larger than any order, but must have a limit. */
#define RECEIPT_LIMIT (256 << 20)

/* The kubelet's file for the termination message. It is opened before a step runs, because a step may revoke our
 * access. */
static int message_file = -1;

int pod_state_open(int *state, struct fault *fault) {
    message_file = open(POD_MESSAGE, O_WRONLY | O_CLOEXEC);
    *state = open(POD_STATE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int locked = *state < 0 ? -1 : attempt_lock(*state);
    return locked < 0 ? fail(fault, "The state volume %s cannot be used: %s.", POD_STATE, strerror(errno)) : locked;
}

static int sync_directory(int state) {
    return fsync(state) < 0 && errno != EINVAL ? -1 : 0;
}

enum start_state pod_state_mark(int state, const char *word, struct fault *fault) {
    int fd = openat(state, "marker", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) return start_marker_read(state);
    bool written = fd >= 0 && write_all(fd, word, strlen(word)) == 0 && fsync(fd) == 0 && sync_directory(state) == 0;
    if (!written) fail(fault, "The start marker cannot be put in place: %s.", strerror(errno));
    if (fd >= 0) close(fd);
    return written ? START_PERMITTED : START_FAULT;
}

/* Writes a file to the state volume atomically, and syncs it. */
static int write_synced(int state, const char *name, const char *bytes, size_t length) {
    if (write_file(state, "new", 0600, bytes, length) < 0) return -1;
    int fd = openat(state, "new", O_RDONLY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    return synced && renameat(state, "new", state, name) == 0 ? sync_directory(state) : -1;
}

/* Writes the whole document as the last, marked lines of the log, and the message for the kubelet. */
static void print_receipt(const struct buffer *whole, const struct buffer *message, bool line_start) {
    static const char mark[] = {LOG_MARK, '\0'}, line[] = {LOG_MARK, '=', '\0'};
    struct buffer out = {0};
    struct sha256 sum;
    char hex[SHA256_HEX + 1], text[128];
    sha256_begin(&sum);
    sha256_add(&sum, whole->bytes, whole->length);
    sha256_hex(&sum, hex);
    snprintf(text, sizeof text, "%s%sdayfly-receipt 1 %zu\n", line_start ? "" : "\n", mark, whole->length);
    buffer_text(&out, text);
    base64_lines(&out, line, whole->bytes, whole->length);
    snprintf(text, sizeof text, "%sdayfly-end %s\n", mark, hex);
    buffer_text(&out, text);
    /* The message first, because it is short, while writing the log may block on its reader. */
    if (message_file >= 0 && ftruncate(message_file, 0) == 0 && lseek(message_file, 0, SEEK_SET) == 0) {
        write_all(message_file, message->bytes, message->length);
    }
    if (!out.failed) write_all(STDOUT_FILENO, out.bytes, out.length);
    free(out.bytes);
}

static int exit_code(const char *outcome, int code) {
    if (strcmp(outcome, "exited") == 0 || strcmp(outcome, "not-executable") == 0) return code;
    return strcmp(outcome, "signaled") == 0 ? 128 + code : 125;
}

int pod_state_seal(int state, const struct receipt *receipt, bool line_start) {
    struct buffer whole = {0}, message = {0};
    receipt_encode(receipt, &whole);
    receipt_message(receipt, &whole, &message);
    /* The receipt last: if it exists, both others do. If the volume is full, the pod still has these two. */
    if (state >= 0 && write_synced(state, "message", message.bytes, message.length) == 0) {
        write_synced(state, "receipt", whole.bytes, whole.length);
    }
    print_receipt(&whole, &message, line_start);
    free(whole.bytes);
    free(message.bytes);
    return exit_code(receipt->outcome, receipt->code);
}

int pod_state_repeat(int state) {
    struct buffer whole = {0}, message = {0};
    char outcome[32];
    int code, result = -1;
    if (read_file(state, "receipt", RECEIPT_LIMIT, &whole.bytes, &whole.length) == 0 &&
        read_file(state, "message", MESSAGE_LIMIT, &message.bytes, &message.length) == 0 &&
        sscanf(message.bytes, "dayfly-receipt 1 %31s %d", outcome, &code) == 2) {
        print_receipt(&whole, &message, true);
        result = exit_code(outcome, code);
    }
    free(whole.bytes);
    free(message.bytes);
    return result;
}
