#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "transport/limits.h"
#include "transport/receive_pool.h"

namespace slime::transport {

// Counts the credits that the peer gave: how many messages and notifications this side may still
// send. Counts only; the endpoint sends and receives. Thread: the loop.
class SendCredits {
 public:
  enum class Raise { kOld, kRaised, kTooMany };

  // `initial`: credits that the peer gives before its first grant.
  explicit SendCredits(std::uint32_t initial) : initial_(initial), limit_(initial) {}

  // Credits given and credits used, since the beginning.
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] std::uint64_t used() const { return used_; }
  [[nodiscard]] std::uint64_t free() const { return limit_ - used_; }

  void use() { ++used_; }
  // Takes back the use of a message or notification that was never sent.
  void unuse() { --used_; }

  // Credits kept for messages, which go on while the peer holds the credits of notifications.
  // 0 if the peer gives few credits.
  [[nodiscard]] std::uint64_t message_reserve() const {
    return initial_ >= 2 * limits::kMessageCredits ? limits::kMessageCredits : 0;
  }

  // Notes that a post was refused because no more than `reserve` credits were free.
  void want(std::uint64_t reserve) { wanted_ = wanted_ == 0 ? reserve + 1 : std::min(wanted_, reserve + 1); }
  // Fewest free credits with which the refused posts would pass; 0: no post was refused.
  [[nodiscard]] std::uint64_t wanted() const { return wanted_; }
  // Returns whether a refused post would pass now.
  [[nodiscard]] bool wanted_are_free() const { return wanted_ > 0 && free() >= wanted_; }
  void forget_wanted() { wanted_ = 0; }

  // Takes a grant: the peer has given `limit` credits since the beginning. kTooMany: no peer gives
  // so many at once, and nothing has changed.
  Raise raise(std::uint64_t limit);

  // Returns whether credits are free beyond the initial ones; they go back when nothing is sent.
  [[nodiscard]] bool has_spare() const { return free() > initial_; }
  void note_send(TimePoint now) { last_send_ = now; }
  // Returns when spare credits go back.
  [[nodiscard]] TimePoint idle_at() const { return last_send_ + limits::kCreditIdle; }
  // Counts spare credits as used and returns how many go back to the peer. 0 before idle_at(),
  // which then bounds `next`.
  std::uint64_t return_idle(TimePoint now, TimePoint& next);

 private:
  const std::uint64_t initial_;
  std::uint64_t limit_;
  std::uint64_t used_ = 0;
  std::uint64_t wanted_ = 0;
  TimePoint last_send_{};
};

// Counts the credits that this side gives to the peer: promises of receive slots, out of the port's
// pool. Counts only; the endpoint sends the grants. Thread: the loop.
class ReceiveCredits {
 public:
  // `account` is open. Its promised slots count as granted and announced, except `own_slots`, which
  // the endpoint keeps for frames of its own.
  ReceiveCredits(ReceivePool& pool, std::shared_ptr<CreditAccount> account, std::uint32_t own_slots);

  [[nodiscard]] CreditAccount& account() const { return *account_; }
  [[nodiscard]] const std::shared_ptr<CreditAccount>& shared_account() const { return account_; }

  // Credits promised since the beginning.
  [[nodiscard]] std::uint64_t granted() const { return granted_; }
  // Credits that the peer used or gave back since the beginning.
  [[nodiscard]] std::uint64_t received() const { return received_; }
  // Credits that the peer knows of and has not used.
  [[nodiscard]] std::uint64_t outstanding() const { return announced_ - received_; }
  // Returns whether the peer has at most half of its target left.
  [[nodiscard]] bool low() const { return outstanding() <= target_ / 2; }
  // Returns whether credits were granted that the peer has not been told of.
  [[nodiscard]] bool unannounced() const { return granted_ != announced_; }

  // Counts all granted credits as told to the peer; returns them.
  std::uint64_t announce() { return announced_ = granted_; }

  // Counts a message or notification of the peer. Returns false if the peer had no credit for it.
  bool receive() {
    if (received_ >= announced_) return false;
    ++received_;
    return true;
  }
  // Takes back `count` credits that the peer will not use. Returns false if the peer did not have
  // so many.
  bool take_returned(std::uint64_t count);
  // Doubles the peer's target, up to max_credits, because the peer was starved.
  void grow() { target_ = std::min(pool_.options().max_credits, target_ * 2); }
  // Promises credits up to the target besides the held ones, at most max_credits in all, while
  // slots are free.
  void top_up();

  // Keeps the credit of the notification that the receiver handles now.
  void hold() {
    holds_ = true;
    ++held_;
  }
  // Takes back the credits of notifications that were held, at most `count`.
  void release(std::uint32_t count);
  // Enclose the receiver's call for a notification. end_notification() takes the credit back,
  // unless hold() was called in between.
  void begin_notification() { holds_ = false; }
  void end_notification() {
    if (!holds_ && !ended_) take_back(1);
  }
  // Call at the end of the endpoint, which takes back all promises: later notifications return no
  // credit.
  void end() { ended_ = true; }
  // Takes back the slot of a credit that brought no message.
  void take_back(std::uint32_t count) { pool_.take_back(*account_, count); }

 private:
  ReceivePool& pool_;
  const std::shared_ptr<CreditAccount> account_;
  const std::uint32_t own_slots_;
  std::uint64_t granted_;
  std::uint64_t announced_;
  std::uint64_t received_ = 0;
  std::uint32_t held_ = 0;  // credits of notifications that the receiver has not handled
  bool holds_ = false;      // hold() was called in the current notification
  bool ended_ = false;
  std::uint32_t target_;  // credits that this side wants the peer to have
};

}  // namespace slime::transport
