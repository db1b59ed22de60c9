// Compiled with the flags for AVX2, FMA and F16C; runs only where kernels.cpp has found them.
#define MLXNB_ISA avx2
#include "all.h"
