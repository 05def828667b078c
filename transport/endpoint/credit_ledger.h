#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "transport/limits.h"
#include "transport/receive_pool.h"

namespace slime::transport {

// Counts the credits that the peer gave: how many messages and notifications this side may still
// send. Only counts: the endpoint itself sends and receives. Thread: the loop.
class SendCredits {
 public:
  enum class Raise { kOld, kRaised, kTooMany };

  // `initial`: credits that the peer gives before its first grant.
  explicit SendCredits(std::uint32_t initial) : initial_(initial), limit_(initial) {}

  // limit(): credits that the peer has given since the beginning; used(): those that were used;
  // free(): those that are left.
  [[nodiscard]] std::uint64_t limit() const { return limit_; }
  [[nodiscard]] std::uint64_t used() const { return used_; }
  [[nodiscard]] std::uint64_t free() const { return limit_ - used_; }

  void use(std::uint32_t count = 1) { used_ += count; }
  // Undoes use() for a message or notification that was never sent.
  void unuse(std::uint32_t count = 1) { used_ -= count; }
  // Returns whether a long message may use `count` credits: half of the credits that the peer lets
  // this side have stay free for other messages.
  [[nodiscard]] bool spares(std::uint32_t count) const { return free() >= count + most_free_ / 2; }

  // Returns how many credits notifications must leave free for messages, so that messages go on
  // while the peer holds the credits of notifications. 0 if the peer gives few credits.
  [[nodiscard]] std::uint64_t message_reserve() const {
    return initial_ >= 2 * limits::kMessageCredits ? limits::kMessageCredits : 0;
  }

  // Notes that a post was refused because no more than `reserve` credits were free.
  void want(std::uint64_t reserve) { wanted_ = wanted_ == 0 ? reserve + 1 : std::min(wanted_, reserve + 1); }
  // Returns the smallest number of free credits with which a refused post would pass; 0: no post
  // was refused.
  [[nodiscard]] std::uint64_t wanted() const { return wanted_; }
  // Returns whether a refused post would pass now.
  [[nodiscard]] bool wanted_are_free() const { return wanted_ > 0 && free() >= wanted_; }
  void forget_wanted() { wanted_ = 0; }

  // Notes a grant: the peer has given `limit` credits since the beginning. Returns kOld if `limit`
  // is not above the known limit. Returns kTooMany, and changes nothing, if it grew by more credits
  // than a peer can give at once.
  Raise raise(std::uint64_t limit);

  // Returns whether more credits are free than the peer gave initially. The excess (spare credits)
  // goes back to the peer when this side has sent nothing for kCreditIdle.
  [[nodiscard]] bool has_spare() const { return free() > initial_; }
  void note_send(TimePoint now) { last_send_ = now; }
  // Returns when spare credits go back.
  [[nodiscard]] TimePoint idle_at() const { return last_send_ + limits::kCreditIdle; }
  // Counts the spare credits as used and returns their number, which the endpoint gives back to the
  // peer. Before idle_at(), returns 0 and lowers `next` to idle_at().
  std::uint64_t return_idle(TimePoint now, TimePoint& next);

 private:
  const std::uint64_t initial_;
  std::uint64_t limit_;
  std::uint64_t used_ = 0;
  std::uint64_t most_free_ = initial_;  // since spare credits were given back
  std::uint64_t wanted_ = 0;
  TimePoint last_send_{};
};

// Counts the credits that this side gives to the peer. Each credit promises a receive slot of the
// port's pool. Only counts: the endpoint itself sends the grants. Thread: the loop.
class ReceiveCredits {
 public:
  // `account` must be open. The slots promised to it count as granted and as told to the peer,
  // except `own_slots` of them, which the endpoint keeps for frames of its own.
  ReceiveCredits(ReceivePool& pool, std::shared_ptr<CreditAccount> account, std::uint32_t own_slots);

  [[nodiscard]] CreditAccount& account() const { return *account_; }
  [[nodiscard]] const std::shared_ptr<CreditAccount>& shared_account() const { return account_; }

  // Credits promised since the beginning.
  [[nodiscard]] std::uint64_t granted() const { return granted_; }
  // Returns how many credits the peer has used or given back since the beginning.
  [[nodiscard]] std::uint64_t received() const { return received_; }
  // Returns how many credits the peer knows of and has not used.
  [[nodiscard]] std::uint64_t outstanding() const { return announced_ - received_; }
  // Returns whether the peer has at most half of the credits that this side wants it to have.
  [[nodiscard]] bool low() const { return outstanding() <= target_ / 2; }
  // Returns whether this side has granted credits that the peer has not been told of.
  [[nodiscard]] bool unannounced() const { return granted_ != announced_; }

  // Marks all granted credits as told to the peer. Returns their number since the beginning.
  std::uint64_t announce() { return announced_ = granted_; }

  // Counts a message or notification of the peer, which takes `slots` credits. Returns false if the
  // peer did not have them.
  bool receive(std::uint32_t slots = 1) {
    if (announced_ - received_ < slots) return false;
    received_ += slots;
    return true;
  }
  // Takes back `count` credits that the peer will not use. Returns false if the peer did not have
  // so many.
  bool take_returned(std::uint64_t count);
  // Doubles the peer's target, up to max_credits, because the peer was starved.
  void grow() { target_ = std::min(pool_.options().max_credits, target_ * 2); }
  // Promises further credits while the pool has free slots, until the peer has its target in
  // addition to the held credits, but at most max_credits in all.
  void top_up();

  // Keeps the credit of the notification that the receiver is handling, until release().
  void hold() {
    holds_ = true;
    ++held_;
  }
  // Frees the slots of `count` credits kept by hold(); of all such credits if they are fewer.
  void release(std::uint32_t count);
  // begin_notification() and end_notification() enclose the receiver's call for a notification.
  // end_notification() frees the slot of the credit, unless hold() was called in between.
  void begin_notification() { holds_ = false; }
  void end_notification() {
    if (!holds_ && !ended_) take_back(1);
  }
  // Call when the endpoint ends and takes back all its promises: end_notification() then frees no
  // slot any more.
  void end() { ended_ = true; }
  // Gives the pool back the slots of `count` credits that brought no message.
  void take_back(std::uint32_t count) { pool_.take_back(*account_, count); }

 private:
  ReceivePool& pool_;
  const std::shared_ptr<CreditAccount> account_;
  const std::uint32_t own_slots_;
  std::uint64_t granted_;
  std::uint64_t announced_;
  std::uint64_t received_ = 0;
  std::uint32_t held_ = 0;  // credits kept by hold() and not released yet
  bool holds_ = false;      // hold() was called in the current notification
  bool ended_ = false;
  std::uint32_t target_;  // credits that this side wants the peer to have
};

}  // namespace slime::transport
