#include <algorithm>

#include "rpc/channel/channel_impl.h"
#include "rpc/server/server_impl.h"

// Large requests stay with their callers until the server has a worker and memory for them. Until then a
// request is a waiting Pull, which ends at the call's deadline, by a cancel, or with the channel.
namespace slime::rpc {

// Decodes the lease and the number of lent bytes that the frame names; kCorrupt if it is malformed.
Status ChannelImpl::announced(const wire::Frame& frame, Pull& pull, std::uint64_t& bytes) const {
  if ((frame.header.flags & wire::kFlagRendezvous) != 0) {
    auto offer = wire::decode_offer(frame.body);
    if (!offer) return std::move(offer).error();
    pull.lease = offer->lease;
    bytes = offer->length_bytes;
    return {};
  }
  auto table = wire::decode_attachments(frame.body);
  if (!table) return std::move(table).error();
  pull.lease = table->lease;
  for (const wire::AttachmentEntry& entry : table->entries) bytes += entry.lent ? entry.length_bytes : 0;
  return {};
}

Status ChannelImpl::pull_request(const wire::Frame& frame, const CallInfo& info, Server::Found& found,
                                 Handle served, PullHandler handler) {
  const bool offered = (frame.header.flags & wire::kFlagRendezvous) != 0;
  const auto self = add_pull(frame, std::move(handler));
  self->served = served;
  std::uint64_t bytes = 0;
  Status status = announced(frame, *self, bytes);
  if (!status.ok()) {
    erase_pull(self);
    return status;
  }
  if (server_ == nullptr || bytes == 0) return begin_pull(self, offered, frame.body);
  self->funded = bytes;
  self->place = server_->reserve(info, found, account_, bytes,
                                 [box = box_, ticket = served.packed()] { box->granted(ticket); });
  switch (self->place->state()) {
    case Server::Place::State::kGranted:
      return begin_pull(self, offered, frame.body);
    case Server::Place::State::kRefused:
      if (bytes > account_->share()) ++counters_.over_budget;
      end_pull(self, self->place->refusal());
      return {};
    case Server::Place::State::kWaiting:
      break;
  }
  self->waits = true;
  self->offered = offered;
  self->first.assign(frame.body.begin(), frame.body.end());
  self->until = info.deadline;
  places_.arm(info.deadline);
  return {};
}

// Begins the waiting pull whose place was granted, or ends it if the place was refused.
void ChannelImpl::on_granted(Handle served) {
  const Scope scope(*this, true);
  const auto self = std::find_if(pulls_.begin(), pulls_.end(),
                                 [&](const Pull& pull) { return pull.served == served && pull.waits; });
  if (self == pulls_.end() || connection_.endpoint_closing()) return;  // the request has ended
  self->waits = false;
  if (self->place->state() == Server::Place::State::kRefused) return end_pull(self, self->place->refusal());
  const ByteVector first = std::move(self->first);
  Status status = begin_pull(self, self->offered, first);
  if (!status.ok()) connection_.break_by(std::move(status));
}

// Ties the place to the payload, which is destroyed when the request is answered at the latest.
std::unique_ptr<Attached> ChannelImpl::with_place(std::unique_ptr<Attached> attached, Buffer&& body,
                                                  std::shared_ptr<Server::Place> place) {
  if (attached == nullptr) {
    attached = std::make_unique<Attached>();
    attached->body = {body.data(), body.size()};
    attached->memory = std::move(body);
  }
  attached->place = std::move(place);
  return attached;
}

void ChannelImpl::expire_places() {
  const TimePoint now = connection_.now();
  TimePoint next = kNever;
  for (auto pull = pulls_.begin(); pull != pulls_.end();) {
    const auto self = pull++;
    if (!self->waits) continue;
    if (self->until > now) {
      next = std::min(next, self->until);
      continue;
    }
    end_pull(self,
             Status(Code::kDeadlineExceeded,
                    "the deadline passed before a handler thread and memory were free for the request"));
  }
  places_.arm(next);
}

}  // namespace slime::rpc
