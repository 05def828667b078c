// `slime bench serve`: servers for measurements from other hosts.
#include "bench/serve.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "base/address.h"
#include "base/child.h"
#include "base/mutex.h"
#include "base/str.h"
#include "bench/figures.h"
#include "bench/process.h"
#include "bench/server_end.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

constexpr Nanos kServeLook = std::chrono::milliseconds(50);

// One client's server. `mutex` is held while it answers.
struct Served {
  std::uint64_t bytes = 0;
  Mutex mutex;
  std::unique_ptr<ServerEnd> end SLIME_GUARDED_BY(mutex);
};

// The servers, by the connections that opened them. Thread: any.
class ServedEnds {
 public:
  explicit ServedEnds(const ServeOptions& options, std::string host)
      : options_(options), host_(std::move(host)) {}

  Result<OpenedEnd> open(PeerAgent& agent, std::uint64_t connection, const std::string& version,
                         const std::string& text) {
    if (version != serve_version())
      return Status(Code::kUnimplemented, str("this server is version ", serve_version(), ", the client is ",
                                              version, ": run one version of slime on both hosts"));
    auto wanted = Options::parse(text);
    if (!wanted) return std::move(wanted).error();
    SLIME_TRY(wanted->validate());
    wanted->host = host_;
    wanted->insecure = options_.insecure;
    auto served = reserve(connection, server_bytes(*wanted));
    if (!served) return std::move(served).error();
    OpenedEnd out;
    {
      const MutexLock lock((*served)->mutex);
      auto end = start_child_end(*wanted);
      if (!end) {
        drop(connection);
        return std::move(end).error();
      }
      out = {(*end)->address(), machine_facts().dump()};
      (*served)->end = std::move(*end);
    }
    // The connection may have ended before there was anything to drop.
    if (!agent.peer_of(connection)) drop(connection);
    return out;
  }

  Result<std::string> ask(std::uint64_t connection, const std::string& command, const std::string& word) {
    std::shared_ptr<Served> served;
    {
      const MutexLock lock(mutex_);
      const auto at = served_.find(connection);
      if (at == served_.end()) return Status(Code::kNotFound, "this connection has opened no server");
      served = at->second;
    }
    if (command.find('\n') != std::string::npos)
      return Status(Code::kInvalidArgument, "a command is one line");
    const MutexLock lock(served->mutex);
    if (!served->end) return Status(Code::kNotFound, "this connection has opened no server");
    return served->end->ask(command, word, kAnswer);
  }

  // Ends the server of a connection, later: it may wait for a process.
  void drop(std::uint64_t connection) {
    const MutexLock lock(mutex_);
    const auto at = served_.find(connection);
    if (at == served_.end()) return;
    dropped_.push_back(std::move(at->second));
    served_.erase(at);
    changed_.notify_one();
  }

  // Ends dropped servers until Ctrl-C.
  void run() {
    while (!interrupted()) {
      std::vector<std::shared_ptr<Served>> ended;
      {
        const MutexLock lock(mutex_);
        if (dropped_.empty()) changed_.wait_for(mutex_, kServeLook);
        ended.swap(dropped_);
      }
      for (const auto& served : ended) {
        const MutexLock lock(served->mutex);
        served->end.reset();
        free(served->bytes);
      }
    }
  }

 private:
  Result<std::shared_ptr<Served>> reserve(std::uint64_t connection, std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    if (served_.contains(connection))
      return Status(Code::kAlreadyExists, "this connection has opened a server already");
    if (served_.size() >= options_.ends)
      return Status(Code::kResourceExhausted, str("this server serves ", options_.ends, " clients already"));
    if (bytes > options_.memory_bytes - used_)
      return Status(Code::kResourceExhausted,
                    str("the measurement needs ", bytes, " bytes of the server, which has ",
                        options_.memory_bytes - used_, " left: start it with a larger --memory"));
    auto served = std::make_shared<Served>();
    served->bytes = bytes;
    used_ += bytes;
    served_.emplace(connection, served);
    return served;
  }
  void free(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    used_ -= bytes;
  }

  const ServeOptions options_;
  const std::string host_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, std::shared_ptr<Served>> served_ SLIME_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Served>> dropped_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t used_ SLIME_GUARDED_BY(mutex_) = 0;
};

}  // namespace

Status serve_measurements(const ServeOptions& options) {
  install_interrupt_flag();
  const auto address = Address::parse(options.listen);
  if (!address) return address.error();
  ServedEnds ends(options, address->host);
  PeerAgentOptions self;
  self.name = "bench-serve";
  self.kind = "bench";
  self.listen = options.listen;
  self.token = shared_token();
  self.insecure = options.insecure;
  self.provider = "tcp";
  auto agent = PeerAgent::start(std::move(self));
  if (!agent) return agent.error();
  (*agent)->on_disconnect([&](const std::string&, std::uint64_t connection) { ends.drop(connection); });
  rpc::Service service(kServeService);
  SLIME_TRY(service.add("open",
                        [&](const rpc::CallInfo& call, const std::string& version, const std::string& text) {
                          return ends.open(**agent, call.connection, version, text);
                        }));
  SLIME_TRY(
      service.add("ask", [&](const rpc::CallInfo& call, const std::string& command, const std::string& word) {
        return ends.ask(call.connection, command, word);
      }));
  SLIME_TRY((*agent)->serve(service));
  const std::string where = (*agent)->address();
  answer(options.as_json ? nlohmann::json{{"address", where}, {"version", serve_version()}}.dump()
                         : str("serves measurements at ", where));
  ends.run();
  agent->reset();  // before `ends`, which its handlers use
  return {Code::kCancelled, "interrupted"};
}

}  // namespace slime::bench
