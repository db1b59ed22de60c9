// All kernels for one instruction set: included by one unit for each, which defines MLXNB_ISA.
#pragma once

#include "attention.h"
#include "multiply.h"
#include "paged.h"
#include "small.h"

namespace mlxnb::MLXNB_ISA {

extern const Kernels table;
const Kernels table = {
#define MLXNB_TEXT(x) #x
#define MLXNB_NAME(x) MLXNB_TEXT(x)
    MLXNB_NAME(MLXNB_ISA),
    slots,
    prepare,
    dot,
    dot_scratch,
    pack,
    multiply,
    multiply_scratch,
    lookup,
    attend,
    attend_scratch,
    part_floats,
    merge,
    attend_blocks,
    norm,
    log_softmax,
    rope,
    gated,
    add,
};

}  // namespace mlxnb::MLXNB_ISA
