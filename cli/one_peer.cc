#include "cli/one_peer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/str.h"
#include "cli/signatures.h"
#include "ctrl/client/token_file.h"

namespace slime::cli {
namespace {

// How often a wait checks for Ctrl-C.
constexpr Nanos kLookInterval = std::chrono::milliseconds(100);
// Timeout of the request for a suggestion. Short, because a user waits for the error message.
constexpr Nanos kSuggestWithin = std::chrono::seconds(2);

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

template <class T>
Result<T> wait_or_cancel(Future<T> reply) {
  while (!reply.wait_done(kLookInterval)) {
    if (g_interrupted) {
      reply.cancel();
      break;
    }
  }
  return reply.wait(limits::kCloseBound);
}

Result<std::vector<rpc::ServiceInfo>> decode_list(const Result<Payload>& reply) {
  if (!reply) return reply.error();
  auto list = rpc::decode_value<std::vector<rpc::ServiceInfo>>(reply->bytes());
  if (!list) return Status(Code::kCorrupt, str("the peer's list of services: ", list.error().text()));
  return list;
}

// Returns the token that all peers share, from `file` or $SLIME_TOKEN. Empty if neither is set:
// then the peers use the keys that nanoctrl distributes.
Result<std::string> shared_token(const std::string& file) {
  if (!file.empty()) return ctrl::read_token_file(file);
  const char* token = std::getenv("SLIME_TOKEN");
  return std::string(token == nullptr ? "" : token);
}

}  // namespace

Result<std::unique_ptr<OnePeer>> OnePeer::open(const PeerOptions& options) {
  if (!(options.timeout_seconds > 0) || options.timeout_seconds > 1e6) {
    return Status(Code::kInvalidArgument, "--timeout must be more than 0 and at most 1000000 seconds");
  }
  const Nanos timeout(std::llround(options.timeout_seconds * 1e9));
  std::signal(SIGINT, [](int) { g_interrupted = true; });
  std::signal(SIGTERM, [](int) { g_interrupted = true; });
  PeerAgentOptions out;
  // Gives the agent a random name, so that two commands at the same time do not compete for one
  // name.
  out.name = str("slime-cli-", getpid(), "-", InstanceId::random().to_string().substr(0, 8));
  out.kind = "cli";
  out.scope = options.scope;
  out.ctrl_url = options.ctrl_url;
  Result<std::string> token = shared_token(options.token_file);
  if (!token) return token.error();
  out.token = std::move(*token);
  out.provider = options.provider;
  auto agent = PeerAgent::start(std::move(out));
  if (!agent) return agent.error();
  return std::unique_ptr<OnePeer>(new OnePeer(*std::move(agent), options, timeout));
}

OnePeer::OnePeer(std::unique_ptr<PeerAgent> agent, const PeerOptions& options, Nanos timeout)
    : agent_(std::move(agent)), timeout_(timeout) {
  if (options.peer.empty())
    proxy_ = agent_->proxy(options.service);
  else
    peer_ = agent_->peer(options.peer);
}

// Ignores an error of close(): the command has its reply already.
OnePeer::~OnePeer() { agent_->close().ignore(); }

bool OnePeer::interrupted() { return g_interrupted; }

Result<Payload> OnePeer::call_within(std::string_view service, std::string_view method,
                                     rpc::AttachedBody body, Nanos timeout) {
  if (proxy_) return wait_or_cancel(proxy_->raw().call_attached(method, std::move(body), timeout));
  return wait_or_cancel(peer_.raw().call_attached(service, method, std::move(body), timeout));
}

Result<Payload> OnePeer::call(std::string_view service, std::string_view method, ByteVector body, bool raw) {
  return call_within(service, method, {.body = std::move(body), .raw = raw}, timeout_);
}

Result<std::vector<rpc::ServiceInfo>> OnePeer::services_within(Nanos timeout) {
  if (!proxy_)
    return decode_list(call_within(rpc::kReflectionService, "services", {rpc::encode_arguments()}, timeout));
  auto one = wait_or_cancel(proxy_->describe(timeout));
  if (!one) return one.error();
  return std::vector<rpc::ServiceInfo>{*std::move(one)};
}

Result<std::vector<rpc::ServiceInfo>> OnePeer::services() { return services_within(timeout_); }

Result<std::vector<rpc::ServiceInfo>> OnePeer::service(std::string_view name) {
  if (proxy_) return services();
  const auto reply = call_within(rpc::kReflectionService, "service", {rpc::encode_arguments(name)}, timeout_);
  if (!reply) return reply.error();
  auto one = rpc::decode_value<rpc::ServiceInfo>(reply->bytes());
  if (!one) return Status(Code::kCorrupt, str("the peer's service: ", one.error().text()));
  return std::vector<rpc::ServiceInfo>{*std::move(one)};
}

void OnePeer::suggest(std::string_view service, std::string_view method) {
  if (interrupted()) return;
  const auto list = services_within(std::min(timeout_, kSuggestWithin));
  if (list) std::fprintf(stderr, "  %s\n", suggestion(*list, service, method).c_str());
}

}  // namespace slime::cli
