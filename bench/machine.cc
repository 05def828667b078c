#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/str.h"
#include "bench/figures.h"
#include "bench/process.h"

namespace slime::bench {
namespace {

using nlohmann::json;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// Returns the first core's caches: "L1 Data 32K", "L2 Unified 2048K", ...
json caches() {
  json out = json::array();
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index";
  for (int i = 0; i < 8; ++i) {
    const std::string one = str(folder, i, "/");
    const std::string size = first_line(one + "size");
    if (!size.empty()) {
      out.push_back(str("L", first_line(one + "level"), " ", first_line(one + "type"), " ", size));
    }
  }
  return out;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

json machine_facts() {
  utsname name{};
  uname(&name);
  double load = 0;
  std::istringstream(first_line("/proc/loadavg")) >> load;
  return {{"cpu", cpu_model()},
          {"cores", std::thread::hardware_concurrency()},
          {"siblings", first_line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")},
          {"caches", caches()},
          {"memory_gib", number_in("/proc/meminfo", "MemTotal:") / (1 << 20)},
          {"kernel", name.release},
          {"arch", name.machine},
          {"load", load},
          {"time", now_text()}};
}

}  // namespace slime::bench
