#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel_impl.h"

// Rendezvous, the receiving half: the peer offered memory, we read it with one-sided reads, then release it.
// A pull cannot be cancelled: the caller may be gone when it ends, the buffer is the pull's own.
namespace slime::rpc {

// kCorrupt when the offer is no offer. Whatever else goes wrong, the peer gets its memory back and `handler`
// is called, also from inside this, unless the channel closes.
Status ChannelImpl::pull(Bytes bytes, PullHandler handler) {
  auto offer = wire::decode_offer(bytes);
  if (!offer) return std::move(offer).error();
  auto remote = endpoint_->import_region(offer->region);
  if (!remote) return std::move(remote).error();
  const auto refuse = [&](Status status) {
    answer(wire::FrameType::kRelease, offer->lease.packed());
    handler(std::move(status));
    return Status();
  };
  const std::uint64_t length = offer->length_bytes;
  // All pulls together may announce no more than one payload may have; memory is touched as bytes arrive.
  if (length > options_.max_payload_bytes || pulled_bytes_ > options_.max_payload_bytes - length) {
    return refuse(
        Status(Code::kResourceExhausted, str("a payload of ", length, " bytes, while ", pulled_bytes_,
                                             " are being read, is more than ", options_.max_payload_bytes)));
  }
  Buffer buffer(length);
  if (buffer.data() == nullptr)
    return refuse(Status(Code::kResourceExhausted, str("no memory for a payload of ", length, " bytes")));
  auto local = device_.register_memory(buffer.data(), buffer.size(), transport::Rights::kLocal);
  if (!local) return refuse(std::move(local).error());

  const auto self = pulls_.emplace(pulls_.end(), *this);
  self->self = self;
  self->lease = offer->lease.packed();
  self->buffer = std::move(buffer);
  self->local = std::move(*local);
  self->remote = *remote;
  self->copy = {&self->local, 0, &self->remote, 0, 0};
  self->handler = std::move(handler);
  pulled_bytes_ += length;
  waiting_pulls_.push_back(&*self);
  post_pulls();
  return {};
}

void ChannelImpl::post_pulls() {
  while (!waiting_pulls_.empty() && active_pulls_ < limits::kMaxActivePulls && !endpoint_closing_) {
    Pull& pull = *waiting_pulls_.front();
    const std::uint64_t left = pull.buffer.size() - pull.copy.local_offset;
    pull.copy.length_bytes = std::min(left, limits::kPullBytes);
    pull.deadline = kNever;
    waiting_pulls_.pop_front();
    ++active_pulls_;
    const Status status = endpoint_->read(std::span(&pull.copy, 1), pull);
    if (status.ok()) continue;
    --active_pulls_;
    if (status.code() == Code::kResourceExhausted) {
      waiting_pulls_.push_front(&pull);  // on_ready comes back here
      return;
    }
    on_pulled(pull, status);
  }
}

void ChannelImpl::Pull::complete(Status status) noexcept {
  const Scope scope(channel, true);
  --channel.active_pulls_;
  channel.on_pulled(*this, std::move(status));
}

void ChannelImpl::on_pulled(Pull& pull, Status status) {
  // A broken endpoint ends everything in on_closed, which follows.
  if (closed_ || endpoint_closing_ || (!status.ok() && !endpoint_->error().ok())) return;
  if (status.ok()) {
    pull.copy.local_offset += pull.copy.length_bytes;
    pull.copy.remote_offset += pull.copy.length_bytes;
    if (pull.copy.local_offset < pull.buffer.size()) {
      waiting_pulls_.push_back(&pull);
      post_pulls();
      return;
    }
  }
  end_pull(pull.self, std::move(status));
  post_pulls();
}

void ChannelImpl::end_pull(std::list<Pull>::iterator pull, Status status) {
  answer(wire::FrameType::kRelease, pull->lease);
  pulled_bytes_ -= pull->buffer.size();
  pull->local.close(Nanos::zero()).ignore();
  PullHandler handler = std::move(pull->handler);
  Buffer buffer = std::move(pull->buffer);
  pulls_.erase(pull);
  if (status.ok()) {
    handler(Payload(std::move(buffer)));
  } else {
    handler(std::move(status));
  }
}

}  // namespace slime::rpc
