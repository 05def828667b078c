#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

// Data that two plugins exchange through NIXL's metadata and in notifications. The data contains no
// memory keys: a plugin asks its peer for the keys over the connection, and they are valid until
// the connection ends.
namespace slime::nixl {

// Connection info of an agent, from NIXL's metadata: the agent's address, and the id that begins
// the names of its regions.
struct ConnInfo {
  std::string address;  // "host:port"
  std::uint64_t id =
      0;  // random id of the engine; another process that gets the same port later has another id

  [[nodiscard]] std::string encode() const;
  // Errors: kCorrupt for invalid text, kUnimplemented for another version of the plugin.
  static Result<ConnInfo> decode(std::string_view text);
  // Returns the name under which the engine with this id publishes registration `number`.
  [[nodiscard]] std::string region_name(std::uint64_t number) const;
};

// Encodes the number of a registration: its public data in NIXL's metadata.
std::string encode_registration(std::uint64_t number);
Result<std::uint64_t> decode_registration(std::string_view text);

// The decoded body of a notification. `message` points into the bytes that were decoded.
struct Notification {
  std::string sender;  // NIXL's name of the agent
  std::string_view message;
};
ByteVector encode_notification(std::string_view sender, std::string_view message);
Result<Notification> decode_notification(Bytes body);

}  // namespace slime::nixl
