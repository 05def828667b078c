#include "bench/ctrl_store.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/address.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/unique_fd.h"

namespace slime::bench {
namespace {

constexpr Nanos kReadyWithin = std::chrono::seconds(30);
constexpr int kPauseMs = 20;
constexpr int kPorts = 5;

Result<std::string> redis_program() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = str(folder, "/redis-server");
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return Status(Code::kNotFound, "no redis-server in PATH, which --store redis starts");
}

Result<UniqueFd> tcp_socket() {
  UniqueFd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out.valid()) return from_errno("socket", errno);
  return out;
}

Result<Address> free_address() {
  const auto any = SocketAddress::numeric(Address{"127.0.0.1", 0});
  if (!any) return any.error();
  const auto socket = tcp_socket();
  if (!socket) return socket.error();
  if (::bind(socket->get(), any->data(), any->length()) != 0) return from_errno("bind", errno);
  const auto at = SocketAddress::of_socket(socket->get());
  if (!at) return at.error();
  return at->to_address();
}

// What it writes when it listens. That somebody answers at its port would not say who.
bool is_ready(const std::filesystem::path& log) {
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) {
    if (line.find("Ready to accept connections") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Result<CtrlStore> CtrlStore::start(const std::string& kind) {
  CtrlStore out;
  out.url_ = kind;
  if (kind == "memory") return out;
  SLIME_TRY(out.make_folder());
  if (kind == "sqlite") {
    out.url_ = str("sqlite:", (out.folder_ / "nanoctrl.db").string());
    return out;
  }
  if (kind != "redis") return Status(Code::kInvalidArgument, str("there is no store '", kind, "'"));
  SLIME_TRY(out.start_redis());
  return out;
}

CtrlStore::~CtrlStore() {
  child_.clear();  // before its files
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::vector<pid_t> CtrlStore::processes() const {
  return child_.empty() ? std::vector<pid_t>() : std::vector<pid_t>{child_[0].pid()};
}

Status CtrlStore::make_folder() {
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  if (error) return {Code::kUnavailable, str("no folder for temporary files: ", error.message())};
  std::string name = (temporary / "slime-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return from_errno(str("cannot make ", name), errno);
  folder_ = name;
  return {};
}

// Another program may take the port between our look and its start: then with the next.
Status CtrlStore::start_redis() {
  Status status;
  for (int i = 0; i < kPorts; ++i) {
    status = start_redis_once();
    if (status.code() != Code::kUnavailable || interrupted()) break;
  }
  return status;
}

Status CtrlStore::start_redis_once() {
  const auto program = redis_program();
  if (!program) return program.error();
  const auto at = free_address();
  if (!at) return at.error();
  const std::filesystem::path log = folder_ / "redis.log";
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  child_.clear();
  auto child =
      Child::start({"--port", str(at->port), "--bind", at->host, "--dir", folder_.string(), "--logfile",
                    log.string(), "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"},
                   *program, SIGTERM);
  if (!child) return child.error();
  child_.push_back(std::move(*child));
  const TimePoint end = steady_clock().now() + kReadyWithin;
  while (!is_ready(log)) {
    if (child_[0].ended() || steady_clock().now() >= end || interrupted())
      return {Code::kUnavailable, str(*program, " does not start at ", at->to_string())};
    ::poll(nullptr, 0, kPauseMs);
  }
  url_ = str("redis://", at->to_string());
  return {};
}

}  // namespace slime::bench
