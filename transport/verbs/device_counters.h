#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transport/counters.h"

namespace slime::transport::verbs {

// Returns the kernel's counters of one port of a device, below `root`, by name: all that are not
// zero, and always those of receivers that were not ready ("rnr" in most drivers' names,
// "out_of_buffer" in mlx5's). Empty if none can be read.
std::vector<DeviceCounter> read_device_counters(const std::string& device, int port,
                                                const std::filesystem::path& root = "/");

}  // namespace slime::transport::verbs
