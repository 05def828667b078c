#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transport/counters.h"

namespace slime::transport::verbs {

// What the kernel shows of one port of a device, below `root`: everything that is not zero, and, zero or not,
// what tells of receivers that were not ready ("rnr" in most drivers' names, "out_of_buffer" in mlx5's). By
// name; empty where nothing can be read.
std::vector<DeviceCounter> read_device_counters(const std::string& device, int port,
                                                const std::filesystem::path& root = "/");

}  // namespace slime::transport::verbs
