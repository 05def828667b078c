// "Matrix" of the C++ server: counts and gates, and calls to its callers; "Small" and "Provider".
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/str.h"
#include "tests/matrix/server.h"

namespace slime::matrix {

using rpc::CallInfo;

Status add_board(World& world, rpc::Service& service) {
  Board& board = world.board();
  SLIME_TRY(service.add("bump", [&board](const std::string& key) { return board.bump(key); }));
  SLIME_TRY(service.add("bump_and_fail", [&board](const std::string& key) {
    board.bump(key);
    return Status(Code::kAborted, "as it was told to");
  }));
  SLIME_TRY(service.add("count", [&board](const std::string& key) { return board.count(key); }));
  SLIME_TRY(service.add("await_count", [&board](const std::string& key, std::int64_t least) {
    return board.await_count(key, least);
  }));
  SLIME_TRY(service.add("notes", [&board](const std::string& key) { return board.notes(key); }));
  SLIME_TRY(service.add("open", [&board](const std::string& key) { board.open(key); }));
  SLIME_TRY(
      service.add("flaky", [&board](const std::string& key, std::int64_t failures) -> Result<std::int64_t> {
        const std::int64_t count = board.bump(key);
        if (count <= failures) return Status(Code::kUnavailable, str("failure ", count));
        return count;
      }));
  return service.add_raw("wait_cancel", [&board](rpc::Request request) {
    auto key = rpc::decode_arguments<std::string>(request.body(), "wait_cancel");
    if (!key) return request.refuse(std::move(key).error());
    board.hold(std::get<0>(*key), std::move(request));
  });
}

namespace {

Status add_memory(World& world, rpc::Service& service) {
  return service.add("peek", [&world](std::uint64_t offset, std::uint64_t length) -> Result<ByteVector> {
    const MutableBytes bytes = world.area().bytes();
    if (offset > bytes.size() || length > bytes.size() - offset)
      return Status(Code::kInvalidArgument, "outside");
    const Bytes part = bytes.subspan(offset, length);
    return ByteVector(part.begin(), part.end());
  });
}

}  // namespace

Status add_peers(World& world, rpc::Service& service) {
  SLIME_TRY(service.add("call_back", [&world](const CallInfo& info, std::int64_t x) -> Result<std::int64_t> {
    return world.agent().peer(info.peer).call<std::int64_t>("Back", "twice", x).wait();
  }));
  SLIME_TRY(
      service.add("relay", [&world](const CallInfo& info, std::uint64_t in, std::uint64_t out) -> Status {
        Peer caller = world.agent().peer(info.peer);
        auto message = caller.recv(in).wait();
        if (!message) return std::move(message).error();
        ByteVector reversed(message->bytes().begin(), message->bytes().end());
        std::reverse(reversed.begin(), reversed.end());
        return caller.send(out, reversed).wait().status();
      }));
  SLIME_TRY(
      service.add("start_small", [&world](const std::string& name, std::size_t workers, std::size_t queue) {
        return world.start_small(name, workers, queue);
      }));
  SLIME_TRY(service.add("drain_small", [&world](const std::string& name, int bound_ms) {
    return world.drain_small(name, std::chrono::milliseconds(bound_ms));
  }));
  return add_memory(world, service);
}

Status add_small(World& world, rpc::Service& service) {
  Board& board = world.board();
  const auto enter = [&board](const std::string& key) { return board.enter(key); };
  const auto mark = [&board](const std::string& key, std::string text) { board.note(key, std::move(text)); };
  SLIME_TRY(service.add("enter", enter));
  SLIME_TRY(service.add("enter_alone", enter, {.max_running = 1}));
  SLIME_TRY(service.add("mark", mark));
  SLIME_TRY(service.add("mark_high", mark, {.priority = rpc::Priority::kHigh}));
  return service.add("mark_low", mark, {.priority = rpc::Priority::kLow});
}

Status add_provider(World& world, rpc::Service& service) {
  SLIME_TRY(service.add("who", [&world] { return world.agent().name(); }));
  return service.add("pid", [] { return static_cast<std::int64_t>(::getpid()); });
}

}  // namespace slime::matrix
