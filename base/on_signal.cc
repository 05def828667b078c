#include "base/on_signal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "base/str.h"
#include "base/thread.h"

namespace slime {
namespace {

Mutex g_mutex;

struct Handled {
  std::atomic<int> event{-1};  // the eventfd that the handler writes to
  std::atomic<pid_t> process{0};
  void (*task)() SLIME_GUARDED_BY(g_mutex) = nullptr;
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free,
              "they are read by a signal handler");
std::array<Handled, NSIG> g_handled;

// Signal handler. Makes system calls only, since the interrupted thread may hold any lock. In a
// child of fork(), which inherits the descriptor, it writes nothing.
void handler(int number) {
  const int saved = errno;
  const Handled& handled = g_handled[static_cast<std::size_t>(number)];
  const std::uint64_t one = 1;
  if (handled.process.load() == ::getpid()) {
    [[maybe_unused]] const ssize_t n = ::write(handled.event.load(), &one, sizeof one);
  }
  errno = saved;
}

void serve(int event, void (*task)()) {
  std::uint64_t count = 0;
  for (;;) {
    const ssize_t n = ::read(event, &count, sizeof count);
    if (n == sizeof count) {
      task();
    } else if (n < 0 && errno != EINTR) {
      return;
    }
  }
}

// Starts a thread that runs serve(event, task), with all signals blocked, so that it handles none.
Status start_thread(int event, void (*task)()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    make_thread(&serve, event, task).detach();
  } catch (const std::system_error& error) {
    status = from_errno("a thread for a signal", error.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace

Status on_signal(int number, void (*task)()) {
  if (number <= 0 || number >= NSIG || number == SIGKILL || number == SIGSTOP)
    return {Code::kInvalidArgument, str("signal ", number, " cannot be handled")};
  const MutexLock lock(g_mutex);
  Handled& handled = g_handled[static_cast<std::size_t>(number)];
  struct sigaction now {};
  if (sigaction(number, nullptr, &now) != 0) return from_errno(str("signal ", number), errno);
  const bool ours = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == &handler;
  const bool unhandled = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
  if (ours && handled.process.load() == ::getpid() && handled.task == task) return {};
  if (!unhandled && (!ours || handled.process.load() == ::getpid()))
    return {Code::kAlreadyExists, str("signal ", number, " has a handler in this process, which stays")};
  const int event = ::eventfd(0, EFD_CLOEXEC);
  if (event < 0) return from_errno("eventfd", errno);
  if (Status started = start_thread(event, task); !started.ok()) {
    ::close(event);
    return started;
  }
  handled.task = task;
  handled.event.store(event);
  handled.process.store(::getpid());
  struct sigaction action {};
  action.sa_handler = &handler;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  if (sigaction(number, &action, nullptr) != 0) return from_errno(str("signal ", number), errno);
  return {};
}

}  // namespace slime
