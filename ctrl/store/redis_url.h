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
  std::string prefix = "slime";  // of the names of all keys
  bool tls = false;
  // With TLS, all files in PEM: who signed the server's certificate, else the system's authorities; and what
  // we show, if anything.
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
};

// Whether a store is in Redis: what begins so is for parse_url().
bool is_url(std::string_view store);
// "redis://[[user]:password@]host:port[/db][?prefix=NAME]", or "rediss://" with TLS, and then also
// "ca=FILE&cert=FILE&key=FILE"; user, password and files are percent-encoded. kInvalidArgument, without them.
Result<Address> parse_url(std::string_view url);
std::string to_string(const Address& address);  // without user, password and files

}  // namespace slime::ctrl::redis
