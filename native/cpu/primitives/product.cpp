#include "product.h"

#include <cstring>

namespace mlxnb {
namespace {

/// How W lies in its arrays: (words, scales, biases), or one dense array.
struct Layout {
  int bits;
  int group;
  bool operator==(const Layout&) const = default;
  size_t arrays() const { return bits == 0 ? 1 : 3; }
};

Weights weights_of(const std::vector<mx::array>& in, size_t at, Layout layout, mx::Stream stream) {
  const auto& w = in[at];
  const int64_t depth = layout.bits == 0 ? w.shape(1) : w.shape(1) * (32 / layout.bits);
  if (layout.bits == 0) {
    return {flat(w, stream), nullptr, nullptr, w.shape(0), depth, 0, 0, type_of(w.dtype())};
  }
  return {flat(w, stream),
          flat(in[at + 1], stream),
          flat(in[at + 2], stream),
          w.shape(0),
          depth,
          layout.bits,
          layout.group,
          type_of(in[at + 1].dtype())};
}

class Multiply : public CpuPrimitive {
 public:
  Multiply(mx::Stream stream, Layout layout) : CpuPrimitive(stream), layout_(layout) {}

  const char* name() const override { return "MlxnbProduct"; }

  bool is_equivalent(const mx::Primitive& other) const override {
    return layout_ == static_cast<const Multiply&>(other).layout_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& in) override {
    auto shape = in[0].shape();
    shape.back() = in[1].shape(0);
    return {shape};
  }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out);
    if (out.size() == 0) {
      return;
    }
    Product p{};
    p.weights = weights_of(in, 1, layout_, stream());
    p.x = rows_of(in[0], stream());
    p.count = static_cast<int64_t>(out.size()) / p.weights.rows;
    p.out = out.data<void>();
    p.out_type = type_of(out.dtype());
    if (in.size() > 1 + layout_.arrays()) {
      p.bias = flat(in.back(), stream());
      p.bias_type = type_of(in.back().dtype());
    }
    const Room room = plan(p, kernels(), pool().threads());
    p.packed = temporary(room.packed + room.sums, stream());
    p.sums = p.packed + room.packed;
    dispatch(stream(), [p] { run(p, kernels(), pool()); });
  }

 private:
  Layout layout_;
};

class Lookup : public CpuPrimitive {
 public:
  Lookup(mx::Stream stream, Layout layout) : CpuPrimitive(stream), layout_(layout) {}

  const char* name() const override { return "MlxnbLookup"; }

  bool is_equivalent(const mx::Primitive& other) const override {
    return layout_ == static_cast<const Lookup&>(other).layout_;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& in) override {
    auto shape = in[0].shape();
    shape.push_back(in[1].shape(1) * (32 / layout_.bits));
    return {shape};
  }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out);
    const Weights w = weights_of(in, 1, layout_, stream());
    const auto* ids = static_cast<const int32_t*>(flat(in[0], stream()));
    dispatch(stream(), [w, ids, count = in[0].size(), to = out.data<char>(), size = out.itemsize(),
                        type = type_of(out.dtype())] {
      for (size_t i = 0; i < count; ++i) {
        const int64_t row = ids[i] < 0 ? ids[i] + w.rows : ids[i];
        char* place = to + i * w.depth * size;
        if (row < 0 || row >= w.rows) {
          std::memset(place, 0, w.depth * size);
        } else {
          kernels().lookup(w, row, place, type);
        }
      }
    });
  }

 private:
  Layout layout_;
};

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

void check_quantized(const mx::array& w, const mx::array& scales, const mx::array& biases,
                     Layout layout) {
  const bool known = (layout.bits == 4 || layout.bits == 8) &&
                     (layout.group == 32 || layout.group == 64 || layout.group == 128);
  if (!known) {
    refuse("the native kernels know 4 and 8 bits in groups of 32, 64 and 128 only");
  }
  if (w.dtype() != mx::uint32 || w.ndim() != 2 || scales.ndim() != 2 ||
      scales.shape() != biases.shape() || scales.dtype() != biases.dtype() ||
      !is_floating(scales.dtype())) {
    refuse("a quantised matrix is uint32 (rows, words) with scales and biases (rows, groups)");
  }
  const int64_t depth = static_cast<int64_t>(w.shape(1)) * (32 / layout.bits);
  if (scales.shape(0) != w.shape(0) || depth != int64_t{scales.shape(1)} * layout.group) {
    refuse("the scales do not fit the quantised matrix");
  }
}

void check_bias(const mx::array& bias, const mx::array& w) {
  if (bias.ndim() != 1 || bias.shape(0) != w.shape(0) || !is_floating(bias.dtype())) {
    refuse("the bias must have an element for each row of the matrix");
  }
}

void check_dense(const mx::array& w) {
  if (w.ndim() != 2 || !is_floating(w.dtype())) {
    refuse("the matrix must be floating with two axes");
  }
}

mx::array multiply(const mx::array& x, std::vector<mx::array> inputs, int64_t depth,
                   Layout layout, const std::optional<mx::array>& bias, mx::Dtype dtype) {
  if (x.ndim() == 0 || x.shape(-1) != depth || !is_floating(x.dtype())) {
    refuse("x must be floating and its last axis as long as the rows of the matrix");
  }
  if (bias) {
    check_bias(*bias, inputs[0]);
    inputs.push_back(*bias);
    dtype = mx::promote_types(dtype, bias->dtype());
  }
  auto shape = x.shape();
  shape.back() = inputs[0].shape(0);
  inputs.insert(inputs.begin(), x);
  return mx::array(shape, dtype, std::make_shared<Multiply>(cpu_stream(), layout),
                   std::move(inputs));
}

}  // namespace

Matrix::Matrix(const mx::array& w, const std::optional<mx::array>& scales,
               const std::optional<mx::array>& biases, const std::optional<mx::array>& bias,
               int group, int bits)
    : arrays_{w} {
  const Layout layout = scales ? Layout{bits, group} : Layout{0, 0};
  if (scales) {
    if (!biases) {
      refuse("a quantised matrix is uint32 (rows, words) with scales and biases (rows, groups)");
    }
    check_quantized(w, *scales, *biases, layout);
    arrays_.insert(arrays_.end(), {*scales, *biases});
  } else {
    check_dense(w);
  }
  if (bias) {
    check_bias(*bias, w);
    arrays_.push_back(*bias);
  }
  hold(arrays_);
  weights_ = weights_of(arrays_, 0, layout, cpu_stream());
  if (bias) {
    bias_ = arrays_.back().data<void>();
    bias_type_ = type_of(bias->dtype());
  }
}

Product Matrix::of(const float* x, int64_t count, float* out) const {
  Product p{};
  p.weights = weights_;
  p.x = {x, weights_.depth, Type::f32};
  p.count = count;
  p.out = out;
  p.out_type = Type::f32;
  p.bias = bias_;
  p.bias_type = bias_type_;
  return p;
}

mx::array quantized_matmul(const mx::array& x, const mx::array& w, const mx::array& scales,
                           const mx::array& biases, const std::optional<mx::array>& bias,
                           int group, int bits) {
  const Layout layout{bits, group};
  check_quantized(w, scales, biases, layout);
  const int64_t depth = int64_t{scales.shape(1)} * group;
  const auto dtype = mx::promote_types(x.dtype(), scales.dtype());
  return multiply(x, {w, scales, biases}, depth, layout, bias, dtype);
}

mx::array linear(const mx::array& x, const mx::array& w, const std::optional<mx::array>& bias) {
  check_dense(w);
  return multiply(x, {w}, w.shape(1), {0, 0}, bias, mx::promote_types(x.dtype(), w.dtype()));
}

mx::array quantized_embedding(const mx::array& ids, const mx::array& w, const mx::array& scales,
                              const mx::array& biases, int group, int bits) {
  const Layout layout{bits, group};
  check_quantized(w, scales, biases, layout);
  if (!mx::issubdtype(ids.dtype(), mx::integer)) {
    refuse("ids must be integers");
  }
  auto shape = ids.shape();
  shape.push_back(scales.shape(1) * group);
  const auto stream = cpu_stream();
  return mx::array(shape, scales.dtype(), std::make_shared<Lookup>(stream, layout),
                   {mx::astype(ids, mx::int32, stream), w, scales, biases});
}

}  // namespace mlxnb
