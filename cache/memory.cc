#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "cache/server.h"

namespace slime::cache {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

std::uint64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  for (std::string unit; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return kUnknown;
}

// Reads a number from a file. Returns kUnknown if the file contains "max" or does not exist.
std::uint64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : kUnknown;
}

// Returns how many bytes this process's control group (version 2) may still allocate.
std::uint64_t cgroup_available() {
  std::ifstream file("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  }
  // In a container the group is often the root of the mount, although the path names another group.
  for (const std::string& group : {"/sys/fs/cgroup" + path, std::string("/sys/fs/cgroup")}) {
    const std::uint64_t most = read_number(group + "/memory.max");
    const std::uint64_t now = read_number(group + "/memory.current");
    if (most != kUnknown && now != kUnknown) return most > now ? most - now : 0;
  }
  return kUnknown;
}

}  // namespace

std::uint64_t available_memory_bytes() {
  const std::uint64_t least = std::min(mem_available(), cgroup_available());
  return least == kUnknown ? 0 : least;
}

}  // namespace slime::cache
