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

// One port of a device, as it was at the time of the query.
struct PortInfo {
  std::string device;
  int port = 0;
  ibv_port_attr attributes{};
  std::vector<GidInfo> gids;
  int numa_node = -1;    // -1: unknown, or one node only
  std::string pci_path;  // PCI folder of the device in sysfs; empty for software devices
  [[nodiscard]] bool active() const { return attributes.state == IBV_PORT_ACTIVE; }
  [[nodiscard]] bool ethernet() const { return attributes.link_layer == IBV_LINK_LAYER_ETHERNET; }
};

// One device, as it was at the time of the query. A device that cannot be opened or used has no
// ports; `usable` then has the reason.
struct DeviceInfo {
  std::string name;
  Status usable;
  ibv_device_attr attributes{};
  std::vector<PortInfo> ports;
  int numa_node = -1;
  std::string pci_path;
};

// The port and GID that select_port() chose, and the reason, for logs and `slime doctor`.
struct Selection {
  std::string device;
  int port = 0;
  GidInfo gid;
  std::string reason;
};

// Returns all devices that libibverbs knows. Returns kUnavailable, with advice, if there is none.
Result<std::vector<DeviceInfo>> list_devices(const Functions& functions);
// Returns all ports of all usable devices. If there is none, returns kUnavailable with advice, or
// kPermissionDenied if only rights are missing.
Result<std::vector<PortInfo>> list_ports(const Functions& functions);
// Picks a port: the one that `options` name, else an active one. Of the active ports, prefers
// adapters to software devices, then the nearest to `numa_node` (-1: no preference), then the
// fastest, then the first. Picks a GID of the port: RoCE v2 with an IPv4-mapped address whose
// netdev is up, else RoCE v2 with a routable IPv6 address, else a link-local one; on InfiniBand
// index 0. Errors: kUnavailable (no port is active), kInvalidArgument (a name in `options` does not
// exist).
Result<Selection> select_port(const std::vector<PortInfo>& ports, const Options& options, int numa_node = -1);
// read_gids() reads the GID table of one port. select_gid() chooses among `port.gids` and sets
// `reason`.
Result<std::vector<GidInfo>> read_gids(const Functions& functions, ibv_context* context, int port,
                                       int table_length);
Result<GidInfo> select_gid(const PortInfo& port, const Options& options, std::string& reason);
std::string gid_text(const ibv_gid& gid);           // "::ffff:10.9.0.1"
std::string_view gid_type_name(ibv_gid_type type);  // "InfiniBand", "RoCE v1" or "RoCE v2"
std::string gid_type_text(const GidInfo& gid);      // "RoCE v2 on eth0"
int mtu_bytes(ibv_mtu mtu);                         // such as 4096; 0 for a value that is no MTU
double port_gigabits(const ibv_port_attr& port);    // nominal; 0: unknown
std::string_view port_state_name(ibv_port_state state);
std::string_view link_layer_name(std::uint8_t link_layer);
// Returns an error that says why libibverbs knows no device on this machine, and what to do. Reads
// the kernel's files below `root`.
Status no_device(const std::filesystem::path& root = "/");
// Returns the NUMA node to which this thread is bound; -1 if it may run on several nodes, or if the
// node is unknown.
int bound_numa_node();

// One opened device and one of its ports, with the protection domain for regions and queue pairs.
// All objects made from a context share its ownership; the last one closes the device. Thread: any.
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
  // Optional access flags for registrations: IBV_ACCESS_RELAXED_ORDERING, or 0 if the options or
  // the library exclude it.
  const unsigned optional_access;

  // port_attributes() and gid() return the values that the last successful query found.
  [[nodiscard]] ibv_port_attr port_attributes() const;
  [[nodiscard]] GidInfo gid() const;
  // Queries port and GID again, after an event said that they changed; logs a change. Existing
  // connections keep their GID; new connections use the new GID. Returns kUnavailable while the
  // port is not active or has no GID; gid() then stays as it was.
  Status probe_again();
  // Notes that the device failed for good: no object of this context will work again.
  void set_lost();
  [[nodiscard]] bool lost() const;
  // Returns whether the device failed for good. Unlike lost(), also asks the device, because the
  // event of the failure may not have come yet.
  [[nodiscard]] bool gone() const;
  // Takes the result of a call that destroys an object (0 or an errno value). Returns 0 if the
  // device has gone, because the object has gone with it; otherwise returns `error`.
  [[nodiscard]] int ended(int error) const { return error == EIO && gone() ? 0 : error; }
  // Returns a text such as "rxe0 port 1, GID 1 ::ffff:10.9.0.1 (RoCE v2 on eth0)".
  [[nodiscard]] std::string describe() const;

 private:
  struct Parts;
  explicit Context(Parts parts);
  struct Changing;
  const std::unique_ptr<Changing> changing_;
};

}  // namespace slime::transport::verbs
