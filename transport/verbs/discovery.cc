#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "base/str.h"
#include "base/unique_fd.h"
#include "transport/verbs/context.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {
namespace {

namespace fs = std::filesystem;

// Most GIDs that can be used: an address handle has one byte for the index of a GID.
constexpr int kMaxGids = 256;

int first_number(const fs::path& path, int otherwise) {
  std::ifstream in(path);
  int number = 0;
  return in >> number ? number : otherwise;
}

bool is_down(const std::string& interface) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (any.get() < 0 || ::ioctl(any.get(), SIOCGIFFLAGS, &request) != 0) return true;
  return (request.ifr_flags & IFF_UP) == 0;
}

GidInfo describe_gid(int index, const ibv_gid_entry& entry) {
  GidInfo out;
  out.index = index;
  out.gid = entry.gid;
  out.type = static_cast<ibv_gid_type>(entry.gid_type);
  out.interface_index = entry.ndev_ifindex;
  char name[IF_NAMESIZE] = {};
  // An interface in another network namespace has no name here.
  if (entry.ndev_ifindex != 0 && ::if_indextoname(entry.ndev_ifindex, name) != nullptr) {
    out.interface_name = name;
    out.interface_up = !is_down(out.interface_name);
  }
  in6_addr address{};
  std::memcpy(&address, entry.gid.raw, sizeof address);
  out.ipv4_mapped = IN6_IS_ADDR_V4MAPPED(&address);
  out.link_local = out.ipv4_mapped ? entry.gid.raw[12] == 169 && entry.gid.raw[13] == 254
                                   : bool{IN6_IS_ADDR_LINKLOCAL(&address)};
  return out;
}

// Returns the folder of the device in sysfs, as libibverbs reports it.
fs::path sysfs_folder(const ibv_device& device, const std::string& name) {
  const std::string told(device.ibdev_path, strnlen(device.ibdev_path, sizeof device.ibdev_path));
  return told.empty() ? fs::path("/sys/class/infiniband") / name : fs::path(told);
}

// Returns whether the device could not be opened for lack of rights. Opens the device's file
// itself, because libibverbs tries several ways and reports only the error of the last one.
bool lacks_rights(const ibv_device& device, int error) {
  if (error == EACCES || error == EPERM) return true;
  const std::string file(device.dev_name, strnlen(device.dev_name, sizeof device.dev_name));
  return !file.empty() && ::access(("/dev/infiniband/" + file).c_str(), R_OK | W_OK) != 0 && errno == EACCES;
}

Status cannot_open(const std::string& name, const ibv_device& device, int error) {
  const std::string what = str("cannot open ", name);
  if (lacks_rights(device, error)) {
    return Status(Code::kPermissionDenied,
                  str(what,
                      ": no right to use /dev/infiniband/uverbs*: add the user to the group that owns it (ls "
                      "-l /dev/infiniband), or set its mode to 0666 by a udev rule; a container needs "
                      "--device=/dev/infiniband"));
  }
  if (error == ENOENT || error == ENODEV || error == ENXIO) {
    return Status(Code::kUnavailable,
                  str(what,
                      ": its file in /dev/infiniband is missing: modprobe ib_uverbs; a container needs "
                      "--device=/dev/infiniband"));
  }
  return call_error(what, error);
}

Result<PortInfo> read_port(const Functions& functions, ibv_context* context, const DeviceInfo& device,
                           int port) {
  PortInfo out;
  out.device = device.name;
  out.port = port;
  out.numa_node = device.numa_node;
  out.pci_path = device.pci_path;
  if (const int error = functions.query_port(context, static_cast<std::uint8_t>(port), &out.attributes)) {
    return call_error(str("cannot query ", device.name, " port ", port), error);
  }
  auto gids = read_gids(functions, context, port, out.attributes.gid_tbl_len);
  if (!gids) return std::move(gids).error();
  out.gids = std::move(*gids);
  return out;
}

Status read_ports(const Functions& functions, ibv_context* context, DeviceInfo& out) {
  if (const int error = functions.query_device(context, &out.attributes)) {
    return call_error("cannot query " + out.name, error);
  }
  for (int port = 1; port <= out.attributes.phys_port_cnt; ++port) {
    auto info = read_port(functions, context, out, port);
    if (!info) return std::move(info).error();
    out.ports.push_back(std::move(*info));
  }
  return {};
}

DeviceInfo read_device(const Functions& functions, ibv_device* device) {
  DeviceInfo out;
  out.name = functions.get_device_name(device);
  const fs::path folder = sysfs_folder(*device, out.name);
  out.numa_node = first_number(folder / "device/numa_node", -1);
  std::error_code error;
  if (const fs::path pci = fs::canonical(folder / "device", error); !error) out.pci_path = pci.string();
  if (device->transport_type != IBV_TRANSPORT_IB) {
    out.usable = Status(Code::kUnimplemented,
                        out.name +
                            " is neither an InfiniBand nor a RoCE device (iWARP, EFA and others have no "
                            "queue pairs of the kind that Slime uses)");
    return out;
  }
  errno = 0;
  ibv_context* const context = functions.open_device(device);
  if (context == nullptr) {
    out.usable = cannot_open(out.name, *device, errno);
    return out;
  }
  out.usable = read_ports(functions, context, out);
  if (!out.usable.ok()) out.ports.clear();
  functions.close_device(context);
  return out;
}

bool has_entries(const fs::path& folder) {
  std::error_code error;
  return fs::directory_iterator(folder, error) != fs::directory_iterator();
}

std::string names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) names.insert(entry.path().filename());
  std::string out;
  for (const std::string& name : names) out.append(out.empty() ? "" : ", ").append(name);
  return out;
}

}  // namespace

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  return ::inet_ntop(AF_INET6, gid.raw, text, sizeof text) != nullptr ? text : "?";
}

std::string_view gid_type_name(ibv_gid_type type) {
  if (type == IBV_GID_TYPE_IB) return "InfiniBand";
  return type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "RoCE v2";
}

std::string gid_type_text(const GidInfo& gid) {
  std::string out(gid_type_name(gid.type));
  if (!gid.interface_name.empty()) {
    out.append(" on ").append(gid.interface_name);
    if (!gid.interface_up) out.append(", which is down");
  } else if (gid.interface_index != 0) {
    out.append(" on an interface of another network namespace");
  }
  return out;
}

int mtu_bytes(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

double port_gigabits(const ibv_port_attr& port) {
  struct Coded {
    int code;
    double value;
  };
  // Codes of link widths and speeds in the InfiniBand specification.
  constexpr std::array kLanes{Coded{1, 1}, Coded{2, 4}, Coded{4, 8}, Coded{8, 12}, Coded{16, 2}};
  constexpr std::array kGigabitsOfLane{Coded{1, 2.5}, Coded{2, 5},     Coded{4, 10},
                                       Coded{8, 10},  Coded{16, 14},   Coded{32, 25},
                                       Coded{64, 50}, Coded{128, 100}, Coded{256, 200}};
  const auto decoded = [](const auto& table, int code) {
    for (const Coded& entry : table) {
      if (entry.code == code) return entry.value;
    }
    return 0.0;
  };
  return decoded(kLanes, port.active_width) * decoded(kGigabitsOfLane, port.active_speed);
}

std::string_view port_state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP:
      return "no state";
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active, deferred";
  }
  return "unknown state";
}

std::string_view link_layer_name(std::uint8_t link_layer) {
  if (link_layer == IBV_LINK_LAYER_ETHERNET) return "Ethernet";
  return link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "unknown link layer";
}

Result<std::vector<GidInfo>> read_gids(const Functions& functions, ibv_context* context, int port,
                                       int table_length) {
  std::vector<GidInfo> out;
  for (int index = 0; index < std::min(table_length, kMaxGids); ++index) {
    ibv_gid_entry entry{};
    const int error = functions.query_gid(context, static_cast<std::uint32_t>(port),
                                          static_cast<std::uint32_t>(index), &entry);
    if (error == ENODATA) continue;
    if (error != 0) return call_error(str("cannot read GID ", index, " of port ", port), error);
    static constexpr ibv_gid kEmpty{};
    if (std::memcmp(entry.gid.raw, kEmpty.raw, sizeof kEmpty.raw) == 0) continue;
    out.push_back(describe_gid(index, entry));
  }
  return out;
}

Status no_device(const fs::path& root) {
  const std::string in_kernel = names_in(root / "sys/class/infiniband");
  if (in_kernel.empty()) {
    return Status(
        Code::kUnavailable,
        "this machine has no RDMA device. If it has an adapter, load its driver (`modprobe mlx5_ib` "
        "or the like; see dmesg). To try RDMA without one, make a software device on a network "
        "interface, as root: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0");
  }
  if (!has_entries(root / "sys/class/infiniband_verbs")) {
    return Status(Code::kUnavailable,
                  str("the kernel has ", in_kernel,
                      ", but no way for programs to use it: as root, modprobe ib_uverbs"));
  }
  if (!has_entries(root / "dev/infiniband")) {
    return Status(Code::kUnavailable,
                  str("the kernel has ", in_kernel,
                      ", but /dev/infiniband is missing: a container needs --device=/dev/infiniband and "
                      "--cap-add=IPC_LOCK"));
  }
  return Status(Code::kUnavailable, str("the kernel has ", in_kernel,
                                        ", but libibverbs has no driver for it: apt-get install "
                                        "ibverbs-providers, or the adapter vendor's package"));
}

Result<std::vector<DeviceInfo>> list_devices(const Functions& functions) {
  int count = 0;
  errno = 0;
  ibv_device** const list = functions.get_device_list(&count);
  if (list == nullptr) {
    // For these errno values the kernel has no RDMA support; for any other value the call failed.
    return errno == ENOSYS || errno == ENOENT || errno == 0 ? no_device()
                                                            : call_error("cannot list RDMA devices", errno);
  }
  std::vector<DeviceInfo> out;
  for (int i = 0; i < count; ++i) out.push_back(read_device(functions, list[i]));
  functions.free_device_list(list);
  if (out.empty()) return no_device();
  return out;
}

Result<std::vector<PortInfo>> list_ports(const Functions& functions) {
  auto devices = list_devices(functions);
  if (!devices) return std::move(devices).error();
  std::vector<PortInfo> out;
  std::string reasons;
  bool only_rights = true;
  for (DeviceInfo& device : *devices) {
    if (!device.usable.ok()) {
      reasons.append(reasons.empty() ? "" : "; ").append(device.usable.text());
      only_rights = only_rights && device.usable.code() == Code::kPermissionDenied;
    }
    std::move(device.ports.begin(), device.ports.end(), std::back_inserter(out));
  }
  if (!out.empty()) return out;
  if (reasons.empty()) return Status(Code::kUnavailable, "no RDMA device has a port");
  return Status(only_rights ? Code::kPermissionDenied : Code::kUnavailable, std::move(reasons));
}

int bound_numa_node() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  int found = -1;
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node") || name.size() == 4) continue;
    const int node = std::atoi(name.c_str() + 4);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || !fs::exists(entry.path() / str("cpu", cpu), error)) continue;
      found = node;
      ++nodes;
      break;
    }
  }
  return nodes == 1 ? found : -1;
}

}  // namespace slime::transport::verbs
