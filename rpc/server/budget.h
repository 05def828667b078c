#pragma once

// Private to rpc and agent: limits the bytes that the process holds for all its peers.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace slime::rpc {

// Counts the bytes that all connections of the process hold.
struct ProcessBudget;

// Counts the bytes that one connection holds: requests that were read but not answered, and answers
// that the peer has not read. take() checks two limits: the connection's share, and the budget of
// the process. Thread: any.
class Account final : public std::enable_shared_from_this<Account> {
 public:
  // A number of bytes that was taken from an Account. The destructor gives them back, on any
  // thread.
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
    // Takes `bytes` more from the account. Returns false, and takes nothing, if a limit would be
    // exceeded.
    bool grow(std::uint64_t bytes);

   private:
    friend class Account;
    std::shared_ptr<Account> account_;
    std::uint64_t bytes_ = 0;
  };

  // `process_bytes`: budget of the whole process. The share of this connection is a quarter of it.
  explicit Account(std::uint64_t process_bytes);
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // Takes `bytes` from the account. Returns an empty Held if a limit would be exceeded.
  Held take(std::uint64_t bytes);
  // The most that the connection may hold.
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

// Returns the bytes that all connections of this process hold now.
std::uint64_t held_bytes();

// Gets one call of on_budget_freed() for each tell_when_freed(), on the thread that gives bytes
// back.
class BudgetListener {
 public:
  virtual ~BudgetListener() = default;
  virtual void on_budget_freed() noexcept = 0;
};
// Registers `listener` for one call, when bytes are given back for the next time.
void tell_when_freed(std::weak_ptr<BudgetListener> listener);

}  // namespace slime::rpc
