// Children of fork() start agents while threads of the parent log. A program of its own, because it
// forks.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/unique_fd.h"
#include "tests/agent/agents.h"

namespace slime::test {
namespace {

enum Exit : int { kGood = 0, kNoAgent = 1, kNoAnswer = 2, kTooLate = 99 };

// Starts an agent in the child and makes a call.
Exit call_from_child(const std::string& address) {
  auto fresh = PeerAgent::start({.name = "child", .provider = provider()});
  if (!fresh) return kNoAgent;
  const auto sum = (*fresh)->peer(address).call<std::int64_t>("calc", "add", 2, 2).wait(kSoon);
  return sum && *sum == 4 ? kGood : kNoAnswer;
}

// Returns how the child ended.
int fork_and_call(const std::string& address) {
  const pid_t child = fork();
  if (child == 0) _exit(call_from_child(address));
  int status = 0;
  if (child < 0 || !eventually([&] { return waitpid(child, &status, WNOHANG) == child; })) {
    if (child > 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    return kTooLate;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a child has an agent of its own, forked by threads and handlers while all log at debug") {
  const UniqueFd before(::fcntl(2, F_DUPFD_CLOEXEC, 0));
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  REQUIRE(::dup2(null.get(), 2) == 2);
  set_log_level(LogLevel::kDebug);
  {
    const auto server = start("server");
    const std::string address = server->address();
    rpc::Service service = calculator();
    REQUIRE(server->serve(service).ok());
    rpc::Service forks("forks");
    REQUIRE(forks.add("fork", [address] { return static_cast<std::int64_t>(fork_and_call(address)); }).ok());
    REQUIRE(server->serve(forks).ok());
    const auto client = start("client");
    // Makes the agents log: they log connections that begin and end.
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      while (!stop) {
        Peer peer = client->peer(address);
        peer.call<std::int64_t>("calc", "add", 1, 1).wait(kSoon).status().ignore();
        peer.disconnect().ignore();
        log(LogLevel::kDebug, "test", "a line that is long enough to take a while");
      }
    });
    const int rounds = scaled(60);
    std::vector<int> ended;
    for (int round = 0; round < rounds; ++round) {
      ended.push_back(fork_and_call(address));
      const auto by_handler =
          server->peer(address).with_timeout(patient(seconds(60))).call<std::int64_t>("forks", "fork").wait();
      ended.push_back(by_handler ? static_cast<int>(*by_handler)
                                 : -static_cast<int>(by_handler.status().code()));
      if (ended.back() != kGood || ended[ended.size() - 2] != kGood) break;
    }
    stop = true;
    busy.join();
    for (const int how : ended) CHECK(how == kGood);
    CHECK(ended.size() == 2 * static_cast<std::size_t>(rounds));
  }
  set_log_level(LogLevel::kWarning);
  ::dup2(before.get(), 2);
}

}  // namespace slime::test
