#include "agent/operations/operations.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "agent/connecting/session.h"
#include "base/str.h"

namespace slime::agent {

// ----------------------------------------------------------------------------- through the channel

std::string RegionOperation::describe() const { return str("look-up of region ", name_); }
std::string SendOperation::describe() const { return str("send with tag ", tag_); }

void ConnectOperation::start(Session&) { succeed(None{}); }

void ConnectionOperation::start(Session& session) { succeed(session.id()); }

void RegionOperation::start(Session& session) {
  if (const RemoteRegion* known = session.cached_region(name_)) {
    succeed(*known);
    return;
  }
  run_on(session);
  ticket_ = session.channel().lookup_region(
      name_, deadline,
      [self = OperationPtr<RegionOperation>(this), &session](Result<transport::RemoteRegion> region) {
        if (region) session.cache_region(self->name_, *region);
        self->conclude(std::move(region));
      });
}

void RegionOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

void SendOperation::start(Session& session) {
  run_on(session);
  ticket_ = session.channel().send(tag_, std::move(body_), deadline,
                                   [self = OperationPtr<SendOperation>(this)](Status status) {
                                     self->conclude(none_or(std::move(status)));
                                   });
}

void SendOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

std::string SendRangesOperation::describe() const {
  return str("send of ", ranges_.size(), " ranges with tag ", tag_);
}

void SendRangesOperation::start(Session& session) {
  run_on(session);
  ticket_ = session.channel().send_ranges(tag_, std::move(ranges_), deadline,
                                          [self = OperationPtr<SendRangesOperation>(this)](Status status) {
                                            self->conclude(none_or(std::move(status)));
                                          });
}

void SendRangesOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

std::string RecvIntoOperation::describe() const { return str("recv_into with tag ", tag_); }

void RecvIntoOperation::start(Session& session) {
  Session& receiver = session.receiver();
  run_on(receiver);
  ticket_ =
      receiver.channel().recv_into(tag_, std::move(into_), deadline,
                                   [self = OperationPtr<RecvIntoOperation>(this)](
                                       Result<std::uint64_t> length) { self->conclude(std::move(length)); });
}

void RecvIntoOperation::cancel_started(Session& session) { session.channel().cancel(ticket_); }

template <class T>
std::string RecvOperation<T>::describe() const {
  return str("recv with tag ", tag_);
}

template <class T>
void RecvOperation<T>::start(Session& session) {
  Session& receiver = session.receiver();
  this->run_on(receiver);
  ticket_ = receiver.channel().recv(
      tag_, deadline, [self = OperationPtr<RecvOperation>(this)](Result<rpc::Delivery> delivery) {
        self->end(std::move(delivery));
      });
}

template <class T>
void RecvOperation<T>::end(Result<rpc::Delivery> delivery) {
  if (!delivery) return this->conclude(std::move(delivery).error());
  if constexpr (std::is_same_v<T, rpc::Delivery>) {
    this->conclude(std::move(delivery));
  } else {
    this->conclude_with(
        [delivery = *std::move(delivery)]() mutable -> Result<Payload> { return delivery.take(); });
  }
}

template <class T>
void RecvOperation<T>::cancel_started(Session& session) {
  session.channel().cancel(ticket_);
}

template class RecvOperation<Payload>;
template class RecvOperation<rpc::Delivery>;

// --------------------------------------------------------------------------------- on the endpoint

template <class T>
void PostedOperation<T>::start(Session& session) {
  this->run_on(session);
  Result<Post> post = bind(session);
  if (!post) return this->fail(std::move(post).error());
  static_cast<transport::Operation&>(*this).deadline = deadline;
  this->keep(OperationPtr<PeerOperation>(this));
  session.post(*post, *this);
}

template <class T>
void PostedOperation<T>::complete(Status status) noexcept {
  const OperationPtr<PeerOperation> self = this->released();
  if (status.ok()) {
    this->succeed(value());
  } else {
    // The owner has closed a region, and its message about this may not have arrived yet: forgets
    // the cached regions.
    if (status.code() == Code::kNotFound && this->running() != nullptr) forget_regions(*this->running());
    const bool maybe_executed = this->was_posted() && may_have_changed(status.code());
    this->conclude(std::move(status).with_maybe_executed(maybe_executed));
  }
}

template <class T>
void PostedOperation<T>::cancel_started(Session& session) {
  // An operation that the endpoint has goes on: only a reset of the connection would release its
  // buffers.
  if (!session.withdraw(*this)) return;
  const auto self = this->released();
  this->fail(Status(Code::kCancelled, "cancelled before it was posted"));
}

template class PostedOperation<None>;
template class PostedOperation<std::uint64_t>;

// --------------------------------------------------------------------------------------- one-sided

std::uint64_t OneSidedOperation::length_bytes() const {
  if (blocks_.empty()) return copies().length_bytes();
  std::uint64_t out = 0;
  for (const std::uint32_t block : blocks_) out += copies().length_of(block);
  return out;
}

std::string OneSidedOperation::describe() const {
  constexpr std::array<std::string_view, 3> kNames{"read", "write", "write_with_imm"};
  const std::size_t count = blocks_.empty() ? copies().size() : blocks_.size();
  return str(kNames[static_cast<std::size_t>(kind_)], " of ", count, count == 1 ? " block, " : " blocks, ",
             length_bytes(), " bytes");
}

Result<Post> OneSidedOperation::bind(Session& session) {
  SLIME_TRY(copies().check_usable(session));
  Post out;
  out.kind = kind_;
  out.imm = imm_;
  out.copies = (shared_ ? *shared_ : *own_).on(session.device(), shared_ != nullptr);
  if (blocks_.empty()) return out;
  chosen_.clear();
  chosen_.reserve(blocks_.size());
  for (const std::uint32_t block : blocks_) chosen_.push_back(out.copies[block]);
  out.copies = chosen_;
  return out;
}

void OneSidedOperation::forget_regions(Session& session) const {
  for (const RemoteRegion& remote : copies().remotes()) session.forget_region(remote);
}

// ----------------------------------------------------------------------------------------- atomics

Result<Post> AtomicOperation::bind(Session& session) {
  const Registrations& local = place_.region().registrations;
  SLIME_TRY(local.missing(session.device()));
  SLIME_TRY(session.check_remote(request_.remote));
  Post out;
  out.kind = request_.expected ? OneSided::kCompareSwap : OneSided::kFetchAdd;
  out.target = {&local.on(session.device()), place_.offset(), &request_.remote, request_.remote_offset};
  out.value = request_.value;
  out.expected = request_.expected.value_or(0);
  return out;
}

// A peer that refuses an atomic has not run it.
bool AtomicOperation::may_have_changed(Code code) const {
  return code != Code::kNotFound && code != Code::kPermissionDenied && code != Code::kInvalidArgument;
}

void AtomicOperation::forget_regions(Session& session) const { session.forget_region(request_.remote); }

}  // namespace slime::agent
