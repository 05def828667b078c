#include "rpc/codec/attachments.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "rpc/codec.h"
#include "rpc/codec/received.h"
#include "rpc/limits.h"
#include "rpc/payload.h"

namespace slime::rpc {
namespace wire {
namespace {

constexpr std::uint8_t kInline = 0;
constexpr std::uint8_t kLent = 1;
// Size of the smallest entry of a table: a length and a kind.
constexpr std::size_t kEntryBytes = 9;

Status malformed(std::string_view what) {
  return Status(Code::kCorrupt, str("a table of attachments: ", what));
}

Status read_entry(ByteReader& in, AttachmentEntry& entry) {
  entry.length_bytes = in.read<std::uint64_t>();
  const auto place = in.read<std::uint8_t>();
  if (in.failed() || place > kLent) return malformed("an entry that is none");
  entry.lent = place == kLent;
  if (!entry.lent) return {};
  entry.offset = in.read<std::uint64_t>();
  const auto region = transport::RegionDescriptor::decode(in);
  if (!region) return malformed("a malformed region");
  entry.region = *region;
  if (entry.length_bytes == 0 || entry.offset > region->length_bytes ||
      entry.length_bytes > region->length_bytes - entry.offset ||
      !transport::allows(region->rights, transport::Rights::kRemoteRead))
    return malformed("memory that cannot be read");
  return {};
}

}  // namespace

ByteVector encode_attachments(const AttachmentTable& table) {
  ByteVector bytes;
  std::size_t size = 16 + table.body.size();
  for (const AttachmentEntry& entry : table.entries)
    size += kEntryBytes + (entry.lent ? 8 + entry.region.encoded_bytes() : entry.bytes.size());
  bytes.reserve(size);
  ByteWriter out(bytes);
  out.write(static_cast<std::uint32_t>(table.entries.size()));
  out.write(std::uint32_t{0});
  out.write(table.lease.packed());
  for (const AttachmentEntry& entry : table.entries) {
    out.write(entry.length_bytes);
    out.write(entry.lent ? kLent : kInline);
    if (!entry.lent) continue;
    out.write(entry.offset);
    entry.region.encode(out);
  }
  for (const AttachmentEntry& entry : table.entries) {
    if (!entry.lent) out.append(entry.bytes);
  }
  out.append(table.body);
  return bytes;
}

Result<AttachmentTable> decode_attachments(Bytes bytes) {
  ByteReader in(bytes);
  const auto count = in.read<std::uint32_t>();
  const auto reserved = in.read<std::uint32_t>();
  AttachmentTable table;
  table.lease = Handle::unpack(in.read<std::uint64_t>());
  if (in.failed() || reserved != 0) return malformed("no header");
  if (count == 0 || count > limits::kMaxAttachments || count > in.remaining() / kEntryBytes)
    return malformed("a wrong number of entries");
  table.entries.resize(count);
  std::uint64_t sum = 0;
  bool lent = false;
  for (AttachmentEntry& entry : table.entries) {
    SLIME_TRY(read_entry(in, entry));
    if (entry.length_bytes > std::numeric_limits<std::uint64_t>::max() - sum) return malformed("too long");
    sum += entry.length_bytes;
    lent = lent || entry.lent;
  }
  if (lent ? table.lease.generation == 0 : table.lease.packed() != 0) return malformed("a wrong lease");
  for (AttachmentEntry& entry : table.entries) {
    if (!entry.lent) entry.bytes = in.take(entry.length_bytes);
  }
  if (in.failed()) return malformed("inline bytes that are not there");
  table.body = in.take(in.remaining());
  return table;
}

ByteVector encode_attachment_value(std::uint32_t index, const ArrayType* array) {
  ByteVector data;
  ByteWriter out(data);
  out.write(index);
  if (array == nullptr) return data;
  SLIME_CHECK(!array->dtype.empty() && array->dtype.size() <= limits::kDtypeBytes &&
              array->shape.size() <= limits::kArrayDimensions);
  out.text(array->dtype);
  out.write(static_cast<std::uint8_t>(array->shape.size()));
  for (const std::uint64_t extent : array->shape) out.write(extent);
  return data;
}

Result<AttachmentValue> decode_attachment_value(Bytes data) {
  const auto bad = [] { return Status(Code::kInvalidArgument, "a malformed attachment"); };
  ByteReader in(data);
  AttachmentValue out;
  out.index = in.read<std::uint32_t>();
  if (in.complete()) return out;
  out.is_array = true;
  out.array.dtype = in.text(limits::kDtypeBytes);
  const auto dimensions = in.read<std::uint8_t>();
  if (in.failed() || out.array.dtype.empty() || dimensions > limits::kArrayDimensions ||
      in.remaining() != std::size_t{dimensions} * 8)
    return bad();
  for (std::uint8_t i = 0; i < dimensions; ++i) out.array.shape.push_back(in.read<std::uint64_t>());
  return out;
}

}  // namespace wire

void Attached::release() noexcept { delete this; }

namespace {

Result<MutableBytes> range_of(const Registered* memory, std::uint64_t offset, std::uint64_t length_bytes) {
  if (memory == nullptr) return Status(Code::kInvalidArgument, "a range of no memory");
  const MutableBytes all = memory->bytes();
  if (offset > all.size() || length_bytes > all.size() - offset) {
    return Status(Code::kInvalidArgument, str("a range of ", length_bytes, " bytes from ", offset,
                                              " on, of memory of ", all.size(), " bytes"));
  }
  return all.subspan(offset, length_bytes);
}

}  // namespace

Result<Attachment> Attachment::of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                                  std::uint64_t length_bytes) {
  const auto bytes = range_of(memory.get(), offset, length_bytes);
  if (!bytes) return bytes.error();
  const Registered* const registered = memory.get();
  Attachment out(*bytes, std::move(memory));
  out.memory_ = registered;
  return out;
}

Result<Attachment> Attachment::part(std::uint64_t offset, std::uint64_t length_bytes) const {
  if (offset > size() || length_bytes > size() - offset) {
    return Status(Code::kInvalidArgument, str("a range of ", length_bytes, " bytes from ", offset,
                                              " on, of an attachment of ", size(), " bytes"));
  }
  Attachment out(bytes_.subspan(offset, length_bytes), keeper_);
  out.memory_ = memory_;
  out.received_ = received_;
  return out;
}

void Attachment::discard() const {
  if (!received_ || keeper_.use_count() != 1) return;
  if (memory_ == nullptr || !memory_->discard()) discard_received(bytes_);
}

Result<Destination> Destination::of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                                    std::uint64_t length_bytes) {
  const auto bytes = range_of(memory.get(), offset, length_bytes);
  if (!bytes) return bytes.error();
  const Registered* const registered = memory.get();
  Destination out(*bytes, std::move(memory));
  out.memory_ = registered;
  return out;
}

namespace detail {
namespace {

constinit thread_local AttachmentScope* scope = nullptr;

}  // namespace

AttachmentScope::AttachmentScope(Attachments* packed, std::span<const Attachment> unpacked)
    : packed_(packed), unpacked_(unpacked), outer_(std::exchange(scope, this)) {}

AttachmentScope::~AttachmentScope() { scope = outer_; }

ByteVector pack_attachment(const Attachment& attachment) {
  // Only AttachingSink leads to this function, and code that makes an AttachingSink has a scope.
  SLIME_CHECK(scope != nullptr && scope->packed_ != nullptr);
  Attachments& to = *scope->packed_;
  to.push_back(attachment);
  return wire::encode_attachment_value(static_cast<std::uint32_t>(to.size() - 1), attachment.array());
}

bool unpack_attachment(const msgpack::object& object, Attachment& out) {
  if (object.type != msgpack::type::EXT || object.via.ext.type() != kAttachmentExtension || scope == nullptr)
    return false;
  auto value =
      wire::decode_attachment_value(std::as_bytes(std::span(object.via.ext.data(), object.via.ext.size)));
  if (!value || value->index >= scope->unpacked_.size()) return false;
  out = scope->unpacked_[value->index];
  if (value->is_array) out.set_array(std::move(value->array));
  return true;
}

}  // namespace detail
}  // namespace slime::rpc
