#include "paged.h"

#include <algorithm>
#include <cstring>

namespace mlxnb {
namespace {

using SharedPages = std::shared_ptr<const Pages>;

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

/// Copy `count` tokens of each head into the heads' blocks, from token `at` on.
void put(const Tokens& from, int64_t row, int64_t first, char* block, int64_t at, int64_t count,
         const Pages& pages, int64_t bytes) {
  for (int64_t h = 0; h < pages.heads(); ++h) {
    const char* source = from.data + row * from.row + h * from.head + first * from.token;
    char* target = block + (h * pages.slots() * pages.block() + at) * bytes;
    for (int64_t t = 0; t < count; ++t) {
      std::memcpy(target + t * bytes, source + t * from.token, bytes);
    }
  }
}

}  // namespace

Tokens::Tokens(const mx::array& x, mx::Stream stream) {
  const auto size = static_cast<int64_t>(x.itemsize());
  const bool dense = x.shape(3) == 1 || x.strides(3) == 1;
  data = dense ? x.data<char>() : static_cast<const char*>(flat(x, stream));
  int64_t step = x.shape(3);
  int64_t strides[3];
  for (int i = 2; i >= 0; --i) {
    strides[i] = size * (dense ? x.strides(i) : step);
    step *= x.shape(i);
  }
  row = strides[0];
  head = strides[1];
  token = strides[2];
}

void write(const Pages& pages, int64_t layer, const Tokens& keys, const Tokens& values) {
  const auto size = static_cast<int64_t>(mx::size_of(pages.dtype()));
  for (int64_t row = 0; row < pages.rows(); ++row) {
    for (int64_t done = 0; done < pages.count(row);) {
      const int64_t number = (pages.start(row) + done) / pages.block();
      const int64_t at = (pages.start(row) + done) % pages.block();
      const int64_t count = std::min(pages.count(row) - done, pages.block() - at);
      put(keys, row, done, pages.keys(row, number, layer), at, count, pages,
          size * pages.key_dim());
      put(values, row, done, pages.values(row, number, layer), at, count, pages,
          size * pages.value_dim());
      done += count;
    }
  }
}

void point(const Pages& pages, int64_t layer, PagedCall& call) {
  std::vector<int64_t> first;
  for (int64_t row = 0; row < pages.rows(); ++row) {
    first.push_back(static_cast<int64_t>(call.keys.size()));
    const int64_t tokens = pages.start(row) + pages.count(row);
    for (int64_t b = 0; b * pages.block() < tokens; ++b) {
      call.keys.push_back(pages.keys(row, b, layer));
      call.values.push_back(pages.values(row, b, layer));
    }
  }
  for (int64_t row = 0; row < pages.rows(); ++row) {
    const int64_t tokens = pages.start(row) + pages.count(row);
    call.attention.keys.push_back(pages.start(row) + call.attention.each.queries);
    call.attention.blocks.push_back({call.keys.data() + first[row],
                                     call.values.data() + first[row], pages.block(),
                                     pages.slots() * pages.block(), tokens});
  }
}

namespace {

class Write : public CpuPrimitive {
 public:
  Write(mx::Stream stream, SharedPages pages, int layer)
      : CpuPrimitive(stream), pages_(std::move(pages)), layer_(layer) {}

  const char* name() const override { return "MlxnbPagedWrite"; }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    allocate(outputs[0]);
    const Tokens keys(in[0], stream());
    const Tokens values(in[1], stream());
    auto* done = outputs[0].data<uint8_t>();
    dispatch(stream(), [pages = pages_, layer = layer_, keys, values, done] {
      write(*pages, layer, keys, values);
      *done = 1;
    });
  }

 private:
  SharedPages pages_;
  int layer_;
};

class Attend : public CpuPrimitive {
 public:
  Attend(mx::Stream stream, SharedPages pages, int layer, float scale, int window, bool sinks)
      : CpuPrimitive(stream),
        pages_(std::move(pages)),
        layer_(layer),
        scale_(scale),
        window_(window),
        sinks_(sinks) {}

  const char* name() const override { return "MlxnbPagedAttention"; }

  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outputs) override {
    allocate_by_position(outputs[0]);
    if (outputs[0].size() == 0) {
      return;
    }
    auto held = std::make_shared<PagedCall>();
    describe(in, outputs[0], held->attention);
    point(*pages_, layer_, *held);
    const size_t floats = plan(held->attention, kernels(), pool().threads());
    held->attention.each.parts = floats ? temporary(floats, stream()) : nullptr;
    dispatch(stream(), [held, pages = pages_] { run(held->attention, kernels(), pool()); });
  }

 private:
  void describe(const std::vector<mx::array>& in, mx::array& out, PagedAttention& p) {
    const mx::array& q = in[0];
    const Tokens queries(q, stream());
    const auto size = static_cast<int64_t>(q.itemsize());
    Attention& a = p.each;
    a = Attention{};
    a.q = queries.data;
    a.q_strides[1] = queries.head / size;
    a.q_strides[2] = queries.token / size;
    a.out = out.data<void>();
    a.type = type_of(q.dtype());
    a.batch = 1;
    a.heads = q.shape(1);
    a.kv_heads = pages_->heads();
    a.queries = q.shape(2);
    a.dim = q.shape(3);
    a.value_dim = pages_->value_dim();
    a.scale = scale_;
    a.causal = true;
    a.window = window_;
    a.mask_kind = Mask::none;
    if (sinks_) {
      a.sinks = flat(in[1], stream());
      a.sinks_type = type_of(in[1].dtype());
    }
    p.q_row = queries.row / size;
    p.out_row = a.queries * a.heads * a.value_dim;
  }

  SharedPages pages_;
  int layer_;
  float scale_;
  int window_;
  bool sinks_;
};

void check_layer(const Pages& pages, int layer) {
  if (layer < 0 || layer >= pages.layers()) {
    refuse("no such layer in the slabs");
  }
}

void check_tokens(const Pages& pages, const mx::array& x, int64_t dim, const char* what) {
  if (x.ndim() != 4 || x.shape(0) != pages.rows() || x.shape(3) != dim) {
    refuse(std::string(what) + " are (rows, heads, tokens, dim) of the pages");
  }
  if (x.dtype() != pages.dtype()) {
    refuse(std::string(what) + " are of the slabs' type");
  }
}

}  // namespace

mx::array paged_write(SharedPages pages, int layer, const mx::array& keys, const mx::array& values,
                      const std::optional<mx::array>& after) {
  check_layer(*pages, layer);
  check_tokens(*pages, keys, pages->key_dim(), "keys");
  check_tokens(*pages, values, pages->value_dim(), "values");
  for (const auto& x : {keys, values}) {
    if (x.shape(1) != pages->heads()) {
      refuse("keys and values have the slabs' heads");
    }
    for (int64_t row = 0; row < pages->rows(); ++row) {
      if (pages->count(row) > x.shape(2)) {
        refuse("there are fewer tokens than are to be written");
      }
    }
  }
  std::vector<mx::array> inputs{keys, values};
  if (after) {
    inputs.push_back(*after);
  }
  auto primitive = std::make_shared<Write>(cpu_stream(), std::move(pages), layer);
  return mx::array({1}, mx::uint8, std::move(primitive), std::move(inputs));
}

mx::array paged_attention(SharedPages pages, int layer, const mx::array& queries, float scale,
                          int window, const std::optional<mx::array>& sinks,
                          const std::optional<mx::array>& after) {
  check_layer(*pages, layer);
  check_tokens(*pages, queries, pages->key_dim(), "queries");
  if (queries.shape(1) % pages->heads() != 0) {
    refuse("query heads are a multiple of the slabs' heads");
  }
  std::vector<mx::array> inputs{queries};
  if (sinks) {
    if (sinks->ndim() != 1 || sinks->shape(0) != queries.shape(1) ||
        !is_floating(sinks->dtype())) {
      refuse("there is one sink for each head");
    }
    inputs.push_back(*sinks);
  }
  if (after) {
    inputs.push_back(*after);
  }
  auto shape = queries.shape();
  shape.back() = static_cast<int>(pages->value_dim());
  auto primitive = std::make_shared<Attend>(cpu_stream(), std::move(pages), layer, scale, window,
                                            sinks.has_value());
  return mx::array(shape, queries.dtype(), std::move(primitive), std::move(inputs));
}

}  // namespace mlxnb
