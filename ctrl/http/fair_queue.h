#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "ctrl/http/front_job.h"

namespace slime::ctrl {

// The requests that wait for a thread. Their tenants take turns, so one that sends many waits for itself; and
// of each tenant at most so many are at work, so that one of another always finds a thread. Thread: one at a
// time.
class FairQueue {
 public:
  explicit FairQueue(std::size_t at_work_most) : at_work_most_(at_work_most) {}

  void push(std::unique_ptr<FrontJob> job);
  // Null: there is none that may begin.
  std::unique_ptr<FrontJob> pop();
  // One of the tenant's that was popped is done: another one may begin.
  void done(const std::string& tenant);
  [[nodiscard]] bool ready() const { return !turns_.empty(); }
  [[nodiscard]] bool empty() const { return waiting_ == 0; }

 private:
  // Of one that has requests here; nothing is kept of others.
  struct Tenant {
    std::deque<std::unique_ptr<FrontJob>> waiting;
    std::size_t at_work = 0;
    bool in_turns = false;
  };
  void line_up(const std::string& name, Tenant& tenant);

  const std::size_t at_work_most_;
  std::unordered_map<std::string, Tenant> tenants_;
  std::deque<std::string> turns_;  // who may begin one, in order
  std::size_t waiting_ = 0;
};

}  // namespace slime::ctrl
