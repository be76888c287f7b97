/* The kernels in plain C, for every machine. */
#define GOLEM_ISA golem_isa_portable
#define GOLEM_ISA_NAME "portable"
#define GOLEM_ISA_LINEAR golem_linear_portable
#include "isa_body.h"
