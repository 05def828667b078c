#include "ctrl/front_mailbox.h"

#include <unistd.h>

#include <functional>
#include <utility>

#include "base/check.h"

namespace slime::ctrl {

FrontMailbox::FrontMailbox(UniqueFd event) : event_(std::move(event)) {}

// The lock is held.
void FrontMailbox::ring() {
  if (std::exchange(rung_, true)) return;
  const std::uint64_t one = 1;
  SLIME_CHECK(::write(event_.get(), &one, sizeof one) == sizeof one);
}

std::size_t FrontMailbox::slot(std::string_view key) { return std::hash<std::string_view>()(key) % kSlots; }

void FrontMailbox::done(std::unique_ptr<FrontJob> job) {
  const std::lock_guard lock(mutex_);
  mail_.done.push_back(std::move(job));
  ring();
}

void FrontMailbox::wake(std::string_view key) {
  const std::lock_guard lock(mutex_);
  last_wake_[slot(key)] = ++wakes_;
  if (mail_.woken.find(key) == mail_.woken.end()) mail_.woken.emplace(key);
  ring();
}

void FrontMailbox::wake_all() {
  const std::lock_guard lock(mutex_);
  last_wake_.fill(++wakes_);
  mail_.all_woken = true;
  ring();
}

void FrontMailbox::stop() {
  const std::lock_guard lock(mutex_);
  mail_.stop = true;
  ring();
}

FrontMailbox::Mail FrontMailbox::take() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(rung_, false)) {
    std::uint64_t count = 0;
    SLIME_CHECK(::read(event_.get(), &count, sizeof count) == sizeof count);
  }
  return std::exchange(mail_, {});
}

std::uint64_t FrontMailbox::wakes() {
  const std::lock_guard lock(mutex_);
  return wakes_;
}

bool FrontMailbox::woken_since(std::string_view key, std::uint64_t wakes) {
  const std::lock_guard lock(mutex_);
  return last_wake_[slot(key)] > wakes;
}

FrontWorkers::FrontWorkers(std::size_t threads, ApiHandler handler, FrontMailbox& mailbox)
    : count_(threads), handler_(std::move(handler)), mailbox_(mailbox) {}

// Once before there are threads: the HTTP library builds its tables with the first request, guarded in a way
// that the thread sanitizer, which it comes without, does not see.
static void build_tables() {
  RawRequest request;
  request.bytes = "GET / HTTP/1.1\r\n\r\n";
  request.header_bytes = request.bytes.size();
  Codec([](const ApiRequest&) { return ApiReply(); }).handle(request, "", true);
}

void FrontWorkers::start() {
  build_tables();
  for (std::size_t i = 0; i < count_; ++i) threads_.emplace_back([this] { run(); });
}

void FrontWorkers::submit(std::unique_ptr<FrontJob> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  work_.notify_one();
}

void FrontWorkers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void FrontWorkers::run() {
  Codec codec(handler_);
  while (true) {
    std::unique_ptr<FrontJob> job;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job->handled = codec.handle(job->request, job->client, job->answer_now);
    mailbox_.done(std::move(job));
  }
}

}  // namespace slime::ctrl
