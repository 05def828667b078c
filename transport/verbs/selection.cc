// Chooses a port and a GID among those that discovery.cc found.

#include <algorithm>
#include <fstream>
#include <optional>
#include <tuple>

#include "base/str.h"
#include "transport/verbs/context.h"

namespace slime::transport::verbs {
namespace {

std::string port_name(const PortInfo& port) { return str(port.device, " port ", port.port); }

// Returns the rank of a GID: the smallest rank is the best. Returns nothing for a GID that is used
// only if the options name it.
std::optional<int> rank(const GidInfo& gid) {
  if (gid.type != IBV_GID_TYPE_ROCE_V2) return std::nullopt;
  const bool known_interface = !gid.interface_name.empty();
  if (known_interface && !gid.interface_up) return std::nullopt;
  const int kind = gid.link_local ? (gid.ipv4_mapped ? 2 : 3) : (gid.ipv4_mapped ? 0 : 1);
  // A GID whose interface cannot be seen ranks lower: the interface may be down, or in another
  // network namespace.
  return known_interface ? kind : kind + 4;
}

std::string kind_text(const GidInfo& gid) {
  std::string out = gid.ipv4_mapped  ? "the IPv4 address "
                    : gid.link_local ? "the link-local IPv6 address "
                                     : "the IPv6 address ";
  return out + gid_text(gid.gid);
}

Status not_active(const PortInfo& port) {
  std::string interface = "its network interface";
  for (const GidInfo& gid : port.gids) {
    if (gid.interface_name.empty()) continue;
    interface = gid.interface_name;
    break;
  }
  return Status(
      Code::kUnavailable,
      str(port_name(port), " is ", port_state_name(port.attributes.state),
          port.ethernet() ? str(": set ", interface, " up (ip link set ... up) and check the cable")
                          : ": check the cable, and that a subnet manager (opensm) runs in the fabric"));
}

Status no_gid(const PortInfo& port) {
  const std::string name = port_name(port);
  for (const GidInfo& gid : port.gids) {
    if (gid.type == IBV_GID_TYPE_ROCE_V2) {
      return Status(Code::kUnavailable, str(name, " has RoCE v2 GIDs, but ", gid.interface_name,
                                            " is down: ip link set ", gid.interface_name, " up"));
    }
  }
  if (port.gids.empty()) {
    return Status(
        Code::kUnavailable,
        str(name, " has no GID: give its network interface an IP address (ip addr add), and set it up"));
  }
  return Status(Code::kUnavailable,
                str(name,
                    " has RoCE v1 GIDs only: give its network interface an IP address and enable RoCE v2, "
                    "or name one with SLIME_VERBS_GID_INDEX"));
}

// Returns the distance of two NUMA nodes by the firmware's table; 10 for a node to itself, 20 if
// unknown.
int numa_distance(int from, int to) {
  constexpr int kLocal = 10;
  constexpr int kRemote = 20;
  if (from < 0 || to < 0) return kRemote;
  if (from == to) return kLocal;
  std::ifstream in(str("/sys/devices/system/node/node", from, "/distance"));
  int distance = kRemote;
  for (int i = 0; i <= to; ++i) {
    if (!(in >> distance)) return kRemote;
  }
  return distance;
}

struct Candidate {
  const PortInfo* port;
  GidInfo gid;
  std::string gid_reason;
  int distance;

  // Returns a sort key: adapters before software devices, then near before far, then fast before
  // slow.
  [[nodiscard]] auto order() const {
    return std::make_tuple(port->pci_path.empty(), distance, -port_gigabits(port->attributes));
  }
};

Status unknown_choice(const std::vector<PortInfo>& ports, const Options& options) {
  std::string known;
  for (const PortInfo& port : ports) known.append(known.empty() ? "" : ", ").append(port_name(port));
  std::string asked = options.device.empty() ? "any device" : options.device;
  if (options.port != -1) asked += str(" port ", options.port);
  return Status(Code::kInvalidArgument, str("asked for ", asked, " (SLIME_VERBS_DEVICE, SLIME_VERBS_PORT); ",
                                            "there are: ", known.empty() ? "none" : known));
}

std::string reason_for(const Candidate& best, std::size_t count, const Options& options, int numa_node) {
  std::string out;
  if (!options.device.empty()) {
    out = options.port == -1 && count > 1 ? "device named by the options, the best of its active ports"
                                          : "named by the options";
  } else if (count == 1) {
    out = "the only active port";
  } else if (numa_node >= 0 && best.port->numa_node >= 0) {
    out = str("of ", count, " active ports the best for NUMA node ", numa_node, ": it is on node ",
              best.port->numa_node);
  } else {
    out = str("the first of the fastest of ", count, " active ports");
  }
  return out + "; " + best.gid_reason;
}

}  // namespace

Result<GidInfo> select_gid(const PortInfo& port, const Options& options, std::string& reason) {
  if (options.gid_index >= 0) {
    for (const GidInfo& gid : port.gids) {
      if (gid.index != options.gid_index) continue;
      reason = str("GID ", gid.index, " named by the options");
      return gid;
    }
    return Status(Code::kInvalidArgument,
                  str(port_name(port), " has no GID ", options.gid_index, " (SLIME_VERBS_GID_INDEX)"));
  }
  if (!port.ethernet()) {
    for (const GidInfo& gid : port.gids) {
      if (gid.index != 0) continue;
      reason = "GID 0, as on any InfiniBand port";
      return gid;
    }
    return Status(Code::kUnavailable, str(port_name(port), " has no GID 0: is there a subnet manager?"));
  }
  const GidInfo* best = nullptr;
  for (const GidInfo& gid : port.gids) {
    const auto value = rank(gid);
    if (value && (best == nullptr || *value < *rank(*best))) best = &gid;
  }
  if (best == nullptr) return no_gid(port);
  reason = str("GID ", best->index, ": RoCE v2 with ", kind_text(*best),
               best->interface_name.empty() ? " of an interface that this process cannot see"
                                            : str(" of ", best->interface_name, ", which is up"));
  return *best;
}

Result<Selection> select_port(const std::vector<PortInfo>& ports, const Options& options, int numa_node) {
  std::vector<Candidate> candidates;
  std::string refused;
  Status first_error;
  bool known = false;
  for (const PortInfo& port : ports) {
    if (!options.device.empty() && options.device != port.device) continue;
    if (options.port != -1 && options.port != port.port) continue;
    known = true;
    std::string gid_reason;
    Status why;
    if (!port.active()) {
      why = not_active(port);
    } else if (auto gid = select_gid(port, options, gid_reason)) {
      candidates.push_back({&port, *gid, std::move(gid_reason), numa_distance(numa_node, port.numa_node)});
      continue;
    } else {
      why = gid.error();
    }
    if (first_error.ok()) first_error = why;
    refused.append(refused.empty() ? "" : "; ").append(why.text());
  }
  if (!known) return unknown_choice(ports, options);
  if (candidates.empty()) return Status(first_error.code(), std::move(refused));
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [](const auto& a, const auto& b) { return a.order() < b.order(); });
  return Selection{best->port->device, best->port->port, best->gid,
                   reason_for(*best, candidates.size(), options, numa_node)};
}

}  // namespace slime::transport::verbs
