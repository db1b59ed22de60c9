// The Python module: functions over MLX's own arrays, and what this build was made for.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "kernels.h"
#include "mlx/version.h"
#include "pool.h"
#include "primitives/arena.h"
#include "primitives/attention.h"
#include "primitives/block.h"
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
  m.def("use_cores", &mlxnb::use_cores, "cores"_a);
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
  using OptionalArray = std::optional<mlxnb::mx::array>;
  nb::class_<mlxnb::Matrix>(m, "Matrix")
      .def(nb::init<const mlxnb::mx::array&, const OptionalArray&, const OptionalArray&,
                    const OptionalArray&, int, int>(),
           "w"_a, "scales"_a.none() = nb::none(), "biases"_a.none() = nb::none(),
           "bias"_a.none() = nb::none(), "group_size"_a = 0, "bits"_a = 0);
  nb::class_<mlxnb::Scale>(m, "Scale")
      .def("__init__",
           [](mlxnb::Scale* self, mlxnb::mx::array weight, float eps) {
             new (self) mlxnb::Scale{std::move(weight), eps};
           },
           "weight"_a, "eps"_a);
  struct HeldAttention {
    std::shared_ptr<const mlxnb::SelfAttention> weights;
  };
  nb::class_<HeldAttention>(m, "SelfAttention")
      .def(
          "__init__",
          [](HeldAttention* self, const mlxnb::Scale& norm, const mlxnb::Matrix& q,
             const mlxnb::Matrix& k, const mlxnb::Matrix& v, const mlxnb::Matrix& o,
             const std::optional<mlxnb::Scale>& q_norm, const std::optional<mlxnb::Scale>& k_norm,
             const mlxnb::mx::array& frequencies, bool adjacent, float rope_scale, int heads,
             int kv_heads, float scale) {
            new (self) HeldAttention{std::make_shared<const mlxnb::SelfAttention>(
                norm, std::vector{q, k, v, o}, q_norm, k_norm,
                mlxnb::Turn{frequencies, adjacent, rope_scale}, heads, kv_heads, scale)};
          },
          "norm"_a, "q"_a, "k"_a, "v"_a, "o"_a, "q_norm"_a.none(), "k_norm"_a.none(),
          "frequencies"_a, "adjacent"_a, "rope_scale"_a, "heads"_a, "kv_heads"_a, "scale"_a)
      .def(
          "__call__",
          [](const HeldAttention& self, const mlxnb::mx::array& x, const HeldPages& held,
             int layer, const OptionalArray& after) {
            return mlxnb::attend(self.weights, held.pages, layer, x, after);
          },
          "x"_a, "pages"_a, "layer"_a, "after"_a.none() = nb::none());
  struct HeldFeed {
    std::shared_ptr<const mlxnb::FeedForward> weights;
  };
  nb::class_<HeldFeed>(m, "FeedForward")
      .def(
          "__init__",
          [](HeldFeed* self, const mlxnb::Scale& norm, const mlxnb::Matrix& gate,
             const mlxnb::Matrix& up, const mlxnb::Matrix& down) {
            new (self)
                HeldFeed{std::make_shared<const mlxnb::FeedForward>(norm, gate, up, down)};
          },
          "norm"_a, "gate"_a, "up"_a, "down"_a)
      .def(
          "__call__",
          [](const HeldFeed& self, const mlxnb::mx::array& x) {
            return mlxnb::feed(self.weights, x);
          },
          "x"_a);
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
