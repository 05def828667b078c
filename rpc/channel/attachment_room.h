#pragma once

// Private to rpc: the memory that received attachments are written to.

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/bytes.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/channel.h"
#include "rpc/channel/connection.h"

namespace slime::rpc {

// Finds memory for received attachments: a destination that the call named, else a block of the
// connection, else other memory of the process. Thread: the loop.
class AttachmentRoom {
 public:
  explicit AttachmentRoom(Connection& connection) : connection_(connection) {}
  AttachmentRoom(const AttachmentRoom&) = delete;
  AttachmentRoom& operator=(const AttachmentRoom&) = delete;

  // Keeps the destinations of a call or a receive until take(). Returns their number.
  std::uint64_t keep(Destinations&& into);
  Destinations take(std::uint64_t number);
  // Keeps the destinations of a call, and sets `number` to the number under which they are kept.
  // Returns a handler that drops the destinations and calls `handler`.
  CallHandler keep(Destinations&& into, CallHandler&& handler, std::uint64_t& number);
  // Returns the destinations with this number, which exist.
  [[nodiscard]] const Destinations& all(std::uint64_t number) const { return into_.at(number); }
  // Returns the destination for attachment `index` of the reply to the call whose destinations have
  // this number; null if the call named none.
  [[nodiscard]] const Destination* destination(std::uint64_t number, std::size_t index) const;

  // Begins a new table of attachments. Called once for each body.
  void begin_table() { connection_.blocks().begin_table(); }
  // Finds memory for one attachment of the table: `to`, or new memory if `to` is null. The pages of
  // new memory are touched only as bytes arrive.
  Status find(std::uint64_t length, const Destination* to, MutableBytes& room, Attachment& out);
  // Records attachments that were received completely.
  void note_received(const Attachments& attachments);

 private:
  Connection& connection_;
  std::unordered_map<std::uint64_t, Destinations> into_;  // by number
  std::uint64_t last_number_ = 0;
};

}  // namespace slime::rpc
