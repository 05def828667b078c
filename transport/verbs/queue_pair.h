#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "transport/outage.h"
#include "transport/queue.h"
#include "transport/verbs/context.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {

struct QueuePairShape {
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t depth = 0;       // work requests
  std::uint32_t max_sge = 1;     // of one work request
  std::uint32_t max_inline = 0;  // asked for
};

// How one queue pair reaches its peer.
struct QueuePairRoute {
  ibv_gid local_gid{};
  int local_gid_index = 0;
  ibv_mtu mtu{};
  std::uint8_t read_requests = 0;   // reads and atomics that this side may have in flight
  std::uint8_t read_responses = 0;  // reads and atomics that this side answers at once
  QueuePairAddress remote;
  ibv_gid remote_gid{};
  std::uint16_t remote_lid = 0;
  bool ethernet = true;
  RetryPolicy retries;
};

// Returns the address in the form that work requests use.
inline std::uint64_t address_of(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

// One reliable connected queue pair, with an account of its send queue. A work request takes room
// from its post until a completion at or behind its place is polled, as the device counts. Thread:
// the loop. create(), connect(), fail() and the destructor, which may take milliseconds: any
// thread, one at a time.
class QueuePair {
 public:
  // Makes a queue pair in INIT, with a random PSN. Keeps `queues`, which owns the queues of the
  // shape. Errors: kResourceExhausted and the text say what the device ran out of.
  static Result<std::shared_ptr<QueuePair>> create(std::shared_ptr<Context> context,
                                                   std::shared_ptr<const void> queues,
                                                   const QueuePairShape& shape);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair();  // afterwards the device touches no memory of the pair's work requests

  [[nodiscard]] QueuePairAddress address() const { return {qp_->qp_num, psn_}; }
  [[nodiscard]] std::uint32_t max_inline() const { return max_inline_; }
  // Goes from INIT through RTR to RTS.
  Status connect(const QueuePairRoute& route);
  // Goes to ERR: each posted work request is flushed, with a completion.
  void fail();
  // Returns whether the queue pair may have taken receives out of the shared receive queue.
  [[nodiscard]] bool receives() const { return receives_; }

  [[nodiscard]] std::uint32_t room() const { return depth_ - in_flight(); }
  [[nodiscard]] std::uint32_t in_flight() const { return posted_ - reaped_; }
  [[nodiscard]] std::uint32_t depth() const { return depth_; }
  // Returns the place of the next work request, counted from the beginning, modulo 2^24.
  [[nodiscard]] std::uint32_t next_place() const { return posted_; }
  // Returns the number of work requests behind the newest signaled one.
  [[nodiscard]] std::uint32_t unsignaled() const { return posted_ - signaled_; }

  // The owner of a run of consecutive work requests.
  struct Owner {
    Handle operation;  // of one-sided work; zero: none
    std::uint32_t work_requests = 0;
    std::uint32_t buffer = kNone;  // a staging buffer that is free again afterwards
    static constexpr std::uint32_t kNone = UINT32_MAX;
  };
  // Posts a chain that fits into room(). `signaled_end`: the place in the chain behind its last
  // signaled request, 0 for none. `accepted`: how many the device took, all of them unless the
  // status says why not.
  Status post(ibv_send_wr* first, std::uint32_t count, std::uint32_t signaled_end, std::uint32_t& accepted);
  void own(const Owner& owner) { owners_.push_back(owner); }

  // Takes the work requests up to and including `place`, which a completion has ended. Calls
  // fn(const Owner&, in_part) for each owner; `in_part`: other work of the owner is still in
  // flight. Returns the number of work requests.
  template <class F>
  std::uint32_t reap(std::uint32_t place, F&& fn);
  // Takes the first owner, if it has one work request, at `place`. Returns false otherwise: use
  // reap().
  [[nodiscard]] bool reap_one(std::uint32_t place, Owner& owner) {
    if (place != (reaped_ & MessageNote::kMask) || owners_.front().work_requests != 1) return false;
    owner = owners_.pop_front();
    ++reaped_;
    return true;
  }
  // Calls fn(Owner) for all work in flight, and forgets the work. Call before the queue pair is
  // destroyed.
  template <class F>
  void abandon(F&& fn) {
    while (!owners_.empty()) fn(owners_.pop_front());
  }
  // Returns whether the work request at `place` is in flight.
  [[nodiscard]] bool in_window(std::uint32_t place) const {
    return ((place - reaped_) & MessageNote::kMask) < in_flight();
  }

 private:
  QueuePair(std::shared_ptr<Context> context, std::shared_ptr<const void> queues, ibv_qp* qp,
            const QueuePairShape& shape, std::uint32_t max_inline);

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<const void> queues_;
  ibv_qp* const qp_;
  const std::uint32_t depth_;
  const std::uint32_t max_inline_;
  const std::uint32_t psn_;
  std::uint32_t posted_ = 0;
  std::uint32_t reaped_ = 0;
  std::uint32_t signaled_ = 0;  // the place behind the newest signaled one
  bool failed_ = false;
  bool receives_ = false;
  Queue<Owner> owners_;
};

template <class F>
std::uint32_t QueuePair::reap(std::uint32_t place, F&& fn) {
  const std::uint32_t count = ((place - reaped_) & MessageNote::kMask) + 1;
  std::uint32_t left = count;
  while (left > 0) {
    Owner& front = owners_.front();
    if (front.work_requests > left) {
      front.work_requests -= left;
      fn(Owner{front.operation, left, Owner::kNone}, true);
      left = 0;
    } else {
      left -= front.work_requests;
      const Owner whole = owners_.pop_front();
      fn(whole, false);
    }
  }
  reaped_ += count;
  return count;
}

}  // namespace slime::transport::verbs
