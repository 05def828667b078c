#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

// Data that two plugins exchange through NIXL's metadata and in notifications. It contains no keys
// of memory: these are asked for over the connection, and end with it.
namespace slime::nixl {

// An agent's address, and the prefix of its regions' names. From NIXL's metadata.
struct ConnInfo {
  std::string address;  // "host:port"
  std::uint64_t id =
      0;  // random id of the engine: another process that gets the same port later has another id

  [[nodiscard]] std::string encode() const;
  // Errors: kCorrupt for invalid text, kUnimplemented for another version of the plugin.
  static Result<ConnInfo> decode(std::string_view text);
  // Returns the name of registration `number` of the engine with this id.
  [[nodiscard]] std::string region_name(std::uint64_t number) const;
};

// The public data of a registration: its number.
std::string encode_registration(std::uint64_t number);
Result<std::uint64_t> decode_registration(std::string_view text);

// The body of a notification. `message` points into the decoded bytes.
struct Notification {
  std::string sender;  // NIXL's name of the agent
  std::string_view message;
};
ByteVector encode_notification(std::string_view sender, std::string_view message);
Result<Notification> decode_notification(Bytes body);

}  // namespace slime::nixl
