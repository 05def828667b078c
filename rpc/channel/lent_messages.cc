#include "rpc/channel/lent_messages.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/copy.h"
#include "base/str.h"
#include "rpc/codec/attachments.h"

namespace slime::rpc {
namespace {

std::uint64_t bytes_of(const Destinations& into) {
  std::uint64_t out = 0;
  for (const Destination& each : into) out += each.bytes().size();
  return out;
}

// Bytes of a message.
struct LentRange {
  std::optional<transport::RemoteRegion> region;  // nullopt: `bytes`
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  Bytes bytes;
};

// Memory that a message is read into, in order.
struct Target {
  MutableBytes bytes;
  Puller::Room room{};
};

// Returns the ranges of a table, whose bytes they view.
Result<std::vector<LentRange>> ranges_of(Connection& connection, const wire::AttachmentTable& table) {
  std::vector<LentRange> out;
  out.reserve(table.entries.size());
  for (const wire::AttachmentEntry& entry : table.entries) {
    LentRange& range = out.emplace_back();
    range.length_bytes = entry.length_bytes;
    range.bytes = entry.bytes;
    if (!entry.lent) continue;
    auto region = connection.endpoint().import_region(entry.region);
    if (!region) return std::move(region).error();
    range.region = std::move(*region);
    range.offset = entry.offset;
  }
  return out;
}

// Distributes the ranges of a message over the targets, which have room for them: copies bytes that
// have come, and adds a part for each piece of the peer's memory.
void distribute(const std::vector<LentRange>& ranges, std::span<const Target> targets,
                std::vector<Puller::Part>& parts) {
  std::size_t target = 0;
  std::uint64_t used = 0;  // bytes of this target
  for (const LentRange& range : ranges) {
    for (std::uint64_t done = 0; done < range.length_bytes;) {
      while (used == targets[target].bytes.size()) {
        ++target;
        used = 0;
      }
      const Target& to = targets[target];
      const std::uint64_t length = std::min<std::uint64_t>(range.length_bytes - done, to.bytes.size() - used);
      if (range.region) {
        parts.push_back({to.room.region, to.room.offset + used, *range.region, range.offset + done, length});
      } else {
        copy_bytes(to.bytes.data() + used, range.bytes.data() + done, length);
      }
      done += length;
      used += length;
    }
  }
}

}  // namespace

Status message_too_long(std::uint64_t length, std::uint64_t room) {
  return Status(Code::kInvalidArgument,
                str("the message has ", length, " bytes, and the receive has room for ", room));
}

Status LentMessages::on_message(const wire::Frame& frame, const Status& refusal) {
  if ((frame.header.flags & wire::kFlagRendezvous) != 0)
    return Status(Code::kCorrupt, "a message whose table of ranges is lent");
  auto table = wire::decode_attachments(frame.body);
  if (!table) return std::move(table).error();
  if (!table->body.empty()) return Status(Code::kCorrupt, "a message of ranges with a body");
  if (const auto ranges = ranges_of(parts_.connection, *table); !ranges) return ranges.error();
  auto lent = std::make_unique<Inbox::Lent>();
  lent->id = frame.header.id;
  lent->lease = table->lease;
  // Fits into 64 bits: the decoder checks it.
  for (const wire::AttachmentEntry& entry : table->entries) lent->length_bytes += entry.length_bytes;
  if (refusal.ok()) {
    lent->table.assign(frame.body.begin(), frame.body.end());
    parts_.inbox.add_lent(frame.header.value, frame.body.size(), std::move(lent));
  } else {
    answer(*lent, refusal);
  }
  return {};
}

void LentMessages::read(Handle receive, Inbox::Message&& message) {
  const LoopTurn turn(parts_.turns);
  CallTable::Pending& pending = *parts_.calls.find(receive);
  const std::uint64_t id = message.lent->id;
  const std::uint64_t into = pending.into;
  const std::uint64_t room = into != 0 ? bytes_of(parts_.room.all(into)) : message.lent->length_bytes;
  const std::uint64_t length = message.lent->length_bytes;
  // Before there is memory for it: the length is a peer's.
  const Status status = length > room ? message_too_long(length, room) : parts_.puller.admits(length);
  if (!status.ok()) {
    answer(*message.lent, status);
    parts_.calls.finish(receive, {status, {}, {}});
    return;
  }
  Result<Puller::Reads> reads = prepare(*message.lent, into);
  if (!reads) {  // a destination whose region is closed, or no memory: the message waits for another receive
    put_back(std::move(message));
    parts_.calls.finish(receive, {std::move(reads).error(), {}, {}});
    return;
  }
  pending.pulling = true;
  if (!readings_.try_emplace(id, Reading{receive, std::move(message)}).second)
    return parts_.connection.break_by(Status(Code::kCorrupt, "two messages with one id"));
  parts_.puller.pull_parts(std::move(*reads), receive, into,
                           [this, id](Result<Payload> body) { on_read(id, std::move(body)); });
}

Result<Puller::Reads> LentMessages::prepare(const Inbox::Lent& lent, std::uint64_t into) {
  Puller::Reads reads;
  std::vector<Target> targets;
  const auto table = wire::decode_attachments(lent.table);
  if (!table) return table.error();
  const auto ranges = ranges_of(parts_.connection, *table);
  if (!ranges) return ranges.error();
  const bool read =
      std::any_of(ranges->begin(), ranges->end(), [](const auto& range) { return range.region.has_value(); });
  const auto add = [&](const Registered* memory, MutableBytes bytes) -> Status {
    Target& target = targets.emplace_back(Target{bytes});
    if (!read || bytes.empty()) return {};
    const auto room = parts_.puller.room_for(reads.regions, memory, bytes);
    if (!room) return room.status();
    target.room = *room;
    return {};
  };
  if (into != 0) {
    for (const Destination& each : parts_.room.all(into)) SLIME_TRY(add(each.memory(), each.bytes()));
  } else if (lent.length_bytes != 0) {
    parts_.connection.blocks().begin_table();
    reads.block = parts_.connection.blocks().take_for_received(lent.length_bytes);
    reads.body_bytes = lent.length_bytes;
    if (reads.block != nullptr) {
      targets.push_back({reads.block->bytes(), {&reads.block->region()}});
    } else {
      reads.body = Buffer(lent.length_bytes);
      if (reads.body.data() == nullptr) {
        return Status(Code::kResourceExhausted,
                      str("no memory for a message of ", lent.length_bytes, " bytes"));
      }
      SLIME_TRY(add(nullptr, {reads.body.data(), reads.body.size()}));
    }
  }
  distribute(*ranges, targets, reads.parts);
  return reads;
}

void LentMessages::on_read(std::uint64_t id, Result<Payload> body) {
  auto node = readings_.extract(id);
  Reading reading = std::move(node.mapped());
  Inbox::Message& message = reading.message;
  CallTable::Pending* const pending = parts_.calls.find(reading.receive);
  CallTable::Outcome outcome{body.status(), {}, {}, message.tag, message.number};
  if (body) {
    answer(*message.lent, {});
    // The receive of a message that was read into other memory than its own may have ended.
    if (pending == nullptr) return parts_.inbox.put_back(message.tag, message.number, std::move(*body));
    outcome.payload = std::move(*body);
    if (pending->into != 0) read_.emplace(pending->into, message.lent->length_bytes);
  } else if (reading.taken_back) {
    answer(*message.lent, Status(Code::kCancelled, "its sender took it back"));
    outcome.status = Status(Code::kAborted, str(parts_.connection.peer_name(), " took the message with tag ",
                                                message.tag, " back while it was read"));
  } else if (pending == nullptr || reading.given_up) {
    put_back(std::move(message));
  } else {
    answer(*message.lent, body.status());
  }
  if (pending != nullptr) parts_.calls.finish(reading.receive, std::move(outcome));
}

std::optional<std::uint64_t> LentMessages::length_read(std::uint64_t into) {
  const auto node = read_.extract(into);
  if (node.empty()) return std::nullopt;
  return node.mapped();
}

void LentMessages::answer(const Inbox::Lent& lent, const Status& outcome) {
  if (lent.lease.generation != 0) parts_.outbox.answer(wire::FrameType::kRelease, lent.lease.packed());
  parts_.outbox.answer(wire::FrameType::kUserAck, lent.id, outcome);
}

void LentMessages::put_back(Inbox::Message&& message) {
  if (!parts_.connection.closing()) return parts_.inbox.put_back(std::move(message));
  answer(*message.lent, Status(Code::kUnavailable, "the peer is closing the connection"));
}

bool LentMessages::on_cancel(std::uint64_t id) {
  if (const auto waiting = parts_.inbox.take_lent(id)) {
    answer(*waiting, Status(Code::kCancelled, "its sender took it back"));
    return true;
  }
  const auto found = readings_.find(id);
  if (found == readings_.end()) return false;
  found->second.taken_back = true;
  parts_.puller.abort_reply(found->second.receive, Status(Code::kAborted, "its sender took it back"));
  return true;
}

void LentMessages::on_given_up(Handle receive) {
  for (auto& [id, reading] : readings_) {
    if (reading.receive == receive) reading.given_up = true;
  }
}

void LentMessages::refuse_waiting() {
  for (const auto& lent : parts_.inbox.take_all_lent())
    answer(*lent, Status(Code::kUnavailable, "the peer is closing the connection"));
}

}  // namespace slime::rpc
