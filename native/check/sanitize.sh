#!/bin/sh
# Build the check of the kernels with each sanitizer, and run it with both instruction sets.
#   native/check/sanitize.sh [build folder] [examples]
# Address and undefined are separate: together they take GCC many times as long.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-build/sanitize}
examples=${2:-100}
mkdir -p "$build"
for sanitizer in address undefined thread; do
  cmake -S "$source" -B "$build/$sanitizer" -DMLXNB_EXTENSION=OFF -DMLXNB_CHECK=ON \
    -DMLXNB_SANITIZE="$sanitizer" -DCMAKE_CXX_FLAGS_RELEASE=-O1 >"$build/log"
  cmake --build "$build/$sanitizer" --parallel 2 >>"$build/log"
  for isa in avx2 portable; do
    echo "$sanitizer $isa"
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 MLXNB_ISA=$isa \
      "$build/$sanitizer/mlxnb_check" "$examples"
  done
done
