#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/semaphore.h"
#include "base/unique_fd.h"
#include "ctrl/http/answer.h"
#include "ctrl/http/fair_queue.h"
#include "ctrl/http/front_job.h"

namespace slime::ctrl {

// Messages from other threads to the loop. Thread: any; take(): only the loop's thread.
class FrontMailbox {
 public:
  struct Mail {
    std::vector<std::unique_ptr<FrontJob>> done;
    std::set<std::string, std::less<>> woken;
    bool all_woken = false;
    bool stop = false;
  };

  explicit FrontMailbox(UniqueFd event);                 // a non-blocking eventfd
  [[nodiscard]] int fd() const { return event_.get(); }  // readable when there is mail
  void done(std::unique_ptr<FrontJob> job);
  void wake(std::string_view key);
  void wake_all();
  void stop();
  Mail take();

  // Returns the number of calls of wake() and wake_all() so far, for all keys.
  std::uint64_t wakes();
  // Returns whether `key` was woken after wakes() had the value `wakes`. May also return true
  // because another key with the same hash was woken.
  bool woken_since(std::string_view key, std::uint64_t wakes);

 private:
  static constexpr std::size_t kSlots = 1024;
  static std::size_t slot(std::string_view key);
  // Runs `change` under the lock, then makes fd() readable if it is not yet.
  template <class Change>
  void post(Change change);

  Mutex mutex_;
  Mail mail_ SLIME_GUARDED_BY(mutex_);
  bool rung_ SLIME_GUARDED_BY(mutex_) = false;  // fd() is readable, or is about to be
  std::uint64_t wakes_ SLIME_GUARDED_BY(mutex_) = 0;
  // Value of wakes_ at the last wake of each slot. A key's hash selects its slot, so that memory
  // does not grow with the number of keys.
  std::array<std::uint64_t, kSlots> last_wake_ SLIME_GUARDED_BY(mutex_){};
  UniqueFd event_;
};

// Threads that run the handler, with one queue of requests. Thread: start(), submit() and stop()
// from one thread.
class FrontThreads {
 public:
  struct Options {
    std::size_t threads = 0;
    std::size_t of_tenant = 0;  // most threads that run one tenant's requests
    bool background = false;    // run_in_background(), not run_in_short_slices()
  };
  FrontThreads(Options options, const ApiHandler& handler, FrontMailbox& mailbox)
      : options_(options), handler_(handler), mailbox_(mailbox), jobs_(options.of_tenant) {}
  ~FrontThreads() { stop(); }
  FrontThreads(const FrontThreads&) = delete;
  FrontThreads& operator=(const FrontThreads&) = delete;

  void start();
  // Gives the request to an idle thread. Queues it if there is none, or if the tenant runs as many
  // requests as it may. Does not wait for the thread to run.
  void submit(std::unique_ptr<FrontJob> job);
  // Returns when all submitted requests are done.
  void stop();

 private:
  struct Thread {
    Semaphore wakeup;
    std::unique_ptr<FrontJob> job;  // the job to begin with; set before `wakeup` is posted
    std::thread thread;
  };
  void run(Thread& self);
  std::unique_ptr<FrontJob> next(Thread& self);
  void handle(std::unique_ptr<FrontJob> job);

  const Options options_;
  const ApiHandler& handler_;
  FrontMailbox& mailbox_;
  Mutex mutex_;
  FairQueue jobs_ SLIME_GUARDED_BY(mutex_);
  // Threads without a job, the longest idle first. While there are any, no job in the queue may
  // begin.
  std::vector<Thread*> idle_ SLIME_GUARDED_BY(mutex_);
  bool stopped_ SLIME_GUARDED_BY(mutex_) = false;
  std::deque<Thread> threads_;  // last: they use all of the above
};

// All handler threads of a Front. Requests that are scans (IsScan) run on separate threads, so that
// they do not delay short requests. Thread: start(), submit() and stop() from one thread.
class FrontWorkers {
 public:
  FrontWorkers(std::size_t threads, ApiHandler handler, FrontMailbox& mailbox);

  void start();
  // Queues the request. The queue needs no limit, because the loop submits at most one request per
  // connection.
  void submit(std::unique_ptr<FrontJob> job);
  // Returns when all submitted requests are done.
  void stop();

 private:
  const ApiHandler handler_;
  FrontThreads short_;
  FrontThreads scans_;
};

}  // namespace slime::ctrl
