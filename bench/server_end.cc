// The server of a measurement, in a child process or on another host.
#include "bench/server_end.h"

#include <netdb.h>
#include <unistd.h>

#include <utility>

#include "agent/peer_agent.h"
#include "base/address.h"
#include "base/child.h"
#include "base/str.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

constexpr int kServeProtocol = 1;
constexpr Nanos kLook = std::chrono::milliseconds(100);  // for Ctrl-C
constexpr Nanos kConnect = std::chrono::seconds(10);

class ChildEnd final : public ServerEnd {
 public:
  ChildEnd(Child child, std::string address) : child_(std::move(child)), address_(std::move(address)) {}
  [[nodiscard]] const std::string& address() const override { return address_; }
  Result<std::string> ask(std::string_view command, std::string_view word, Nanos timeout) override {
    return child_.ask(command, word, timeout);
  }

 private:
  Child child_;
  const std::string address_;
};

// Waits for a reply, or for Ctrl-C.
template <class T>
Result<T> wait_for(Future<T> reply) {
  while (!reply.wait_done(kLook)) {
    if (!interrupted()) continue;
    reply.cancel();
    return Status(Code::kCancelled, "interrupted");
  }
  return reply.wait();
}

class RemoteEnd final : public ServerEnd {
 public:
  RemoteEnd(std::unique_ptr<PeerAgent> agent, Peer peer) : agent_(std::move(agent)), peer_(std::move(peer)) {}

  Status open(const Options& options) {
    auto opened = wait_for(peer_.with_timeout(2 * kAnswer)
                               .call<OpenedEnd>(kServeService, "open", serve_version(), options.to_text()));
    if (!opened && opened.error().code() == Code::kNotFound)
      return {Code::kNotFound, "an agent answers there, but no `slime bench serve`"};
    if (!opened) return opened.error();
    const auto address = Address::parse(opened->address);
    if (!address) return address.error();
    // The server may listen at every address of its host: the one that reached it is right.
    address_ = Address{options.host, address->port}.to_string();
    machine_ = std::move(opened->machine);
    to_ = options.to;
    return {};
  }

  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] std::string machine() const override { return machine_; }
  Result<std::string> ask(std::string_view command, std::string_view word, Nanos timeout) override {
    auto answer = wait_for(peer_.with_timeout(timeout).call<std::string>(
        kServeService, "ask", std::string(command), std::string(word)));
    if (!answer && answer.error().code() == Code::kUnavailable)
      return Status(Code::kUnavailable,
                    str("the `slime bench serve` at ", to_,
                        " has ended or cannot be reached any more, so there is no result (",
                        answer.error().text(), ")"));
    return answer;
  }

 private:
  const std::unique_ptr<PeerAgent> agent_;
  Peer peer_;
  std::string address_;
  std::string machine_;
  std::string to_;
};

// Returns the host as a number, which all processes of the measurement connect to.
Result<std::string> numeric_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0)
    return Status(Code::kUnavailable, str("cannot find host '", host, "': ", gai_strerror(failed)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &freeaddrinfo);
  char text[NI_MAXHOST];
  const int unnamed =
      ::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  if (unnamed != 0) return Status(Code::kUnavailable, str("host '", host, "': ", gai_strerror(unnamed)));
  return std::string(text);
}

Result<std::unique_ptr<ServerEnd>> open_end(Options& options) {
  const auto address = Address::parse(options.to);
  if (!address) return address.error();
  auto host = numeric_host(address->host);
  if (!host) return std::move(host).error();
  options.host = std::move(*host);
  PeerAgentOptions control;
  control.name = str("bench-control-", getpid(), "-", InstanceId::random().to_string().substr(0, 8));
  control.token = shared_token();
  control.provider = "tcp";
  auto agent = PeerAgent::start(std::move(control));
  if (!agent) return std::move(agent).error();
  Peer named = (*agent)->peer(Address{options.host, address->port}.to_string());
  if (auto connected = wait_for(named.connect(kConnect)); !connected) return std::move(connected).error();
  // Of one connection, because the server ends with the connection that opened it.
  auto peer = named.of_connection(kConnect);
  if (!peer) return std::move(peer).error();
  auto end = std::make_unique<RemoteEnd>(std::move(*agent), std::move(*peer));
  SLIME_TRY(end->open(options));
  return std::unique_ptr<ServerEnd>(std::move(end));
}

}  // namespace

std::string serve_version() { return str(SLIME_VERSION, "/", kServeProtocol); }

Result<std::unique_ptr<ServerEnd>> start_child_end(const Options& options) {
  auto child = Child::start({"bench-server", options.to_text()});
  if (!child) return std::move(child).error();
  auto address = child->expect("READY", kAnswer);
  if (!address) return std::move(address).error();
  return std::unique_ptr<ServerEnd>(std::make_unique<ChildEnd>(std::move(*child), std::move(*address)));
}

Result<std::unique_ptr<ServerEnd>> open_remote_end(Options& options) {
  auto end = open_end(options);
  if (!end) return std::move(end).error().with_context(str("--to ", options.to));
  return end;
}

}  // namespace slime::bench
