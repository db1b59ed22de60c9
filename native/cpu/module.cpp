// The Python module: functions over MLX's own arrays, and what this build was made for.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "kernels.h"
#include "mlx/version.h"
#include "pool.h"
#include "primitives/arena.h"
#include "primitives/attention.h"
#include "primitives/paged.h"
#include "primitives/product.h"
#include "primitives/small.h"

namespace nb = nanobind;
using namespace nb::literals;

#define MLXNB_TEXT(x) #x
#define MLXNB_NUMBER(x) MLXNB_TEXT(x)

NB_MODULE(_native, m) {
  m.doc() = "CPU kernels of mlxnb as MLX primitives; reached through mlxnb.native";
  // from the headers: what is loaded at run time may be another
  m.attr("mlx_version") = MLXNB_NUMBER(MLX_VERSION_MAJOR) "." MLXNB_NUMBER(
      MLX_VERSION_MINOR) "." MLXNB_NUMBER(MLX_VERSION_PATCH);
  m.def("isa", [] { return mlxnb::kernels().name; });
  m.def("threads", [] { return mlxnb::pool().threads(); });
  m.def("quantized_matmul", &mlxnb::quantized_matmul, "x"_a, "w"_a, "scales"_a, "biases"_a,
        "bias"_a.none() = nb::none(), "group_size"_a, "bits"_a);
  m.def("linear", &mlxnb::linear, "x"_a, "w"_a, "bias"_a.none() = nb::none());
  m.def("quantized_embedding", &mlxnb::quantized_embedding, "ids"_a, "w"_a, "scales"_a, "biases"_a,
        "group_size"_a, "bits"_a);
  m.def("attention", &mlxnb::attention, "queries"_a, "keys"_a, "values"_a, "scale"_a,
        "causal"_a = false, "window"_a = 0, "mask"_a.none() = nb::none(),
        "sinks"_a.none() = nb::none());
  // held by a pointer of its own: a stream's thread may be the last to let go of the pages
  struct HeldPages {
    std::shared_ptr<const mlxnb::Pages> pages;
  };
  nb::class_<HeldPages>(m, "Pages")
      .def(
          "__init__",
          [](HeldPages* self, std::vector<mlxnb::mx::array> keys,
             std::vector<mlxnb::mx::array> values, std::vector<int32_t> table, int64_t width,
             std::vector<int32_t> starts, std::vector<int32_t> counts) {
            new (self) HeldPages{std::make_shared<const mlxnb::Pages>(
                std::move(keys), std::move(values), std::move(table), width, std::move(starts),
                std::move(counts))};
          },
          "keys"_a, "values"_a, "table"_a, "width"_a, "starts"_a, "counts"_a);
  m.def(
      "paged_write",
      [](const HeldPages& held, int layer, const mlxnb::mx::array& keys,
         const mlxnb::mx::array& values, const std::optional<mlxnb::mx::array>& after) {
        return mlxnb::paged_write(held.pages, layer, keys, values, after);
      },
      "pages"_a, "layer"_a, "keys"_a, "values"_a, "after"_a.none() = nb::none());
  m.def(
      "paged_attention",
      [](const HeldPages& held, int layer, const mlxnb::mx::array& queries, float scale,
         int window, const std::optional<mlxnb::mx::array>& sinks,
         const std::optional<mlxnb::mx::array>& after) {
        return mlxnb::paged_attention(held.pages, layer, queries, scale, window, sinks, after);
      },
      "pages"_a, "layer"_a, "queries"_a, "scale"_a, "window"_a = 0, "sinks"_a.none() = nb::none(),
      "after"_a.none() = nb::none());
  nb::class_<mlxnb::Arena>(m, "Arena")
      .def(nb::init<size_t>(), "bytes"_a)
      .def("take", &mlxnb::Arena::take, "arrays"_a)
      .def_static("room", &mlxnb::Arena::room, "array"_a);
  m.def("rms_norm", &mlxnb::rms_norm, "x"_a, "weight"_a.none(), "eps"_a);
  m.def("log_softmax", &mlxnb::log_softmax, "x"_a);
  m.def("rope", &mlxnb::rope, "x"_a, "frequencies"_a, "offset"_a = 0, "adjacent"_a = false,
        "scale"_a = 1.0f);
  m.def("gated", &mlxnb::gated, "gate"_a, "up"_a);
}
