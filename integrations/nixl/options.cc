#include "integrations/nixl/options.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "base/address.h"
#include "base/str.h"
#include "integrations/nixl/limits.h"

namespace slime::nixl {
namespace {

using Params = std::unordered_map<std::string, std::string>;

constexpr std::string_view kAnyPort = ":0";
constexpr std::uint64_t kMostMs = std::uint64_t{24} * 3600 * 1000;

class Reader {
 public:
  Reader(const Params& params, const Options::Environment& environment)
      : params_(params), environment_(environment) {}

  [[nodiscard]] std::string text(const std::string& name) const {
    if (const auto it = params_.find(name); it != params_.end()) return it->second;
    std::string upper = "SLIME_NIXL_" + name;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return environment_(upper).value_or(std::string());
  }
  [[nodiscard]] Result<std::uint64_t> number(const std::string& name, std::uint64_t least, std::uint64_t most,
                                             std::uint64_t otherwise) const {
    const std::string value = text(name);
    if (value.empty()) return otherwise;
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size() || out < least || out > most)
      return Status(Code::kInvalidArgument,
                    str(name, " is \"", value, "\": it has to be a number from ", least, " to ", most));
    return out;
  }
  [[nodiscard]] Result<bool> flag(const std::string& name) const {
    const std::string value = text(name);
    if (value.empty() || value == "0" || value == "false") return false;
    if (value == "1" || value == "true") return true;
    return Status(Code::kInvalidArgument, str(name, " is \"", value, "\": it has to be true or false"));
  }

 private:
  const Params& params_;
  const Options::Environment& environment_;
};

// Returns the interface's IPv4 address as "v4:0"; without one, its IPv6 address as "[v6]:0".
Result<std::string> address_of(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return from_errno("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  std::string names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if (interface != each->ifa_name) {
        if (family == AF_INET) names += str(names.empty() ? "" : ", ", each->ifa_name);
        continue;
      }
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      return SocketAddress(each->ifa_addr, length).to_string();
    }
  }
  return Status(Code::kInvalidArgument,
                str("interface is \"", interface, "\", which has no address here; there are: ", names));
}

Result<std::string> listen_of(const Reader& reader) {
  const std::string interface = reader.text("interface");
  std::string listen = reader.text("listen");
  if (interface.empty()) return listen.empty() ? str("127.0.0.1", kAnyPort) : listen;
  if (!listen.empty())
    return Status(Code::kInvalidArgument, "interface and listen are both given: use one of them");
  return address_of(interface);
}

}  // namespace

std::optional<std::string> environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Params Options::defaults() {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limits::kStallTimeout).count();
  return {{"provider", "auto"}, {"listen", str("127.0.0.1", kAnyPort)},
          {"interface", ""},    {"advertise", ""},
          {"token", ""},        {"insecure", "false"},
          {"timeout_ms", "0"},  {"stall_timeout_ms", std::to_string(ms)},
          {"threads", "1"}};
}

Result<Options> Options::from(const Params& given, const Environment& environment) {
  // NIXL passes the defaults back as params. Removes them here, so that a default does not hide a
  // value of the environment.
  Params params = given;
  for (const auto& [name, value] : defaults()) {
    const auto it = params.find(name);
    if (it != params.end() && it->second == value) params.erase(it);
  }
  const Reader reader(params, environment);
  Options out;
  out.agent.progress = Progress::kPolled;  // checkXfer
  if (const std::string provider = reader.text("provider"); !provider.empty()) out.agent.provider = provider;
  auto listen = listen_of(reader);
  if (!listen) return std::move(listen).error();
  out.agent.listen = *std::move(listen);
  out.agent.advertise = reader.text("advertise");
  out.agent.token = reader.text("token");
  const auto insecure = reader.flag("insecure");
  if (!insecure) return insecure.error();
  out.agent.insecure = *insecure;
  const auto stall = reader.number(
      "stall_timeout_ms", 10, kMostMs,
      static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(limits::kStallTimeout).count()));
  if (!stall) return stall.error();
  out.stall_timeout = std::chrono::milliseconds(*stall);
  const auto timeout = reader.number("timeout_ms", 0, kMostMs, 0);
  if (!timeout) return timeout.error();
  out.timeout = std::chrono::milliseconds(*timeout);
  const auto threads = reader.number("threads", 1, 64, 1);
  if (!threads) return threads.error();
  out.agent.server.workers = static_cast<std::size_t>(*threads);
  SLIME_TRY(out.agent.validate());
  return out;
}

}  // namespace slime::nixl
