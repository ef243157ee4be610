#include "mask.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "outputs.h"

static void add_pattern(struct mask *mask, const char *bytes, size_t length, size_t least) {
    if (length < least || length == 0 || mask->count == MASK_PATTERNS) return;
    for (size_t i = 0; i < mask->count; i++) {
        if (mask->patterns[i].length == length && memcmp(mask->patterns[i].bytes, bytes, length) == 0) return;
    }
    char *copy = malloc(length);
    if (copy == NULL) return;
    memcpy(copy, bytes, length);
    unsigned short *begins = &mask->begins[(unsigned char)bytes[0]];
    mask->patterns[mask->count++] = (struct pattern){copy, length, *begins};
    *begins = (unsigned short)mask->count;
}

/* Without the padding, so that the value is found with it and without. */
static void add_base64(struct mask *mask, const char *bytes, size_t length, const char *last_two) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    char *text = malloc(length / 3 * 4 + 4);
    size_t made = 0;
    if (text == NULL) return;
    for (size_t i = 0; i < length; i += 3) {
        size_t there = length - i < 3 ? length - i : 3;
        unsigned group = 0;
        for (size_t k = 0; k < 3; k++) group = group << 8 | (k < there ? (unsigned char)bytes[i + k] : 0u);
        for (size_t k = 0; k <= there; k++) {
            unsigned digit = group >> (18 - 6 * k) & 63;
            text[made++] = digit < 62 ? letters[digit] : last_two[digit - 62];
        }
    }
    add_pattern(mask, text, made, MASK_MIN_BYTES);
    free(text);
}

static bool is_plain(char byte) {
    return strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", byte) != NULL && byte != '\0';
}

/* Percent-encoded; the bytes in `safe` are left unchanged, like letters and digits. */
static void add_percent(struct mask *mask, const char *bytes, size_t length, const char *digits, const char *safe) {
    char *text = malloc(3 * length);
    size_t made = 0;
    if (text == NULL) return;
    for (size_t i = 0; i < length; i++) {
        if (is_plain(bytes[i]) || (bytes[i] != '\0' && strchr(safe, bytes[i]) != NULL)) {
            text[made++] = bytes[i];
            continue;
        }
        text[made++] = '%';
        text[made++] = digits[(unsigned char)bytes[i] >> 4];
        text[made++] = digits[bytes[i] & 15];
    }
    add_pattern(mask, text, made, MASK_MIN_BYTES);
    free(text);
}

/* The length in bytes of the UTF-8 character at this position, and its code point; 0 if it is not UTF-8. */
static size_t read_rune(const char *bytes, size_t length, unsigned *rune) {
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)bytes[0];
    size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (size == 0 || size > length) return 0;
    *rune = size == 1 ? first : first & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (((unsigned char)bytes[i] & 0xc0) != 0x80) return 0;
        *rune = *rune << 6 | ((unsigned char)bytes[i] & 0x3fu);
    }
    return *rune < least[size] || *rune > 0x10ffff || *rune >> 11 == 0x1b ? 0 : size;
}

static size_t write_unit(char *text, unsigned unit) {
    static const char digits[] = "0123456789abcdef";
    memcpy(text, "\\u", 2);
    for (size_t i = 0; i < 4; i++) text[2 + i] = digits[unit >> (12 - 4 * i) & 15];
    return 6;
}

static size_t write_rune(char *text, unsigned rune) {
    if (rune < 0x10000) return write_unit(text, rune);
    return write_unit(text, 0xd800 + ((rune - 0x10000) >> 10)) + write_unit(text + 6, 0xdc00 + (rune & 0x3ff));
}

/* As in a JSON string. Required characters are escaped, those in `more` (Go escapes <>&), and with `ascii` (like Python)
 * every character outside ASCII. */
static void add_json(struct mask *mask, const char *bytes, size_t length, const char *more, bool ascii) {
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    char *text = malloc(6 * length);
    size_t made = 0;
    if (text == NULL) return;
    for (size_t i = 0; i < length;) {
        unsigned rune = (unsigned char)bytes[i];
        size_t size = ascii ? read_rune(bytes + i, length - i, &rune) : 1;
        if (size == 0) {
            free(text);
            return;
        }
        const char *found = rune == 0 || rune > 0x7f ? NULL : strchr(plain, (int)rune);
        if (found != NULL) {
            text[made++] = '\\';
            text[made++] = escaped[found - plain];
        } else if (rune < 0x20 || (ascii && rune > 0x7e) || (rune < 0x80 && strchr(more, (int)rune) != NULL)) {
            made += write_rune(text + made, rune);
        } else {
            text[made++] = bytes[i];
        }
        i += size;
    }
    add_pattern(mask, text, made, MASK_MIN_BYTES);
    free(text);
}

/* Programs often print a prefix before each line of a text, so each line is masked too. */
static void add_lines(struct mask *mask, const char *bytes, size_t length) {
    for (const char *end = bytes + length; bytes < end;) {
        const char *stop = memchr(bytes, '\n', (size_t)(end - bytes));
        const char *next = stop == NULL ? end : stop;
        while (bytes < next && strchr(" \t", *bytes) != NULL) bytes++;
        size_t line = (size_t)(next - bytes);
        if (line > 0 && bytes[line - 1] == '\r') line--;
        add_pattern(mask, bytes, line, MASK_MIN_LINE_BYTES);
        bytes = next + 1;
    }
}

static void add_forms(struct mask *mask, const char *bytes, size_t length) {
    add_pattern(mask, bytes, length, MASK_MIN_BYTES);
    add_base64(mask, bytes, length, "+/");
    add_base64(mask, bytes, length, "-_");
    add_percent(mask, bytes, length, "0123456789ABCDEF", "");
    add_percent(mask, bytes, length, "0123456789abcdef", "");
    add_percent(mask, bytes, length, "0123456789ABCDEF", "/");
    add_json(mask, bytes, length, "", false);
    add_json(mask, bytes, length, "<>&", false);
    add_json(mask, bytes, length, "", true);
}

void mask_add(struct mask *mask, const char *bytes, size_t length) {
    size_t trimmed = length;
    while (trimmed > 0 && strchr("\r\n", bytes[trimmed - 1]) != NULL && bytes[trimmed - 1] != '\0') trimmed--;
    if (trimmed < MASK_MIN_BYTES || length > MASK_MAX_BYTES) return;
    add_forms(mask, bytes, trimmed);
    if (trimmed < length) {
        add_base64(mask, bytes, length, "+/");
        add_base64(mask, bytes, length, "-_");
    }
    if (memchr(bytes, '\n', trimmed) != NULL) add_lines(mask, bytes, trimmed);
}

void mask_begin(struct mask *mask, const struct order *order) {
    mask->order = order;
    mask->outputs = calloc(order->output_count + 1, sizeof *mask->outputs);
    for (size_t i = 0; i < order->masked_count; i++) mask_add(mask, order->masked[i].bytes, order->masked[i].length);
}

/* Reads a sensitive output if its file exists and has changed. It must not block or follow links of the step. */
static void read_output(struct mask *mask, const struct output *output, struct stat *seen) {
    struct stat now;
    if (!output->sensitive || !output_path_allowed(output->path) || lstat(output->path, &now) < 0) return;
    /* Compares the change time, because no program can set it; `cp -p` and `touch -r` set the modification time. */
    bool same = now.st_ino == seen->st_ino && now.st_size == seen->st_size &&
                now.st_ctim.tv_sec == seen->st_ctim.tv_sec && now.st_ctim.tv_nsec == seen->st_ctim.tv_nsec;
    if (same || !S_ISREG(now.st_mode) || now.st_size > MASK_MAX_BYTES) return;
    int fd = open(output->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    char *bytes = malloc(MASK_MAX_BYTES);
    ssize_t length = fd < 0 || bytes == NULL ? -1 : read(fd, bytes, MASK_MAX_BYTES);
    if (length > 0) mask_add(mask, bytes, (size_t)length);
    if (length >= 0) *seen = now;
    free(bytes);
    if (fd >= 0) close(fd);
}

static void read_outputs(struct mask *mask) {
    for (size_t i = 0; mask->outputs != NULL && i < mask->order->output_count; i++) {
        read_output(mask, &mask->order->outputs[i], &mask->outputs[i]);
    }
}

/* The length of the longest value at BYTES, 0 if none. `more` is set if further bytes may complete a value or a longer
 * one. */
static size_t match(const struct mask *mask, const char *bytes, size_t length, bool *more) {
    size_t longest = 0;
    *more = false;
    /* A value of many lines gives as many patterns, and each byte of the log is checked. Most patterns begin
     * differently. */
    for (unsigned short at = mask->begins[(unsigned char)bytes[0]]; at != 0; at = mask->patterns[at - 1].next) {
        const struct pattern *pattern = &mask->patterns[at - 1];
        bool whole = pattern->length <= length;
        if (memcmp(pattern->bytes, bytes, whole ? pattern->length : length) != 0) continue;
        if (!whole) *more = true;
        else if (pattern->length > longest) longest = pattern->length;
    }
    return longest;
}

static void forward(struct mask *mask, const char *bytes, size_t length, bool last, mask_sink *sink, void *state) {
    size_t from = 0, at = 0;
    while (at < length) {
        bool more;
        size_t found = match(mask, bytes + at, length - at, &more);
        if (more && !last) break;
        if (found == 0) {
            at++;
            continue;
        }
        if (at > from) sink(state, bytes + from, at - from);
        sink(state, "***", 3);
        at += found;
        from = at;
    }
    if (at > from) sink(state, bytes + from, at - from);
    char *rest = at < length ? malloc(length - at) : NULL;
    if (rest != NULL) memcpy(rest, bytes + at, length - at);
    free(mask->held);
    mask->held = rest;
    mask->held_length = rest != NULL ? length - at : 0;
}

void mask_feed(struct mask *mask, const char *bytes, size_t length, mask_sink *sink, void *state) {
    read_outputs(mask);
    if (mask->held_length == 0) {
        if (mask->count == 0) sink(state, bytes, length);
        else forward(mask, bytes, length, false, sink, state);
        return;
    }
    char *joined = malloc(mask->held_length + length);
    if (joined == NULL) return; /* a gap in the log is better than an unmasked value */
    memcpy(joined, mask->held, mask->held_length);
    memcpy(joined + mask->held_length, bytes, length);
    forward(mask, joined, mask->held_length + length, false, sink, state);
    free(joined);
}

void mask_end(struct mask *mask, mask_sink *sink, void *state) {
    char *rest = mask->held;
    size_t length = mask->held_length;
    mask->held = NULL;
    mask->held_length = 0;
    if (length > 0) forward(mask, rest, length, true, sink, state);
    free(rest);
}

static void overwrite(int fd, off_t at, size_t length) {
    static const char stars[] = "****************************************************************";
    while (length > 0) {
        size_t some = length < sizeof stars - 1 ? length : sizeof stars - 1;
        ssize_t put = pwrite(fd, stars, some, at);
        if (put <= 0) return;
        at += put;
        length -= (size_t)put;
    }
}

void mask_file(struct mask *mask, int fd, off_t from) {
    struct stat status;
    read_outputs(mask);
    if (mask->count == 0 || fstat(fd, &status) < 0 || status.st_size <= from) return;
    size_t size = (size_t)status.st_size;
    char *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) return;
    for (size_t at = (size_t)from; at < size;) {
        bool more;
        size_t found = match(mask, bytes + at, size - at, &more);
        if (found > 0) overwrite(fd, (off_t)at, found);
        at += found > 0 ? found : 1;
    }
    munmap(bytes, size);
}
