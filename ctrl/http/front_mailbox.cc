#include "ctrl/http/front_mailbox.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/scheduling.h"
#include "ctrl/limits.h"

namespace slime::ctrl {

FrontMailbox::FrontMailbox(UniqueFd event) : event_(std::move(event)) {}

void FrontMailbox::ring() {
  if (std::exchange(rung_, true)) return;
  const std::uint64_t one = 1;
  SLIME_CHECK(::write(event_.get(), &one, sizeof one) == sizeof one);
}

std::size_t FrontMailbox::slot(std::string_view key) { return std::hash<std::string_view>()(key) % kSlots; }

void FrontMailbox::done(std::unique_ptr<FrontJob> job) {
  const MutexLock lock(mutex_);
  mail_.done.push_back(std::move(job));
  ring();
}

void FrontMailbox::wake(std::string_view key) {
  const MutexLock lock(mutex_);
  last_wake_[slot(key)] = ++wakes_;
  if (mail_.woken.find(key) == mail_.woken.end()) mail_.woken.emplace(key);
  ring();
}

void FrontMailbox::wake_all() {
  const MutexLock lock(mutex_);
  last_wake_.fill(++wakes_);
  mail_.all_woken = true;
  ring();
}

void FrontMailbox::stop() {
  const MutexLock lock(mutex_);
  mail_.stop = true;
  ring();
}

FrontMailbox::Mail FrontMailbox::take() {
  const MutexLock lock(mutex_);
  if (std::exchange(rung_, false)) {
    std::uint64_t count = 0;
    SLIME_CHECK(::read(event_.get(), &count, sizeof count) == sizeof count);
  }
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
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

void FrontThreads::submit(std::unique_ptr<FrontJob> job) {
  {
    const MutexLock lock(mutex_);
    jobs_.push(std::move(job));
    if (!jobs_.ready())
      // No thread may begin this job yet, because its tenant has enough running jobs. When a
      // running job ends, done() makes this job ready.
      return;
  }
  work_.notify_one();
}

void FrontThreads::stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void FrontThreads::run() {
  if (options_.background) run_in_background();
  MutexLock lock(mutex_);
  while (true) {
    work_.wait(mutex_,
               [this]() SLIME_REQUIRES(mutex_) { return jobs_.ready() || (stopped_ && jobs_.empty()); });
    std::unique_ptr<FrontJob> job = jobs_.pop();
    if (job == nullptr) return;
    lock.unlock();
    const std::string tenant = job->tenant;
    job->handled = answer(handler_, job->request,
                          {.client = job->client,
                           .answer_now = job->answer_now,
                           .again = job->parked_until.has_value(),
                           .last_refusal = job->last_refusal});
    mailbox_.done(std::move(job));
    lock.lock();
    jobs_.done(tenant);
    // Wakes the waiting threads, which end if the queue is empty now.
    if (stopped_) work_.notify_all();
  }
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
