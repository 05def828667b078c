#include "tests/support/process.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/str.h"

namespace slime::test {
namespace {

constexpr std::size_t kLineBytes = 1 << 20;
constexpr int kPollMillis = 2;  // interval of waitid() polls, since waitid() has no timeout

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return from_errno("pipe2", errno);
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Runs in the child. Only async-signal-safe calls: the parent may have threads.
[[noreturn]] void run_child(int in, int out, pid_t parent, char* const* argv, char* const* environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl()
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (::dup2(in, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0) ::_exit(127);
  ::execve(argv[0], argv, environment);
  ::_exit(127);
}

void pause_a_little() { ::poll(nullptr, 0, kPollMillis); }

}  // namespace

Result<Process> Process::spawn(std::vector<std::string> argv, std::vector<std::string> environment) {
  if (argv.empty()) return Status(Code::kInvalidArgument, "no program");
  if (::access(argv[0].c_str(), X_OK) != 0) return from_errno(argv[0], errno);
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry(*e);
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    const bool replaced = std::any_of(environment.begin(), environment.end(),
                                      [&](const std::string& ours) { return ours.starts_with(name); });
    if (!replaced) environment.emplace_back(entry);
  }
  Result<Pipe> in = make_pipe();
  if (!in) return std::move(in).error();
  Result<Pipe> out = make_pipe();
  if (!out) return std::move(out).error();
  const std::vector<char*> args = pointers(argv);
  const std::vector<char*> env = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return from_errno("fork", errno);
  if (pid == 0) run_child(in->read.get(), out->write.get(), parent, args.data(), env.data());
  return Process(pid, std::move(in->write), std::move(out->read));
}

Process::Process(pid_t pid, UniqueFd in, UniqueFd out)
    : pid_(pid), stdin_(std::move(in)), stdout_(std::move(out)) {}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      reaped_(other.reaped_),
      exit_(other.exit_),
      stdin_(std::move(other.stdin_)),
      stdout_(std::move(other.stdout_)),
      buffered_(std::move(other.buffered_)) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    destroy();
    pid_ = std::exchange(other.pid_, -1);
    reaped_ = other.reaped_;
    exit_ = other.exit_;
    stdin_ = std::move(other.stdin_);
    stdout_ = std::move(other.stdout_);
    buffered_ = std::move(other.buffered_);
  }
  return *this;
}

Process::~Process() { destroy(); }

void Process::destroy() noexcept {
  if (pid_ <= 0 || reaped_) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

Result<std::string> Process::read_line(Nanos timeout) {
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout);
  for (;;) {
    if (const std::size_t end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    if (buffered_.size() > kLineBytes) return Status(Code::kCorrupt, "a line without an end");
    const TimePoint now = steady_clock().now();
    if (now >= deadline) return Status(Code::kDeadlineExceeded, str("no line from process ", pid_));
    pollfd entry{stdout_.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    if (::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) <= 0) continue;
    std::array<char, 4096> chunk;
    const ssize_t got = ::read(stdout_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status(Code::kUnavailable, str("process ", pid_, " closed its stdout"));
    buffered_.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

Status Process::write_line(std::string_view line) {
  std::string text(line);
  text.push_back('\n');
  // Writing to a child that is gone must return an error, not signal the test.
  sigset_t pipe_signal;
  sigset_t before;
  ::sigemptyset(&pipe_signal);
  ::sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  Status status;
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t n = ::write(stdin_.get(), text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      status = from_errno(str("write to process ", pid_), errno);
      const timespec no_wait{};
      ::sigtimedwait(&pipe_signal, nullptr, &no_wait);
      break;
    }
    sent += static_cast<std::size_t>(n);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

Status Process::send(int signal) {
  if (pid_ <= 0 || reaped_) return Status(Code::kNotFound, "the process has ended");
  if (::kill(pid_, signal) != 0) return from_errno(str("kill ", pid_), errno);
  return {};
}

Status Process::stop() {
  SLIME_TRY(send(SIGSTOP));
  const TimePoint deadline = deadline_after(steady_clock().now(), std::chrono::seconds(10));
  while (steady_clock().now() < deadline) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) != 0)
      return from_errno("waitid", errno);
    if (info.si_pid == pid_) {
      if (info.si_code != CLD_STOPPED) return Status(Code::kNotFound, "the process has ended");
      // Consumes the stop event, so that the next stop() waits for its own event.
      ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG);
      return {};
    }
    pause_a_little();
  }
  return Status(Code::kDeadlineExceeded, str("process ", pid_, " did not stop"));
}

Status Process::resume() { return send(SIGCONT); }
Status Process::kill() { return send(SIGKILL); }
Status Process::interrupt() { return send(SIGINT); }
Status Process::terminate() { return send(SIGTERM); }

Result<ExitState> Process::wait(Nanos timeout) {
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout);
  while (!reaped_) {
    int raw = 0;
    const pid_t got = ::waitpid(pid_, &raw, WNOHANG);
    if (got < 0 && errno != EINTR) return from_errno("waitpid", errno);
    if (got == pid_) {
      reaped_ = true;
      exit_.signaled = WIFSIGNALED(raw);
      exit_.value = exit_.signaled ? WTERMSIG(raw) : WEXITSTATUS(raw);
      break;
    }
    if (steady_clock().now() >= deadline)
      return Status(Code::kDeadlineExceeded, str("process ", pid_, " still runs"));
    pause_a_little();
  }
  return exit_;
}

std::string program_beside_this(std::string_view name) {
  std::array<char, PATH_MAX> self;
  const ssize_t n = ::readlink("/proc/self/exe", self.data(), self.size());
  std::string path(self.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  path.resize(path.rfind('/') + 1);
  return path.append(name);
}

}  // namespace slime::test
