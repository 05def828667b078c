#include "transport/verbs/rdma_devices.h"

#include <filesystem>
#include <string>

#include "transport/verbs/context.h"

namespace slime::transport {
namespace verbs {
namespace {

RdmaPort show(const PortInfo& port) {
  RdmaPort out;
  out.port = port.port;
  out.state = port_state_name(port.attributes.state);
  out.link_layer = link_layer_name(port.attributes.link_layer);
  out.lid = port.attributes.lid;
  out.mtu = mtu_bytes(port.attributes.active_mtu);
  out.max_mtu = mtu_bytes(port.attributes.max_mtu);
  out.gigabits_per_s = port_gigabits(port.attributes);
  for (const GidInfo& gid : port.gids) {
    out.gids.push_back({gid.index, gid_text(gid.gid), std::string(gid_type_name(gid.type)),
                        gid.interface_name, gid.interface_up});
  }
  return out;
}

}  // namespace

Result<std::vector<RdmaDevice>> devices(const Functions& functions) {
  const auto found = list_devices(functions);
  if (!found) {
    if (found.status().code() == Code::kUnavailable) return std::vector<RdmaDevice>();
    return found.status();
  }
  std::vector<RdmaDevice> out;
  for (const DeviceInfo& device : *found) {
    RdmaDevice& shown = out.emplace_back();
    shown.name = device.name;
    shown.usable = device.usable;
    shown.pci_address = std::filesystem::path(device.pci_path).filename().string();
    shown.numa_node = device.numa_node;
    for (const PortInfo& port : device.ports) shown.ports.push_back(show(port));
  }
  return out;
}

}  // namespace verbs

Result<std::vector<RdmaDevice>> devices() {
  const auto functions = verbs::load_functions();
  if (!functions) return std::vector<RdmaDevice>();
  return verbs::devices(**functions);
}

}  // namespace slime::transport
