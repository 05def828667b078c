#pragma once

// Private to rpc: encodes and decodes attachments: the table at the beginning of a body with
// kFlagAttachments, and the extension value that refers to an attachment in the msgpack. See
// docs/wire-format.md, section "Attachments".

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "transport/memory.h"

namespace slime::rpc::wire {

struct AttachmentEntry {
  std::uint64_t length_bytes = 0;
  Bytes bytes;        // inline bytes, if not lent
  bool lent = false;  // the bytes are in `region`, at `offset`
  std::uint64_t offset = 0;
  // region that the receiver reads from; it then releases all memory of the body at once
  transport::RegionDescriptor region;
};

struct AttachmentTable {
  Handle lease;  // of all lent entries; generation 0: none
  std::vector<AttachmentEntry> entries;
  Bytes body;  // the msgpack body, which follows the table and the inline bytes
};

// Encode and decode a body with kFlagAttachments. In a decoded table, inline bytes and the body are
// views of the encoded bytes.
ByteVector encode_attachments(const AttachmentTable& table);
// Returns kCorrupt if the bytes are not exactly a table. Allocates memory only for entries that are
// present, never for an announced number.
Result<AttachmentTable> decode_attachments(Bytes bytes);

// Encodes the data of the extension value that refers to an attachment: the attachment's index in
// the body, and the array type (null: not an array).
ByteVector encode_attachment_value(std::uint32_t index, const ArrayType* array);
struct AttachmentValue {
  std::uint32_t index = 0;
  bool is_array = false;
  ArrayType array;
};
// kInvalidArgument for other bytes.
Result<AttachmentValue> decode_attachment_value(Bytes data);

}  // namespace slime::rpc::wire
