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
  // Path of a PEM file with CA certificates, for TLS; empty: the system's CAs. The paths of the
  // client's certificate and key below may be empty too.
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};

// Returns whether the name of a store is a Redis URL, which parse_url() can parse.
bool is_url(std::string_view store);
// Parses "redis://[[user]:password@]host:port[/db][?prefix=NAME]", or "rediss://" for TLS, which
// also accepts "ca=FILE&cert=FILE&key=FILE". User, password and file names are percent-encoded.
// kInvalidArgument for an invalid URL; the error does not quote user, password or files.
Result<Address> parse_url(std::string_view url);
// Returns the URL with absolute paths of its files. Leaves a URL that parse_url() refuses as it is.
std::string with_absolute_files(std::string_view url);
std::string to_string(const Address& address);  // without user, password and files

}  // namespace slime::ctrl::redis
