#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace slime::transport {

// One entry of a port's GID table.
struct RdmaGid {
  int index = 0;             // VerbsOptions::gid_index picks it
  std::string gid;           // as an IPv6 address: "::ffff:10.9.0.1"
  std::string type;          // "InfiniBand", "RoCE v1" or "RoCE v2"
  std::string interface {};  // network interface; empty: none, or of another network namespace
  bool interface_up = false;
};

// One port of an adapter.
struct RdmaPort {
  int port = 0;               // from 1; VerbsOptions::port picks it
  std::string state;          // "active", "down", "initializing", "armed", ...
  std::string link_layer;     // "Ethernet" (RoCE) or "InfiniBand"
  int lid = 0;                // InfiniBand only; 0: none
  int mtu = 0;                // bytes, as it is now; 0: unknown
  int max_mtu = 0;            // bytes
  double gigabits_per_s = 0;  // nominal speed of the link; 0: unknown
  std::vector<RdmaGid> gids;
};

// One RDMA adapter of this machine, as it was at the time of the query.
struct RdmaDevice {
  std::string name;         // "mlx5_0"; VerbsOptions::device picks it
  Status usable;            // why the device cannot be used; it then has no ports
  std::string pci_address;  // "0000:3b:00.0"; empty: not on the PCI bus, as software devices are
  int numa_node = -1;       // -1: unknown, or the machine has one node only
  std::vector<RdmaPort> ports;
};

// Returns the RDMA adapters of this machine, in the order of libibverbs. Empty if there is none, or
// if libibverbs is missing: `slime doctor` then says what to do. Opens each device, which takes
// milliseconds. Errors: those of listing the devices. Thread: any.
Result<std::vector<RdmaDevice>> devices();

}  // namespace slime::transport
