#include "ctrl/store/redis_url.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/str.h"
#include "ctrl/types.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl::redis {
namespace {

constexpr std::string_view kScheme = "redis://";
constexpr std::string_view kTlsScheme = "rediss://";

Status bad_url(std::string_view what) {
  return {Code::kInvalidArgument,
          str("a store in Redis is redis://[[user]:password@]host:port[/db][?prefix=NAME], or rediss:// with "
              "&ca=FILE&cert=FILE&key=FILE: ",
              what)};
}

Status parse_sign_in(std::string_view text, Address& out) {
  const std::size_t colon = text.find(':');
  const std::optional<std::string> user = percent_decode(text.substr(0, colon));
  const std::optional<std::string> password =
      percent_decode(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1));
  if (!user || !password) return bad_url("the password has a bad % escape");
  if (password->empty()) return bad_url("there is no password before the '@'");
  out.user = *user;
  out.password = *password;
  return {};
}

Status parse_parameter(std::string_view text, Address& out) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::optional<std::string> value =
      percent_decode(equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1));
  if (!value) return bad_url("a parameter has a bad % escape");
  if (name == "prefix") {
    out.prefix = *value;
    return check_name("prefix", out.prefix);
  }
  std::string* const file = name == "ca"     ? &out.ca_file
                            : name == "cert" ? &out.certificate_file
                            : name == "key"  ? &out.key_file
                                             : nullptr;
  // Does not quote the parameter's name in the error: it may be part of a password that contains
  // '?'.
  if (file == nullptr) return bad_url("a parameter is none of prefix, ca, cert and key");
  if (!out.tls) return bad_url(str("'", name, "' is for rediss://"));
  if (value->empty()) return bad_url(str("'", name, "' names no file"));
  *file = *value;
  return {};
}

Status parse_parameters(std::string_view rest, Address& out) {
  while (true) {
    const std::size_t end = rest.find('&');
    SLIME_TRY(parse_parameter(rest.substr(0, end), out));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  if (out.certificate_file.empty() != out.key_file.empty())
    return bad_url("'cert' and 'key' belong together");
  return {};
}

}  // namespace

bool is_url(std::string_view store) { return store.starts_with(kScheme) || store.starts_with(kTlsScheme); }

Result<Address> parse_url(std::string_view url) {
  if (!is_url(url)) return bad_url("it begins otherwise");
  Address out;
  out.tls = url.starts_with(kTlsScheme);
  std::string_view rest = url.substr((out.tls ? kTlsScheme : kScheme).size());
  if (const std::size_t mark = rest.find('?'); mark != std::string_view::npos) {
    SLIME_TRY(parse_parameters(rest.substr(mark + 1), out));
    rest = rest.substr(0, mark);
  }
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    SLIME_TRY(parse_sign_in(rest.substr(0, at), out));
    rest = rest.substr(at + 1);
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view number = rest.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.database);
    if (!number.empty() && (error != std::errc() || end != number.data() + number.size()))
      return bad_url("the database is not a number");
    rest = rest.substr(0, slash);
  }
  const std::optional<HostPort> host = parse_host_port(rest);
  if (!host) return bad_url("there is no host:port");
  out.host = host->host;
  out.port = host->port;
  return out;
}

std::string with_absolute_files(std::string_view url) {
  std::string out(url.substr(0, url.find('?')));
  std::string_view rest = url.substr(out.size());  // "?prefix=NAME&ca=FILE"
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('&', 1));
    rest.remove_prefix(part.size());
    const std::size_t equals = std::min(part.find('='), part.size() - 1);
    const std::string_view name = part.substr(1, equals - 1);
    const std::optional<std::string> file = percent_decode(part.substr(equals + 1));
    std::error_code error;
    const bool is_file = (name == "ca" || name == "cert" || name == "key") && file && !file->empty();
    const std::filesystem::path whole =
        is_file ? std::filesystem::absolute(*file, error) : std::filesystem::path();
    out +=
        whole.empty() ? std::string(part) : str(part.substr(0, equals + 1), percent_encode(whole.string()));
  }
  return out;
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return str(address.tls ? kTlsScheme : kScheme, v6 ? "[" : "", address.host, v6 ? "]" : "", ":",
             address.port, "/", address.database, "?prefix=", address.prefix);
}

}  // namespace slime::ctrl::redis
