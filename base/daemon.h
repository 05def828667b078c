#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

// What a program needs to offer `start`, `status` and `stop`. A whole `start`:
//
//   daemon::close_inherited_fds();                           // first thing in main, for `start` only
//   auto dir = daemon::runtime_dir();                        // where the pid files and logs are
//   const std::string pid_path = *dir + "/slime-cache-NAME.pid";
//   if (auto running = daemon::find_running(pid_path); *running) ... it runs already: say so, exit 0
//   auto told = daemon::start_in_background({.log_path = ..., .wait = 8s}, [&](daemon::ReadyPipe& ready) {
//     auto pid_file = daemon::PidFile::acquire(pid_path, "any text for status");
//     if (!pid_file) { ready.failed(pid_file.error()); return 1; }
//     ... start the threads, sockets, ... ; on error ready.failed(status), return 1
//     ready.ready("127.0.0.1:4479");                         // start_in_background returns that
//                                                            // in the parent
//     ... run until SIGTERM
//     return 0;                                              // the exit status; pid_file goes with the scope
//   });
namespace slime::daemon {

// $SLIME_RUNTIME_DIR, else $XDG_RUNTIME_DIR/slime, else /tmp/slime-<uid>. Made with mode 0700 if need be;
// kPermissionDenied for one that is a link, somebody else's, or open to others.
Result<std::string> runtime_dir();

// Where a program keeps what it must have again after a restart: $SLIME_STATE_DIR, else $SLIME_RUNTIME_DIR
// (one folder for everything), else systemd's $STATE_DIRECTORY, else $XDG_STATE_HOME/slime, else
// ~/.local/state/slime. Made with mode 0700 if need be; kPermissionDenied as above.
Result<std::string> state_dir();

// Closes every descriptor above 2, so that a background process does not keep a pipe of whoever started it
// open. Only at the very start of a program.
void close_inherited_fds();

// A process that holds a pid file.
struct Running {
  pid_t pid = 0;
  std::string info;  // what it gave to acquire()
};
// Nothing when no process holds the file, whatever is written in it: the kernel names the holder of the lock,
// so neither a crash nor a reused pid can mislead. Not for the calling process's own file.
Result<std::optional<Running>> find_running(const std::string& pid_path);

// A pid file, locked for as long as this lives; removed then. The lock is the process's: open the file
// nowhere else in it, and don't fork away from it.
class PidFile {
 public:
  // kAlreadyExists when another process holds it.
  static Result<PidFile> acquire(std::string path, std::string_view info);
  PidFile(PidFile&& other) noexcept = default;
  PidFile& operator=(PidFile&&) = delete;
  ~PidFile();

 private:
  PidFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// The background process's way to say how its start went. Says it once; later calls do nothing.
class ReadyPipe {
 public:
  explicit ReadyPipe(UniqueFd fd) : fd_(std::move(fd)) {}
  void ready(std::string_view message);
  void failed(const Status& status);

 private:
  void send(Code code, std::string_view text);
  UniqueFd fd_;
};

struct StartOptions {
  std::string log_path;  // stderr and log (base/log.h) of the background process go there, appended
  Nanos wait = std::chrono::seconds(8);
};

// Forks; runs `body` in the child, in a session of its own, with stdin and stdout on /dev/null, and ends it
// with the body's value as exit status. In the parent returns what the body told ready(), or the error: what
// it told failed(), kUnavailable when it ended without a word, kDeadlineExceeded after `wait`, when it was
// killed. Call with one thread only; what was opened before is the child's too.
Result<std::string> start_in_background(const StartOptions& options,
                                        const std::function<int(ReadyPipe&)>& body);

enum class StopOutcome { kNotRunning, kStopped, kKilled };
// SIGTERM to the holder of the file, then waits up to `timeout`; then SIGKILL if `force`, else
// kDeadlineExceeded.
Result<StopOutcome> stop(const std::string& pid_path, Nanos timeout, bool force);

// Makes SIGTERM and SIGINT wait for wait_for_stop_signal() in all threads started later, and ignores SIGPIPE.
// Call before any thread is started.
void block_stop_signals();
// Returns the signal's number. One thread only.
int wait_for_stop_signal();

}  // namespace slime::daemon
