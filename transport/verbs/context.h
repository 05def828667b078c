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

// One device as it is now. What could not be opened or cannot serve has `usable` say why, and no ports.
struct DeviceInfo {
  std::string name;
  Status usable;
  ibv_device_attr attributes{};
  std::vector<PortInfo> ports;
  int numa_node = -1;
  std::string pci_path;
};

// Which port and GID to use, and why: for logs and `slime doctor`.
struct Selection {
  std::string device;
  int port = 0;
  GidInfo gid;
  std::string reason;
};

// All devices that libibverbs knows. kUnavailable with what to do when there is none.
Result<std::vector<DeviceInfo>> list_devices(const Functions& functions);
// All ports of all devices that can be used. When there are none: kUnavailable with what to do, or
// kPermissionDenied when only rights are missing.
Result<std::vector<PortInfo>> list_ports(const Functions& functions);
// Picks a port: the named one, else an active one: adapters before software devices, then the nearest to
// `numa_node` (-1: no preference), then the fastest, then the first; and a GID: RoCE v2 with an IPv4-mapped
// address whose netdev is up, then RoCE v2 with a routable IPv6 address, then a link-local one; on InfiniBand
// index 0. kUnavailable (nothing active), kInvalidArgument (what `options` names is not there).
Result<Selection> select_port(const std::vector<PortInfo>& ports, const Options& options, int numa_node = -1);
// The GID table of one port, and a choice in it again after it changed.
Result<std::vector<GidInfo>> read_gids(const Functions& functions, ibv_context* context, int port,
                                       int table_length);
Result<GidInfo> select_gid(const PortInfo& port, const Options& options, std::string& reason);
std::string gid_text(const ibv_gid& gid);         // "::ffff:10.9.0.1"
std::string gid_type_text(const GidInfo& gid);    // "RoCE v2 on eth0"
int mtu_bytes(ibv_mtu mtu);                       // 4096; 0 for what is no MTU
double port_gigabits(const ibv_port_attr& port);  // nominal rate; 0: unknown. Software devices make it up
std::string_view port_state_name(ibv_port_state state);
std::string_view link_layer_name(std::uint8_t link_layer);
// Why a machine has no device that libibverbs knows, and what to do, as told by the kernel's files below
// `root`.
Status no_device(const std::filesystem::path& root = "/");
// The NUMA node that this thread may run on, -1 when there are several or none.
int bound_numa_node();

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
  // keep their address; new ones get the new one. kUnavailable while the port is not active or has no GID:
  // gid() stays what it was.
  Status probe_again();
  // The device failed for good: nothing that was made of this context works again.
  void set_lost();
  [[nodiscard]] bool lost() const;
  // The same, where the event has not come yet.
  [[nodiscard]] bool gone() const;
  // What a call that ends an object returned, as an errno value; 0 also where the object ended with its
  // device.
  [[nodiscard]] int ended(int error) const { return error == EIO && gone() ? 0 : error; }
  // "rxe0 port 1, GID 1 ::ffff:10.9.0.1 (RoCE v2 on eth0)": for texts.
  [[nodiscard]] std::string describe() const;

 private:
  struct Parts;
  explicit Context(Parts parts);
  struct Changing;
  const std::unique_ptr<Changing> changing_;
};

}  // namespace slime::transport::verbs
