#include "ctrl/http/fair_queue.h"

#include <utility>

namespace slime::ctrl {

void FairQueue::line_up(const std::string& name, Tenant& tenant) {
  if (tenant.in_turns || tenant.waiting.empty() || tenant.at_work >= at_work_most_) return;
  tenant.in_turns = true;
  turns_.push_back(name);
}

void FairQueue::push(std::unique_ptr<FrontJob> job) {
  const auto at = tenants_.try_emplace(job->tenant).first;
  at->second.waiting.push_back(std::move(job));
  ++waiting_;
  line_up(at->first, at->second);
}

std::unique_ptr<FrontJob> FairQueue::pop() {
  if (turns_.empty()) return nullptr;
  const std::string name = std::move(turns_.front());
  turns_.pop_front();
  Tenant& tenant = tenants_.at(name);
  tenant.in_turns = false;
  std::unique_ptr<FrontJob> job = std::move(tenant.waiting.front());
  tenant.waiting.pop_front();
  --waiting_;
  ++tenant.at_work;
  line_up(name, tenant);
  return job;
}

void FairQueue::done(const std::string& name) {
  const auto at = tenants_.find(name);
  Tenant& tenant = at->second;
  --tenant.at_work;
  line_up(name, tenant);
  if (tenant.at_work == 0 && tenant.waiting.empty()) tenants_.erase(at);
}

}  // namespace slime::ctrl
