#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace slime::ctrl::redis {

struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string user;      // may be empty
  std::string password;  // empty: none
  std::uint32_t database = 0;
  std::string prefix = "slime";  // of all keys' names
  bool tls = false;
  // PEM files for TLS: CA certificates (empty: the system's), and a client certificate and key
  // (optional).
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};

// Returns whether a store's name is for parse_url().
bool is_url(std::string_view store);
// Parses "redis://[[user]:password@]host:port[/db][?prefix=NAME]", or "rediss://" with TLS, which
// also allows "ca=FILE&cert=FILE&key=FILE"; user, password and files are percent-encoded.
// kInvalidArgument; the text contains none of these secrets.
Result<Address> parse_url(std::string_view url);
std::string to_string(const Address& address);  // without user, password and files

}  // namespace slime::ctrl::redis
