#include "transport/verbs/device_counters.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/str.h"

namespace slime::transport::verbs {
namespace {

// Name of a file among the kernel's counters that holds a setting: how long a value is cached.
constexpr std::string_view kLifespan = "lifespan";

bool always_shown(std::string_view name) {
  return name.find("rnr") != std::string_view::npos || name == "out_of_buffer";
}

void read_folder(const std::filesystem::path& folder, std::vector<DeviceCounter>& out) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    DeviceCounter counter{.name = at->path().filename().string()};
    if (counter.name == kLifespan) continue;
    std::ifstream file(at->path());
    if (!(file >> counter.value)) continue;  // not readable for this user or link
    if (counter.value != 0 || always_shown(counter.name)) out.push_back(std::move(counter));
  }
}

}  // namespace

std::vector<DeviceCounter> read_device_counters(const std::string& device, int port,
                                                const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "sys/class/infiniband" / device / "ports" / str(port);
  std::vector<DeviceCounter> out;
  read_folder(folder / "hw_counters", out);
  read_folder(folder / "counters", out);
  std::sort(out.begin(), out.end(),
            [](const DeviceCounter& a, const DeviceCounter& b) { return a.name < b.name; });
  return out;
}

}  // namespace slime::transport::verbs
