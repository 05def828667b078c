#include "transport/memory.h"

#include <limits>

#include "base/str.h"

namespace slime::transport {

void RegionDescriptor::encode(ByteWriter& out) const {
  out.write(id.packed());
  out.write(length_bytes);
  out.write(rights);
  out.write(base);
  out.write(key_count);
  for (std::size_t i = 0; i < key_count; ++i) out.write(keys[i]);
}

std::optional<RegionDescriptor> RegionDescriptor::decode(ByteReader& in) {
  RegionDescriptor out;
  out.id = Handle::unpack(in.read<std::uint64_t>());
  out.length_bytes = in.read<std::uint64_t>();
  const auto rights = in.read<std::uint8_t>();
  out.base = in.read<std::uint64_t>();
  out.key_count = in.read<std::uint8_t>();
  if (in.failed() || rights > static_cast<std::uint8_t>(Rights::kReadWrite)) return std::nullopt;
  if (out.id.generation == 0 || out.key_count == 0 || out.key_count > kMaxRegionKeys) return std::nullopt;
  out.rights = static_cast<Rights>(rights);
  for (std::size_t i = 0; i < out.key_count; ++i) out.keys[i] = in.read<std::uint64_t>();
  if (in.failed()) return std::nullopt;
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
