#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench.h"
#include "bench/process.h"

namespace slime::bench {

// Processor time and memory of processes, as the kernel counts them.
struct ProcessUse {
  double cpu_seconds = 0;  // user and system, so far
  double resident_mib = 0;
  double resident_peak_mib = 0;  // since the process started
};
// Adds up the processes. kUnavailable when a process is gone.
Result<ProcessUse> use_of(const std::vector<pid_t>& processes);

// A new folder for temporary files; removed with this. Movable.
class TempFolder {
 public:
  static Result<TempFolder> create();
  TempFolder() = default;
  TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempFolder& operator=(TempFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TempFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The measured nanoctrl: a running server, or a child with a store of its own. Both end with this.
// Thread: one.
class CtrlServer {
 public:
  // `store` is for a child: "memory"; "sqlite", a file in a temporary folder; "redis", a
  // redis-server from PATH on a free port of 127.0.0.1, which writes to disk once a second.
  static Result<CtrlServer> start(const CtrlOptions& options, const std::string& store);
  [[nodiscard]] const std::vector<std::string>& urls() const { return urls_; }
  [[nodiscard]] const std::vector<pid_t>& processes() const { return processes_; }  // empty: unknown
  [[nodiscard]] const std::vector<pid_t>& store_processes() const { return store_processes_; }
  // kUnavailable when the child has ended.
  [[nodiscard]] Status alive() const;

 private:
  Result<std::string> start_store(const std::string& kind);
  Result<std::string> start_redis();

  std::vector<std::string> urls_;
  std::vector<pid_t> processes_;
  std::vector<pid_t> store_processes_;
  TempFolder folder_;  // outlives the processes with files in it
  std::optional<Child> redis_;
  std::optional<Child> child_;  // ends before its store does
};

}  // namespace slime::bench
