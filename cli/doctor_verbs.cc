// The part of `slime doctor` about RDMA. A machine without RDMA is not broken: shm and tcp work.

#include <dlfcn.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/str.h"
#include "cli/doctor_checks.h"
#include "transport/limits.h"
#include "transport/verbs/context.h"

namespace slime::cli {
namespace {

namespace verbs = transport::verbs;
namespace fs = std::filesystem;

// Recommended limit of locked memory in bytes: holds the registered memory of one agent, which is
// its receive slots and the regions for bulk data.
constexpr std::uint64_t kWantedLockedBytes = std::uint64_t{1} << 30;

std::string size_text(std::uint64_t most) {
  return most >= std::uint64_t{1} << 48 ? "any size" : "up to " + bytes_text(most);
}

// Returns whether this process has CAP_IPC_LOCK and so may lock more memory than RLIMIT_MEMLOCK.
bool may_exceed_memlock() {
  constexpr int kCapIpcLock = 14;
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> kCapIpcLock & 1) != 0;
  }
  return false;
}

Finding locked_memory() {
  const char* const kName = "locked memory";
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {kName, Verdict::kInfo, "unknown", ""};
  if (limit.rlim_cur == RLIM_INFINITY) return {kName, Verdict::kOk, "unlimited", ""};
  const std::string value = bytes_text(limit.rlim_cur);
  if (may_exceed_memlock()) return {kName, Verdict::kOk, value + ", which CAP_IPC_LOCK may exceed", ""};
  if (limit.rlim_cur >= kWantedLockedBytes) return {kName, Verdict::kOk, value, ""};
  const bool may_raise = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= kWantedLockedBytes;
  return {
      kName, Verdict::kAdvice, value,
      str("RDMA locks the memory that it registers (TCP does not): ",
          may_raise ? "`ulimit -l unlimited` in the shell that starts agents; for good, " : "",
          "`* - memlock unlimited` in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, or "
          "--ulimit memlock=-1 for a container")};
}

Finding library(const verbs::Functions& functions) {
  std::string value = "loaded";
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(functions.get_device_list), &info) != 0 && info.dli_fname != nullptr) {
    // Resolves links, because only the name of the library's real file contains its version.
    std::error_code error;
    const fs::path path = fs::canonical(info.dli_fname, error);
    value = error ? std::string(info.dli_fname) : path.string();
  }
  std::string lacks;
  if (functions.reg_mr_iova2 == nullptr) lacks += "relaxed ordering";
  if (functions.reg_dmabuf_mr == nullptr) lacks += lacks.empty() ? "GPU memory" : " and GPU memory";
  if (lacks.empty()) return {"libibverbs", Verdict::kOk, value, ""};
  return {"libibverbs", Verdict::kAdvice, value, str("too old for ", lacks, ": use rdma-core 34 or newer")};
}

std::string_view atomics_text(ibv_atomic_cap cap) {
  if (cap == IBV_ATOMIC_GLOB) return "yes, also with the processor's";
  return cap == IBV_ATOMIC_HCA ? "yes, among accesses of this adapter" : "none";
}

void describe_device(const verbs::DeviceInfo& device, std::vector<Finding>& out) {
  const std::string name = "rdma device " + device.name;
  if (!device.usable.ok()) {
    out.push_back({name, Verdict::kAdvice, "not usable", device.usable.text()});
    return;
  }
  std::string value = device.pci_path.empty() ? "software, or without a place on the PCI bus"
                                              : "PCI " + fs::path(device.pci_path).filename().string();
  if (device.numa_node >= 0) value += str(", NUMA node ", device.numa_node);
  const ibv_device_attr& limits = device.attributes;
  if (limits.fw_ver[0] != '\0' && !device.pci_path.empty()) value += str(", firmware ", limits.fw_ver);
  out.push_back({name, Verdict::kOk, value, ""});

  std::string advice;
  const auto slots = static_cast<int>(transport::limits::kPoolSlots);
  if (limits.max_srq_wr < slots) {
    advice =
        str("its shared receive queues are smaller than the ", slots,
            " slots of a port by default: set PortOptions::pool_slots to ", limits.max_srq_wr, " or less");
  }
  out.push_back({name + " limits", advice.empty() ? Verdict::kInfo : Verdict::kAdvice,
                 str(limits.max_qp, " queue pairs of ", limits.max_qp_wr, " requests, ", limits.max_cqe,
                     " completions in a queue, ", limits.max_srq_wr, " receives in a shared queue, ",
                     limits.max_mr, " registrations of ", size_text(limits.max_mr_size), ", ",
                     limits.max_qp_rd_atom, " reads in flight, atomics: ", atomics_text(limits.atomic_cap)),
                 std::move(advice)});
}

std::string first_interface(const verbs::PortInfo& port) {
  for (const verbs::GidInfo& gid : port.gids) {
    if (!gid.interface_name.empty()) return gid.interface_name;
  }
  return "its network interface";
}

Finding describe_port(const verbs::PortInfo& port) {
  const ibv_port_attr& now = port.attributes;
  const int active = verbs::mtu_bytes(now.active_mtu);
  const int most = verbs::mtu_bytes(now.max_mtu);
  std::string value = str(verbs::port_state_name(now.state), ", ", verbs::link_layer_name(now.link_layer),
                          ", MTU ", active, " of at most ", most);
  if (!port.pci_path.empty() && port.active()) value += str(", ", verbs::port_gigabits(now), " Gb/s");
  if (!port.ethernet()) value += str(", LID ", now.lid, now.lid == 0 ? " (none)" : "");
  Finding out{str("rdma port ", port.device, "/", port.port), Verdict::kOk, std::move(value), ""};
  if (!port.active()) {
    out.advice = port.ethernet()
                     ? str("set ", first_interface(port), " up (ip link set ... up) and check the cable")
                     : "check the cable, and that a subnet manager (opensm) runs in the fabric";
  } else if (port.ethernet() && active < most) {
    out.advice = str("larger packets are faster: ip link set ", first_interface(port), " mtu ", most + 104,
                     " (or 9000), on every host and switch of the path");
  }
  if (!out.advice.empty()) out.verdict = Verdict::kAdvice;
  return out;
}

void describe_gids(const verbs::PortInfo& port, const Result<verbs::Selection>& choice,
                   std::vector<Finding>& out) {
  for (const verbs::GidInfo& gid : port.gids) {
    const bool chosen = choice && choice->device == port.device && choice->port == port.port &&
                        choice->gid.index == gid.index;
    out.push_back({str("rdma gid ", port.device, "/", port.port, "/", gid.index),
                   chosen ? Verdict::kOk : Verdict::kInfo,
                   str(verbs::gid_text(gid.gid), ", ", verbs::gid_type_text(gid),
                       gid.link_local ? ", link-local" : "", chosen ? ", chosen" : ""),
                   ""});
  }
}

Finding describe_choice(const Result<verbs::Selection>& choice) {
  if (choice) {
    Finding out{"rdma choice", Verdict::kOk,
                str(choice->device, " port ", choice->port, ", ", choice->reason), ""};
    if (choice->gid.type != IBV_GID_TYPE_IB && choice->gid.link_local) {
      out.verdict = Verdict::kAdvice;
      out.advice = str("a link-local address reaches its own network only: give ",
                       choice->gid.interface_name.empty() ? "the interface" : choice->gid.interface_name,
                       " an IPv4 address (ip addr add)");
    }
    return out;
  }
  // kInvalidArgument means that a setting names a device that is missing. Slime then uses no other
  // device, so this is an error and not advice.
  const bool as_asked = choice.error().code() != Code::kInvalidArgument;
  return {"rdma choice", as_asked ? Verdict::kAdvice : Verdict::kBroken, "no port can be used",
          choice.error().text()};
}

Finding no_devices(const Status& why) {
  return {"rdma devices", Verdict::kAdvice, "none: peers on other hosts are reached over TCP", why.text()};
}

}  // namespace

std::vector<Finding> check_verbs() {
  std::vector<Finding> out{locked_memory()};
  const auto options = verbs::Options::from_environment();
  if (!options) {
    out.push_back({"rdma settings", Verdict::kBroken, "not valid", options.error().text()});
    return out;
  }
  const auto functions = verbs::load_functions();
  if (!functions) {
    out.push_back({"libibverbs", Verdict::kAdvice,
                   "not usable: without it peers on other hosts are reached over TCP",
                   functions.error().text()});
    // Reports a missing device too: without a device, installing the library does not help.
    std::error_code error;
    if (fs::directory_iterator("/sys/class/infiniband", error) == fs::directory_iterator()) {
      out.push_back(no_devices(verbs::no_device()));
    }
    return out;
  }
  out.push_back(library(**functions));
  const auto devices = verbs::list_devices(**functions);
  if (!devices) {
    out.push_back(no_devices(devices.error()));
    return out;
  }
  std::vector<verbs::PortInfo> ports;
  for (const verbs::DeviceInfo& device : *devices) {
    ports.insert(ports.end(), device.ports.begin(), device.ports.end());
  }
  const auto choice = verbs::select_port(ports, *options, verbs::bound_numa_node());
  for (const verbs::DeviceInfo& device : *devices) {
    describe_device(device, out);
    for (const verbs::PortInfo& port : device.ports) {
      out.push_back(describe_port(port));
      describe_gids(port, choice, out);
    }
  }
  if (!ports.empty() || !options->device.empty()) out.push_back(describe_choice(choice));
  return out;
}

}  // namespace slime::cli
