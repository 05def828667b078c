#pragma once

// Private to rpc: the bytes of attachments: the table at the begin of a body with kFlagAttachments,
// and the extension value for an attachment in the msgpack. docs/wire-format.md, section
// "Attachments".

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
  transport::RegionDescriptor region;  // the receiver reads it, then releases all of the body
};

struct AttachmentTable {
  Handle lease;  // of all lent entries; generation 0: none
  std::vector<AttachmentEntry> entries;
  Bytes body;  // the msgpack, after the table and the inline bytes
};

// Encode and decode a body with kFlagAttachments. Inline entries and the body are views.
ByteVector encode_attachments(const AttachmentTable& table);
// kCorrupt for bytes that are not exactly a table. Allocates for present bytes, never for announced
// ones.
Result<AttachmentTable> decode_attachments(Bytes bytes);

// The data of the extension value: index of the attachment in the body, and array type.
ByteVector encode_attachment_value(std::uint32_t index, const ArrayType* array);
struct AttachmentValue {
  std::uint32_t index = 0;
  bool is_array = false;
  ArrayType array;
};
// kInvalidArgument for other bytes.
Result<AttachmentValue> decode_attachment_value(Bytes data);

}  // namespace slime::rpc::wire
