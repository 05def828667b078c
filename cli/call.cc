#include <cstdio>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/one_peer.h"
#include "cli/values.h"

namespace slime::cli {
namespace {

constexpr std::string_view kCommand = "call";

int report(OnePeer& peer, const Status& status, std::string_view service, std::string_view method) {
  const int exit_code = fail(kCommand, status);
  if (status.maybe_executed()) {
    std::fprintf(stderr, "  the call may have been executed\n");
  } else if (status.code() == Code::kNotFound || status.code() == Code::kInvalidArgument) {
    peer.suggest(service, method);
  }
  return exit_code;
}

}  // namespace

int call(const CallOptions& options) {
  std::string service = options.at.service;
  std::string method = options.method;
  if (service.empty()) {
    // The last dot parts them: names of services have dots of their own.
    const std::size_t dot = options.method.rfind('.');
    if (dot == std::string::npos || dot == 0 || dot + 1 == options.method.size()) {
      return fail(kCommand, {Code::kInvalidArgument, str("'", options.method, "' is not SERVICE.METHOD")});
    }
    service = options.method.substr(0, dot);
    method = options.method.substr(dot + 1);
  }
  auto arguments = encode_json_arguments(options.arguments);
  if (!arguments) return fail(kCommand, arguments.error());
  auto peer = OnePeer::open(options.at);
  if (!peer) return fail(kCommand, peer.error());
  auto reply = (*peer)->call(service, method, *std::move(arguments));
  int exit_code = kExitOk;
  if (!reply) {
    exit_code = report(**peer, reply.error(), service, method);
  } else if (auto value = decode_to_json(reply->bytes()); !value) {
    exit_code = fail(kCommand, value.error());
  } else {
    std::printf("%s\n", print(*value, 2).c_str());
    reply->release();
  }
  return OnePeer::interrupted() ? kExitInterrupted : exit_code;
}

}  // namespace slime::cli
