#include "kernels.h"

#include <cstdlib>
#include <cstring>

namespace mlxnb {

namespace portable {
extern const Kernels table;
}
#if defined(MLXNB_HAS_AVX2)
namespace avx2 {
extern const Kernels table;
}
#endif

namespace {

const Kernels& best() {
#if defined(MLXNB_HAS_AVX2)
  const char* wanted = std::getenv("MLXNB_ISA");
  const bool plain = wanted != nullptr && std::strcmp(wanted, "portable") == 0;
  if (!plain && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return avx2::table;
  }
#endif
  return portable::table;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = best();
  return chosen;
}

}  // namespace mlxnb
