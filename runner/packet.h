/* Packets between a caller, the resident runner and who waits: some bytes, and at most one descriptor. */
#ifndef DAYFLY_PACKET_H
#define DAYFLY_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Bytes of the next packet, with a NUL behind them; 0 once there will be none, -1 with errno set. DESCRIPTOR is what
 * came along, ours from now on; -1 if nothing did. */
ssize_t packet_receive(int socket, char *bytes, size_t size, int *descriptor);

/* True once it is sent whole, with a copy of DESCRIPTOR unless that is -1. Never waits. */
bool packet_send(int socket, const char *bytes, size_t length, int descriptor);

#endif
