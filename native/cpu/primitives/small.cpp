#include "small.h"

namespace mlxnb {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

class RmsNorm : public SameShape {
 public:
  RmsNorm(mx::Stream stream, float eps) : SameShape(stream), eps_(eps) {}

  const char* name() const override { return "MlxnbRmsNorm"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    return eps_ == static_cast<const RmsNorm&>(other).eps_;
  }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out, in[0]);
    if (out.size() == 0) {
      return;
    }
    Norm n{};
    n.x = rows_of(in[0], stream());
    n.out = out.data<void>();
    if (in.size() > 1) {
      n.weight = flat(in[1], stream());
      n.weight_type = type_of(in[1].dtype());
    }
    n.dim = out.shape(-1);
    n.rows = static_cast<int64_t>(out.size()) / n.dim;
    n.eps = eps_;
    dispatch(stream(), [n] { run(n, kernels(), pool()); });
  }

 private:
  float eps_;
};

class LogSoftmax : public SameShape {
 public:
  using SameShape::SameShape;
  const char* name() const override { return "MlxnbLogSoftmax"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out);
    const int64_t count = out.shape(-1);
    if (out.size() == 0) {
      return;
    }
    dispatch(stream(), [x = rows_of(in[0], stream()), to = out.data<char>(), count,
                        rows = static_cast<int64_t>(out.size()) / count] {
      const int64_t size = static_cast<int64_t>(size_of(x.type));
      pool().run([&](int64_t row, float*) {
        const char* from = static_cast<const char*>(x.data) + row * x.stride * size;
        kernels().log_softmax(x.type, from, to + row * count * size, count);
      }, rows, 0);
    });
  }
};

class Rotate : public SameShape {
 public:
  /// `offset` counts where there is no third input.
  Rotate(mx::Stream stream, int offset, bool adjacent, float scale)
      : SameShape(stream), offset_(offset), adjacent_(adjacent), scale_(scale) {}

  const char* name() const override { return "MlxnbRope"; }
  bool is_equivalent(const mx::Primitive& other) const override {
    const auto& o = static_cast<const Rotate&>(other);
    return offset_ == o.offset_ && adjacent_ == o.adjacent_ && scale_ == o.scale_;
  }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out);
    if (out.size() == 0) {
      return;
    }
    Rope r{};
    take_rows(in[0], r);
    r.out = out.data<void>();
    r.type = type_of(out.dtype());
    r.rotated = 2 * in[1].shape(0);
    r.adjacent = adjacent_;
    r.scale = scale_;
    r.frequencies = static_cast<const float*>(flat(in[1], stream()));
    r.offset = offset_;
    if (in.size() > 2) {
      r.offsets = static_cast<const int32_t*>(flat(in[2], stream()));
      r.offset_stride = in[2].size() == 1 ? 0 : 1;
    }
    dispatch(stream(), [r] { run(r, kernels(), pool()); });
  }

 private:
  void take_rows(const mx::array& x, Rope& r) {
    r.batch = x.shape(0);
    r.heads = x.shape(1);
    r.length = x.shape(2);
    r.dim = x.shape(3);
    const bool dense = r.dim == 1 || x.strides(3) == 1;
    r.x = dense ? x.data<void>() : flat(x, stream());
    r.strides[2] = dense ? x.strides(2) : r.dim;
    r.strides[1] = dense ? x.strides(1) : r.dim * r.length;
    r.strides[0] = dense ? x.strides(0) : r.dim * r.length * r.heads;
  }

  int offset_;
  bool adjacent_;
  float scale_;
};

class Gated : public SameShape {
 public:
  using SameShape::SameShape;
  const char* name() const override { return "MlxnbGated"; }
  bool is_equivalent(const mx::Primitive&) const override { return true; }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out, in[0]);
    dispatch(stream(), [gate = flat(in[0], stream()), up = flat(in[1], stream()),
                        to = out.data<void>(), size = static_cast<int64_t>(out.size()),
                        type = type_of(out.dtype())] {
      run(kernels().gated, type, gate, up, to, size, pool());
    });
  }
};

}  // namespace

mx::array rms_norm(const mx::array& x, const std::optional<mx::array>& weight, float eps) {
  if (x.ndim() == 0 || !is_floating(x.dtype())) {
    refuse("x must be floating and have an axis");
  }
  std::vector<mx::array> inputs{x};
  auto dtype = x.dtype();
  if (weight) {
    if (weight->ndim() != 1 || weight->shape(0) != x.shape(-1) || !is_floating(weight->dtype())) {
      refuse("the weight must have an element for each of the last axis");
    }
    if (weight->dtype() != dtype) {
      refuse("x and the weight must have one type");
    }
    inputs.push_back(*weight);
  }
  return mx::array(x.shape(), dtype, std::make_shared<RmsNorm>(cpu_stream(), eps),
                   std::move(inputs));
}

mx::array log_softmax(const mx::array& x) {
  if (x.ndim() == 0 || !is_floating(x.dtype())) {
    refuse("x must be floating and have an axis");
  }
  return mx::array(x.shape(), x.dtype(), std::make_shared<LogSoftmax>(cpu_stream()), {x});
}

mx::array rope(const mx::array& x, const mx::array& frequencies,
               const std::variant<int, mx::array>& offset, bool adjacent, float scale) {
  if (x.ndim() != 4 || !is_floating(x.dtype())) {
    refuse("x must be floating and (batch, heads, length, dim)");
  }
  if (frequencies.ndim() != 1 || frequencies.dtype() != mx::float32 ||
      2 * frequencies.shape(0) > x.shape(3)) {
    refuse("the frequencies must be float32 and at most half of dim");
  }
  const auto stream = cpu_stream();
  std::vector<mx::array> inputs{x, frequencies};
  int number = 0;
  if (const auto* offsets = std::get_if<mx::array>(&offset)) {
    if (offsets->size() != 1 && (offsets->ndim() != 1 || offsets->shape(0) != x.shape(0))) {
      refuse("there is one offset, or one for each row of the batch");
    }
    inputs.push_back(mx::astype(*offsets, mx::int32, stream));
  } else {
    number = std::get<int>(offset);
  }
  return mx::array(x.shape(), x.dtype(), std::make_shared<Rotate>(stream, number, adjacent, scale),
                   std::move(inputs));
}

mx::array gated(const mx::array& gate, const mx::array& up) {
  if (gate.shape() != up.shape() || gate.dtype() != up.dtype() || !is_floating(gate.dtype())) {
    refuse("gate and up must have one shape and one floating type");
  }
  return mx::array(gate.shape(), gate.dtype(), std::make_shared<Gated>(cpu_stream()), {gate, up});
}

}  // namespace mlxnb
