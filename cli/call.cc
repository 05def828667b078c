#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/values.h"

namespace slime::cli {
namespace {

constexpr std::string_view kCommand = "call";
// How often a wait looks whether Ctrl-C was pressed.
constexpr Nanos kLookInterval = std::chrono::milliseconds(100);

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

// Waits for the call; Ctrl-C cancels it, so that the peer's handler is told and our name is given back.
Result<Payload> wait_or_cancel(Future<Payload> reply) {
  while (!reply.wait_done(kLookInterval)) {
    if (g_interrupted) {
      reply.cancel();
      break;
    }
  }
  return reply.wait(limits::kCloseBound);
}

Result<std::unique_ptr<PeerAgent>> start_agent(const CallOptions& options) {
  PeerAgentOptions out;
  // A name of its own per process, so that two callers at the same time do not compete for one.
  out.name = str("slime-cli-", getpid(), "-", InstanceId::random().to_string().substr(0, 8));
  out.kind = "cli";
  out.scope = options.scope;
  out.ctrl_url = options.ctrl_url;
  out.token = options.token;
  out.provider = options.provider;
  return PeerAgent::start(std::move(out));
}

}  // namespace

int call(const CallOptions& options) {
  // The last dot parts them: names of services have dots of their own.
  const std::size_t dot = options.method.rfind('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == options.method.size()) {
    return fail(kCommand, {Code::kInvalidArgument, str("'", options.method, "' is not SERVICE.METHOD")});
  }
  auto arguments = encode_json_arguments(options.arguments);
  if (!arguments) return fail(kCommand, arguments.error());
  if (!(options.deadline_seconds > 0) || options.deadline_seconds > 1e6) {
    return fail(kCommand,
                {Code::kInvalidArgument, "--deadline must be more than 0 and at most 1000000 seconds"});
  }
  const Nanos deadline(std::llround(options.deadline_seconds * 1e9));

  std::signal(SIGINT, [](int) { g_interrupted = true; });
  std::signal(SIGTERM, [](int) { g_interrupted = true; });
  auto agent = start_agent(options);
  if (!agent) return fail(kCommand, agent.error());
  Peer peer = (*agent)->peer(options.peer);
  const std::string_view method = options.method;
  auto reply = wait_or_cancel(
      peer.call_raw(method.substr(0, dot), method.substr(dot + 1), *std::move(arguments), deadline));
  int exit_code = kExitOk;
  if (!reply) {
    exit_code = fail(kCommand, reply.error());
    if (reply.error().maybe_executed()) std::fprintf(stderr, "  the call may have been executed\n");
  } else if (auto value = decode_to_json(reply->bytes()); !value) {
    exit_code = fail(kCommand, value.error());
  } else {
    std::printf("%s\n", print(*value, 2).c_str());
    reply->release();
  }
  // The answer is there: what closing says changes nothing for the caller.
  (*agent)->close().ignore();
  return g_interrupted ? kExitInterrupted : exit_code;
}

}  // namespace slime::cli
