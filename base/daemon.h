#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

// Helpers for a program with `start`, `status` and `stop`. A complete `start`:
//
//   daemon::close_inherited_fds();                           // first in main(), for `start` only
//   auto dir = daemon::runtime_dir();                        // where the pid files and logs are
//   const std::string pid_path = *dir + "/slime-cache-NAME.pid";
//   if (auto running = daemon::find_running(pid_path); *running) ... already running: exit 0
//   const daemon::StartOptions options{.log_path = ..., .wait = 8s};
//   auto told = daemon::start_in_background(options, [&](daemon::ReadyPipe& ready) {
//     auto pid_file = daemon::PidFile::acquire(pid_path, "any text for status");
//     if (!pid_file) { ready.failed(pid_file.error()); return 1; }
//     ... start the threads, sockets, ... ; on error ready.failed(status), return 1
//     ready.ready("127.0.0.1:4479");                         // start_in_background returns that
//                                                            // in the parent
//     ... run until SIGTERM
//     return 0;                                              // the exit status; removes pid_file
//   });
namespace slime::daemon {

// Returns $SLIME_RUNTIME_DIR, else $XDG_RUNTIME_DIR/slime, else /tmp/slime-<uid>. Creates the
// folder with mode 0700 if it does not exist. Errors: kPermissionDenied for a folder that is a
// link, belongs to another user, or is open to others.
Result<std::string> runtime_dir();

// Returns the folder for state that must survive a restart: $SLIME_STATE_DIR, else
// $SLIME_RUNTIME_DIR (one folder for everything), else systemd's $STATE_DIRECTORY, else
// $XDG_STATE_HOME/slime, else ~/.local/state/slime. Creates the folder with mode 0700 if it does
// not exist. Errors: as runtime_dir().
Result<std::string> state_dir();

// Closes every descriptor above 2, so that a background process does not keep a pipe of its starter
// open. Call only at the very start of a program.
void close_inherited_fds();

// A process that holds a pid file.
struct Running {
  pid_t pid = 0;
  std::string info;  // the text given to acquire()
};
// Returns the process that holds the lock of the pid file; nullopt if no process does, even if the
// file names one. The kernel names the holder, so neither a crash nor a reused pid can mislead. Not
// for a file that the calling process holds.
Result<std::optional<Running>> find_running(const std::string& pid_path);

// A pid file, locked and present for the lifetime of this object. The lock belongs to the process:
// while the object exists, the process must not open the file elsewhere, and must not fork.
class PidFile {
 public:
  // Creates and locks the file, and writes the pid and `info` into it. Returns kAlreadyExists if
  // another process holds the file.
  static Result<PidFile> acquire(std::string path, std::string_view info);
  PidFile(PidFile&& other) noexcept = default;
  PidFile& operator=(PidFile&&) = delete;
  ~PidFile();

 private:
  PidFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

// Reports the result of a background process's start to its starter. Only the first report counts.
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
  // absolute path; stderr and the log (base/log.h) of the background process are appended to this
  // file
  std::string log_path;
  Nanos wait = std::chrono::seconds(8);
};

// Forks and runs `body` in the child, in a session of its own, with stdin and stdout on /dev/null.
// The child exits with the value of `body`. In the parent returns the text that `body` gave to
// ready(), or an error: the status given to failed(), kUnavailable if the child ended without a
// report, kDeadlineExceeded if the child did not report within `wait` and was killed. Call with one
// thread only. The child inherits open descriptors.
Result<std::string> start_in_background(const StartOptions& options,
                                        const std::function<int(ReadyPipe&)>& body);

enum class StopOutcome { kNotRunning, kStopped, kKilled };
// Sends SIGTERM to the process that holds the pid file, and waits up to `timeout` for its end. If
// it has not ended by then, sends SIGKILL if `force`, else returns kDeadlineExceeded.
Result<StopOutcome> stop(const std::string& pid_path, Nanos timeout, bool force);

// Blocks SIGTERM and SIGINT for wait_for_stop_signal(), in this thread and all threads started
// later, and ignores SIGPIPE. Call before any thread is started.
void block_stop_signals();
// Waits for SIGTERM or SIGINT, and returns its number. Call on one thread only.
int wait_for_stop_signal();

}  // namespace slime::daemon
