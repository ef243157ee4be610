/* SHA-256 (FIPS 180-4), implemented here because the program has no library except libc. */
#ifndef DAYFLY_SHA256_H
#define DAYFLY_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX 64

struct sha256 {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
};

void sha256_begin(struct sha256 *sum);
void sha256_add(struct sha256 *sum, const void *bytes, size_t length);
/* Writes 64 lower-case hex digits and a NUL. */
void sha256_hex(struct sha256 *sum, char hex[SHA256_HEX + 1]);

#endif
