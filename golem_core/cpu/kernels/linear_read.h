#ifndef GOLEM_LINEAR_READ_H
#define GOLEM_LINEAR_READ_H

#include <stddef.h>
#include <stdint.h>

/* Reads size bytes in order with the widest loads there are, prefetching; returns their sum, so
 * that nothing is optimised away. The yardstick of kernels limited by memory. */
uint64_t golem_read(const uint8_t *data, size_t size);

#endif
