#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"

// User messages: kept in order of arrival for each tag, bounded, out of the receive slots at once, so that
// messages that nobody takes cost memory but no credits.
namespace slime::rpc {

using wire::FrameType;

// One larger than the whole inbox is taken while nothing else is there: else it could never come.
Status ChannelImpl::admit_message(const Tag& tag, std::uint64_t bytes) const {
  if (tag.receivers.size() > tag.messages.size()) return {};  // somebody waits for it
  if (closing_) return Status(Code::kUnavailable, "the peer is closing the connection");
  if (inbox_messages_ >= options_.inbox_messages ||
      (inbox_messages_ > 0 && inbox_bytes_ + bytes > options_.inbox_bytes)) {
    return Status(Code::kResourceExhausted, str("the inbox is full: ", inbox_messages_, " messages with ",
                                                inbox_bytes_, " bytes that nobody has received"));
  }
  return {};
}

Status ChannelImpl::on_user_message(const wire::Frame& frame) {
  const std::uint64_t tag = frame.header.value;
  const std::uint64_t id = frame.header.id;
  const bool offered = (frame.header.flags & wire::kFlagRendezvous) != 0;
  std::uint64_t bytes = frame.body.size();
  if (offered) {
    auto offer = wire::decode_offer(frame.body);
    if (!offer) return std::move(offer).error();
    bytes = offer->length_bytes;
    const Status status = admit_message(tags_[tag], bytes);
    if (!status.ok()) {
      answer(FrameType::kRelease, offer->lease.packed());
      answer(FrameType::kUserAck, id, status);
      forget_tag_if_empty(tag);
      return {};
    }
  } else if (const Status status = admit_message(tags_[tag], bytes); !status.ok()) {
    answer(FrameType::kUserAck, id, status);
    forget_tag_if_empty(tag);
    return {};
  }
  std::list<InboxEntry>& messages = tags_[tag].messages;
  const auto entry = messages.emplace(messages.end());
  entry->number = ++messages_arrived_;
  entry->bytes = bytes;
  ++inbox_messages_;
  inbox_bytes_ += bytes;
  if (!offered) {
    entry->payload = Payload(frame.body);
    entry->complete = true;
    answer(FrameType::kUserAck, id);
    match(tag);
    return {};
  }
  // Later messages of this tag wait behind it.
  return pull(frame, {}, [this, tag, id, entry](Result<Payload> body) {
    if (body) {
      entry->payload = std::move(*body);
      entry->complete = true;
    } else {
      --inbox_messages_;
      inbox_bytes_ -= entry->bytes;
      tags_[tag].messages.erase(entry);
    }
    answer(FrameType::kUserAck, id, body.status());
    match(tag);
  });
}

// Puts back a message that a receive did not take, in front of the messages that arrived after it.
void ChannelImpl::take_back(AnswerBox::GivenBack&& message) {
  std::list<InboxEntry>& messages = tags_[message.tag].messages;
  const auto behind = std::find_if(messages.begin(), messages.end(),
                                   [&](const InboxEntry& entry) { return entry.number > message.number; });
  InboxEntry& entry = *messages.emplace(behind);
  entry.number = message.number;
  entry.bytes = message.message.bytes().size();
  entry.payload = std::move(message.message);
  entry.complete = true;
  ++inbox_messages_;
  inbox_bytes_ += entry.bytes;
  match(message.tag);
}

// Gives complete messages to waiting receives, both in order. A receive gets its message only when
// its handler is called: it may be given up until then, and the next receive must not overtake its
// message.
void ChannelImpl::match(std::uint64_t tag) {
  const auto ready = [this, tag] {
    const auto found = tags_.find(tag);
    return found != tags_.end() && !found->second.receivers.empty() && !found->second.messages.empty() &&
           found->second.messages.front().complete;
  };
  if (!ready()) return forget_tag_if_empty(tag);
  done_.push_back({Handler(DoneHandler([this, tag, ready](const Status&) {
                     while (ready()) {
                       Tag& state = tags_[tag];
                       InboxEntry entry = std::move(state.messages.front());
                       state.messages.pop_front();
                       --inbox_messages_;
                       inbox_bytes_ -= entry.bytes;
                       const Handle receiver = state.receivers.front();
                       state.receivers.pop_front();
                       auto handler = std::move(std::get<DeliveryHandler>(pending_.find(receiver)->handler));
                       pending_.erase(receiver);
                       --receives_;
                       forget_tag_if_empty(tag);
                       handler(Delivery(box_, tag, entry.number, std::move(entry.payload)));
                       take_answers();  // takes the message back if the receive was given up
                     }
                   })),
                   {}});
}

void ChannelImpl::forget_tag_if_empty(std::uint64_t tag) {
  const auto it = tags_.find(tag);
  if (it != tags_.end() && it->second.messages.empty() && it->second.receivers.empty()) tags_.erase(it);
}

}  // namespace slime::rpc
