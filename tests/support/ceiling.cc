#include "tests/support/ceiling.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/str.h"
#include "tests/support/eventually.h"

namespace slime::test {
namespace {

constexpr std::string_view kCgroup = "cgroup:";
constexpr std::string_view kRlimit = "rlimit:";

bool write_file(const std::string& path, std::string_view text) {
  std::ofstream out(path);
  out << text << std::flush;
  return out.good();
}

// A folder in which this process can make a memory cgroup. /proc/self/cgroup names the folder:
// "0::<path>" for version 2, "<n>:memory:<path>" for version 1.
struct Place {
  std::string folder;
  std::string limit;  // the file of the limit
};
std::vector<Place> places() {
  std::vector<Place> out;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (kind.empty()) {
      out.push_back({"/sys/fs/cgroup" + path, "memory.max"});
    } else if (kind == "memory") {
      out.push_back({"/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes"});
    }
  }
  return out;
}

// Returns the value of "Name:" in /proc/<pid>/status, in bytes.
std::optional<std::uint64_t> status_bytes(int pid, std::string_view name) {
  std::ifstream in(str("/proc/", pid, "/status"));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(str(name, ":"), 0) == 0) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return std::nullopt;
}

Status limit_address_space(std::uint64_t bytes) {
  ::mallopt(M_ARENA_MAX, 1);  // each arena reserves 64 MiB
  const rlim_t most = status_bytes(::getpid(), "VmSize").value_or(0) + bytes + kCeilingSlack;
  const rlimit limit{most, most};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) return from_errno("setrlimit", errno);
  return {};
}

}  // namespace

Ceiling::Ceiling(std::uint64_t bytes) : bytes_(bytes) {
  static std::atomic<int> number{0};
  const std::string name = str("/slime_test_", ::getpid(), "_", ++number);
  for (const Place& place : places()) {
    const std::string folder = place.folder + name;
    if (::mkdir(folder.c_str(), 0755) != 0) continue;
    if (write_file(folder + "/" + place.limit, str(bytes))) {
      write_file(folder + "/memory.swap.max", "0");  // some kernels lack this file
      cgroup_ = folder;
      return;
    }
    ::rmdir(folder.c_str());
  }
}

Ceiling::~Ceiling() {
  if (cgroup_.empty()) return;
  // The kernel removes the process from the cgroup shortly after waitpid().
  (void)eventually([&] { return ::rmdir(cgroup_.c_str()) == 0 || errno != EBUSY; });
}

std::string Ceiling::argument() const {
  return cgroup_.empty() ? str(kRlimit, bytes_) : str(kCgroup, cgroup_);
}

Status go_below_ceiling(const std::string& argument) {
  if (argument.rfind(kCgroup, 0) == 0) {
    const std::string file = argument.substr(kCgroup.size()) + "/cgroup.procs";
    if (!write_file(file, str(::getpid()))) return Status(Code::kInternal, "cannot write " + file);
    return {};
  }
  if (argument.rfind(kRlimit, 0) == 0)
    return limit_address_space(std::stoull(argument.substr(kRlimit.size())));
  return Status(Code::kInvalidArgument, "no ceiling: " + argument);
}

std::optional<std::uint64_t> peak_resident_bytes(int pid) { return status_bytes(pid, "VmHWM"); }

}  // namespace slime::test
