#include "attention.h"

#include <algorithm>
#include <tuple>

namespace mlxnb {
namespace {

struct Options {
  float scale;
  bool causal;
  int window;
  bool mask;
  bool sinks;
  bool operator==(const Options&) const = default;
};

/// The array's memory with strides of its first three axes, the last being dense.
const void* head_rows(const mx::array& x, mx::Stream stream, int64_t (&strides)[3]) {
  const bool dense = x.shape(3) == 1 || x.strides(3) == 1;
  int64_t step = x.shape(3);
  for (int i = 2; i >= 0; --i) {
    strides[i] = dense ? x.strides(i) : step;
    step *= x.shape(i);
  }
  return dense ? x.data<void>() : flat(x, stream);
}

class Attend : public CpuPrimitive {
 public:
  Attend(mx::Stream stream, Options options) : CpuPrimitive(stream), options_(options) {}

  const char* name() const override { return "MlxnbAttention"; }

  bool is_equivalent(const mx::Primitive& other) const override {
    return options_ == static_cast<const Attend&>(other).options_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& in) override {
    auto shape = in[0].shape();
    shape.back() = in[2].shape(-1);
    return {shape};
  }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate_by_position(out);
    if (out.size() == 0) {
      return;
    }
    Attention a = shapes(in);
    a.q = head_rows(in[0], stream(), a.q_strides);
    a.k = head_rows(in[1], stream(), a.k_strides);
    a.v = head_rows(in[2], stream(), a.v_strides);
    a.out = out.data<void>();
    take_options(in, a);
    const size_t floats = plan(a, kernels(), pool().threads());
    a.parts = floats ? temporary(floats, stream()) : nullptr;
    dispatch(stream(), [a] { run(a, kernels(), pool()); });
  }

 private:
  Attention shapes(const std::vector<mx::array>& in) const {
    Attention a{};
    a.type = type_of(in[0].dtype());
    a.batch = in[0].shape(0);
    a.heads = in[0].shape(1);
    a.kv_heads = in[1].shape(1);
    a.queries = in[0].shape(2);
    a.keys = in[1].shape(2);
    a.dim = in[0].shape(3);
    a.value_dim = in[2].shape(3);
    return a;
  }

  void take_options(const std::vector<mx::array>& in, Attention& a) {
    a.scale = options_.scale;
    a.causal = options_.causal;
    a.window = options_.window;
    a.mask_kind = Mask::none;
    if (options_.mask) {
      const auto& mask = in[3];
      a.mask_kind = mask.dtype() == mx::bool_ ? Mask::boolean : Mask::additive;
      a.mask_type = a.mask_kind == Mask::boolean ? Type::f32 : type_of(mask.dtype());
      a.mask = mask.data<void>();
      std::copy_n(mask.strides().begin(), 4, a.mask_strides);
    }
    if (options_.sinks) {
      a.sinks = flat(in.back(), stream());
      a.sinks_type = type_of(in.back().dtype());
    }
  }

  Options options_;
};

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

void check(const mx::array& q, const mx::array& k, const mx::array& v) {
  if (q.ndim() != 4 || k.ndim() != 4 || v.ndim() != 4) {
    refuse("queries, keys and values have four axes");
  }
  if (!is_floating(q.dtype()) || q.dtype() != k.dtype() || q.dtype() != v.dtype()) {
    refuse("queries, keys and values are of one floating type");
  }
  const bool same = q.shape(0) == k.shape(0) && q.shape(0) == v.shape(0) &&
                    k.shape(1) == v.shape(1) && k.shape(2) == v.shape(2) &&
                    q.shape(3) == k.shape(3);
  if (!same || k.shape(1) == 0 || q.shape(1) % k.shape(1) != 0 || k.shape(2) == 0) {
    refuse("the shapes of queries, keys and values do not fit each other");
  }
}

mx::array fitted(const mx::array& mask, const mx::Shape& shape, mx::Stream stream) {
  if (mask.dtype() != mx::bool_ && !is_floating(mask.dtype())) {
    refuse("a mask is boolean or floating");
  }
  return mx::broadcast_to(mask, shape, stream);
}

}  // namespace

mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v, float scale,
                    bool causal, int window, const std::optional<mx::array>& mask,
                    const std::optional<mx::array>& sinks) {
  check(q, k, v);
  if (window > 0 && !causal) {
    refuse("a window needs causal attention");
  }
  if (causal && q.shape(2) > k.shape(2)) {
    refuse("causal attention needs a key for each query");
  }
  const auto stream = cpu_stream();
  std::vector<mx::array> inputs{q, k, v};
  if (mask) {
    inputs.push_back(fitted(*mask, {q.shape(0), q.shape(1), q.shape(2), k.shape(2)}, stream));
  }
  if (sinks) {
    if (sinks->ndim() != 1 || sinks->shape(0) != q.shape(1) || !is_floating(sinks->dtype())) {
      refuse("there is one sink for each head");
    }
    inputs.push_back(*sinks);
  }
  auto shape = q.shape();
  shape.back() = v.shape(3);
  const Options options{scale, causal, window, mask.has_value(), sinks.has_value()};
  return mx::array(shape, q.dtype(), std::make_shared<Attend>(stream, options), std::move(inputs));
}

}  // namespace mlxnb
