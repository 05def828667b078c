#pragma once

// Private to server.cc.

#include <array>
#include <cstddef>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "rpc/service.h"

namespace slime::rpc {

// A request that waits for a thread.
struct Job {
  Request request;
  std::shared_ptr<Service::Method> method;
};

// A queue of waiting requests by priority; within a priority, in order of arrival. Thread: one at a
// time.
class JobQueue {
 public:
  [[nodiscard]] std::size_t size() const {
    std::size_t out = 0;
    for (const auto& jobs : jobs_) out += jobs.size();
    return out;
  }
  void push(Job job) { jobs_[place(*job.method)].push_back(std::move(job)); }

  template <class MayRun>
  [[nodiscard]] bool any(MayRun may_run) {
    return find(may_run).first != nullptr;
  }
  static constexpr int kNone = static_cast<int>(kPriorities);
  // Returns the highest priority (0 is the highest) that has a job which may run; kNone if there is
  // none.
  template <class MayRun>
  [[nodiscard]] int best(MayRun may_run) {
    const Jobs* const jobs = find(may_run).first;
    return jobs == nullptr ? kNone : static_cast<int>(jobs - jobs_.data());
  }
  // Removes and returns the first job that may run. Call only if such a job exists.
  template <class MayRun>
  Job take(MayRun may_run) {
    const auto [jobs, at] = find(may_run);
    Job out = std::move(*at);
    jobs->erase(at);
    return out;
  }
  // Moves all jobs whose deadline has passed from the queue to `out`.
  void take_expired(TimePoint now, std::vector<Job>& out) {
    for (Jobs& jobs : jobs_) {
      for (auto job = jobs.begin(); job != jobs.end();) {
        if (job->request.info().deadline > now) {
          ++job;
          continue;
        }
        out.push_back(std::move(*job));
        job = jobs.erase(job);
      }
    }
  }
  std::vector<Job> take_all() {
    std::vector<Job> out;
    for (auto& jobs : jobs_) {
      for (Job& job : jobs) out.push_back(std::move(job));
      jobs.clear();
    }
    return out;
  }

 private:
  using Jobs = std::list<Job>;  // a list, because jobs are also removed from the middle
  static std::size_t place(const Service::Method& method) {
    return static_cast<std::size_t>(method.priority);
  }
  template <class MayRun>
  std::pair<Jobs*, Jobs::iterator> find(MayRun& may_run) {
    for (Jobs& jobs : jobs_) {
      const Service::Method* waits = nullptr;
      for (auto job = jobs.begin(); job != jobs.end(); ++job) {
        if (job->method.get() == waits) continue;
        if (may_run(*job->method)) return {&jobs, job};
        waits = job->method.get();
      }
    }
    return {nullptr, {}};
  }

  std::array<Jobs, kPriorities> jobs_;
};

}  // namespace slime::rpc
