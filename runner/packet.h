/* Packets between a caller, the resident runner and waiting launchers: some bytes, and at most one descriptor. */
#ifndef DAYFLY_PACKET_H
#define DAYFLY_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Returns the bytes of the next packet and appends a NUL; 0 at the end of the stream, -1 with errno set. DESCRIPTOR
 * receives the attached descriptor, which we then own, or -1. */
ssize_t packet_receive(int socket, char *bytes, size_t size, int *descriptor);

/* True if the packet was sent completely, with a copy of DESCRIPTOR unless that is -1. Never blocks. */
bool packet_send(int socket, const char *bytes, size_t length, int descriptor);

#endif
