#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "ctrl/http/front_job.h"

namespace slime::ctrl {

// Requests that wait for a thread. Tenants take turns, so that a tenant with many requests delays
// itself only; and at most `at_work_most` requests of one tenant run at once, so that another
// tenant always finds a thread. Thread: one at a time.
class FairQueue {
 public:
  explicit FairQueue(std::size_t at_work_most) : at_work_most_(at_work_most) {}

  void push(std::unique_ptr<FrontJob> job);
  // Returns the next request that may begin; null if there is none.
  std::unique_ptr<FrontJob> pop();
  // Reports that a popped request of the tenant has ended: another request of the tenant may begin.
  void done(const std::string& tenant);
  [[nodiscard]] bool ready() const { return !turns_.empty(); }
  [[nodiscard]] bool empty() const { return waiting_ == 0; }

 private:
  // A tenant with waiting or running requests; all other tenants have no entry.
  struct Tenant {
    std::deque<std::unique_ptr<FrontJob>> waiting;
    std::size_t at_work = 0;
    bool in_turns = false;
  };
  void line_up(const std::string& name, Tenant& tenant);

  const std::size_t at_work_most_;
  std::unordered_map<std::string, Tenant> tenants_;
  std::deque<std::string> turns_;  // tenants that may begin a request, in order
  std::size_t waiting_ = 0;
};

}  // namespace slime::ctrl
