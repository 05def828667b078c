#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/codec/received_blocks.h"
#include "rpc/server/server_impl.h"

// The receiving half of what a peer lends: we read it with one-sided reads, then release it, all of one body
// at once. The caller may be gone when that ends: the buffers are the pull's own, but for those that a call
// named, which waits for it (abort_reply).
namespace slime::rpc {

// An error when the peer broke the protocol. Whatever else goes wrong, the peer gets its memory back and
// `handler` is called, also from inside this, unless the channel closes.
Status ChannelImpl::pull(const wire::Frame& frame, Handle call, PullHandler handler) {
  const auto self = add_pull(frame, std::move(handler));
  self->call = call;
  return begin_pull(self, (frame.header.flags & wire::kFlagRendezvous) != 0, frame.body);
}

std::list<ChannelImpl::Pull>::iterator ChannelImpl::add_pull(const wire::Frame& frame, PullHandler handler) {
  const auto self = pulls_.emplace(pulls_.end(), *this);
  self->self = self;
  self->attached = (frame.header.flags & wire::kFlagAttachments) != 0;
  self->handler = std::move(handler);
  return self;
}

Status ChannelImpl::begin_pull(std::list<Pull>::iterator self, bool offered, Bytes body) {
  Status refusal;
  Status status = offered ? pull_body(*self, body, refusal) : read_table(*self, body, refusal);
  if (!status.ok()) {
    erase_pull(self);
  } else if (!refusal.ok() || self->complete_parts()) {
    end_pull(self, std::move(refusal));
  } else {
    waiting_pulls_.push_back(&*self);
    post_pulls();
  }
  return status;
}

Status ChannelImpl::pull_body(Pull& pull, Bytes bytes, Status& refusal) {
  auto offer = wire::decode_offer(bytes);
  if (!offer) return std::move(offer).error();
  auto remote = connection_.endpoint().import_region(offer->region);
  if (!remote) return std::move(remote).error();
  pull.lease = offer->lease;
  const std::uint64_t length = offer->length_bytes;
  refusal = admit_bytes(pull, length);
  if (!refusal.ok()) return {};
  pull.parts.push_back({.remote = *remote, .length_bytes = length});
  return {};
}

// Memory for a body is taken when it is about to be read: until then another one may use what is kept.
Status ChannelImpl::make_body(Pull& pull) {
  Pull::Part& part = pull.parts[pull.part];
  if (part.local != nullptr) return {};
  pull.body = Buffer(part.length_bytes);
  if (pull.body.data() == nullptr) {
    return Status(Code::kResourceExhausted, str("no memory for a payload of ", part.length_bytes, " bytes"));
  }
  return register_part(pull, part, {pull.body.data(), pull.body.size()});
}

// All pulls together may announce no more than one payload may have; memory is touched as bytes arrive.
Status ChannelImpl::admit_bytes(Pull& pull, std::uint64_t bytes) {
  const std::uint64_t limit = connection_.options().max_payload_bytes;
  if (bytes > limit || pulled_bytes_ > limit - bytes) {
    return Status(Code::kResourceExhausted, str("a payload of ", bytes, " bytes, while ", pulled_bytes_,
                                                " are being read, is more than ", limit));
  }
  if (pull.place != nullptr) {
    const std::uint64_t more = bytes - std::min(bytes, pull.funded);
    if (more > 0 && !pull.place->grow(more)) {
      ++counters_.over_budget;
      return Status(Code::kResourceExhausted,
                    str(more, " bytes of attachments, while ", account_->held(), " are held for ",
                        connection_.peer_name(), ": a connection has at most ", account_->share(),
                        " (the server's memory_bytes)"));
    }
    pull.funded -= bytes - more;
  }
  pull.announced += bytes;
  pulled_bytes_ += bytes;
  return {};
}

Status ChannelImpl::register_part(Pull& pull, Pull::Part& part, MutableBytes to) {
  auto local = connection_.device().register_memory(to.data(), to.size(), transport::Rights::kLocal);
  if (!local) return std::move(local).error();
  pull.regions.push_back(std::move(*local));
  part.local = &pull.regions.back();
  return {};
}

void ChannelImpl::Pull::prepare() {
  copies.clear();
  copied_bytes = 0;
  std::uint64_t room = limits::kPullBytes;
  next_part = part;
  next_done = done;
  while (next_part < parts.size() && room > 0 && copies.size() < limits::kPullBlocks) {
    const Part& from = parts[next_part];
    const std::uint64_t length = std::min(from.length_bytes - next_done, room);
    copies.push_back(
        {from.local, from.local_offset + next_done, &from.remote, from.remote_offset + next_done, length});
    room -= length;
    copied_bytes += length;
    next_done += length;
    if (next_done < from.length_bytes) continue;
    ++next_part;
    next_done = 0;
  }
}

void ChannelImpl::post_pulls() {
  while (!waiting_pulls_.empty() && active_pulls_ < limits::kMaxActivePulls &&
         active_pull_bytes_ < limits::kActivePullBytes && !connection_.endpoint_closing()) {
    Pull& pull = *waiting_pulls_.front();
    waiting_pulls_.pop_front();
    Status begun = pull.aborted.ok() ? make_body(pull) : pull.aborted;
    if (!begun.ok()) {
      end_pull(pull.self, std::move(begun));
      continue;
    }
    pull.prepare();
    pull.deadline = kNever;
    note_active(pull, true);
    const Status status = connection_.endpoint().read(pull.copies, pull);
    if (status.ok()) continue;
    note_active(pull, false);
    if (status.code() == Code::kResourceExhausted) {
      waiting_pulls_.push_front(&pull);  // on_ready comes back here
      return;
    }
    on_pulled(pull, status);
  }
}

void ChannelImpl::note_active(const Pull& pull, bool active) {
  if (active) {
    ++active_pulls_;
    active_pull_bytes_ += pull.copied_bytes;
  } else {
    --active_pulls_;
    active_pull_bytes_ -= pull.copied_bytes;
  }
}

void ChannelImpl::Pull::complete(Status status) noexcept {
  const Scope scope(channel, true);
  channel.note_active(*this, false);
  channel.on_pulled(*this, std::move(status));
}

void ChannelImpl::on_pulled(Pull& pull, Status status) {
  // A broken endpoint ends everything in on_closed, which follows.
  if (connection_.over() || (!status.ok() && !connection_.endpoint().error().ok())) return;
  if (status.ok()) {
    counters_.pulled_bytes += pull.copied_bytes;
    pull.part = pull.next_part;
    pull.done = pull.next_done;
    if (pull.complete_parts() && pull.aborted.ok() && pull.attached && pull.result == nullptr) {
      Status corrupt = read_table(pull, {pull.body.data(), pull.body.size()}, status);
      if (!corrupt.ok()) return connection_.break_by(std::move(corrupt));
    }
    if (status.ok() && pull.aborted.ok() && !pull.complete_parts()) {
      waiting_pulls_.push_back(&pull);
      return post_pulls();
    }
  }
  end_pull(pull.self, pull.aborted.ok() ? std::move(status) : pull.aborted);
  post_pulls();
}

void ChannelImpl::end_pull(std::list<Pull>::iterator pull, Status status) {
  if (pull->lease.generation != 0) outbox_.answer(wire::FrameType::kRelease, pull->lease.packed());
  PullHandler handler = std::move(pull->handler);
  Buffer body = std::move(pull->body);
  std::unique_ptr<Attached> attached = std::move(pull->result);
  std::shared_ptr<Server::Place> place = std::move(pull->place);
  erase_pull(pull);
  if (status.ok() && place != nullptr)
    attached = with_place(std::move(attached), std::move(body), std::move(place));
  if (!status.ok()) {
    place.reset();
    attached.reset();  // what a call named is its own again when it ends
    handler(std::move(status));
  } else if (attached != nullptr) {
    if (blocks_ != nullptr) {
      for (const Attachment& each : attached->attachments) blocks_->note_received(each.size());
    }
    handler(Payload(std::move(attached)));
  } else {
    handler(Payload(std::move(body)));
  }
}

void ChannelImpl::erase_pull(std::list<Pull>::iterator pull) {
  pulled_bytes_ -= pull->announced;
  for (transport::MemoryRegion& region : pull->regions) region.close(Nanos::zero()).ignore();
  pulls_.erase(pull);
}

// What the peer lent for a frame that is not wanted.
Status ChannelImpl::give_back(const wire::Frame& frame) {
  Handle lease;
  if ((frame.header.flags & wire::kFlagRendezvous) != 0) {
    auto offer = wire::decode_offer(frame.body);
    if (!offer) return std::move(offer).error();
    lease = offer->lease;
  } else {
    auto table = wire::decode_attachments(frame.body);
    if (!table) return std::move(table).error();
    lease = table->lease;
  }
  if (lease.generation != 0) outbox_.answer(wire::FrameType::kRelease, lease.packed());
  return {};
}

}  // namespace slime::rpc
