#include "bench/ctrl_server.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/str.h"
#include "bench/raw.h"

namespace slime::bench {
namespace {

constexpr Nanos kStart = std::chrono::seconds(30);
constexpr int kPauseMs = 20;
constexpr int kRedisTries = 5;         // another program may take the free port first
constexpr std::size_t kUserTime = 14;  // fields of /proc/PID/stat (proc_pid_stat(5))
constexpr std::size_t kSystemTime = 15;

// Returns the nanoctrl beside this program, or in a build tree the one in the layer's folder.
Result<std::string> program_of(const CtrlOptions& options) {
  if (!options.program.empty()) return options.program;
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& path : {folder / "nanoctrl", folder.parent_path() / "ctrl" / "nanoctrl"}) {
    if (::access(path.c_str(), X_OK) == 0) return path.string();
  }
  return Status(Code::kNotFound, str("no nanoctrl in ", folder.string(), ": name it with --nanoctrl"));
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
    const auto name_end = stat.rfind(')');  // the name may contain any byte
    if (name_end == std::string::npos) return Status(Code::kUnavailable, str("there is no process ", pid));
    std::istringstream fields(stat.substr(name_end + 1));
    double ticks = 0;
    std::size_t number = 3;
    for (std::string field; fields >> field; ++number) {
      if (number == kUserTime || number == kSystemTime) ticks += std::strtod(field.c_str(), nullptr);
    }
    out.cpu_seconds += ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
    const std::string status = str("/proc/", pid, "/status");
    out.resident_mib += number_in(status, "VmRSS:") / 1024;
    out.resident_peak_mib += number_in(status, "VmHWM:") / 1024;
  }
  return out;
}

Result<TempFolder> TempFolder::create() {
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  if (error) return Status(Code::kUnavailable, str("no folder for temporary files: ", error.message()));
  std::string name = (temporary / "slime-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return from_errno(str("cannot make ", name), errno);
  TempFolder out;
  out.path_ = name;
  return out;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

// Returns the store's URL.
Result<std::string> CtrlServer::start_store(const std::string& kind) {
  if (kind == "memory") return kind;
  auto folder = TempFolder::create();
  if (!folder) return std::move(folder).error();
  folder_ = std::move(*folder);
  if (kind == "sqlite") return str("sqlite:", (folder_.path() / "nanoctrl.db").string());
  if (kind != "redis") return Status(Code::kInvalidArgument, str("there is no store '", kind, "'"));
  Result<std::string> url = start_redis();
  for (int i = 1; i < kRedisTries && !url && !interrupted(); ++i) url = start_redis();
  return url;
}

Result<std::string> CtrlServer::start_redis() {
  std::uint16_t port = 0;
  {
    const auto free = listen_tcp();
    if (!free) return free.error();
    port = free->port;
  }
  const std::string log = folder_.path() / "redis.log";
  std::ofstream(log, std::ios::trunc);
  auto child = Child::start({"--port", str(port), "--bind", "127.0.0.1", "--dir", folder_.path(), "--logfile",
                             log, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"},
                            "redis-server", SIGTERM);
  if (!child) return child.error();
  redis_.emplace(std::move(*child));
  const TimePoint end = steady_clock().now() + kStart;
  // Another program may answer at the port, so only the log shows that this Redis is ready.
  while (text_of(log).find("Ready to accept connections") == std::string::npos) {
    if (redis_->ended() || steady_clock().now() >= end || interrupted())
      return Status(Code::kUnavailable,
                    str("redis-server, which --store redis needs in PATH, does not start"));
    ::poll(nullptr, 0, kPauseMs);
  }
  store_processes_ = {redis_->pid()};
  return str("redis://127.0.0.1:", port);
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
  const auto store_url = out.start_store(store);
  if (!store_url) return store_url.error();
  std::vector<std::string> arguments{"server", "--json",           "--port",  "0",
                                     "--ttl",  str(options.ttl_s), "--store", *store_url};
  // Logging each event would count as server time, too.
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
  out.child_.emplace(std::move(*child));
  return out;
}

Status CtrlServer::alive() const {
  if (!child_ || !child_->ended()) return {};
  return {Code::kUnavailable, "nanoctrl has ended"};
}

}  // namespace slime::bench
