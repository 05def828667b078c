#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

// What two plugins tell each other: through NIXL's metadata, and in notifications. No keys are in it: those
// of memory are asked for over the connection, and die with it.
namespace slime::nixl {

// Where an agent listens, and by what its regions are named. From NIXL's metadata.
struct ConnInfo {
  std::string address;  // "host:port"
  std::uint64_t id =
      0;  // of the engine, random: a process that has got the port of an earlier one has another

  [[nodiscard]] std::string encode() const;
  // kCorrupt for what is none, kUnimplemented for that of another version of the plugin.
  static Result<ConnInfo> decode(std::string_view text);
  // By which the engine with this id publishes its registration of this number.
  [[nodiscard]] std::string region_name(std::uint64_t number) const;
};

// The public data of a registration: its number.
std::string encode_registration(std::uint64_t number);
Result<std::uint64_t> decode_registration(std::string_view text);

// The body of a notification. `message` is a part of what was decoded.
struct Notification {
  std::string sender;  // NIXL's name of the agent
  std::string_view message;
};
ByteVector encode_notification(std::string_view sender, std::string_view message);
Result<Notification> decode_notification(Bytes body);

}  // namespace slime::nixl
