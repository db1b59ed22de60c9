// Enough of Metal's language to run a kernel as C++: every lane of a threadgroup is a fiber.
//
// A threadgroup's lanes run one after another, each until it waits: in threadgroup_barrier for all
// lanes, in simd_sum and simd_max for the 32 of its simdgroup. If all that are left wait and none
// can go on, lanes have parted ways before a barrier, and the program says so and ends. The order
// of the lanes can be turned round, so that what depends on it shows.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace shim {

constexpr int lanes_of_simdgroup = 32;
constexpr size_t stack_bytes = 64 * 1024;

struct Uint3 {
  uint32_t x, y, z;
};

/// Lanes that wait for each other; each meeting has a number, and two are kept.
struct Meeting {
  long number[2] = {-1, -1};
  int arrived[2] = {0, 0};
  float values[2][lanes_of_simdgroup];
};

struct Lane {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  bool moved = false;  // since it was resumed
  long meetings = 0;   // of its simdgroup
  long barriers = 0;
};

struct Group {
  Uint3 position{}, groups{}, size{};
  std::vector<Lane> lanes;
  std::vector<Meeting> simdgroups;
  Meeting barrier;
  ucontext_t scheduler;
  int current = 0;
  std::function<void()> kernel;
};

inline Group* group = nullptr;

inline Lane& lane() { return group->lanes[group->current]; }

inline void wait() {
  Lane& self = lane();
  swapcontext(&self.context, &group->scheduler);
}

/// Arrive at a meeting of `expected` lanes and wait for the others; which of the two it is.
inline int meet(Meeting& meeting, long number, int expected, int place, float value) {
  const int which = static_cast<int>(number & 1);
  if (meeting.number[which] != number) {
    meeting.number[which] = number;
    meeting.arrived[which] = 0;
  }
  if (place >= 0) {
    meeting.values[which][place] = value;
  }
  ++meeting.arrived[which];
  lane().moved = true;
  while (meeting.arrived[which] < expected) {
    wait();
  }
  lane().moved = true;
  return which;
}

template <class F>
float reduce(float value, F function) {
  const int simdgroup = group->current / lanes_of_simdgroup;
  Meeting& meeting = group->simdgroups[simdgroup];
  const int which = meet(meeting, lane().meetings++, lanes_of_simdgroup,
                         group->current % lanes_of_simdgroup, value);
  float result = meeting.values[which][0];
  for (int i = 1; i < lanes_of_simdgroup; ++i) {
    result = function(result, meeting.values[which][i]);
  }
  return result;
}

inline void enter() {
  group->kernel();
  lane().done = true;
  lane().moved = true;
  swapcontext(&lane().context, &group->scheduler);
}

inline void start(Lane& lane) {
  if (!lane.stack) {
    lane.stack = std::make_unique<char[]>(stack_bytes);
  }
  lane.done = false;
  lane.meetings = lane.barriers = 0;
  getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = lane.stack.get();
  lane.context.uc_stack.ss_size = stack_bytes;
  lane.context.uc_link = nullptr;
  makecontext(&lane.context, enter, 0);
}

/// Resume every lane that is not done, once; whether any got further.
inline bool pass(bool backwards) {
  bool moved = false;
  const int count = static_cast<int>(group->lanes.size());
  for (int i = 0; i < count; ++i) {
    group->current = backwards ? count - 1 - i : i;
    if (!lane().done) {
      lane().moved = false;
      swapcontext(&group->scheduler, &lane().context);
      moved = moved || lane().moved;
    }
  }
  return moved;
}

/// Run a kernel over a grid of threadgroups, one after another; false: lanes waited for ever.
inline bool dispatch(Uint3 groups, Uint3 size, bool backwards, std::function<void()> kernel) {
  Group all;
  all.groups = groups;
  all.size = size;
  all.kernel = std::move(kernel);
  all.lanes = std::vector<Lane>(size.x * size.y * size.z);
  group = &all;
  for (uint32_t n = 0; n < groups.x * groups.y * groups.z; ++n) {
    all.position = {n % groups.x, n / groups.x % groups.y, n / groups.x / groups.y};
    all.simdgroups.assign((all.lanes.size() + 31) / 32, Meeting{});
    all.barrier = Meeting{};
    for (Lane& lane : all.lanes) {
      start(lane);
    }
    while (pass(backwards)) {
    }
    if (!std::all_of(all.lanes.begin(), all.lanes.end(), [](const Lane& l) { return l.done; })) {
      return false;
    }
  }
  return true;
}

inline Uint3 thread_in_group() {
  const Uint3 size = group->size;
  const auto n = static_cast<uint32_t>(group->current);
  return {n % size.x, n / size.x % size.y, n / size.x / size.y};
}

inline Uint3 thread_in_grid() {
  const Uint3 own = thread_in_group();
  const Uint3 at = group->position;
  return {at.x * group->size.x + own.x, at.y * group->size.y + own.y,
          at.z * group->size.z + own.z};
}

}  // namespace shim

// --- the language -------------------------------------------------------------------------------

using uint = uint32_t;
using uint3 = shim::Uint3;

#define device
#define constant
#define thread
#define threadgroup

using float16_t = _Float16;
using half = _Float16;

/// A float cut to its upper half, rounded to nearest even.
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  explicit bfloat16_t(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, 4);
    bits = (wide & 0x7fffffffu) > 0x7f800000u
               ? static_cast<uint16_t>((wide >> 16) | 0x40u)
               : static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
  operator float() const {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
};

namespace metal {
inline float exp(float x) { return std::exp(x); }
template <class T>
T max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
T min(T a, T b) {
  return a < b ? a : b;
}
}  // namespace metal

template <class To, class From>
To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

inline void threadgroup_barrier(mem_flags) {
  shim::meet(shim::group->barrier, shim::lane().barriers++,
             static_cast<int>(shim::group->lanes.size()), -1, 0.0f);
}

inline float simd_sum(float value) {
  return shim::reduce(value, [](float a, float b) { return a + b; });
}

inline float simd_max(float value) {
  return shim::reduce(value, [](float a, float b) { return a > b ? a : b; });
}
