#include "transport/memory.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/str.h"

namespace slime::transport {

PackedKey::PackedKey(Bytes bytes) {
  SLIME_CHECK(bytes.size() <= kMaxBytes);
  if (bytes.size() > short_.size()) {
    long_ = std::make_shared<const ByteVector>(bytes.begin(), bytes.end());
    return;
  }
  std::ranges::copy(bytes, short_.begin());
  length_ = static_cast<std::uint8_t>(bytes.size());
}

void RegionDescriptor::encode(ByteWriter& out) const {
  out.write(id.packed());
  out.write(length_bytes);
  out.write(rights);
  out.write(static_cast<std::uint16_t>(key.bytes().size()));
  out.append(key.bytes());
}

std::optional<RegionDescriptor> RegionDescriptor::decode(ByteReader& in) {
  RegionDescriptor out;
  out.id = Handle::unpack(in.read<std::uint64_t>());
  out.length_bytes = in.read<std::uint64_t>();
  const auto rights = in.read<std::uint8_t>();
  const auto key_bytes = in.read<std::uint16_t>();
  if (in.failed() || rights > static_cast<std::uint8_t>(Rights::kReadWrite)) return std::nullopt;
  if (out.id.generation == 0 || key_bytes == 0 || key_bytes > PackedKey::kMaxBytes) return std::nullopt;
  out.rights = static_cast<Rights>(rights);
  const Bytes key = in.take(key_bytes);
  if (in.failed()) return std::nullopt;
  out.key = PackedKey(key);
  return out;
}

Status check_range(const void* data, std::size_t bytes) {
  if (data == nullptr || bytes == 0)
    return Status(Code::kInvalidArgument, "a region needs a non-null address and at least one byte");
  if (bytes > std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(data))
    return Status(Code::kInvalidArgument, str("a region of ", bytes, " bytes ends beyond the address space"));
  return {};
}

}  // namespace slime::transport
