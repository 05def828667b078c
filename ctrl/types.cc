#include "ctrl/types.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/str.h"
#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

constexpr std::array<std::string_view, 4> kRightsNames = {"local", "read", "write", "read_write"};
constexpr std::array<std::string_view, 5> kEventNames = {"registered", "updated", "deregistered", "expired",
                                                         "links"};
constexpr std::array<std::string_view, 3> kHealthNames = {"serving", "draining", "not_serving"};
constexpr std::array<std::string_view, 3> kRoleNames = {"read", "join", "admin"};

Status invalid(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-:/@+=~").find(c) != std::string_view::npos;
}

Status check_unique_name(std::string_view what, const std::string& name, std::set<std::string_view>& seen) {
  SLIME_TRY(check_name(what, name));
  if (!seen.insert(name).second) return invalid(str(what, " '", name, "' appears twice"));
  return {};
}

Status check_kind(std::string_view what, const std::string& kind) {
  if (kind.empty()) return {};
  if (kind.size() > limits::kKindBytes)
    return invalid(str(what, " has ", kind.size(), " bytes; at most ", limits::kKindBytes));
  return check_name(what, kind);
}

Status check_labels(std::string_view what, const Labels& labels, std::size_t entries_max) {
  if (labels.size() > entries_max)
    return invalid(str(what, " has ", labels.size(), " entries; at most ", entries_max));
  for (const auto& [key, value] : labels) {
    SLIME_TRY(check_name(str(what, " key"), key));
    if (key.size() > limits::kMetadataKeyBytes)
      return invalid(str(what, " key '", key, "' has more than ", limits::kMetadataKeyBytes, " bytes"));
    if (value.size() > limits::kMetadataValueBytes)
      return invalid(str(what, " '", key, "' has more than ", limits::kMetadataValueBytes, " bytes"));
  }
  return {};
}

}  // namespace

std::string_view rights_name(RegionRights rights) { return kRightsNames[static_cast<std::size_t>(rights)]; }

std::optional<RegionRights> parse_rights(std::string_view name) {
  const auto it = std::find(kRightsNames.begin(), kRightsNames.end(), name);
  if (it == kRightsNames.end()) return std::nullopt;
  return static_cast<RegionRights>(it - kRightsNames.begin());
}

std::string_view event_kind_name(EventKind kind) { return kEventNames[static_cast<std::size_t>(kind)]; }

std::optional<EventKind> parse_event_kind(std::string_view name) {
  const auto it = std::find(kEventNames.begin(), kEventNames.end(), name);
  if (it == kEventNames.end()) return std::nullopt;
  return static_cast<EventKind>(it - kEventNames.begin());
}

std::string_view health_name(Health health) { return kHealthNames[static_cast<std::size_t>(health)]; }

std::optional<Health> parse_health(std::string_view name) {
  const auto it = std::find(kHealthNames.begin(), kHealthNames.end(), name);
  if (it == kHealthNames.end()) return std::nullopt;
  return static_cast<Health>(it - kHealthNames.begin());
}

bool has_labels(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& entry) {
    const auto it = labels.find(entry.first);
    return it != labels.end() && it->second == entry.second;
  });
}

std::string_view role_name(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

std::optional<Role> parse_role(std::string_view name) {
  const auto it = std::find(kRoleNames.begin(), kRoleNames.end(), name);
  if (it == kRoleNames.end()) return std::nullopt;
  return static_cast<Role>(it - kRoleNames.begin());
}

std::optional<HostPort> parse_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || text.size() > limits::kAddressBytes)
    return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool bracketed = host.front() == '[';
  if (bracketed) {
    if (host.size() < 3 || host.back() != ']') return std::nullopt;
    host = host.substr(1, host.size() - 2);
  }
  const auto host_character = [bracketed](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || (bracketed && (c == ':' || c == '%'));
  };
  if (host.size() > limits::kNameBytes || !std::all_of(host.begin(), host.end(), host_character))
    return std::nullopt;
  HostPort out{std::string(host), 0};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size() || out.port == 0) return std::nullopt;
  return out;
}

Status check_name(std::string_view what, std::string_view name) {
  if (name.empty()) return invalid(str(what, " is empty"));
  if (name.size() > limits::kNameBytes)
    return invalid(str(what, " has ", name.size(), " bytes; at most ", limits::kNameBytes));
  for (const char c : name) {
    if (name_character(c)) continue;
    const bool printable = c > 0x20 && c < 0x7f;
    return invalid(str(what, " has ",
                       printable ? str("the character '", c, "'")
                                 : str("the byte ", static_cast<int>(static_cast<unsigned char>(c))),
                       "; allowed are letters, digits and . _ - : / @ + = ~"));
  }
  for (std::size_t from = 0; from <= name.size();) {
    const std::size_t to = std::min(name.find('/', from), name.size());
    const std::string_view part = name.substr(from, to - from);
    if (part.empty() || part == "." || part == "..")
      return invalid(str(what, " '", name, "' has an empty, '.' or '..' part between slashes"));
    from = to + 1;
  }
  return {};
}

Status check_token(const TokenRecord& token) {
  if (!is_hex(token.id, limits::kTokenIdDigits)) return invalid("the id of a token is 16 hexadecimal digits");
  if (!is_hex(token.secret_sha256, 64)) return invalid("the hash of a token is 64 hexadecimal digits");
  if (token.scope != "*") SLIME_TRY(check_name("scope", token.scope));
  if (token.note.size() > limits::kTokenNoteBytes)
    return invalid(str("note has more than ", limits::kTokenNoteBytes, " bytes"));
  if (token.created_unix_s > limits::kIntegerMax || token.expires_unix_s > limits::kIntegerMax)
    return invalid("the times of a token are at most 2^53 - 1");
  if (token.note.find_first_of(std::string_view("\0\r\n\t", 4)) != std::string::npos)
    return invalid("note is of one line, without tabs");
  return {};
}

Status check_keys(const ScopeKeys& keys) {
  if (keys.size() > limits::kScopeKeys)
    return {Code::kInvalidArgument, str(keys.size(), " keys of one scope; at most ", limits::kScopeKeys)};
  std::uint64_t last = 0;
  for (const ScopeKey& key : keys) {
    if (key.secret.size() != limits::kScopeKeyBytes)
      return {Code::kInvalidArgument, str("a key does not have ", limits::kScopeKeyBytes, " bytes")};
    if (key.id <= last) return {Code::kInvalidArgument, "the ids of keys do not increase"};
    last = key.id;
  }
  return {};
}

Status check_report(const Report& report) {
  if (report.links.size() > limits::kReportLinks)
    return invalid(str("a report of ", report.links.size(), " links; at most ", limits::kReportLinks));
  for (const LinkReport& link : report.links) {
    SLIME_TRY(check_name("link peer", link.peer));
    SLIME_TRY(check_kind("link provider", link.provider));
    SLIME_TRY(check_kind("link state", link.state));
  }
  if (report.counters.size() > limits::kReportCounters)
    return invalid(
        str("a report of ", report.counters.size(), " counters; at most ", limits::kReportCounters));
  for (const auto& [name, value] : report.counters) {
    // Counters become names of metrics.
    if (name.empty() || name.size() > limits::kKindBytes ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string::npos)
      return invalid("the name of a counter is of a to z and _");
  }
  return {};
}

Status check_links(std::string_view name, const std::vector<std::string>& targets) {
  SLIME_TRY(check_name("name", name));
  if (targets.size() > limits::kLinksPerPeer)
    return invalid(str(targets.size(), " links; at most ", limits::kLinksPerPeer, " for each peer"));
  std::set<std::string_view> seen;
  for (const std::string& target : targets) {
    SLIME_TRY(check_unique_name("link target", target, seen));
    if (target == name) return invalid(str("'", target, "' is the peer itself"));
  }
  return {};
}

Status check_services(const std::vector<ServiceInfo>& services) {
  if (services.size() > limits::kServicesPerPeer)
    return invalid(str(services.size(), " services; at most ", limits::kServicesPerPeer, " for each peer"));
  std::set<std::string_view> names;
  for (const ServiceInfo& service : services) {
    SLIME_TRY(check_unique_name("service name", service.name, names));
    SLIME_TRY(check_kind("service kind", service.kind));
    SLIME_TRY(check_labels("service labels", service.labels, limits::kServiceLabels));
    if (service.methods.size() > limits::kMethodsPerService)
      return invalid(str("service '", service.name, "' has ", service.methods.size(), " methods; at most ",
                         limits::kMethodsPerService));
    std::set<std::string_view> methods;
    for (const std::string& method : service.methods)
      SLIME_TRY(check_unique_name("method name", method, methods));
  }
  return {};
}

Status check_regions(const std::vector<RegionInfo>& regions) {
  if (regions.size() > limits::kRegionsPerPeer)
    return invalid(str(regions.size(), " regions; at most ", limits::kRegionsPerPeer, " for each peer"));
  std::set<std::string_view> names;
  for (const RegionInfo& region : regions) {
    SLIME_TRY(check_unique_name("region name", region.name, names));
    if (region.length_bytes > limits::kIntegerMax)
      return invalid(str("region '", region.name, "' is longer than ", limits::kIntegerMax, " bytes"));
  }
  return {};
}

Status check_owner(const Owner& owner) {
  if (!owner.session_sha256.empty() && !is_hex(owner.session_sha256, 2 * limits::kSessionBytes))
    return {Code::kInvalidArgument, "the hash of a session is not 64 hexadecimal digits"};
  if (!owner.token_id.empty() && !is_hex(owner.token_id, limits::kTokenIdDigits))
    return {Code::kInvalidArgument, "the id of an owner's token is not 16 hexadecimal digits"};
  return {};
}

Status check_registration(const Registration& registration) {
  SLIME_TRY(check_name("name", registration.name));
  SLIME_TRY(check_name("scope", registration.scope));
  SLIME_TRY(check_kind("kind", registration.kind));
  if (registration.instance.is_zero()) return invalid("instance is missing or zero");
  if (!parse_host_port(registration.address))
    return invalid("address is not \"host:port\" or \"[v6]:port\" with a port from 1 to 65535");
  if (registration.providers.size() > limits::kProvidersPerPeer)
    return invalid(str(registration.providers.size(), " providers; at most ", limits::kProvidersPerPeer));
  std::set<std::string_view> providers;
  for (const std::string& provider : registration.providers) {
    SLIME_TRY(check_unique_name("provider", provider, providers));
    if (provider.size() > limits::kKindBytes)
      return invalid(str("provider has more than ", limits::kKindBytes, " bytes"));
  }
  SLIME_TRY(check_labels("metadata", registration.metadata, limits::kMetadataEntries));
  if (registration.ttl != Nanos::zero() &&
      (registration.ttl < limits::kTtlMin || registration.ttl > limits::kTtlMax))
    return invalid("ttl must be from 100 ms to 24 h");
  SLIME_TRY(check_services(registration.services));
  return check_regions(registration.regions);
}

}  // namespace slime::ctrl
