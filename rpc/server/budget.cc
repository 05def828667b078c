#include "rpc/server/budget.h"

#include <vector>

#include "base/fork.h"
#include "base/mutex.h"

namespace slime::rpc {

struct ProcessBudget {
  std::atomic<std::uint64_t> held{0};
  std::atomic<bool> any_listeners{false};
  Mutex mutex;
  std::vector<std::weak_ptr<BudgetListener>> listeners SLIME_GUARDED_BY(mutex);
};

namespace {

constinit PerProcess<ProcessBudget> process;

// Adds `bytes` to `held`. Returns false, and adds nothing, if the sum would exceed `limit`.
bool add_within(std::atomic<std::uint64_t>& held, std::uint64_t bytes, std::uint64_t limit) {
  std::uint64_t now = held.load();
  do {
    if (bytes > limit || now > limit - bytes) return false;
  } while (!held.compare_exchange_weak(now, now + bytes));
  return true;
}

}  // namespace

Account::Account(std::uint64_t process_bytes)
    : process_(process.get()), process_bytes_(process_bytes), share_(process_bytes / 4) {}

bool Account::add(std::uint64_t bytes) {
  if (!add_within(held_, bytes, share_)) return false;
  if (add_within(process_.held, bytes, process_bytes_)) return true;
  held_.fetch_sub(bytes);
  return false;
}

void Account::remove(std::uint64_t bytes) noexcept {
  held_.fetch_sub(bytes);
  process_.held.fetch_sub(bytes);
  if (!process_.any_listeners.load()) return;
  std::vector<std::weak_ptr<BudgetListener>> listeners;
  {
    const MutexLock lock(process_.mutex);
    listeners.swap(process_.listeners);
    process_.any_listeners = false;
  }
  for (const auto& weak : listeners) {
    if (const auto listener = weak.lock()) listener->on_budget_freed();
  }
}

Account::Held Account::take(std::uint64_t bytes) {
  Held out;
  if (!add(bytes)) return out;
  out.account_ = shared_from_this();
  out.bytes_ = bytes;
  return out;
}

bool Account::Held::grow(std::uint64_t bytes) {
  if (account_ == nullptr || !account_->add(bytes)) return false;
  bytes_ += bytes;
  return true;
}

void Account::Held::give_back() noexcept {
  if (const auto account = std::move(account_)) account->remove(std::exchange(bytes_, 0));
}

std::uint64_t held_bytes() { return process.get().held.load(); }

void tell_when_freed(std::weak_ptr<BudgetListener> listener) {
  ProcessBudget& shared = process.get();
  const MutexLock lock(shared.mutex);
  shared.listeners.push_back(std::move(listener));
  shared.any_listeners = true;
}

}  // namespace slime::rpc
