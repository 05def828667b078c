#include "integrations/nixl/plugin_data.h"

#include <array>

#include "base/str.h"
#include "integrations/nixl/limits.h"

namespace slime::nixl {
namespace {

constexpr std::uint32_t kMagic = 0x4d494c53;  // "SLIM"
// version of ConnInfo and of all other data that plugins exchange
constexpr std::uint16_t kVersion = 1;

std::string to_text(const ByteVector& bytes) { return std::string(as_text(bytes)); }

}  // namespace

std::string ConnInfo::encode() const {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(kMagic);
  writer.write(kVersion);
  writer.write(id);
  writer.text(address);
  return to_text(out);
}

Result<ConnInfo> ConnInfo::decode(std::string_view text) {
  ByteReader reader(as_bytes(text));
  if (reader.read<std::uint32_t>() != kMagic)
    return Status(Code::kCorrupt, "connection info that no SLIME backend has made");
  if (const auto version = reader.read<std::uint16_t>(); version != kVersion)
    return Status(Code::kUnimplemented,
                  str("connection info of version ", version, " of the SLIME backend; this is version ",
                      kVersion, ": use the same slime-rdma at both ends"));
  ConnInfo out;
  out.id = reader.read<std::uint64_t>();
  out.address = reader.text(limits::kAddressBytes);
  if (!reader.complete() || out.address.empty())
    return Status(Code::kCorrupt, "connection info of a SLIME backend that is cut off or too long");
  return out;
}

std::string ConnInfo::region_name(std::uint64_t number) const {
  return str("nixl/", to_hex(std::as_bytes(std::span(&id, 1))), "/", number);
}

std::string encode_registration(std::uint64_t number) {
  ByteVector out;
  ByteWriter(out).write(number);
  return to_text(out);
}

Result<std::uint64_t> decode_registration(std::string_view text) {
  ByteReader reader(as_bytes(text));
  const auto number = reader.read<std::uint64_t>();
  if (!reader.complete()) return Status(Code::kCorrupt, "a registration that no SLIME backend has made");
  return number;
}

ByteVector encode_notification(std::string_view sender, std::string_view message) {
  ByteVector out;
  out.reserve(sizeof(std::uint16_t) + sender.size() + message.size());
  ByteWriter writer(out);
  writer.text(sender);
  writer.append(as_bytes(message));
  return out;
}

Result<Notification> decode_notification(Bytes body) {
  ByteReader reader(body);
  Notification out;
  out.sender = reader.text(limits::kAgentNameBytes);
  if (reader.failed()) return Status(Code::kCorrupt, "a notification that no SLIME backend has made");
  out.message = as_text(reader.take(reader.remaining()));
  return out;
}

}  // namespace slime::nixl
