#include "agent/operations.h"

#include "agent/link.h"
#include "agent/session.h"
#include "base/str.h"

namespace slime::agent {

void PeerOperation::cancel() {
  cancelled_ = true;
  if (link_ != nullptr) {
    const auto self = link_->withdraw(*this);
    self->fail(Status(Code::kCancelled, "cancelled before it began"));
  } else if (session_ != nullptr) {
    cancel_started(*session_);
  }
}

Status PeerOperation::outcome(Status status) const {
  if (status.code() != Code::kCancelled || cancelled_ || session_ == nullptr || !session_->abandoned())
    return status;
  const bool maybe_executed = status.maybe_executed();
  return Status(Code::kUnavailable, status.text()).with_maybe_executed(maybe_executed);
}

// -----------------------------------------------------------------------------------------------------------
// through the channel

namespace {

// What was received goes to the user as bytes of its own: a receive slot is the port's, which ends with the
// agent, and a user who keeps it would hold up the peer.
Result<Payload> detached(Result<Payload> payload) {
  if (payload) payload->detach();
  return payload;
}

}  // namespace

void ConnectOperation::start(Session&) { conclude(None{}); }

void RegionOperation::start(Session& session) {
  if (const RemoteRegion* known = session.cached_region(name_)) {
    conclude(*known);
    return;
  }
  set_running(&session);
  ticket_ =
      session.channel().lookup_region(name_, deadline,
                                      [self = std::static_pointer_cast<RegionOperation>(shared_from_this()),
                                       &session](Result<transport::RemoteRegion> region) {
                                        if (region) session.cache_region(self->name_, *region);
                                        self->conclude(std::move(region));
                                      });
}

void RegionOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

void CallOperation::start(Session& session) {
  set_running(&session);
  ticket_ =
      session.channel().call(service_, method_, std::move(arguments_), deadline,
                             [self = std::static_pointer_cast<CallOperation>(shared_from_this())](
                                 Result<Payload> reply) { self->conclude(detached(std::move(reply))); });
}

void CallOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

void SendOperation::start(Session& session) {
  set_running(&session);
  ticket_ = session.channel().send(
      tag_, std::move(body_), deadline,
      [self = std::static_pointer_cast<SendOperation>(shared_from_this())](Status status) {
        if (status.ok()) {
          self->conclude(None{});
        } else {
          self->conclude(std::move(status));
        }
      });
}

void SendOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

void RecvOperation::start(Session& session) {
  set_running(&session);
  ticket_ =
      session.channel().recv(tag_, deadline,
                             [self = std::static_pointer_cast<RecvOperation>(shared_from_this())](
                                 Result<Payload> message) { self->conclude(detached(std::move(message))); });
}

void RecvOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

// -----------------------------------------------------------------------------------------------------------
// one-sided

OneSidedOperation::OneSidedOperation(std::shared_ptr<Driver> driver, OneSided kind,
                                     std::span<const slime::Copy> copies, std::uint32_t imm)
    : ResultOperation(std::move(driver)), kind_(kind), imm_(imm) {
  copies_.reserve(copies.size());
  const RemoteRegion* last_remote = nullptr;
  const MemoryRegion::State* last_local = nullptr;
  for (const slime::Copy& copy : copies) {
    if (&copy.remote != last_remote) {
      last_remote = &copy.remote;
      remotes_.push_back(copy.remote);
    }
    if (copy.local.state().get() != last_local) {
      last_local = copy.local.state().get();
      locals_.push_back(copy.local.state());
    }
    copies_.push_back({.local = &locals_.back()->region,
                       .local_offset = copy.local_offset,
                       .remote = &remotes_.back(),
                       .remote_offset = copy.remote_offset,
                       .length_bytes = copy.length_bytes});
  }
}

void OneSidedOperation::start(Session& session) {
  set_running(&session);
  session.post(std::static_pointer_cast<OneSidedOperation>(shared_from_this()));
}

Status OneSidedOperation::check_regions(const Session& session) const {
  for (const RegionState& local : locals_) {
    if (local->closed()) return Status(Code::kInvalidArgument, "a local region of this operation is closed");
  }
  const std::uint64_t endpoint = const_cast<Session&>(session).channel().endpoint().id();
  for (const RemoteRegion& remote : remotes_) {
    if (remote.endpoint_id() == endpoint) continue;
    if (remote.endpoint_id() == 0) return Status(Code::kInvalidArgument, "an empty remote region");
    return Status(Code::kAborted, str("a region of another connection, or of an earlier one to ",
                                      session.peer().name, ": ask for it again with region()"));
  }
  return {};
}

Status OneSidedOperation::post(Session& session) {
  SLIME_TRY(check_regions(session));
  transport::Operation& operation = *this;
  operation.deadline = deadline;
  transport::Endpoint& endpoint = session.channel().endpoint();
  self_ = shared_from_this();
  Status status;
  switch (kind_) {
    case OneSided::kRead:
      status = endpoint.read(copies_, operation);
      break;
    case OneSided::kWrite:
      status = endpoint.write(copies_, operation);
      break;
    case OneSided::kWriteWithImm:
      status = endpoint.write_with_imm(copies_, imm_, operation);
      break;
  }
  if (!status.ok()) self_.reset();
  return status;
}

void OneSidedOperation::complete(Status status) noexcept {
  const std::shared_ptr<PeerOperation> self = std::move(self_);
  if (status.ok()) {
    conclude(None{});
  } else {
    conclude(std::move(status));
  }
}

void OneSidedOperation::cancel_started(Session& session) {
  // On the wire it goes on: nothing but a reset would give the buffers back.
  if (session.withdraw(*this)) fail(Status(Code::kCancelled, "cancelled before it was posted"));
}

}  // namespace slime::agent
