#include "cli/doctor_checks.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "agent/memory/devices.h"
#include "base/daemon.h"
#include "base/str.h"
#include "ctrl/client.h"
#include "ctrl/client/token_file.h"
#include "transport/huge_pages.h"
#include "transport/loop.h"
#include "transport/outage.h"
#include "transport/provider.h"

namespace slime::cli {

std::string bytes_text(std::uint64_t bytes) {
  if (bytes >= std::uint64_t{1} << 30) return str(bytes >> 30, " GiB");
  if (bytes >= 1 << 20) return str(bytes >> 20, " MiB");
  return str(bytes >> 10, " KiB");
}

namespace {

namespace fs = std::filesystem;

// Recommended socket buffer of a TCP connection in bytes: room for a few chunks of a bulk transfer
// in flight.
constexpr std::uint64_t kWantedSocketBytes = 4 << 20;
// Recommended limit of open file descriptors. An agent uses one per connection and two of its own.
constexpr std::uint64_t kWantedFds = 4096;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

// Returns the last number of a line such as "4096 131072 6291456".
std::optional<std::uint64_t> last_number(const std::string& line) {
  std::istringstream in(line);
  std::optional<std::uint64_t> last;
  for (std::uint64_t number = 0; in >> number;) last = number;
  return last;
}

// Returns "madvise" for "always [madvise] never".
std::string chosen(const std::string& line) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return line;
  return line.substr(open + 1, close - open - 1);
}

bool in_container() { return fs::exists("/.dockerenv") || fs::exists("/run/.containerenv"); }

Finding socket_buffer(const char* name, const char* path, const char* key) {
  const auto line = first_line(path);
  const auto limit = line ? last_number(*line) : std::nullopt;
  if (!limit) return {name, Verdict::kInfo, str("unknown (no ", path, ")"), ""};
  if (*limit >= kWantedSocketBytes) return {name, Verdict::kOk, bytes_text(*limit), ""};
  return {name, Verdict::kAdvice, bytes_text(*limit),
          str("as root: sysctl -w ", key, "='4096 131072 ", kWantedSocketBytes, "'")};
}

// Reports the outage tolerance set in the environment: how long a peer may be unreachable before an
// agent gives the peer up. Agents with an explicit option ignore the environment.
Finding outage_tolerated() {
  const char* const name = "outage tolerated";
  const auto outage = transport::outage_from_environment();
  if (!outage)
    return {name, Verdict::kBroken, outage.error().text(), "agents without that option do not start"};
  return {name, Verdict::kOk,
          str(std::chrono::duration<double>(*outage).count(),
              " s; a peer that is silent while work waits is gone after ",
              transport::keepalive_for(*outage).silent_ms() / 1000, " s"),
          ""};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kInfo:
      return "info";
    case Verdict::kAdvice:
      return "advice";
    case Verdict::kBroken:
      break;
  }
  return "broken";
}

namespace {

// Reports the providers from which an agent with provider "auto" chooses.
Finding check_choice() {
  const auto devices = agent::Devices::open(agent::kAuto);
  if (!devices)
    return {"provider auto", Verdict::kBroken, devices.error().text(), "see the setting that it names"};
  const auto loop = transport::Loop::create();
  if (!loop) return {"provider auto", Verdict::kBroken, loop.error().text(), ""};
  // Opening the ports removes the devices that open no port, as in an agent.
  const auto ports = (*devices)->open_ports(**loop);
  if (!ports) return {"provider auto", Verdict::kBroken, ports.error().text(), ""};
  std::string order;
  for (const std::string& name : (*devices)->names())
    order.append(order.empty() ? "" : ", else ").append(name);
  return {"provider auto", Verdict::kOk,
          str("for each peer ", order, ", as far as both have it and reach each other"), ""};
}

}  // namespace

std::vector<Finding> check_providers() {
  std::vector<Finding> out;
  bool any = false;
  for (const std::string& name : transport::provider_names()) {
    const std::string label = "provider " + name;
    auto provider = transport::make_provider(name);
    const Status status = provider ? (*provider)->available() : provider.error();
    any = any || status.ok();
    // check_verbs() reports in detail why the provider verbs is not usable.
    const std::string why = name == "verbs" ? "see libibverbs and rdma below" : status.text();
    out.push_back(status.ok() ? Finding{label, Verdict::kOk, "works here", ""}
                              : Finding{label, Verdict::kInfo, "not usable: " + why, ""});
  }
  if (any) out.push_back(check_choice());
  if (!any) {
    out.push_back({"providers", Verdict::kBroken, "none works", "without a provider no agent can connect"});
  }
  return out;
}

std::vector<Finding> check_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const long usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
  const std::string value = usable == online ? str(usable) : str(usable, " of ", online);
  if (usable >= 2) return {{"cores", Verdict::kOk, value, ""}};
  return {{"cores", Verdict::kAdvice, value,
           "with one core a waiting caller and its peer take turns: use Progress::kThread, the default"}};
}

// Reports the kernel's pool of huge pages, from which Pages::kHuge allocates. An empty pool is not
// an error.
Finding check_huge_page_pool() {
  const transport::HugePages pool = transport::read_huge_pages();
  const char* const name = "pool of huge pages";
  if (pool.page_bytes == 0) return {name, Verdict::kInfo, "the kernel has none", ""};
  const std::string value =
      str(pool.available(), " free of ", pool.total, ", ", bytes_text(pool.page_bytes), " each");
  if (pool.total > 0) return {name, Verdict::kOk, value, ""};
  return {name, Verdict::kInfo, value, "for memory of huge pages, as root: sysctl vm.nr_hugepages=N"};
}

std::vector<Finding> check_memory() {
  std::vector<Finding> out;
  const auto line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!line) {
    out.push_back({"huge pages", Verdict::kInfo, "the kernel has no transparent huge pages", ""});
  } else if (const std::string choice = chosen(*line); choice == "never") {
    out.push_back({"huge pages", Verdict::kAdvice, choice,
                   "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  } else {
    out.push_back({"huge pages", Verdict::kOk, choice, ""});
  }
  out.push_back(check_huge_page_pool());
  return out;
}

std::vector<Finding> check_limits() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return {};
  const std::string value = files.rlim_cur == RLIM_INFINITY
                                ? "unlimited"
                                : str(files.rlim_cur, " (hard limit ", files.rlim_max, ")");
  if (files.rlim_cur >= kWantedFds) return {{"file descriptors", Verdict::kOk, value, ""}};
  return {{"file descriptors", Verdict::kAdvice, value,
           str("each connected peer takes one to three: ulimit -n ", kWantedFds,
               " before starting agents with many peers")}};
}

namespace {

// Checks whether another process of this user may read the memory of this process
// (process_vm_readv), as local peers do.
Finding check_reading() {
  const char* const name = "memory of local peers";
  static constexpr std::uint64_t kWord = 0x736c696d65;
  std::uint64_t word = kWord;
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return {name, Verdict::kInfo, "unknown: no process could be made to try it", ""};
  if (child == 0) {
    std::uint64_t got = 0;
    const iovec here{&got, sizeof got};
    const iovec there{&word, sizeof word};
    const ssize_t read = ::process_vm_readv(self, &here, 1, &there, 1, 0);
    ::_exit(read == static_cast<ssize_t>(sizeof got) && got == kWord ? 0 : read < 0 ? errno : EIO);
  }
  int state = 0;
  if (::waitpid(child, &state, 0) != child || !WIFEXITED(state))
    return {name, Verdict::kInfo, "unknown: the process that tried it was killed", ""};
  const int why = WEXITSTATUS(state);
  if (why == 0) return {name, Verdict::kOk, "read directly, also what Slime did not allocate", ""};
  return {name, Verdict::kAdvice,
          str("not read directly (process_vm_readv: ", std::strerror(why),
              "): what Slime did not allocate is copied twice over shm"),
          "allow it with sysctl -w kernel.yama.ptrace_scope=0 as root, in a container with "
          "--cap-add SYS_PTRACE; or let Slime allocate (agent.allocate)"};
}

}  // namespace

std::vector<Finding> check_isolation() {
  std::vector<Finding> out;
  const auto yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!yama) {
    out.push_back(
        {"ptrace scope", Verdict::kOk, "no Yama: processes of one user may copy from each other", ""});
  } else if (*yama == "0") {
    out.push_back({"ptrace scope", Verdict::kOk, "0: processes of one user may copy from each other", ""});
  } else {
    out.push_back(
        {"ptrace scope", Verdict::kInfo, str(*yama, ": processes may not read each other's memory"), ""});
  }
  out.push_back(check_reading());
  if (in_container())
    out.push_back({"container", Verdict::kInfo, "this looks like one: sysctls are the host's", ""});
  return out;
}

std::vector<Finding> check_network() {
  return {socket_buffer("tcp receive buffer", "/proc/sys/net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"),
          socket_buffer("tcp send buffer", "/proc/sys/net/ipv4/tcp_wmem", "net.ipv4.tcp_wmem"),
          outage_tolerated()};
}

std::vector<Finding> check_runtime_dir() {
  const auto path = daemon::runtime_dir();
  if (!path) return {{"runtime directory", Verdict::kBroken, path.error().text(), "set SLIME_RUNTIME_DIR"}};
  if (access(path->c_str(), W_OK | X_OK) != 0) {
    return {{"runtime directory", Verdict::kBroken, *path + " is not writable", "set SLIME_RUNTIME_DIR"}};
  }
  return {{"runtime directory", Verdict::kOk, *path, ""}};
}

std::vector<Finding> check_ctrl(const std::string& url) {
  if (url.empty()) {
    return {{"nanoctrl", Verdict::kInfo, "not asked for: give --ctrl URL, or set SLIME_CTRL_URL", ""}};
  }
  auto options = ctrl::client_options(url);
  if (!options)
    return {{"nanoctrl", Verdict::kBroken, options.error().text(), "mend the token file, or unset it"}};
  auto client = ctrl::Client::create(std::move(*options));
  if (!client) return {{"nanoctrl", Verdict::kBroken, client.error().text(), "a URL is http://HOST:PORT"}};
  const auto status = (*client)->server_status();
  if (!status) {
    return {{"nanoctrl", Verdict::kBroken, status.error().to_string(),
             "is it running, and is this its address? `nanoctrl start` starts one"}};
  }
  return {
      {"nanoctrl", Verdict::kOk, str(url, ", version ", status->version, ", ", status->peers, " peers"), ""}};
}

}  // namespace slime::cli
