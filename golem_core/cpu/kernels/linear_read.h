#ifndef GOLEM_LINEAR_READ_H
#define GOLEM_LINEAR_READ_H

#include <stddef.h>
#include <stdint.h>

/* Reads size bytes in order with the widest loads there are, prefetching; returns their sum, so
 * that nothing is optimised away. The yardstick of kernels limited by memory. */
uint64_t golem_read(const uint8_t *data, size_t size);

/* Multiplies bytes in registers, as often as the processor can with AVX-512 VNNI; returns the
 * number of multiply-adds, 0 where there is no such. The yardstick of kernels limited by
 * arithmetic. */
int64_t golem_multiply(int64_t times);

#endif
