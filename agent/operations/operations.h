#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/connecting/post_queue.h"
#include "agent/limits.h"
#include "agent/memory/region.h"
#include "agent/operations/bound_copies.h"
#include "agent/operations/old_values.h"
#include "agent/operations/peer_operation.h"
#include "base/future.h"
#include "rpc/channel.h"
#include "transport/operation.h"

namespace slime::agent {

class ConnectOperation final : public ResultOperation<None> {
 public:
  using ResultOperation::ResultOperation;
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override { return "connect"; }
};

// Ends with the id of the connection.
class ConnectionOperation final : public ResultOperation<std::uint64_t> {
 public:
  using ResultOperation::ResultOperation;
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override { return "connect"; }
};

class RegionOperation final : public ResultOperation<RemoteRegion> {
 public:
  RegionOperation(State& state, std::string name) : ResultOperation(state), name_(std::move(name)) {}
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;

 private:
  void cancel_started(Session& session) override;
  const std::string name_;
  rpc::Ticket ticket_;
};

class SendOperation final : public ResultOperation<None> {
 public:
  SendOperation(State& state, std::uint64_t tag, ByteVector body)
      : ResultOperation(state), tag_(tag), body_(std::move(body)) {}
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;

 private:
  void cancel_started(Session& session) override;
  const std::uint64_t tag_;
  ByteVector body_;
  rpc::Ticket ticket_;
};

// Sends a message from registered memory, without a copy.
class SendRangesOperation final : public ResultOperation<None> {
 public:
  SendRangesOperation(State& state, std::uint64_t tag, rpc::Attachments ranges)
      : ResultOperation(state), tag_(tag), ranges_(std::move(ranges)) {}
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;

 private:
  void cancel_started(Session& session) override;
  const std::uint64_t tag_;
  rpc::Attachments ranges_;
  rpc::Ticket ticket_;
};

// Receives one message into memory of the user. The result is the message's length.
class RecvIntoOperation final : public ResultOperation<std::uint64_t> {
 public:
  RecvIntoOperation(State& state, std::uint64_t tag, rpc::Destinations into)
      : ResultOperation(state), tag_(tag), into_(std::move(into)) {
    state.give_back_untaken();  // dropping the future cancels the receive
  }
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool connects() const override { return false; }
  [[nodiscard]] bool counts() const override { return false; }  // a receive may wait without end

 private:
  void cancel_started(Session& session) override;
  const std::uint64_t tag_;
  rpc::Destinations into_;
  rpc::Ticket ticket_;
};

// Receives one message. With T = Payload the message cannot return to its tag once it was taken
// from the future. With T = Delivery it returns to its tag unless Delivery::take() is called.
template <class T>
class RecvOperation final : public ResultOperation<T> {
 public:
  using PeerOperation::deadline;
  using State = ResultState<T>;
  RecvOperation(State& state, std::uint64_t tag) : ResultOperation<T>(state), tag_(tag) {
    state.give_back_untaken();  // dropping the future cancels the receive
  }
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool connects() const override { return false; }
  [[nodiscard]] bool counts() const override { return false; }  // a receive may wait without end

 private:
  void cancel_started(Session& session) override;
  void end(Result<rpc::Delivery> delivery);
  const std::uint64_t tag_;
  rpc::Ticket ticket_;
};
extern template class RecvOperation<Payload>;
extern template class RecvOperation<rpc::Delivery>;

// An operation that is posted to the endpoint of its session: a one-sided batch or an atomic.
template <class T>
class PostedOperation : public ResultOperation<T>, public transport::Operation {
 public:
  using PeerOperation::deadline;  // start() copies it to transport::Operation::deadline
  using ResultOperation<T>::ResultOperation;
  void start(Session& session) final;
  void complete(Status status) noexcept final;

 protected:
  // Returns the post, with the registrations of the session's device. Errors: a region that cannot
  // be used on this connection.
  [[nodiscard]] virtual Result<Post> bind(Session& session) = 0;
  [[nodiscard]] Nanos patience() const final {
    return this->stall == Nanos::zero() ? Nanos::max() : this->stall;
  }
  // Returns the user's result. Called after the operation has completed with OK.
  virtual T value() = 0;
  // Returns whether the operation may have changed the peer's memory, although an endpoint that had
  // accepted it ended it with an error of this code.
  [[nodiscard]] virtual bool may_have_changed(Code code) const = 0;
  // Removes the regions that this operation names from the session's cache, because the peer
  // refused one.
  virtual void forget_regions(Session& session) const = 0;

 private:
  void cancel_started(Session& session) final;
  [[nodiscard]] bool taken() const final { return this->posted(); }
};
extern template class PostedOperation<None>;
extern template class PostedOperation<std::uint64_t>;

// A batch of one-sided copies: with a list of its own, or one post of a shared list.
class OneSidedOperation final : public PostedOperation<None> {
 public:
  OneSidedOperation(ResultState<None>& state, OneSided kind, std::span<const Copy> copies, std::uint32_t imm)
      : PostedOperation(state), kind_(kind), imm_(imm), own_(std::in_place, copies, false) {}
  OneSidedOperation(ResultState<None>& state, OneSided kind, const BlockIds& blocks)
      : PostedOperation(state), kind_(kind), imm_(0), own_(std::in_place, blocks) {}
  // `blocks`: numbers of the blocks to post; empty: all.
  OneSidedOperation(ResultState<None>& state, OneSided kind, std::shared_ptr<BoundCopies> copies,
                    std::vector<std::uint32_t> blocks, std::uint32_t imm)
      : PostedOperation(state),
        kind_(kind),
        imm_(imm),
        shared_(std::move(copies)),
        blocks_(std::move(blocks)) {}
  [[nodiscard]] std::string describe() const override;
  // See BoundCopies. A shared list keeps its registrations alive by itself.
  void pin_regions() {
    if (own_) own_->pin_regions();
  }
  void count_regions() {
    if (own_) own_->count_regions();
  }

 private:
  [[nodiscard]] Result<Post> bind(Session& session) override;
  None value() override { return {}; }
  // A list may be written in part, even if the peer refuses one of its blocks.
  [[nodiscard]] bool may_have_changed(Code) const override { return kind_ != OneSided::kRead; }
  void forget_regions(Session& session) const override;

  [[nodiscard]] const BoundCopies& copies() const { return shared_ ? *shared_ : *own_; }
  [[nodiscard]] std::uint64_t length_bytes() const;

  const OneSided kind_;
  const std::uint32_t imm_;
  std::optional<BoundCopies> own_;
  const std::shared_ptr<BoundCopies> shared_;
  const std::vector<std::uint32_t> blocks_;
  std::vector<transport::CopyBlock> chosen_;  // the blocks with numbers blocks_
};

// One remote atomic. The result is the old value.
class AtomicOperation final : public PostedOperation<std::uint64_t> {
 public:
  struct Request {
    RemoteRegion remote;
    std::uint64_t remote_offset = 0;
    std::uint64_t value = 0;                  // to add, or to store
    std::optional<std::uint64_t> expected{};  // for a compare_swap
  };
  AtomicOperation(ResultState<std::uint64_t>& state, Request request, OldValues::Place place)
      : PostedOperation(state), request_(std::move(request)), place_(std::move(place)) {}
  [[nodiscard]] std::string describe() const override {
    return request_.expected ? "compare_swap" : "fetch_add";
  }

 private:
  [[nodiscard]] Result<Post> bind(Session& session) override;
  std::uint64_t value() override { return place_.value(); }
  [[nodiscard]] bool may_have_changed(Code code) const override;
  void forget_regions(Session& session) const override;

  const Request request_;
  const OldValues::Place place_;
};

}  // namespace slime::agent
