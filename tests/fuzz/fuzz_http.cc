#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/str.h"
#include "ctrl/api/api.h"
#include "ctrl/api/auth.h"
#include "ctrl/compat/entities.h"
#include "ctrl/wire/json_bodies.h"

// Sends requests to nanoctrl's routes, without sockets. The input is "METHOD TARGET SESSION\nBODY"
// (the session is optional), several requests separated by zero bytes, all to one server, so that
// later requests see the effects of earlier ones. Runs on a server without tokens, and on a server
// with tokens and keys.
namespace {

using namespace slime;

constexpr std::string_view kToken =
    "slime-0123456789abcdef-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

void send(ctrl::Api& api, std::string_view request, std::string_view authorization) {
  const std::size_t line_end = request.find('\n');
  const std::string_view line = request.substr(0, line_end);
  const std::string_view body = line_end == std::string_view::npos ? "" : request.substr(line_end + 1);
  const std::size_t space = line.find(' ');
  const std::string_view method = line.substr(0, space);
  const std::string_view rest = space == std::string_view::npos ? "" : line.substr(space + 1);
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view target = rest.substr(0, end);
  const std::string_view session = rest.substr(std::min(end + 1, rest.size()));
  const ctrl::ApiReply reply = api.handle({.method = method,
                                           .target = target,
                                           .content_type = "application/json",
                                           .body = body,
                                           .authorization = authorization,
                                           .session = session});
  // Every reply is a success or an error of one of the two forms, and never 500, which means a bug.
  if (reply.status == 500) std::abort();
  if (reply.status != 200 && !ctrl::wire::decode_error(reply.body) && !ctrl::compat::decode_error(reply.body))
    std::abort();
}

void send_all(std::string_view rest, bool members) {
  static const ManualClock kClock;
  ctrl::ApiOptions options;
  options.watch_wait_max = Nanos::zero();
  if (members) options.admin_token = *ctrl::record_of(kToken, ctrl::Role::kAdmin, "*");
  const std::string authorization = members ? str("Bearer ", kToken) : std::string();
  ctrl::Api api(options, std::make_unique<ctrl::MemoryEngine>(ctrl::RegistryOptions{}, kClock), kClock,
                [](const std::string&, const InstanceId&) { return ctrl::ProbeResult::kSilent; });
  while (true) {
    const std::size_t end = rest.find('\0');
    send(api, rest.substr(0, end), authorization);
    api.tick();
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  send_all(input, false);
  send_all(input, true);
  return 0;
}
