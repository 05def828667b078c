#include <string>

#include "base/str.h"
#include "python/py_devices.h"
#include "transport/rdma_devices.h"

namespace slime::python {
namespace {

nb::dict show(const transport::RdmaGid& gid) {
  nb::dict out;
  out["index"] = gid.index;
  out["gid"] = gid.gid;
  out["type"] = gid.type;
  out["interface"] = gid.interface;
  out["interface_up"] = gid.interface_up;
  return out;
}

nb::dict show(const transport::RdmaPort& port) {
  nb::dict out;
  out["port"] = port.port;
  out["state"] = port.state;
  out["link_layer"] = port.link_layer;
  out["lid"] = port.lid;
  out["mtu"] = port.mtu;
  out["max_mtu"] = port.max_mtu;
  out["gigabits_per_s"] = port.gigabits_per_s;
  nb::list gids;
  for (const transport::RdmaGid& gid : port.gids) gids.append(show(gid));
  out["gids"] = gids;
  return out;
}

nb::dict show(const transport::RdmaDevice& device) {
  nb::dict out;
  out["name"] = device.name;
  if (device.usable.ok()) {
    out["error"] = nb::none();
  } else {
    nb::dict error;
    error["code"] = std::string(code_name(device.usable.code()));
    error["text"] = std::string(device.usable.text());
    out["error"] = error;
  }
  out["pci_address"] = device.pci_address;
  out["numa_node"] = device.numa_node;
  nb::list ports;
  for (const transport::RdmaPort& port : device.ports) ports.append(show(port));
  out["ports"] = ports;
  return out;
}

nb::list devices() {
  const auto found = [] {
    const nb::gil_scoped_release unlocked;
    return transport::devices();
  }();
  nb::list out;
  for (const transport::RdmaDevice& device : unwrap(found)) out.append(show(device));
  return out;
}

// Returns a value of the dict as VerbsOptions::set() takes it.
std::string text_of(nb::handle name, nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True ? "1" : "0";
  if (PyLong_Check(value.ptr()) || PyUnicode_Check(value.ptr())) return nb::cast<std::string>(nb::str(value));
  raise(Code::kInvalidArgument,
        str("verbs: ", nb::cast<std::string>(nb::str(name)), " is ", nb::cast<std::string>(nb::repr(value)),
            ", must be an int, a bool or a str"));
}

}  // namespace

std::optional<VerbsOptions> verbs_from(nb::handle settings) {
  if (settings.is_none()) return std::nullopt;
  if (!nb::isinstance<nb::dict>(settings)) throw nb::type_error("verbs must be a dict of settings, or None");
  VerbsOptions out = unwrap(VerbsOptions::from_environment());
  for (const auto [name, value] : nb::cast<nb::dict>(settings))
    check(out.set(nb::cast<std::string>(nb::str(name)), text_of(name, value)).with_context("verbs"));
  return out;
}

void bind_devices(nb::module_& m) {
  m.def("devices", &devices, "Lists the RDMA adapters of this machine. See slime.devices().");
}

}  // namespace slime::python
