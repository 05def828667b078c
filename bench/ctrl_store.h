#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/process.h"

namespace slime::bench {

// A place of a measurement's own for what a nanoctrl keeps; gone with this. Thread: one.
class CtrlStore {
 public:
  // "memory"; "sqlite": a file in a new folder under TMPDIR; "redis": redis-server, found in PATH, on a free
  // port of 127.0.0.1, which writes to disk once a second. kNotFound: there is no redis-server.
  static Result<CtrlStore> start(const std::string& kind);
  CtrlStore(CtrlStore&& other) noexcept = default;
  CtrlStore& operator=(CtrlStore&&) = delete;
  ~CtrlStore();

  [[nodiscard]] const std::string& url() const { return url_; }  // for nanoctrl's --store
  // Those that work beside nanoctrl.
  [[nodiscard]] std::vector<pid_t> processes() const;

 private:
  CtrlStore() = default;
  Status make_folder();
  Status start_redis();
  Status start_redis_once();

  std::string url_;
  std::filesystem::path folder_;
  std::vector<Child> child_;  // none or one
};

}  // namespace slime::bench
