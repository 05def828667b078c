#include "rpc/channel/attachment_room.h"

#include <utility>

#include "base/str.h"
#include "rpc/codec/received.h"

namespace slime::rpc {

std::uint64_t AttachmentRoom::keep(Destinations&& into) {
  into_.emplace(++last_number_, std::move(into));
  return last_number_;
}

Destinations AttachmentRoom::take(std::uint64_t number) {
  auto kept = into_.extract(number);
  return kept.empty() ? Destinations() : std::move(kept.mapped());
}

CallHandler AttachmentRoom::keep(Destinations&& into, CallHandler&& handler, std::uint64_t& number) {
  number = keep(std::move(into));
  return [this, number, handler = std::move(handler)](Result<Payload> reply) mutable {
    into_.erase(number);
    handler(std::move(reply));
  };
}

const Destination* AttachmentRoom::destination(std::uint64_t number, std::size_t index) const {
  const auto named = into_.find(number);
  return named != into_.end() && index < named->second.size() ? &named->second[index] : nullptr;
}

Status AttachmentRoom::find(std::uint64_t length, const Destination* to, MutableBytes& room,
                            Attachment& out) {
  if (to != nullptr) {
    room = to->bytes().first(length);
    out = to->filled(length);
    return {};
  }
  if (length == 0) return {};
  if (auto block = connection_.blocks().take_for_attachment(length)) {
    room = block->bytes().first(length);
    const Registered* const memory = block.get();
    out = Attachment::received(room, std::move(block), memory);
    return {};
  }
  Received made = make_received(length);
  if (made.keeper == nullptr)
    return Status(Code::kResourceExhausted, str("no memory for an attachment of ", length, " bytes"));
  room = made.bytes;
  out = Attachment::received(room, std::move(made.keeper), nullptr);
  return {};
}

void AttachmentRoom::note_received(const Attachments& attachments) {
  for (const Attachment& each : attachments) connection_.blocks().note_received(each.size());
}

}  // namespace slime::rpc
