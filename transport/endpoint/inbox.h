#pragma once

#include <cstdint>
#include <utility>

#include "transport/endpoint.h"
#include "transport/endpoint/credit_ledger.h"
#include "transport/queue.h"

namespace slime::transport {

// Hands messages and notifications of the peer to the receiver, in their order. Keeps those that
// arrive before set_receiver(). Thread: the loop.
class Inbox {
 public:
  // `credits`: the credits of the notifications.
  explicit Inbox(ReceiveCredits& credits) : credits_(credits) {}

  void set_receiver(Receiver& receiver) {
    SLIME_CHECK(receiver_ == nullptr);
    receiver_ = &receiver;
  }
  // Null before set_receiver() and after drop_receiver().
  [[nodiscard]] Receiver* receiver() const { return receiver_; }
  // Forgets the receiver, so that this Inbox calls it no more, and returns it.
  Receiver* drop_receiver() { return std::exchange(receiver_, nullptr); }

  void deliver(Message message) {
    if (keeps())
      kept_.push_back({std::move(message), 0, false});
    else
      receiver_->on_message(std::move(message));
  }
  void deliver(std::uint32_t imm) {
    if (keeps())
      kept_.push_back({Message(), imm, true});
    else
      notify(imm);
  }
  // Delivers the messages and notifications that arrived before set_receiver().
  void deliver_kept() {
    if (receiver_ == nullptr || kept_.empty()) return;
    Queue<Arrived> kept = std::exchange(kept_, {});
    while (!kept.empty()) {
      Arrived arrived = kept.pop_front();
      if (arrived.is_imm)
        deliver(arrived.imm);
      else
        deliver(std::move(arrived.message));
    }
  }

 private:
  struct Arrived {
    Message message;
    std::uint32_t imm = 0;
    bool is_imm = false;
  };

  [[nodiscard]] bool keeps() const { return receiver_ == nullptr || !kept_.empty(); }
  void notify(std::uint32_t imm) {
    credits_.begin_notification();
    receiver_->on_imm(imm);
    credits_.end_notification();
  }

  ReceiveCredits& credits_;
  Receiver* receiver_ = nullptr;
  Queue<Arrived> kept_;
};

}  // namespace slime::transport
