#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/functions.h"
#include "transport/verbs/options.h"

namespace slime::transport::verbs {

// One entry of a port's GID table.
struct GidInfo {
  int index = 0;
  ibv_gid gid{};
  ibv_gid_type type{};
  unsigned interface_index = 0;  // of its netdev; 0: none
  std::string interface_name;
  bool interface_up = false;
  bool ipv4_mapped = false;
  bool link_local = false;
};

// One port of one device, as it is now.
struct PortInfo {
  std::string device;
  int port = 0;
  ibv_port_attr attributes{};
  std::vector<GidInfo> gids;
  int numa_node = -1;    // -1: unknown, or one node only
  std::string pci_path;  // of the device in sysfs; empty when it has none (software devices)
  [[nodiscard]] bool active() const { return attributes.state == IBV_PORT_ACTIVE; }
  [[nodiscard]] bool ethernet() const { return attributes.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

// Which port and GID to use, and why: for logs and `slime doctor`.
struct Selection {
  std::string device;
  int port = 0;
  GidInfo gid;
  std::string reason;
};

// All ports of all devices that can be opened. kUnavailable with what to do when there is none.
Result<std::vector<PortInfo>> list_ports(const Functions& functions);
// Picks a port: the named one, else the active one that is nearest to `numa_node` (-1: no preference); and a
// GID: RoCE v2 with an IPv4-mapped address whose netdev is up, then RoCE v2 with a routable IPv6 address, then
// a link-local one; on InfiniBand index 0. kUnavailable (nothing active), kInvalidArgument (what `options`
// names is not there).
Result<Selection> select_port(const std::vector<PortInfo>& ports, const Options& options, int numa_node = -1);
// The GID table of one port, and a choice in it again after it changed.
Result<std::vector<GidInfo>> read_gids(const Functions& functions, ibv_context* context, int port,
                                       int table_length);
Result<GidInfo> select_gid(const PortInfo& port, const Options& options, std::string& reason);
std::string gid_text(const ibv_gid& gid);  // "::ffff:10.9.0.1"

// One opened device and one port of it: the protection domain that its regions and queue pairs live in.
// Shared by everything that was made from it; the last one closes it. Thread: any, but for what says loop.
class Context {
 public:
  // Opens what select_port() chose. kUnavailable, kPermissionDenied, kInvalidArgument.
  static Result<std::shared_ptr<Context>> open(const Functions& functions, Options options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Functions& functions;
  const Options options;
  ibv_context* const handle;
  ibv_pd* const pd;
  const Selection selection;
  const ibv_device_attr device;
  // What optional access flags the device takes: IBV_ACCESS_RELAXED_ORDERING or 0.
  const unsigned optional_access;

  // As of the last probe. Any thread.
  [[nodiscard]] ibv_port_attr port_attributes() const;
  [[nodiscard]] GidInfo gid() const;
  // Reads port and GID again, after an event said that they changed; logs a change. Connections that exist
  // keep their address; new ones get the new one.
  Status probe_again();
  // "rxe0 port 1, GID 1 ::ffff:10.9.0.1 (RoCE v2 on eth0)": for texts.
  [[nodiscard]] std::string describe() const;

 private:
  struct Parts;
  explicit Context(Parts parts);
  struct Changing;
  const std::unique_ptr<Changing> changing_;
};

}  // namespace slime::transport::verbs
