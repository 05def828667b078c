#pragma once

// Private to rpc: memory that attachments are received into.

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/bytes.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/channel.h"
#include "rpc/channel/connection.h"
#include "rpc/codec/received_blocks.h"

namespace slime::rpc {

// Finds memory for received attachments: what a call named for those of its reply, else blocks of
// the connection, else memory of the process. Thread: the loop.
class AttachmentRoom {
 public:
  explicit AttachmentRoom(Connection& connection) : connection_(connection) {}
  AttachmentRoom(const AttachmentRoom&) = delete;
  AttachmentRoom& operator=(const AttachmentRoom&) = delete;
  ~AttachmentRoom();

  // Keeps the destinations that a call has named under `number` until its handler is called, which
  // this wraps.
  CallHandler keep(Destinations&& into, CallHandler&& handler, std::uint64_t& number);
  // Returns where the call wants attachment `index` of its reply; null: it has not said.
  [[nodiscard]] const Destination* destination(std::uint64_t number, std::size_t index) const;

  // A table of attachments comes: of a body, once.
  void begin_table();
  // Finds memory for one attachment of the table: `to`, or new memory, which is touched as bytes
  // arrive.
  Status find(std::uint64_t length, const Destination* to, MutableBytes& room, Attachment& out);
  // An attachment was received whole.
  void note_received(const Attachments& attachments);

 private:
  Connection& connection_;
  std::unordered_map<std::uint64_t, Destinations> into_;  // of calls that named some
  std::uint64_t last_number_ = 0;
  std::shared_ptr<ReceivedBlocks> blocks_;  // null: no attachment has come yet
};

}  // namespace slime::rpc
