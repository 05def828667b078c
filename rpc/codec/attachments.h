#pragma once

// Private to rpc: the bytes of attachments. The table that a body with kFlagAttachments begins with, and the
// extension value that stands for one in the msgpack: docs/wire-format.md, section "Attachments".

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
  Bytes bytes;                         // of one that is inline
  bool lent = false;                   // else
  std::uint64_t offset = 0;            // in the region
  transport::RegionDescriptor region;  // that the receiver reads, then releases with all of the body
};

struct AttachmentTable {
  Handle lease;  // of all that the table lends; generation 0: nothing
  std::vector<AttachmentEntry> entries;
  Bytes body;  // what follows the table and the inline bytes: the msgpack
};

// A body with kFlagAttachments. The inline entries and the body are views.
ByteVector encode_attachments(const AttachmentTable& table);
// kCorrupt for whatever is not exactly a table. Allocates by what is there, never by what is announced.
Result<AttachmentTable> decode_attachments(Bytes bytes);

// The data of the extension value: which attachment of the body it is, and what it is an array of.
ByteVector encode_attachment_value(std::uint32_t index, const ArrayType* array);
struct AttachmentValue {
  std::uint32_t index = 0;
  bool is_array = false;
  ArrayType array;
};
// kInvalidArgument for other bytes.
Result<AttachmentValue> decode_attachment_value(Bytes data);

}  // namespace slime::rpc::wire
