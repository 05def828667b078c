#pragma once

// Private to rpc and agent: how many bytes the process holds for its peers.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace slime::rpc {

// What all connections of the process hold together.
struct ProcessBudget;

// What one connection holds: bytes of requests that were read and are not answered, and of answers that the
// peer has not read. Limits are compared at take(): the connection's share, and the process's budget with
// what all other connections hold. Thread: any.
class Account final : public std::enable_shared_from_this<Account> {
 public:
  // Bytes of an account. Gives them back when it is destroyed, on any thread.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept
        : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held&& other) noexcept {
      if (this != &other) {
        give_back();
        account_ = std::move(other.account_);
        bytes_ = std::exchange(other.bytes_, 0);
      }
      return *this;
    }
    ~Held() { give_back(); }
    explicit operator bool() const { return account_ != nullptr; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    void give_back() noexcept;
    // Takes more bytes; false, and nothing changed, if they go beyond a limit.
    bool grow(std::uint64_t bytes);

   private:
    friend class Account;
    std::shared_ptr<Account> account_;
    std::uint64_t bytes_ = 0;
  };

  // `process_bytes`: the budget of the process, of which a connection has at most a quarter.
  explicit Account(std::uint64_t process_bytes);
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // Empty when the bytes go beyond a limit.
  Held take(std::uint64_t bytes);
  // More than this is never taken.
  [[nodiscard]] std::uint64_t share() const { return share_; }
  [[nodiscard]] std::uint64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  bool add(std::uint64_t bytes);
  void remove(std::uint64_t bytes) noexcept;

  ProcessBudget& process_;
  const std::uint64_t process_bytes_;
  const std::uint64_t share_;
  std::atomic<std::uint64_t> held_{0};
};

// What all connections of this process hold.
std::uint64_t held_bytes();

// Told when bytes were given back, on the thread that did, while it asks to be.
class BudgetListener {
 public:
  virtual ~BudgetListener() = default;
  virtual void on_budget_freed() noexcept = 0;
};
// `listener` is told once, of the next bytes that are given back.
void tell_when_freed(std::weak_ptr<BudgetListener> listener);

}  // namespace slime::rpc
