#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/str.h"

namespace slime {
namespace {

constexpr Nanos kChildEnds = std::chrono::seconds(3);
constexpr int kPollMs = 100;

std::atomic<bool> g_interrupted{false};

void note_signal(int) { g_interrupted.store(true, std::memory_order_relaxed); }

// The Status whose to_string() a child has written.
Status told_status(std::string_view text) {
  for (std::uint8_t number = 1; number < kCodeCount; ++number) {
    const auto code = static_cast<Code>(number);
    const std::string_view name = code_name(code);
    if (text == name) return {code, {}};
    if (text.starts_with(str(name, ": "))) return {code, std::string(text.substr(name.size() + 2))};
  }
  return {Code::kInternal, std::string(text)};
}

}  // namespace

void install_interrupt_flag() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return g_interrupted.load(std::memory_order_relaxed); }

Result<Child> Child::start(const std::vector<std::string>& arguments, const std::string& program,
                           int end_signal) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0) return from_errno("pipe", errno);
  UniqueFd child_in(to_child[0]);
  UniqueFd in(to_child[1]);
  if (pipe2(from_child, O_CLOEXEC) != 0) return from_errno("pipe", errno);
  UniqueFd out(from_child[0]);
  UniqueFd child_out(from_child[1]);
  std::vector<char*> argv;
  std::string name = program == "/proc/self/exe" ? "slime" : program;
  argv.push_back(name.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return from_errno("fork", errno);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setpgid(0, 0);  // Ctrl-C goes to the parent, which ends this process in order
    dup2(child_in.get(), 0);
    dup2(child_out.get(), 1);
    execvp(program.c_str(), argv.data());
    _exit(127);
  }
  return Child(pid, end_signal, std::move(in), std::move(out));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      end_signal_(other.end_signal_),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      buffer_(std::move(other.buffer_)) {}

Child::~Child() {
  if (pid_ < 0) return;
  in_.reset();  // the child's stdin ends
  // Does not wait for a child that measures: it does not read its stdin for a while, and its figure
  // is not needed any more.
  if (interrupted()) kill(pid_, SIGTERM);
  if (end_signal_ != 0) kill(pid_, end_signal_);
  const TimePoint end = steady_clock().now() + kChildEnds;
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(pid_, &status, WNOHANG);
    if (got == pid_ || (got < 0 && errno != EINTR)) return;
    if (steady_clock().now() >= end) break;
    pollfd wait{.fd = out_.get(), .events = 0, .revents = 0};
    ::poll(&wait, 1, 10);
    if ((wait.revents & (POLLHUP | POLLERR)) != 0) {
      // The child has closed its stdout and is about to end, so this wait is short.
      if (waitpid(pid_, &status, 0) == pid_) return;
    }
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Child::readable() const {
  pollfd now{.fd = out_.get(), .events = POLLIN, .revents = 0};
  return !buffer_.empty() || ::poll(&now, 1, 0) > 0;
}

bool Child::ended() const {
  pollfd now{.fd = out_.get(), .events = 0, .revents = 0};
  return ::poll(&now, 1, 0) > 0 && (now.revents & (POLLHUP | POLLERR)) != 0;
}

Status Child::write_line(std::string_view line) {
  std::string text(line);
  text.push_back('\n');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(in_.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return from_errno("a child process", errno);
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> Child::read_line(Nanos timeout) {
  const TimePoint end = deadline_after(steady_clock().now(), timeout);
  for (;;) {
    if (const auto at = buffer_.find('\n'); at != std::string::npos) {
      std::string line = buffer_.substr(0, at);
      buffer_.erase(0, at + 1);
      return line;
    }
    if (interrupted()) return Status(Code::kCancelled, "interrupted");
    if (steady_clock().now() >= end) {
      return Status(Code::kDeadlineExceeded, "a child process did not answer in time");
    }
    pollfd wait{.fd = out_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, kPollMs) <= 0) continue;
    char chunk[4096];
    const ssize_t n = ::read(out_.get(), chunk, sizeof chunk);
    if (n > 0) {
      buffer_.append(chunk, static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return Status(Code::kUnavailable, "a child process ended early");
    }
  }
}

Result<std::string> Child::expect(std::string_view word, Nanos timeout) {
  auto line = read_line(timeout);
  if (!line) return line;
  if (line->rfind("ERROR ", 0) == 0) return told_status(std::string_view(*line).substr(6));
  const std::string prefix = str(word, " ");
  if (line->rfind(prefix, 0) != 0) {
    return Status(Code::kInternal, str("a child process said '", *line, "' instead of ", word));
  }
  return line->substr(prefix.size());
}

Result<std::string> Child::ask(std::string_view command, std::string_view word, Nanos timeout) {
  SLIME_TRY(write_line(command));
  return expect(word, timeout);
}

}  // namespace slime
