#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/ctrl_bench.h"
#include "bench/ctrl_store.h"
#include "bench/process.h"

namespace slime::bench {

// What the kernel says about a process.
struct ProcessUse {
  double cpu_seconds = 0;  // user and system, so far
  double resident_mib = 0;
  double resident_peak_mib = 0;  // since it started
};
// All of them together. kUnavailable when one is gone.
Result<ProcessUse> use_of(const std::vector<pid_t>& processes);

// The nanoctrl that is measured: somebody's, or a child, which ends with this. Thread: one.
class CtrlServer {
 public:
  // `store`: of a child.
  static Result<CtrlServer> start(const CtrlOptions& options, const std::string& store);
  [[nodiscard]] const std::vector<std::string>& urls() const { return urls_; }
  [[nodiscard]] const std::vector<pid_t>& processes() const { return processes_; }  // empty: not known
  // What stores for a child, and works beside it.
  [[nodiscard]] std::vector<pid_t> store_processes() const;
  // kUnavailable when it was a child and has ended.
  [[nodiscard]] Status alive() const;

 private:
  std::vector<std::string> urls_;
  std::vector<pid_t> processes_;
  std::optional<CtrlStore> store_;
  std::vector<Child> child_;  // none or one; ends before its store does
};

}  // namespace slime::bench
