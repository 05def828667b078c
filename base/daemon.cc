#include "base/daemon.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/str.h"

namespace slime::daemon {
namespace {

constexpr std::size_t kInfoBytes = 4096;
constexpr Nanos kPollInterval = std::chrono::milliseconds(20);
constexpr Nanos kKillWait = std::chrono::seconds(5);

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string read_info(int fd) {
  std::array<char, kInfoBytes> buffer;
  const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), 0);
  std::string_view text(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::size_t line = text.find('\n');  // line 1 is the pid, for people; programs ask the lock
  if (line == std::string_view::npos) return {};
  text.remove_prefix(line + 1);
  return std::string(text.substr(0, text.find('\n')));
}

int poll_for(int fd, Nanos left) {
  pollfd entry{fd, POLLIN, 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(left, Nanos::zero())).count();
  return ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
}

// Reads until the end of the stream. Returns false at the deadline.
bool read_to_end(int fd, TimePoint deadline, std::string& out) {
  std::array<char, 1024> buffer;
  while (true) {
    const Nanos left = deadline - steady_clock().now();
    if (left <= Nanos::zero()) return false;
    if (poll_for(fd, left) <= 0) continue;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    out.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

// A process, held by a pidfd if the kernel has pidfds: a signal then never reaches a later process
// with the same pid.
class ProcessRef {
 public:
  explicit ProcessRef(pid_t pid) : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  Status signal(int number) const {
    const long result =
        fd_.valid() ? ::syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0) : ::kill(pid_, number);
    if (result == 0 || errno == ESRCH) return {};
    return from_errno(str("signal to process ", pid_), errno);
  }
  // Returns whether the process has ended, even if it is a zombie. Always returns true if the
  // kernel has no pidfds: then only the lock of the pid file tells.
  [[nodiscard]] bool ended() const { return !fd_.valid() || poll_for(fd_.get(), Nanos::zero()) > 0; }

 private:
  pid_t pid_;
  UniqueFd fd_;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Creates the directory `path` if it does not exist, and checks that only this user has access.
// `what` and `variable`, the environment variable that sets another path, are for the error text.
Result<std::string> own_directory(std::string_view what, std::string path, std::string_view variable) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return from_errno(str(what, " ", path, " (set ", variable, " to choose another)"), errno);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return from_errno(str(what, " ", path), errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return Status(Code::kPermissionDenied,
                  str(what, " ", path, " must be a directory of yours with mode 0700 (try: chmod 700 ", path,
                      "), or set ", variable, " to choose another"));
  return path;
}

}  // namespace

Result<std::string> runtime_dir() {
  std::string path = str("/tmp/slime-", ::geteuid());
  if (const std::string own = environment("SLIME_RUNTIME_DIR"); !own.empty()) {
    path = own;
  } else if (const std::string xdg = environment("XDG_RUNTIME_DIR"); !xdg.empty()) {
    path = str(xdg, "/slime");
  }
  return own_directory("runtime directory", std::move(path), "SLIME_RUNTIME_DIR");
}

Result<std::string> state_dir() {
  for (const char* name : {"SLIME_STATE_DIR", "SLIME_RUNTIME_DIR", "STATE_DIRECTORY"}) {
    if (std::string path = environment(name); !path.empty())
      return own_directory("state directory", std::move(path), "SLIME_STATE_DIR");
  }
  std::string parent = environment("XDG_STATE_HOME");
  if (parent.empty()) {
    const std::string home = environment("HOME");
    if (home.empty())
      return Status(Code::kInvalidArgument,
                    "there is no HOME to keep state in; set SLIME_STATE_DIR to a directory");
    parent = str(home, "/.local/state");
  }
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) return from_errno(str("state directory ", parent, " (set SLIME_STATE_DIR)"), error.value());
  return own_directory("state directory", str(parent, "/slime"), "SLIME_STATE_DIR");
}

void close_inherited_fds() {
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) return;
  std::vector<int> fds;
  while (const dirent* entry = ::readdir(dir)) {
    const int fd = std::atoi(entry->d_name);  // "." and ".." give 0
    if (fd > 2 && fd != ::dirfd(dir)) fds.push_back(fd);
  }
  ::closedir(dir);
  for (const int fd : fds) ::close(fd);
}

Result<std::optional<Running>> find_running(const std::string& pid_path) {
  const UniqueFd fd(::open(pid_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) {
    if (errno == ENOENT) return std::optional<Running>();
    return from_errno(str("pid file ", pid_path), errno);
  }
  // A read-only descriptor can only test for a read lock, which conflicts with the holder's write
  // lock.
  struct flock lock = whole_file(F_RDLCK);
  if (::fcntl(fd.get(), F_GETLK, &lock) != 0) return from_errno(str("pid file ", pid_path), errno);
  if (lock.l_type == F_UNLCK) return std::optional<Running>();
  return std::optional<Running>(Running{lock.l_pid, read_info(fd.get())});
}

Result<PidFile> PidFile::acquire(std::string path, std::string_view info) {
  if (info.size() > kInfoBytes / 2 || info.find('\n') != std::string_view::npos)
    return Status(Code::kInvalidArgument, "the info of a pid file is one short line");
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return from_errno(str("pid file ", path), errno);
    struct flock lock = whole_file(F_WRLCK);
    if (::fcntl(fd.get(), F_SETLK, &lock) != 0) {
      if (errno == EACCES || errno == EAGAIN)
        return Status(Code::kAlreadyExists, str("another process holds ", path));
      return from_errno(str("lock of ", path), errno);
    }
    // The previous holder may have removed the file between our open and our lock; then our lock
    // protects nothing.
    struct stat ours {};
    struct stat named {};
    if (::fstat(fd.get(), &ours) != 0 || ::stat(path.c_str(), &named) != 0 || ours.st_ino != named.st_ino ||
        ours.st_dev != named.st_dev)
      continue;
    // On a full disk the text is missing, but the lock holds, and only the lock matters.
    if (::ftruncate(fd.get(), 0) == 0) (void)write_all(fd.get(), str(::getpid(), "\n", info, "\n"));
    return PidFile(std::move(path), std::move(fd));
  }
}

PidFile::~PidFile() {
  if (fd_.valid()) ::unlink(path_.c_str());
}

void ReadyPipe::ready(std::string_view message) { send(Code::kOk, message); }
void ReadyPipe::failed(const Status& status) { send(status.code(), status.text()); }

void ReadyPipe::send(Code code, std::string_view text) {
  if (!fd_.valid()) return;
  // Ignores a failed write: the child goes on even if its parent has ended.
  (void)write_all(fd_.get(), str(static_cast<char>('A' + static_cast<int>(code)), text));
  fd_.reset();
}

namespace {

// The child's part of start_in_background().
[[noreturn]] void run_child(const StartOptions& options, const std::function<int(ReadyPipe&)>& body,
                            UniqueFd pipe) {
  ReadyPipe ready(std::move(pipe));
  ::setsid();
  ::umask(077);
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int log_fd = ::open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (null_fd < 0 || log_fd < 0) {
    ready.failed(from_errno(null_fd < 0 ? "/dev/null" : options.log_path, errno));
    ::_exit(1);
  }
  ::dup2(null_fd, STDIN_FILENO);
  ::dup2(null_fd, STDOUT_FILENO);
  ::dup2(log_fd, STDERR_FILENO);
  ::close(null_fd);
  ::close(log_fd);
  if (::chdir("/") != 0) {
    ready.failed(from_errno("chdir to /", errno));
    ::_exit(1);
  }
  if (Status status = log_to_file(options.log_path); !status.ok()) {
    ready.failed(status);
    ::_exit(1);
  }
  // exit(), not _exit(): exit handlers (logs, leak checks) must run in the child.
  ::exit(body(ready));
}

}  // namespace

Result<std::string> start_in_background(const StartOptions& options,
                                        const std::function<int(ReadyPipe&)>& body) {
  if (options.log_path.empty() || options.log_path.front() != '/')
    return Status(Code::kInvalidArgument, "the log path of a background process must be absolute");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("pipe", errno);
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return from_errno("fork", errno);
  if (pid == 0) {
    read_end.reset();
    run_child(options, body, std::move(write_end));
  }
  write_end.reset();
  std::string told;
  if (!read_to_end(read_end.get(), deadline_after(steady_clock().now(), options.wait), told)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return Status(Code::kDeadlineExceeded,
                  str("not ready after ", std::chrono::duration<double>(options.wait).count(),
                      " s and killed; its log is ", options.log_path));
  }
  if (told.empty()) {
    int exit_status = 0;
    ::waitpid(pid, &exit_status, 0);
    return Status(Code::kUnavailable, str("ended at start (",
                                          WIFSIGNALED(exit_status) ? str("signal ", WTERMSIG(exit_status))
                                                                   : str("exit ", WEXITSTATUS(exit_status)),
                                          "); its log is ", options.log_path));
  }
  const auto code = static_cast<std::uint8_t>(told.front() - 'A');
  told.erase(0, 1);
  if (code == static_cast<std::uint8_t>(Code::kOk)) return told;
  ::waitpid(pid, nullptr, 0);
  return Status(error_code_from_wire(code), told);
}

Result<StopOutcome> stop(const std::string& pid_path, Nanos timeout, bool force) {
  Result<std::optional<Running>> found = find_running(pid_path);
  if (!found) return found.error();
  if (!*found) return StopOutcome::kNotRunning;
  const pid_t pid = (*found)->pid;
  if (pid <= 0)  // the holder is in another pid namespace
    return Status(Code::kPermissionDenied,
                  str("the process that holds ", pid_path, " is out of reach from here"));
  const ProcessRef process(pid);
  // Returns whether the process still holds the pid file. The first call makes sure that the pidfd
  // names the holder, not a later process with the same pid.
  const auto still_running = [&] {
    found = find_running(pid_path);
    return found && *found && (*found)->pid == pid;
  };
  const auto wait_gone = [&](TimePoint deadline) {
    while (still_running() || !process.ended()) {
      if (steady_clock().now() >= deadline) return false;
      ::poll(nullptr, 0,
             static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(kPollInterval).count()));
    }
    return true;
  };
  if (!still_running()) return StopOutcome::kNotRunning;
  SLIME_TRY(process.signal(SIGTERM));
  if (wait_gone(deadline_after(steady_clock().now(), timeout))) return StopOutcome::kStopped;
  if (!force)
    return Status(Code::kDeadlineExceeded,
                  str("process ", pid, " has not ended ", std::chrono::duration<double>(timeout).count(),
                      " s after SIGTERM"));
  SLIME_TRY(process.signal(SIGKILL));
  if (wait_gone(deadline_after(steady_clock().now(), kKillWait))) return StopOutcome::kKilled;
  return Status(Code::kDeadlineExceeded, str("process ", pid, " has not ended after SIGKILL"));
}

namespace {

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int wait_for_stop_signal() {
  const sigset_t set = stop_signals();
  while (true) {
    const int number = ::sigwaitinfo(&set, nullptr);
    if (number > 0) return number;
  }
}

}  // namespace slime::daemon
