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

// Something that a user wants of a peer: waits in a Link until there is a connection, then runs on a Session.
// Ends exactly once, by its promise. Thread: the loop, after its making.
class PeerOperation : public std::enable_shared_from_this<PeerOperation>, public Listed {
 public:
  PeerOperation() = default;
  virtual ~PeerOperation() = default;

  // Runs on a connection that is ready.
  virtual void start(Session& session) = 0;
  // Ends it with an error.
  virtual void fail(Status reason) = 0;
  // Whether it makes its peer be connected, or waits until somebody else does.
  [[nodiscard]] virtual bool connects() const { return true; }
  // How long it waits for a connection at most, besides its deadline.
  [[nodiscard]] virtual Nanos patience() const { return Nanos::max(); }
  // How much of the loop's work it is, in short operations.
  [[nodiscard]] virtual std::size_t weight() const { return 1; }

  // The user no longer wants it: ends it with kCancelled where that is possible.
  void cancel();

  // What info() shows of it: "call cache.get", "read of 3 blocks"; whose it is; and what it waits for.
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] const std::string& peer() const;
  [[nodiscard]] std::string_view stage() const;

  TimePoint began{};
  TimePoint deadline = kNever;
  bool wait_for_ready = false;

 protected:
  // False while it waits for room on its connection.
  [[nodiscard]] virtual bool taken() const { return true; }
  // Asks for an early end of what runs on the session.
  virtual void cancel_started(Session&) {}
  // What the user is told about a status of the session.
  [[nodiscard]] Status outcome(Status status) const;
  void set_running(Session* session) { session_ = session; }
  [[nodiscard]] Session* running() const { return session_; }

 private:
  friend class Link;
  friend class Session;
  Link* link_ = nullptr;        // that it waits in
  Session* session_ = nullptr;  // that it runs on
  std::list<std::shared_ptr<PeerOperation>>::iterator place_;
  transport::TimerId timer_;
  bool cancelled_ = false;
};

template <class T>
class ResultOperation : public PeerOperation {
 public:
  explicit ResultOperation(std::shared_ptr<Driver> driver) : promise_(std::move(driver)) {}
  ~ResultOperation() override { leave(); }  // while the driver lives, which counts
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

// What was received goes to the user as bytes of its own: a receive slot is the port's, which ends with the
// agent, and a user who keeps it would hold up the peer.
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

// T: Payload, which never goes back once taken from the future; or Delivery, which goes back to its
// tag until Delivery::take().
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
  [[nodiscard]] std::size_t weight() const override { return 0; }  // it may wait for ever

 private:
  void cancel_started(Session& session) override;
  void end(Result<rpc::Delivery> delivery);
  const std::uint64_t tag_;
  rpc::Ticket ticket_;
};
extern template class RecvOperation<Payload>;
extern template class RecvOperation<rpc::Delivery>;

// What a Session posts to its endpoint, and keeps while the endpoint takes no more. The other face of a
// PeerOperation.
class Posted : public transport::Operation {
 public:
  // kResourceExhausted: it was not taken, try again when the endpoint is ready.
  virtual Status post(Session& session) = 0;
  virtual PeerOperation& operation() = 0;

 protected:
  ~Posted() = default;
};

template <class T>
class PostedOperation : public ResultOperation<T>, public Posted {
 public:
  using PeerOperation::deadline;  // which post() gives to the transport's own
  using ResultOperation<T>::ResultOperation;
  void start(Session& session) final;
  Status post(Session& session) final;
  void complete(Status status) noexcept final;
  PeerOperation& operation() final { return *this; }

 protected:
  // Whether what it names can be used on this connection, and with its device from here on.
  [[nodiscard]] virtual Status bind(Session& session) = 0;
  [[nodiscard]] Nanos patience() const final {
    return this->stall == Nanos::zero() ? Nanos::max() : this->stall;
  }
  virtual Status post_to(transport::Endpoint& endpoint) = 0;
  virtual T value() = 0;  // after it has completed with OK
  // The peer no longer has a region that this names.
  virtual void forget_regions(Session& session) const = 0;

 private:
  void cancel_started(Session& session) final;
  [[nodiscard]] bool taken() const final { return this->posted(); }
  std::shared_ptr<PeerOperation> self_;  // while the endpoint has it
};
extern template class PostedOperation<None>;
extern template class PostedOperation<std::uint64_t>;

enum class OneSided : std::uint8_t { kRead, kWrite, kWriteWithImm };

// A batch of one-sided copies: of a list of its own, or one post of a list that is shared.
class OneSidedOperation final : public PostedOperation<None> {
 public:
  OneSidedOperation(std::shared_ptr<Driver> driver, OneSided kind, std::span<const Copy> copies,
                    std::uint32_t imm)
      : PostedOperation(std::move(driver)), kind_(kind), imm_(imm), own_(std::in_place, copies, false) {}
  // `blocks`: the numbers of those that are posted; empty: all.
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
  std::vector<transport::Copy> chosen_;         // of blocks_
  std::span<const transport::Copy> on_device_;  // what is posted, once it is bound
};

// One remote atomic; the old value is its result.
class AtomicOperation final : public PostedOperation<std::uint64_t> {
 public:
  struct Request {
    RemoteRegion remote;
    std::uint64_t remote_offset = 0;
    std::uint64_t value = 0;                  // to add, or to store
    std::optional<std::uint64_t> expected{};  // of a compare_swap
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
