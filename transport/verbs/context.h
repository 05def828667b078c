#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
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

// One device as it is now. A device that cannot be opened or cannot serve has no ports; `usable`
// says why.
struct DeviceInfo {
  std::string name;
  Status usable;
  ibv_device_attr attributes{};
  std::vector<PortInfo> ports;
  int numa_node = -1;
  std::string pci_path;
};

// The port and GID to use, and the reason, for logs and `slime doctor`.
struct Selection {
  std::string device;
  int port = 0;
  GidInfo gid;
  std::string reason;
};

// Returns all devices that libibverbs knows. kUnavailable, with what to do, if there is none.
Result<std::vector<DeviceInfo>> list_devices(const Functions& functions);
// Returns all ports of all devices that can be used. If there is none: kUnavailable with what to
// do, or kPermissionDenied if only rights are missing.
Result<std::vector<PortInfo>> list_ports(const Functions& functions);
// Picks a port: the named one, else an active one: adapters before software devices, then the
// nearest to `numa_node` (-1: no preference), then the fastest, then the first. Picks a GID: RoCE
// v2 with an IPv4-mapped address whose netdev is up, then RoCE v2 with a routable IPv6 address,
// then a link-local one; on InfiniBand index 0. Errors: kUnavailable (no port is active),
// kInvalidArgument (a name in `options` does not exist).
Result<Selection> select_port(const std::vector<PortInfo>& ports, const Options& options, int numa_node = -1);
// Read the GID table of one port, and choose in it again after it changed.
Result<std::vector<GidInfo>> read_gids(const Functions& functions, ibv_context* context, int port,
                                       int table_length);
Result<GidInfo> select_gid(const PortInfo& port, const Options& options, std::string& reason);
std::string gid_text(const ibv_gid& gid);         // "::ffff:10.9.0.1"
std::string gid_type_text(const GidInfo& gid);    // "RoCE v2 on eth0"
int mtu_bytes(ibv_mtu mtu);                       // 4096; 0 for a value that is no MTU
double port_gigabits(const ibv_port_attr& port);  // nominal; 0: unknown
std::string_view port_state_name(ibv_port_state state);
std::string_view link_layer_name(std::uint8_t link_layer);
// Returns why a machine has no device that libibverbs knows, and what to do, by the kernel's files
// below `root`.
Status no_device(const std::filesystem::path& root = "/");
// Returns the NUMA node that this thread may run on; -1 if there are several or none.
int bound_numa_node();

// One opened device and one of its ports, with the protection domain of its regions and queue
// pairs. All objects that are made from a context share it; the last one closes it. Thread: any.
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
  // Optional access flags that the device takes: IBV_ACCESS_RELAXED_ORDERING or 0.
  const unsigned optional_access;

  // Return the port's attributes and the GID, as of the last probe.
  [[nodiscard]] ibv_port_attr port_attributes() const;
  [[nodiscard]] GidInfo gid() const;
  // Reads port and GID again, after an event said that they changed; logs a change. Connections
  // keep their address; new connections get the new address. kUnavailable while the port is not
  // active or has no GID: gid() does not change then.
  Status probe_again();
  // Notes that the device failed for good: no object of this context works again.
  void set_lost();
  [[nodiscard]] bool lost() const;
  // Like lost(), but asks the device if the event has not come yet.
  [[nodiscard]] bool gone() const;
  // Returns the errno value of a call that ends an object; 0 also if the object ended with its
  // device.
  [[nodiscard]] int ended(int error) const { return error == EIO && gone() ? 0 : error; }
  // Returns "rxe0 port 1, GID 1 ::ffff:10.9.0.1 (RoCE v2 on eth0)", for texts.
  [[nodiscard]] std::string describe() const;

 private:
  struct Parts;
  explicit Context(Parts parts);
  struct Changing;
  const std::unique_ptr<Changing> changing_;
};

}  // namespace slime::transport::verbs
