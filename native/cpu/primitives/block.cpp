#include "block.h"

#include "paged.h"

namespace mlxnb {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

/// Memory of MLX's that a task takes when it runs: what waits to run holds none.
class Temporaries : public Memory {
 public:
  float* take(size_t floats) override {
    taken_.push_back(mx::allocator::malloc(floats * sizeof(float) + alignment));
    auto* memory = static_cast<char*>(taken_.back().buffer().raw_ptr());
    return reinterpret_cast<float*>(memory + to_alignment(memory));
  }

 private:
  std::vector<mx::allocator::Data> taken_;
};

/// Norm of `rows` rows of floats, of the weight's length.
void norm(const Scale& scale, const float* x, int64_t rows, float* out) {
  Norm n{};
  n.dim = static_cast<int64_t>(scale.weight.size());
  n.x = {x, n.dim, Type::f32};
  n.out = out;
  n.weight = scale.weight.data<float>();
  n.weight_type = Type::f32;
  n.rows = rows;
  n.eps = scale.eps;
  run(n, kernels(), pool());
}

void add(const float* x, float* out, int64_t size) {
  run(kernels().add, Type::f32, x, out, out, size, pool());
}

// --- attention ----------------------------------------------------------------------------------

/// The steps of one call, in order.
class Attending {
 public:
  Attending(const SelfAttention& weights, const Pages& pages, int64_t layer, int64_t length)
      : w_(weights),
        pages_(pages),
        layer_(layer),
        length_(length),
        count_(pages.rows() * length) {}

  void operator()(const float* x, float* out) {
    float* normed = memory_.take(count_ * w_.q.depth());
    norm(w_.norm, x, count_, normed);
    float* q = memory_.take(count_ * w_.q.rows());
    float* k = memory_.take(count_ * w_.k.rows());
    float* v = memory_.take(count_ * w_.v.rows());
    run({w_.q.of(normed, count_, q), w_.k.of(normed, count_, k), w_.v.of(normed, count_, v)},
        kernels(), pool(), memory_);
    q = turned(w_.q_norm, q, w_.heads);
    k = turned(w_.k_norm, k, w_.kv_heads);
    put(k, v);
    float* attended = memory_.take(count_ * w_.q.rows());
    look(q, attended);
    run({w_.o.of(attended, count_, out)}, kernels(), pool(), memory_);
    add(x, out, count_ * w_.o.rows());
  }

 private:
  /// Queries or keys (rows, length, heads, dim) at their positions: (rows, heads, length, dim).
  float* turned(const std::optional<Scale>& scale, float* x, int64_t heads) {
    if (scale) {
      norm(*scale, x, count_ * heads, x);
    }
    Rope r{};
    r.x = x;
    r.type = Type::f32;
    r.batch = pages_.rows();
    r.heads = heads;
    r.length = length_;
    r.dim = w_.dim;
    r.strides[0] = length_ * heads * w_.dim;
    r.strides[1] = w_.dim;
    r.strides[2] = heads * w_.dim;
    r.rotated = 2 * static_cast<int64_t>(w_.turn.frequencies.size());
    r.adjacent = w_.turn.adjacent;
    r.scale = w_.turn.scale;
    r.frequencies = w_.turn.frequencies.data<float>();
    r.offsets = pages_.starts();
    r.offset_stride = 1;
    float* out = memory_.take(count_ * heads * w_.dim);
    r.out = out;
    run(r, kernels(), pool());
    return out;
  }

  void put(const float* k, const float* v) const {
    const int64_t token = w_.dim * static_cast<int64_t>(sizeof(float));
    const int64_t row = length_ * w_.kv_heads * token;
    write(pages_, layer_,
          Tokens(reinterpret_cast<const char*>(k), row, length_ * token, token),
          Tokens(reinterpret_cast<const char*>(v), row, token, w_.kv_heads * token));
  }

  void look(const float* q, float* out) {
    PagedCall call{};
    Attention& a = call.attention.each;
    a.q = q;
    a.q_strides[1] = length_ * w_.dim;
    a.q_strides[2] = w_.dim;
    a.out = out;
    a.type = Type::f32;
    a.batch = 1;
    a.heads = w_.heads;
    a.kv_heads = w_.kv_heads;
    a.queries = length_;
    a.dim = a.value_dim = w_.dim;
    a.scale = w_.scale;
    a.causal = true;
    call.attention.q_row = call.attention.out_row = length_ * w_.heads * w_.dim;
    point(pages_, layer_, call);
    const size_t floats = plan(call.attention, kernels(), pool().threads());
    a.parts = floats ? memory_.take(floats) : nullptr;
    run(call.attention, kernels(), pool());
  }

  const SelfAttention& w_;
  const Pages& pages_;
  int64_t layer_, length_, count_;
  Temporaries memory_;
};

class Attend : public CpuPrimitive {
 public:
  Attend(mx::Stream stream, std::shared_ptr<const SelfAttention> weights,
         std::shared_ptr<const Pages> pages, int layer)
      : CpuPrimitive(stream),
        weights_(std::move(weights)),
        pages_(std::move(pages)),
        layer_(layer) {}

  const char* name() const override { return "MlxnbSelfAttention"; }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    allocate(outputs[0]);
    allocate(outputs[1]);
    const auto* x = static_cast<const float*>(flat(in[0], stream()));
    dispatch(stream(), [weights = weights_, pages = pages_, layer = layer_, x,
                        length = in[0].shape(1), out = outputs[0].data<float>(),
                        done = outputs[1].data<uint8_t>()] {
      if (length > 0) {
        Attending(*weights, *pages, layer, length)(x, out);
      }
      *done = 1;
    });
  }

 private:
  std::shared_ptr<const SelfAttention> weights_;
  std::shared_ptr<const Pages> pages_;
  int layer_;
};

// --- feed-forward -------------------------------------------------------------------------------

void run_feed(const FeedForward& w, const float* x, int64_t count, float* out) {
  Temporaries memory;
  float* normed = memory.take(count * w.gate.depth());
  norm(w.norm, x, count, normed);
  const int64_t hidden = count * w.gate.rows();
  float* gate = memory.take(hidden);
  float* up = memory.take(hidden);
  run({w.gate.of(normed, count, gate), w.up.of(normed, count, up)}, kernels(), pool(), memory);
  run(kernels().gated, Type::f32, gate, up, gate, hidden, pool());
  run({w.down.of(gate, count, out)}, kernels(), pool(), memory);
  add(x, out, count * w.down.rows());
}

class Feed : public SameShape {
 public:
  Feed(mx::Stream stream, std::shared_ptr<const FeedForward> weights)
      : SameShape(stream), weights_(std::move(weights)) {}

  const char* name() const override { return "MlxnbFeedForward"; }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    auto& out = outputs[0];
    allocate(out);
    if (out.size() == 0) {
      return;
    }
    dispatch(stream(), [weights = weights_, x = static_cast<const float*>(flat(in[0], stream())),
                        count = static_cast<int64_t>(out.size()) / out.shape(-1),
                        to = out.data<float>()] { run_feed(*weights, x, count, to); });
  }

 private:
  std::shared_ptr<const FeedForward> weights_;
};

// --- what fits together -------------------------------------------------------------------------

int64_t per_head(const Matrix& matrix, int heads) {
  if (heads < 1 || matrix.rows() % heads != 0) {
    refuse("the rows of a matrix are shared out between heads");
  }
  return matrix.rows() / heads;
}

Scale held(Scale scale, int64_t size) {
  if (scale.weight.dtype() != mx::float32 || scale.weight.ndim() != 1 ||
      scale.weight.shape(0) != size) {
    refuse("the weight of a norm is float32 and as long as what it scales");
  }
  std::vector<mx::array> arrays{scale.weight};
  hold(arrays);
  return {arrays[0], scale.eps};
}

std::optional<Scale> held(std::optional<Scale> scale, int64_t size) {
  return scale ? std::optional(held(*scale, size)) : std::nullopt;
}

Turn held(Turn turn, int64_t dim) {
  if (turn.frequencies.dtype() != mx::float32 || turn.frequencies.ndim() != 1 ||
      2 * turn.frequencies.shape(0) > dim) {
    refuse("the frequencies must be float32 and at most half of dim");
  }
  std::vector<mx::array> arrays{turn.frequencies};
  hold(arrays);
  return {arrays[0], turn.adjacent, turn.scale};
}

void check(const mx::array& x, int64_t width) {
  if (x.ndim() == 0 || x.dtype() != mx::float32 || x.shape(-1) != width) {
    refuse("x must be float32 and as wide as the block");
  }
}

}  // namespace

SelfAttention::SelfAttention(Scale norm, std::vector<Matrix> qkvo, std::optional<Scale> q_norm,
                             std::optional<Scale> k_norm, Turn turn, int heads, int kv_heads,
                             float scale)
    : norm(held(norm, qkvo.at(0).depth())),
      q(qkvo.at(0)),
      k(qkvo.at(1)),
      v(qkvo.at(2)),
      o(qkvo.at(3)),
      q_norm(held(q_norm, per_head(q, heads))),
      k_norm(held(k_norm, per_head(k, kv_heads))),
      turn(held(turn, per_head(q, heads))),
      heads(heads),
      kv_heads(kv_heads),
      dim(per_head(q, heads)),
      scale(scale) {
  if (heads % kv_heads != 0 || k.rows() != kv_heads * dim ||
      v.rows() != k.rows() || k.depth() != q.depth() || v.depth() != q.depth() ||
      o.depth() != q.rows() || o.rows() != q.depth()) {
    refuse("the matrices of attention do not fit together");
  }
}

FeedForward::FeedForward(Scale norm, Matrix gate, Matrix up, Matrix down)
    : norm(held(norm, gate.depth())), gate(gate), up(up), down(down) {
  if (up.rows() != gate.rows() || up.depth() != gate.depth() || down.depth() != gate.rows() ||
      down.rows() != gate.depth()) {
    refuse("the matrices of a feed-forward half do not fit together");
  }
}

std::pair<mx::array, mx::array> attend(std::shared_ptr<const SelfAttention> weights,
                                       std::shared_ptr<const Pages> pages, int layer,
                                       const mx::array& x, const std::optional<mx::array>& after) {
  check(x, weights->q.depth());
  if (x.ndim() != 3 || x.shape(0) != pages->rows()) {
    refuse("x is (rows, tokens, width) of the pages");
  }
  if (layer < 0 || layer >= pages->layers() || pages->dtype() != mx::float32 ||
      pages->heads() != weights->kv_heads || pages->key_dim() != weights->dim ||
      pages->value_dim() != weights->dim) {
    refuse("the slabs are of another kind than the block");
  }
  for (int64_t row = 0; row < pages->rows(); ++row) {
    if (pages->count(row) > x.shape(1)) {
      refuse("there are fewer tokens than are to be written");
    }
  }
  std::vector<mx::array> inputs{x};
  if (after) {
    inputs.push_back(*after);
  }
  auto made = mx::array::make_arrays(
      {x.shape(), {1}}, {mx::float32, mx::uint8},
      std::make_shared<Attend>(cpu_stream(), std::move(weights), std::move(pages), layer),
      inputs);
  return {made[0], made[1]};
}

mx::array feed(std::shared_ptr<const FeedForward> weights, const mx::array& x) {
  check(x, weights->gate.depth());
  return mx::array(x.shape(), mx::float32,
                   std::make_shared<Feed>(cpu_stream(), std::move(weights)), {x});
}

}  // namespace mlxnb
