// Compiled for the plain target: SSE2 on x86-64, NEON on 64-bit Arm.
#define MLXNB_ISA portable
#include "all.h"
