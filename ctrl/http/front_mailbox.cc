#include "ctrl/http/front_mailbox.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/scheduling.h"
#include "base/thread.h"
#include "ctrl/limits.h"

namespace slime::ctrl {

FrontMailbox::FrontMailbox(UniqueFd event) : event_(std::move(event)) {}

// Writes to the descriptor without the lock: the write may make the kernel run the loop at once in
// place of this thread, and the loop would wait for the lock.
template <class Change>
void FrontMailbox::post(Change change) {
  {
    const MutexLock lock(mutex_);
    change();
    if (std::exchange(rung_, true)) return;
  }
  const std::uint64_t one = 1;
  SLIME_CHECK(::write(event_.get(), &one, sizeof one) == sizeof one);
}

std::size_t FrontMailbox::slot(std::string_view key) { return std::hash<std::string_view>()(key) % kSlots; }

void FrontMailbox::done(std::unique_ptr<FrontJob> job) {
  post([&]() SLIME_REQUIRES(mutex_) { mail_.done.push_back(std::move(job)); });
}

void FrontMailbox::wake(std::string_view key) {
  post([&]() SLIME_REQUIRES(mutex_) {
    last_wake_[slot(key)] = ++wakes_;
    if (mail_.woken.find(key) == mail_.woken.end()) mail_.woken.emplace(key);
  });
}

void FrontMailbox::wake_all() {
  post([&]() SLIME_REQUIRES(mutex_) {
    last_wake_.fill(++wakes_);
    mail_.all_woken = true;
  });
}

void FrontMailbox::stop() {
  post([&]() SLIME_REQUIRES(mutex_) { mail_.stop = true; });
}

FrontMailbox::Mail FrontMailbox::take() {
  // Reads first: mail that comes after the lock is released makes the descriptor readable again.
  std::uint64_t count = 0;
  SLIME_CHECK(::read(event_.get(), &count, sizeof count) == sizeof count || errno == EAGAIN);
  const MutexLock lock(mutex_);
  rung_ = false;
  return std::exchange(mail_, {});
}

std::uint64_t FrontMailbox::wakes() {
  const MutexLock lock(mutex_);
  return wakes_;
}

bool FrontMailbox::woken_since(std::string_view key, std::uint64_t wakes) {
  const MutexLock lock(mutex_);
  return last_wake_[slot(key)] > wakes;
}

void FrontThreads::start() {
  for (std::size_t i = 0; i < options_.threads; ++i) {
    Thread& one = threads_.emplace_back();
    one.thread = make_thread([this, &one] { run(one); });
  }
}

void FrontThreads::submit(std::unique_ptr<FrontJob> job) {
  Thread* thread = nullptr;
  {
    const MutexLock lock(mutex_);
    jobs_.push(std::move(job));
    // Not ready: the tenant has as many running jobs as it may. The thread that ends one of them
    // takes this job.
    if (idle_.empty() || !jobs_.ready()) return;
    thread = idle_.back();  // The last one to become idle: its memory is still in the caches.
    idle_.pop_back();
    thread->job = jobs_.pop();
  }
  thread->wakeup.post();
}

void FrontThreads::stop() {
  std::vector<Thread*> idle;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    idle.swap(idle_);
  }
  for (Thread* thread : idle) thread->wakeup.post();
  for (Thread& one : threads_) one.thread.join();
  threads_.clear();
}

void FrontThreads::run(Thread& self) {
  if (options_.background)
    run_in_background();
  else
    run_in_short_slices();
  while (std::unique_ptr<FrontJob> job = next(self)) handle(std::move(job));
}

// Returns the next job of a thread, null when the thread shall end.
std::unique_ptr<FrontJob> FrontThreads::next(Thread& self) {
  {
    const MutexLock lock(mutex_);
    if (std::unique_ptr<FrontJob> job = jobs_.pop()) return job;
    // Jobs that wait behind running jobs of their tenant are left to the threads of those.
    if (stopped_) return nullptr;
    idle_.push_back(&self);
  }
  self.wakeup.wait();
  return std::move(self.job);
}

void FrontThreads::handle(std::unique_ptr<FrontJob> job) {
  const std::string tenant = job->tenant;
  job->handled = answer(handler_, job->request,
                        {.client = job->client,
                         .answer_now = job->answer_now,
                         .again = job->parked_until.has_value(),
                         .last_refusal = job->last_refusal});
  mailbox_.done(std::move(job));
  const MutexLock lock(mutex_);
  jobs_.done(tenant);
}

namespace {

std::size_t scan_threads() {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), limits::kScanThreadsMin,
                                 limits::kScanThreadsMax);
}

}  // namespace

FrontWorkers::FrontWorkers(std::size_t threads, ApiHandler handler, FrontMailbox& mailbox)
    : handler_(std::move(handler)),
      short_({.threads = threads, .of_tenant = threads - threads / 4}, handler_, mailbox),
      scans_({.threads = scan_threads(), .of_tenant = scan_threads() / 2, .background = true}, handler_,
             mailbox) {}

void FrontWorkers::start() {
  short_.start();
  scans_.start();
}

void FrontWorkers::submit(std::unique_ptr<FrontJob> job) {
  FrontThreads& threads = job->scan ? scans_ : short_;
  threads.submit(std::move(job));
}

void FrontWorkers::stop() {
  short_.stop();
  scans_.stop();
}

}  // namespace slime::ctrl
