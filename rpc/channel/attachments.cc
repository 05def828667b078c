#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/codec/received.h"
#include "rpc/codec/received_blocks.h"

// Bytes beside a body: how they are lent, where those that come go, and what a call that names memory for
// them waits for.
namespace slime::rpc {

// --------------------------------------------------------------------------------------------------- sending

Ticket ChannelImpl::call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) {
  return ask_attached(spec, std::move(request), std::move(handler), 0);
}

// They are found by a number of their own, and go with the handler.
CallHandler ChannelImpl::keep_destinations(Destinations&& into, CallHandler&& handler,
                                           std::uint64_t& number) {
  number = ++into_numbers_;
  into_.emplace(number, std::move(into));
  return [this, number, handler = std::move(handler)](Result<Payload> reply) mutable {
    into_.erase(number);
    handler(std::move(reply));
  };
}

// The answer to a request that was cancelled meanwhile, or has attachments.
void ChannelImpl::send_known_answer(Handle handle, const Served& served, Result<ByteVector>&& reply) {
  AnswerBox::Fate fate = box_->forget(handle.packed());
  if (fate.cancelled)
    reply = Status(Code::kCancelled, "its caller does not wait any more").with_maybe_executed(true);
  if (!reply || fate.attachments.empty()) {
    if (served.timed) return send_timed(handle, served, std::move(reply));
    return send_reply(served, std::move(reply));
  }
  OutFrame frame;
  wire::ServerTimes times;
  if (served.timed) {
    times = take_timed(handle);
    frame.header.flags = wire::kFlagTiming;
    ByteWriter(frame.text).write(times);
  }
  frame.header.type = wire::FrameType::kReply;
  frame.header.id = served.call;
  frame.header.method = served.method;
  Handle lent;
  AttachedBody body{.body = std::move(*reply), .attachments = std::move(fate.attachments)};
  Status status = lending_.put_body(frame, std::move(body), lent);
  if (status.ok() && lent.generation != 0)
    status = lending_.admit_answer(frame, lent, served.deadline, answer_held_);
  if (!status.ok()) {
    status = std::move(status).with_context("the reply").with_maybe_executed(true);
    if (served.timed) return send_reply(served, std::move(status), times);
    return send_reply(served, std::move(status));
  }
  outbox_.submit(frame);
}

// ------------------------------------------------------------------------------------------------- receiving

// kCorrupt when this is no table, or names memory that is none; `refusal` when it is not taken. Nothing is
// written anywhere before all of it was found good.
Status ChannelImpl::read_table(Pull& pull, Bytes bytes, Status& refusal) {
  auto table = wire::decode_attachments(bytes);
  if (!table) return std::move(table).error();
  const bool lends = table->lease.generation != 0;
  if (lends && pull.lease.generation != 0 && table->lease != pull.lease)
    return Status(Code::kCorrupt, "a body and attachments with two leases");
  if (lends) pull.lease = table->lease;
  pull.parts.clear();
  pull.part = pull.done = 0;
  for (const wire::AttachmentEntry& entry : table->entries) {
    if (!entry.lent) continue;
    auto remote = connection_.endpoint().import_region(entry.region);
    if (!remote) return std::move(remote).error();
    pull.parts.push_back(
        {.remote = *remote, .remote_offset = entry.offset, .length_bytes = entry.length_bytes});
  }
  refusal = place_attachments(pull, *table);
  return {};
}

// Where the call whose reply it is wants it; null: in memory that is made for it.
const Destination* ChannelImpl::destination(const Pull& pull, std::size_t index) const {
  const Pending* const pending = pending_.find(pull.call);
  if (pending == nullptr) return nullptr;
  const auto named = into_.find(pending->tag);
  return named != into_.end() && index < named->second.size() ? &named->second[index] : nullptr;
}

// Finds or makes memory for all, and fills that of the inline ones.
Status ChannelImpl::place_attachments(Pull& pull, const wire::AttachmentTable& table) {
  const std::size_t count = table.entries.size();
  for (std::size_t i = 0; i < count; ++i) {
    const wire::AttachmentEntry& entry = table.entries[i];
    const Destination* const to = destination(pull, i);
    if (to != nullptr && entry.length_bytes > to->bytes().size()) {
      return Status(Code::kInvalidArgument,
                    str("attachment ", i, " has ", entry.length_bytes, " bytes, and there is room for ",
                        to->bytes().size(), " where it should go"));
    }
    if (entry.lent) SLIME_TRY(admit_bytes(pull, entry.length_bytes));
  }
  auto result = std::make_unique<Attached>();
  result->attachments.resize(count);
  std::vector<MutableBytes> room(count);
  if (blocks_ == nullptr)
    blocks_ = std::make_shared<ReceivedBlocks>(connection_.device(), connection_.endpoint().id());
  blocks_->begin_table();
  std::size_t lent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const wire::AttachmentEntry& entry = table.entries[i];
    const Destination* const to = destination(pull, i);
    SLIME_TRY(make_room(entry.length_bytes, to, room[i], result->attachments[i]));
    const Registered* const memory = to != nullptr ? to->memory() : result->attachments[i].memory();
    if (entry.lent) SLIME_TRY(register_room(pull, pull.parts[lent++], memory, room[i]));
  }
  result->body = table.body;
  if (pull.body.data() != nullptr) {
    result->memory = std::move(pull.body);  // which the table is a view of
  } else {
    result->memory = Buffer(std::max<std::size_t>(table.body.size(), 1));
    if (result->memory.data() == nullptr) return Status(Code::kResourceExhausted, "no memory for a body");
    if (!table.body.empty()) std::memcpy(result->memory.data(), table.body.data(), table.body.size());
    result->body = {result->memory.data(), table.body.size()};
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes from = table.entries[i].bytes;
    if (!from.empty()) std::memcpy(room[i].data(), from.data(), from.size());
    counters_.copied_bytes += from.size();
  }
  pull.result = std::move(result);
  return {};
}

// Memory that is made is touched as bytes arrive.
Status ChannelImpl::make_room(std::uint64_t length, const Destination* to, MutableBytes& room,
                              Attachment& out) {
  if (to != nullptr) {
    room = to->bytes().first(length);
    out = to->filled(length);
    return {};
  }
  if (length == 0) return {};
  if (auto block = blocks_->take(length)) {
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

Status ChannelImpl::register_room(Pull& pull, Pull::Part& part, const Registered* memory, MutableBytes room) {
  if (memory == nullptr) return register_part(pull, part, room);
  auto region = memory->on(connection_.device());
  if (!region) return std::move(region).error();
  part.local = *region;
  part.local_offset = static_cast<std::uint64_t>(room.data() - (*region)->data());
  return {};
}

// ------------------------------------------------------------------------------------------ ending too early

// A call ends while its reply is read. True: later, because it named the memory that is being written; its
// pull ends it, after the piece that is under way.
bool ChannelImpl::abort_reply(Handle call, const Status& reason) {
  const auto pull = std::find_if(pulls_.begin(), pulls_.end(), [&](const Pull& p) { return p.call == call; });
  if (pull == pulls_.end()) return false;
  if (pull->aborted.ok()) pull->aborted = reason;
  if (pending_.find(call)->tag == 0) return false;
  if (pull->posted()) return true;
  if (connection_.endpoint_closing()) return false;  // nothing more is read
  std::erase(waiting_pulls_, &*pull);
  end_pull(pull, pull->aborted);
  return true;
}

// Its caller does not wait any more, so the rest of it need not be read.
void ChannelImpl::abort_request(Handle served) {
  const auto pull =
      std::find_if(pulls_.begin(), pulls_.end(), [&](const Pull& p) { return p.served == served; });
  if (pull == pulls_.end() || !pull->aborted.ok()) return;
  pull->aborted = Status(Code::kCancelled, "cancelled while the request was read");
  if (pull->posted() || connection_.endpoint_closing()) return;
  std::erase(waiting_pulls_, &*pull);
  end_pull(pull, pull->aborted);
}

}  // namespace slime::rpc
