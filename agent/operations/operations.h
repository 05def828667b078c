#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/limits.h"
#include "agent/memory/region.h"
#include "agent/operations/bound_copies.h"
#include "agent/operations/old_values.h"
#include "agent/operations/operation_list.h"
#include "base/future.h"
#include "rpc/channel.h"
#include "transport/loop.h"
#include "transport/operation.h"

namespace slime::agent {

class Link;
class Session;

// An operation of a user on a peer. Waits in a Link until there is a connection, then runs on a
// Session. Ends exactly once, by completing its promise. Thread: the loop, after construction.
class PeerOperation : public std::enable_shared_from_this<PeerOperation>, public Listed {
 public:
  PeerOperation() = default;
  virtual ~PeerOperation() = default;

  // Runs on a connection that is ready.
  virtual void start(Session& session) = 0;
  // Ends the operation with an error.
  virtual void fail(Status reason) = 0;
  // Returns true if the operation makes its peer be connected; false if it waits for another
  // operation to do so.
  [[nodiscard]] virtual bool connects() const { return true; }
  // Longest wait for a connection, besides the deadline.
  [[nodiscard]] virtual Nanos patience() const { return Nanos::max(); }
  // Share of the loop's work, in short operations.
  [[nodiscard]] virtual std::size_t weight() const { return 1; }

  // The user no longer wants the operation: ends it with kCancelled if possible.
  void cancel();

  // For info(): "call cache.get", "read of 3 blocks"; the peer; and what the operation waits for.
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] const std::string& peer() const;
  [[nodiscard]] std::string_view stage() const;

  TimePoint began{};
  TimePoint deadline = kNever;
  bool wait_for_ready = false;

 protected:
  // Returns false while the operation waits for room on its connection.
  [[nodiscard]] virtual bool taken() const { return true; }
  // Asks for an early end of an operation that runs on the session.
  virtual void cancel_started(Session&) {}
  // Turns a status of the session into the status for the user.
  [[nodiscard]] Status outcome(Status status) const;
  void set_running(Session* session) { session_ = session; }
  [[nodiscard]] Session* running() const { return session_; }

 private:
  friend class Link;
  friend class Session;
  Link* link_ = nullptr;        // the link that the operation waits in
  Session* session_ = nullptr;  // the session that the operation runs on
  std::list<std::shared_ptr<PeerOperation>>::iterator place_;
  transport::TimerId timer_;
  bool cancelled_ = false;
};

template <class T>
class ResultOperation : public PeerOperation {
 public:
  explicit ResultOperation(std::shared_ptr<Driver> driver) : promise_(std::move(driver)) {}
  // before promise_, which owns the driver: the driver has the count
  ~ResultOperation() override { leave(); }
  Future<T> future() const { return promise_.future(); }
  Promise<T>& promise() { return promise_; }
  void fail(Status reason) override { conclude(std::move(reason)); }

 protected:
  void conclude(Result<T> result) {
    if (!result) result = outcome(std::move(result).error());
    end_run();
    promise_.complete(std::move(result));
  }
  // Completes with the result of `make`, which runs in the thread that takes the value.
  void conclude_with(UniqueFunction<Result<T>()> make) {
    end_run();
    promise_.complete_with(std::move(make));
  }

 private:
  void end_run() {
    set_running(nullptr);
    leave();
  }
  Promise<T> promise_;
};

// Copies a received payload out of its receive slot: the slot belongs to the port, which ends with
// the agent, and a user who keeps a slot would hold up the peer.
inline Result<Payload> detached(Result<Payload> payload) {
  if (payload) payload->detach();
  return payload;
}
inline Result<None> none_or(Status status) {
  if (!status.ok()) return status;
  return None{};
}

class ConnectOperation final : public ResultOperation<None> {
 public:
  using ResultOperation::ResultOperation;
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override { return "connect"; }
};

class RegionOperation final : public ResultOperation<RemoteRegion> {
 public:
  RegionOperation(std::shared_ptr<Driver> driver, std::string name)
      : ResultOperation(std::move(driver)), name_(std::move(name)) {}
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;

 private:
  void cancel_started(Session& session) override;
  const std::string name_;
  rpc::Ticket ticket_;
};

class SendOperation final : public ResultOperation<None> {
 public:
  SendOperation(std::shared_ptr<Driver> driver, std::uint64_t tag, ByteVector body)
      : ResultOperation(std::move(driver)), tag_(tag), body_(std::move(body)) {}
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;

 private:
  void cancel_started(Session& session) override;
  const std::uint64_t tag_;
  ByteVector body_;
  rpc::Ticket ticket_;
};

// T is Payload, which cannot return to its tag once taken from the future; or Delivery, which
// returns to its tag unless Delivery::take() is called.
template <class T>
class RecvOperation final : public ResultOperation<T> {
 public:
  using PeerOperation::deadline;
  RecvOperation(std::shared_ptr<Driver> driver, std::uint64_t tag)
      : ResultOperation<T>(std::move(driver)), tag_(tag) {}
  // Dropping the future cancels the receive. Call once.
  Future<T> future() { return this->promise().owning_future(); }
  void start(Session& session) override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] bool connects() const override { return false; }
  [[nodiscard]] std::size_t weight() const override { return 0; }  // a receive may wait without end

 private:
  void cancel_started(Session& session) override;
  void end(Result<rpc::Delivery> delivery);
  const std::uint64_t tag_;
  rpc::Ticket ticket_;
};
extern template class RecvOperation<Payload>;
extern template class RecvOperation<rpc::Delivery>;

// The interface by which a Session posts an operation to its endpoint, and keeps it while the
// endpoint is full. Implemented by PeerOperations.
class Posted : public transport::Operation {
 public:
  // Returns kResourceExhausted if the endpoint is full: post again when it is ready.
  virtual Status post(Session& session) = 0;
  virtual PeerOperation& operation() = 0;

 protected:
  ~Posted() = default;
};

template <class T>
class PostedOperation : public ResultOperation<T>, public Posted {
 public:
  using PeerOperation::deadline;  // post() copies it to the transport operation's deadline
  using ResultOperation<T>::ResultOperation;
  void start(Session& session) final;
  Status post(Session& session) final;
  void complete(Status status) noexcept final;
  PeerOperation& operation() final { return *this; }

 protected:
  // Checks that the named regions can be used on this connection; from here on the operation uses
  // its device.
  [[nodiscard]] virtual Status bind(Session& session) = 0;
  [[nodiscard]] Nanos patience() const final {
    return this->stall == Nanos::zero() ? Nanos::max() : this->stall;
  }
  virtual Status post_to(transport::Endpoint& endpoint) = 0;
  virtual T value() = 0;  // call after completion with OK
  // The peer refused a region that this operation names: removes it from the session's cache.
  virtual void forget_regions(Session& session) const = 0;

 private:
  void cancel_started(Session& session) final;
  [[nodiscard]] bool taken() const final { return this->posted(); }
  std::shared_ptr<PeerOperation> self_;  // set while the endpoint has the operation
};
extern template class PostedOperation<None>;
extern template class PostedOperation<std::uint64_t>;

enum class OneSided : std::uint8_t { kRead, kWrite, kWriteWithImm };

// A batch of one-sided copies: with a list of its own, or one post of a shared list.
class OneSidedOperation final : public PostedOperation<None> {
 public:
  OneSidedOperation(std::shared_ptr<Driver> driver, OneSided kind, std::span<const Copy> copies,
                    std::uint32_t imm)
      : PostedOperation(std::move(driver)), kind_(kind), imm_(imm), own_(std::in_place, copies, false) {}
  // `blocks`: numbers of the blocks to post; empty: all.
  OneSidedOperation(std::shared_ptr<Driver> driver, OneSided kind, std::shared_ptr<BoundCopies> copies,
                    std::vector<std::uint32_t> blocks, std::uint32_t imm)
      : PostedOperation(std::move(driver)),
        kind_(kind),
        imm_(imm),
        shared_(std::move(copies)),
        blocks_(std::move(blocks)) {}
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::size_t weight() const override {
    return length_bytes() < limits::kHelpBytes ? 1 : limits::kHelpOperations + 1;
  }

 private:
  [[nodiscard]] Status bind(Session& session) override;
  Status post_to(transport::Endpoint& endpoint) override;
  None value() override { return {}; }
  void forget_regions(Session& session) const override;

  [[nodiscard]] const BoundCopies& copies() const { return shared_ ? *shared_ : *own_; }
  [[nodiscard]] std::uint64_t length_bytes() const;

  const OneSided kind_;
  const std::uint32_t imm_;
  std::optional<BoundCopies> own_;
  const std::shared_ptr<BoundCopies> shared_;
  const std::vector<std::uint32_t> blocks_;
  std::vector<transport::Copy> chosen_;         // the blocks with numbers blocks_
  std::span<const transport::Copy> on_device_;  // the posted copies, once bound
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
  AtomicOperation(std::shared_ptr<Driver> driver, Request request, OldValues::Place place)
      : PostedOperation(std::move(driver)), request_(std::move(request)), place_(std::move(place)) {}
  [[nodiscard]] std::string describe() const override {
    return request_.expected ? "compare_swap" : "fetch_add";
  }

 private:
  [[nodiscard]] Status bind(Session& session) override;
  Status post_to(transport::Endpoint& endpoint) override;
  std::uint64_t value() override { return place_.value(); }
  void forget_regions(Session& session) const override;

  const Request request_;
  const OldValues::Place place_;
  const transport::MemoryRegion* local_ = nullptr;
};

}  // namespace slime::agent
