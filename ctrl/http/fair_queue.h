#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "ctrl/http/front_job.h"

namespace slime::ctrl {

// Requests that wait for a thread. Each request belongs to a tenant: a token or a client address.
// Tenants take turns, so that many requests of one tenant delay only that tenant. At most
// `at_work_most` requests of one tenant run at once, so that threads remain for the others. Thread:
// one at a time.
class FairQueue {
 public:
  explicit FairQueue(std::size_t at_work_most) : at_work_most_(at_work_most) {}

  void push(std::unique_ptr<FrontJob> job);
  // Removes and returns the next request that may run; null if no request may run now.
  std::unique_ptr<FrontJob> pop();
  // Reports that a request of the tenant, returned by pop() earlier, has ended, so that another
  // request of the tenant may run.
  void done(const std::string& tenant);
  [[nodiscard]] bool ready() const { return !turns_.empty(); }
  [[nodiscard]] bool empty() const { return waiting_ == 0; }

 private:
  // The requests of one tenant. Exists only while the tenant has waiting or running requests.
  struct Tenant {
    std::deque<std::unique_ptr<FrontJob>> waiting;
    std::size_t at_work = 0;
    bool in_turns = false;
  };
  void line_up(const std::string& name, Tenant& tenant);

  const std::size_t at_work_most_;
  std::unordered_map<std::string, Tenant> tenants_;
  // names of the tenants whose next request may run, in the order of their turns
  std::deque<std::string> turns_;
  std::size_t waiting_ = 0;
};

}  // namespace slime::ctrl
