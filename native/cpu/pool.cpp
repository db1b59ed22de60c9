#include "pool.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mlxnb {
namespace {

constexpr int task_bits = 20;
constexpr int64_t most_tasks = (int64_t{1} << task_bits) - 1;
constexpr uint64_t low_mask = (uint64_t{1} << task_bits) - 1;
// A model's step has gaps of up to about 100 µs between loops.
constexpr int spins = 400;

int64_t next_of(uint64_t state) { return static_cast<int64_t>(state & low_mask); }
int64_t tasks_of(uint64_t state) { return static_cast<int64_t>((state >> task_bits) & low_mask); }

void relax() {
  for (int i = 0; i < 32; ++i) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
}

std::atomic<int> cores{0};  // 0: nobody has said

int threads_wanted() {
  if (const char* text = std::getenv("MLXNB_THREADS")) {
    return std::clamp(std::atoi(text), 1, 256);
  }
  const int said = cores.load();
  const int there = said > 0 ? said : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(there, 1, 256);
}

}  // namespace

/// Memory of this thread, at least `floats` long; grows and is kept.
float* Pool::scratch(size_t floats) {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<float, Free> memory;
  thread_local size_t size = 0;
  if (size < floats) {
    size = (floats + 1023) / 1024 * 1024;
    memory.reset();
    memory.reset(static_cast<float*>(std::aligned_alloc(64, size * sizeof(float))));
    if (!memory) {
      std::abort();
    }
  }
  return memory.get();
}

Pool::Pool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this] { work(); });
  }
}

Pool::~Pool() {
  stopping_ = true;
  bell_.fetch_add(1);
  bell_.notify_all();
  for (auto& worker : workers_) {
    worker.join();
  }
}

void Pool::run(Task function, const void* context, int64_t tasks, size_t floats) {
  std::unique_lock<std::mutex> lock(busy_, std::defer_lock);
  if (tasks <= 1 || workers_.empty() || tasks > most_tasks || !lock.try_lock()) {
    alone([&](int64_t task, float* memory) { function(context, task, memory); }, tasks, floats);
    return;
  }
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  floats_.store(floats, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  ++loop_;
  state_.store((loop_ << (2 * task_bits)) | (static_cast<uint64_t>(tasks) << task_bits));
  if (sleepers_.load() > 0) {
    bell_.fetch_add(1);
    bell_.notify_all();
  }
  while (take()) {
  }
  for (int i = 0; done_.load(std::memory_order_acquire) < tasks; ++i) {
    relax();
    if (i > 16) {
      std::this_thread::yield();  // the one that is missing may want this core
    }
  }
}

/// Claim one task and run it. What describes the loop is read after the claim: the loop cannot
/// end, nor another begin, before the task that was claimed is done.
bool Pool::take() {
  uint64_t state = state_.load(std::memory_order_acquire);
  do {
    if (next_of(state) >= tasks_of(state)) {
      return false;
    }
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  const Task function = function_.load(std::memory_order_relaxed);
  const void* context = context_.load(std::memory_order_relaxed);
  const size_t floats = floats_.load(std::memory_order_relaxed);
  function(context, next_of(state), scratch(floats));
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void Pool::work() {
  int idle = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (take()) {
      idle = 0;
    } else if (++idle < spins) {
      relax();
      std::this_thread::yield();  // Python may be building the next step's graph
    } else {
      sleep(state_.load());
      idle = 0;
    }
  }
}

/// Wait until a loop begins after the one that was seen.
void Pool::sleep(uint64_t seen) {
  const uint32_t rung = bell_.load();
  sleepers_.fetch_add(1);
  if (state_.load() == seen && next_of(seen) >= tasks_of(seen) && !stopping_.load()) {
    bell_.wait(rung);
  }
  sleepers_.fetch_sub(1);
}

void use_cores(int count) { cores.store(count); }

Pool& pool() {
  // never destroyed: a stream's thread may run a loop while the process exits
  static Pool* const all = new Pool(threads_wanted());
  return *all;
}

}  // namespace mlxnb
