#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace mlxnb {

/// Threads that are made once and share out the tasks of one loop at a time.
///
/// The caller takes part. Workers spin for a while after a loop, since the next one of a model's
/// step follows within microseconds, then sleep. A worker that is not there in time is not waited
/// for: only tasks that were taken are.
class Pool {
 public:
  /// One task of a loop: `task` in [0, tasks), `scratch` is the running thread's own memory.
  using Task = void (*)(const void* context, int64_t task, float* scratch);

  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Run all tasks and return; each thread has `floats` floats of scratch, 64-byte aligned.
  ///
  /// A loop that comes while another thread's loop runs is run by its caller alone.
  void run(Task function, const void* context, int64_t tasks, size_t floats);

  /// Run a callable `(int64_t task, float* scratch)`.
  template <class F>
  void run(const F& function, int64_t tasks, size_t floats) {
    run([](const void* context, int64_t task, float* scratch) {
      (*static_cast<const F*>(context))(task, scratch);
    }, &function, tasks, floats);
  }

  /// The same, all by the caller.
  template <class F>
  void alone(const F& function, int64_t tasks, size_t floats) {
    float* memory = scratch(floats);
    for (int64_t task = 0; task < tasks; ++task) {
      function(task, memory);
    }
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  static float* scratch(size_t floats);
  void work();
  bool take();
  void sleep(uint64_t seen);

  // One word says all about the loop, so that a task is claimed with one operation: the loop's
  // number in the high 24 bits, then 20 bits of tasks and 20 bits of the next one to claim.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<Task> function_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<size_t> floats_{0};
  uint64_t loop_{0};
  std::mutex busy_;
  std::vector<std::thread> workers_;
};

/// Let the process's pool have so many threads, unless MLXNB_THREADS says how many; in a container
/// that is fewer than cores there are. Without effect once the pool is there.
void use_cores(int cores);

/// The process's pool: a thread a core, or as many as MLXNB_THREADS says.
Pool& pool();

}  // namespace mlxnb
