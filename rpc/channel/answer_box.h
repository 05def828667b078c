#pragma once

// Private to rpc: the part of a channel that its unanswered requests keep alive, also after the
// channel.

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "rpc/delivery.h"
#include "rpc/server/budget.h"
#include "rpc/service.h"
#include "rpc/stream/stream_end.h"
#include "transport/loop.h"

namespace slime::rpc {

// Returns the bytes that are freed when the attachments are destroyed. Bytes in a user's region do
// not count.
std::uint64_t owned_bytes(const Attachments& attachments);

// Queues work from other threads for the loop: answers of handlers, streams whose user waits,
// messages that receives gave back. Tells handlers that their call was cancelled. Outlives the
// channel while a request is unanswered or a delivery is not taken.
class AnswerBox final : public Request::Responder,
                        public DeliverySource,
                        public std::enable_shared_from_this<AnswerBox> {
 public:
  // The part of the channel that the AnswerBox calls. Thread: the loop.
  class Host {
   public:
    // Handles everything that is queued in the AnswerBox, which it gets from AnswerBox::take().
    virtual void take_answers() = 0;
    virtual void send_answer(Handle served, Result<ByteVector>&& reply) = 0;
    // Called when the user of the stream `key` waits for the channel to do something.
    virtual void attend_user(std::uint64_t key) = 0;
    // Called when the server has granted or refused the Place that the request `served` waits for.
    virtual void on_granted(Handle served) = 0;

   protected:
    ~Host() = default;
  };
  struct Answer {
    Handle served;
    Result<ByteVector> reply;
    Account::Held held{};  // the bytes of a large answer
    // not 0: the account had no room for this number of bytes, and `reply` is empty
    std::uint64_t refused_bytes = 0;
  };
  // Answers of more than `large_bytes` take their bytes from the account before they are queued. If
  // `host` is null, the owner of the AnswerBox calls take() itself. `host` must live until close().
  AnswerBox(transport::Loop& loop, Host* host, std::shared_ptr<Account> account, std::size_t large_bytes)
      : clock_(loop.clock()),
        loop_(&loop),
        account_(std::move(account)),
        large_bytes_(large_bytes),
        host_(host) {}

  // While this scope is alive, answers given on this thread are sent immediately instead of queued.
  // Used around handlers on the loop, most of which answer before they return.
  class AtOnce {
   public:
    explicit AtOnce(AnswerBox& box) : box_(&box), outer_(std::exchange(at_once_, this)) {}
    AtOnce(const AtOnce&) = delete;
    AtOnce& operator=(const AtOnce&) = delete;
    ~AtOnce() { at_once_ = outer_; }

   private:
    friend class AnswerBox;
    const AnswerBox* const box_;
    AtOnce* const outer_;
  };

  // ---- any thread; `ticket` is the packed Handle of a request in ServedTable
  void respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept override;
  void attach(std::uint64_t ticket, Attachments attachments) override;
  [[nodiscard]] bool cancelled(std::uint64_t ticket, TimePoint deadline) const noexcept override;
  void on_cancel(std::uint64_t ticket, Task task) override;
  [[nodiscard]] std::shared_ptr<StreamEnd> stream(std::uint64_t ticket) const override;
  // Tells the loop that the server has granted or refused the Place that the request waits for.
  void granted(std::uint64_t ticket);
  // Tells the loop that the user of the stream `key` waits for the channel (StreamTable::attend).
  void attend(std::uint64_t key);
  // Puts a user message back into the inbox, under its tag. Drops the message if the channel is
  // closed.
  void give_back(std::uint64_t tag, std::uint64_t number, Payload&& message) noexcept override;
  // Counts a message that a reader gave back to its stream or to the inbox.
  void count_given_back() { given_back_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t given_back() const { return given_back_.load(std::memory_order_relaxed); }

  // ---- the loop
  // Keeps the stream of a request, for the request's handler, until the request is answered.
  void add_stream(std::uint64_t ticket, std::shared_ptr<StreamEnd> stream);
  void remove_stream(std::uint64_t ticket);
  // A user message that was given back.
  struct GivenBack {
    std::uint64_t tag = 0;
    std::uint64_t number = 0;
    Payload message;
  };
  struct Waiting {
    std::vector<std::uint64_t> streams;  // keys
    std::vector<Answer> answers;
    std::vector<GivenBack> messages;
  };
  // Takes all queued items. When an item is put into the empty queue, Host::take_answers() is
  // called.
  Waiting take();
  // Called when the caller has cancelled the request: runs the tasks that on_cancel() has added.
  void cancel(std::uint64_t ticket);
  // Data that only few requests have, kept until the request is answered.
  struct Notes {
    bool cancelled = false;
    std::vector<Task> on_cancel;
    Attachments attachments;  // of the answer
  };
  [[nodiscard]] bool has_notes() const { return has_notes_.load(std::memory_order_relaxed); }
  Notes take_notes(std::uint64_t ticket);
  // Called when the channel is closed: drops what is queued now or later, and cancels unanswered
  // requests.
  void close();

 private:
  void call_host_if_first() SLIME_REQUIRES(mutex_);
  void take_from_account(Answer& answer, AttachedBody& dropped) SLIME_REQUIRES(mutex_);
  static inline constinit thread_local AtOnce* at_once_ = nullptr;
  const Clock& clock_;
  mutable Mutex mutex_;
  transport::Loop* loop_ SLIME_GUARDED_BY(mutex_);  // null: closed
  const std::shared_ptr<Account> account_;
  const std::size_t large_bytes_;
  Waiting waiting_ SLIME_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::shared_ptr<StreamEnd>> streams_ SLIME_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, Notes> notes_ SLIME_GUARDED_BY(mutex_);
  std::atomic<bool> has_notes_{false};  // so that plain requests take no lock
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> given_back_{0};
  const std::uint64_t process_ = fork_generation();
  Host* host_;  // only the loop uses it; null: there is no host, or the channel is closed
};

// The Responder of one-way requests. Drops results and attachments, but passes errors on. The
// caller cannot cancel a one-way request; only its deadline does.
class OneWayBox final : public Request::Responder {
 public:
  OneWayBox(std::shared_ptr<AnswerBox> box, const Clock& clock) : box_(std::move(box)), clock_(clock) {}
  void respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept override {
    if (reply) return box_->respond(ticket, ByteVector());
    box_->respond(ticket, std::move(reply));
  }
  void attach(std::uint64_t, Attachments) override {}
  [[nodiscard]] bool cancelled(std::uint64_t, TimePoint deadline) const noexcept override {
    return deadline != kNever && deadline <= clock_.now();
  }
  void on_cancel(std::uint64_t, Task) override {}

 private:
  const std::shared_ptr<AnswerBox> box_;
  const Clock& clock_;
};

}  // namespace slime::rpc
