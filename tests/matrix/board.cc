#include "tests/matrix/board.h"

#include <chrono>
#include <utility>

#include "base/str.h"
#include "tests/support/settings.h"

namespace slime::matrix {
namespace {

const Nanos kBound = test::patient(std::chrono::seconds(20));

}  // namespace

std::int64_t Board::bump(std::string_view key) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return ++counts_[std::string(key)];
}

std::int64_t Board::count(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(key);
  return found == counts_.end() ? 0 : found->second;
}

Result<std::int64_t> Board::await_count(std::string_view key, std::int64_t least) {
  std::unique_lock lock(mutex_);
  const auto now = [&] {
    const auto found = counts_.find(key);
    return found == counts_.end() ? 0 : found->second;
  };
  if (!changed_.wait_for(lock, kBound, [&] { return now() >= least || all_open_; }))
    return Status(Code::kDeadlineExceeded, str(key, " is ", now(), ", not ", least));
  return now();
}

void Board::note(std::string_view key, std::string text) {
  const std::lock_guard lock(mutex_);
  notes_[std::string(key)].push_back(std::move(text));
}

std::vector<std::string> Board::notes(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(key);
  return found == notes_.end() ? std::vector<std::string>() : found->second;
}

Status Board::enter(std::string_view key) {
  bump(str("entered:", key));
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kBound, [&] { return all_open_ || open_.contains(key); }))
    return {Code::kDeadlineExceeded, str("nobody opened ", key)};
  return {};
}

void Board::open(std::string_view key) {
  const std::lock_guard lock(mutex_);
  open_.emplace(key);
  changed_.notify_all();
}

void Board::open_all() {
  const std::lock_guard lock(mutex_);
  all_open_ = true;
  changed_.notify_all();
}

void Board::hold(std::string_view key, rpc::Request request) {
  request.on_cancel([this, name = str("cancelled:", key)] { bump(name); });
  {
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(request));
  }
  bump(str("waiting:", key));
}

void Board::drop_held() {
  std::vector<rpc::Request> held;
  {
    const std::lock_guard lock(mutex_);
    held.swap(held_);
  }
}

}  // namespace slime::matrix
