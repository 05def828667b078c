#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "agent/memory/region.h"
#include "base/function.h"
#include "base/reaper.h"
#include "transport/loop.h"

namespace slime::agent {

// Registers the regions of an agent with a device at the first connection over the device, on
// another thread: an adapter takes seconds for gigabytes, and all peers share the loop. Later
// regions are registered by the thread that makes them. Thread: the loop.
class FirstUse final : public std::enable_shared_from_this<FirstUse> {
 public:
  using Ready = UniqueFunction<void()>;

  // Runs a task that blocks on another thread. Returns false if no thread can be started; then the
  // caller still owns the task, and FirstUse tries again later.
  using StartThread = bool (*)(Task& task);

  // `loop`, `devices` and `regions` outlive the object.
  FirstUse(transport::Loop& loop, Devices& devices, const RegionTable& regions,
           StartThread start_thread = try_reap)
      : loop_(loop), devices_(devices), regions_(regions), start_thread_(start_thread) {}
  FirstUse(const FirstUse&) = delete;
  FirstUse& operator=(const FirstUse&) = delete;

  // Calls `ready` once no region waits for the device: each is registered with it, or has the
  // reason why not. Calls it from inside, or later on the loop.
  void use(std::size_t device, Ready ready);
  // Drops all calls that wait, and all registrations that have not begun. One that is under way
  // goes on.
  void close() {
    closed_->store(true);
    waiting_.clear();
  }

 private:
  void begin(std::size_t device);
  void start(std::size_t device, Task work);
  void done(std::size_t device);

  transport::Loop& loop_;
  Devices& devices_;
  const RegionTable& regions_;
  const StartThread start_thread_;
  // For each device whose regions are being registered.
  std::map<std::size_t, std::vector<Ready>> waiting_;
  // Tells the thread that registers to stop; shared with it.
  const std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);
  bool warned_ = false;  // that no thread could be started
};

}  // namespace slime::agent
