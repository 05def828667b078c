#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/one_peer.h"
#include "cli/values.h"
#include "rpc/limits.h"

namespace slime::cli {
namespace {

constexpr std::string_view kCall = "call";

int report(OnePeer& peer, const Status& status, std::string_view service, std::string_view method) {
  const int exit_code = fail(kCall, status);
  if (status.maybe_executed()) {
    std::fprintf(stderr, "  the call may have been executed\n");
  } else if (status.code() == Code::kNotFound || status.code() == Code::kInvalidArgument ||
             status.code() == Code::kUnimplemented) {
    peer.suggest(service, method);
  }
  return exit_code;
}

int print_bytes(Bytes bytes) {
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size();
  if (written && std::fflush(stdout) == 0) return kExitOk;
  return fail(kCall, {Code::kInternal, str("standard output: ", std::strerror(errno))});
}

int print_value(Payload& reply) {
  auto value = decode_to_json(reply.bytes());
  if (!value) return fail(kCall, value.error());
  std::printf("%s\n", print(*value, 2).c_str());
  reply.release();
  return kExitOk;
}

// Reads standard input to its end. Returns kInvalidArgument for more than kMaxPayloadBytes bytes.
Result<ByteVector> read_input() {
  ByteVector out;
  std::array<std::byte, std::size_t{64} * 1024> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), stdin)) {
    out.insert(out.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count));
    if (out.size() > rpc::limits::kMaxPayloadBytes)
      return Status(Code::kInvalidArgument,
                    str("standard input has more than ", rpc::limits::kMaxPayloadBytes, " bytes"));
  }
  if (std::ferror(stdin) != 0) return Status(Code::kInternal, str("standard input: ", std::strerror(errno)));
  return out;
}

Result<ByteVector> body_of(const CallOptions& options) {
  if (!options.raw) return encode_json_arguments(options.arguments);
  if (options.arguments.empty()) return read_input();
  return Status(Code::kInvalidArgument, "--raw takes no arguments: what is sent comes from standard input");
}

}  // namespace

int call(const CallOptions& options) {
  std::string service = options.at.service;
  std::string method = options.method;
  if (service.empty()) {
    // The last dot separates the service from the method, because names of services may contain
    // dots.
    const std::size_t dot = options.method.rfind('.');
    if (dot == std::string::npos || dot == 0 || dot + 1 == options.method.size()) {
      return fail(kCall, {Code::kInvalidArgument, str("'", options.method, "' is not SERVICE.METHOD")});
    }
    service = options.method.substr(0, dot);
    method = options.method.substr(dot + 1);
  }
  auto body = body_of(options);
  if (!body) return fail(kCall, body.error());
  auto peer = OnePeer::open(options.at);
  if (!peer) return fail(kCall, peer.error());
  auto reply = (*peer)->call(service, method, *std::move(body), options.raw);
  int exit_code = kExitOk;
  if (!reply) {
    exit_code = report(**peer, reply.error(), service, method);
  } else {
    exit_code = options.raw ? print_bytes(reply->bytes()) : print_value(*reply);
  }
  return OnePeer::interrupted() ? kExitInterrupted : exit_code;
}

}  // namespace slime::cli
