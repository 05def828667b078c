#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transport/counters.h"

namespace slime::transport::verbs {

// Returns the kernel's counters of one port of a device, read below `root` and sorted by name.
// Leaves out counters that are zero, except those of messages that met no posted receive ("rnr" in
// most drivers' names, "out_of_buffer" in mlx5's). Empty if no counter can be read.
std::vector<DeviceCounter> read_device_counters(const std::string& device, int port,
                                                const std::filesystem::path& root = "/");

}  // namespace slime::transport::verbs
