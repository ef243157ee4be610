/* Run the runner's parsers on documents from standard input, each with 4 bytes of length (little end first) before it. For
 * each document, print "frame order kills": 1 for accepted or 0, twice, and the number of killed processes.
 * test_parsers.py builds it with sanitizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "memory.h"
#include "order.h"

static char *copy(const unsigned char *bytes, size_t length) {
    /* Exactly one byte more than the document, as read_file gives it, so that a step beyond is caught. */
    char *own = malloc(length + 1);
    memcpy(own, bytes, length);
    own[length] = '\0';
    return own;
}

static void judge(const unsigned char *bytes, size_t length) {
    struct fault fault = {""};
    struct document document;
    struct order order;
    char *first = copy(bytes, length), *second = copy(bytes, length);
    int frame = frame_parse(&document, first, length, "dayfly-order", &fault);
    int whole = order_parse(&order, second, length, &fault);
    if (frame < 0 && strlen(fault.text) == 0) abort();
    char *third = copy(bytes, length);
    printf("%d %d %lld\n", frame == 0, whole == 0, (long long)memory_number(third, "oom_kill"));
    free(third);
    free(document.records);
    free(order.arguments);
    free(order.environment);
    free(order.inputs);
    free(order.outputs);
    free(order.private_paths);
    free(order.secrets);
    free(order.masked);
    free(first);
    free(second);
}

int main(void) {
    unsigned char head[4];
    while (fread(head, 1, 4, stdin) == 4) {
        size_t length = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
        unsigned char *bytes = malloc(length + 1);
        if (bytes == NULL || fread(bytes, 1, length, stdin) != length) return 1;
        judge(bytes, length);
        free(bytes);
    }
    return 0;
}
