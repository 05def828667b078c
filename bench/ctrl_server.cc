#include "bench/ctrl_server.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/str.h"

namespace slime::bench {
namespace {

constexpr Nanos kStart = std::chrono::seconds(30);
constexpr std::size_t kUserTime = 14;  // fields of /proc/PID/stat (proc_pid_stat(5))
constexpr std::size_t kSystemTime = 15;

// Beside this program when installed; in a build tree in the folder of its layer.
Result<std::string> program_of(const CtrlOptions& options) {
  if (!options.program.empty()) return options.program;
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& path : {folder / "nanoctrl", folder.parent_path() / "ctrl" / "nanoctrl"}) {
    if (::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return Status(Code::kNotFound, str("no nanoctrl in ", folder.string(), ": say which with --nanoctrl"));
}

// The number in KiB after `key` in /proc/PID/status, as MiB.
double mib_after(const std::string& status, const std::string& key) {
  const auto at = status.find(key);
  if (at == std::string::npos) return 0;
  double kib = 0;
  std::istringstream(status.substr(at + key.size())) >> kib;
  return kib / 1024;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

}  // namespace

Result<ProcessUse> use_of(const std::vector<pid_t>& processes) {
  ProcessUse out;
  for (const pid_t pid : processes) {
    const std::string stat = text_of(str("/proc/", pid, "/stat"));
    const std::string status = text_of(str("/proc/", pid, "/status"));
    const auto name_end = stat.rfind(')');  // the name may hold anything
    if (name_end == std::string::npos) return Status(Code::kUnavailable, str("there is no process ", pid));
    std::istringstream fields(stat.substr(name_end + 1));
    double ticks = 0;
    std::size_t number = 3;
    for (std::string field; fields >> field; ++number) {
      if (number == kUserTime || number == kSystemTime) ticks += std::strtod(field.c_str(), nullptr);
    }
    out.cpu_seconds += ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
    out.resident_mib += mib_after(status, "VmRSS:");
    out.resident_peak_mib += mib_after(status, "VmHWM:");
  }
  return out;
}

Result<CtrlServer> CtrlServer::start(const CtrlOptions& options, const std::string& store) {
  CtrlServer out;
  if (!options.urls.empty()) {
    out.urls_ = options.urls;
    out.processes_.assign(options.pids.begin(), options.pids.end());
    return out;
  }
  const auto program = program_of(options);
  if (!program) return program.error();
  auto kept_at = CtrlStore::start(store);
  if (!kept_at) return kept_at.error();
  out.store_.emplace(std::move(*kept_at));
  std::vector<std::string> arguments{"server", "--json",           "--port",  "0",
                                     "--ttl",  str(options.ttl_s), "--store", out.store_->url()};
  // A line for each event would be measured too.
  if (options.server_flags.find("--log-level") == std::string::npos)
    arguments.insert(arguments.end(), {"--log-level", "warning"});
  std::istringstream flags(options.server_flags);
  for (std::string flag; flags >> flag;) arguments.push_back(flag);
  auto child = Child::start(arguments, *program, SIGTERM);
  if (!child) return child.error();
  const auto line = child->read_line(kStart);
  if (!line) return Status(line.error().code(), str(*program, " did not start: ", line.error().text()));
  const auto said = nlohmann::json::parse(*line, nullptr, false);
  if (!said.is_object() || said.value("state", "") != "running" || !said.contains("url"))
    return Status(Code::kUnavailable, str(*program, " said: ", *line));
  out.urls_ = {said["url"].get<std::string>()};
  out.processes_ = {child->pid()};
  out.child_.push_back(std::move(*child));
  return out;
}

std::vector<pid_t> CtrlServer::store_processes() const {
  return store_ ? store_->processes() : std::vector<pid_t>();
}

Status CtrlServer::alive() const {
  if (child_.empty() || !child_[0].ended()) return {};
  return {Code::kUnavailable, "nanoctrl has ended"};
}

}  // namespace slime::bench
