// A server below a ceiling of memory, and its caller, in processes of their own.
//
//   memory_peer fill CEILING BYTES
//       Touches BYTES bytes, and prints FILLED. Below a lower ceiling it ends before.
//   memory_peer serve CEILING MEMORY_BYTES WORKERS REPLY_BYTES
//       Serves "work": "reply" answers with REPLY_BYTES bytes, "take" takes any bytes, both once
//       the gate is open. Prints READY and its address. Reads lines: "open" opens the gate, "info"
//       prints the agent's info().
//   memory_peer call ADDRESS METHOD COUNT BYTES SECONDS
//       Makes COUNT calls at once, with BYTES bytes and this deadline. Prints SENT, and at the end
//       how the calls ended. Then calls once more for each line that it reads.
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "tests/support/ceiling.h"
#include "tests/support/settings.h"

namespace {

using slime::ByteVector;

int fail(const slime::Status& status) {
  std::printf("ERROR %s\n", status.to_string().c_str());
  return 1;
}
void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}
std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

int fill(std::uint64_t bytes) {
  const ByteVector memory(bytes, std::byte{1});
  say(slime::str("FILLED ", std::to_integer<int>(memory[bytes / 2])));
  return 0;
}

int serve(std::uint64_t memory_bytes, std::size_t workers, std::uint64_t reply_bytes) {
  slime::PeerAgentOptions options;
  options.name = "server";
  options.provider = slime::test::provider();
  options.memory_bytes = memory_bytes;
  options.server.workers = workers;
  auto agent = slime::PeerAgent::start(options);
  if (!agent) return fail(agent.error());
  std::promise<void> opened;
  const std::shared_future<void> gate = opened.get_future().share();  // handlers wait for it
  bool open = false;
  const auto open_once = [&] {
    if (!std::exchange(open, true)) opened.set_value();
  };
  slime::rpc::Service work("work");
  slime::Status status = work.add_bytes("reply", [&](slime::Bytes) -> slime::Result<ByteVector> {
    gate.wait();
    return ByteVector(reply_bytes, std::byte{1});
  });
  if (status.ok()) {
    status = work.add_bytes("take", [&](slime::Bytes) -> slime::Result<ByteVector> {
      gate.wait();
      return ByteVector(1);
    });
  }
  if (status.ok()) status = (*agent)->serve(work);
  if (!status.ok()) return fail(status);
  say("READY " + (*agent)->address());
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "open") open_once();
    if (line == "info") say(to_json((*agent)->info()));
  }
  open_once();
  (*agent)->close().ignore();
  return 0;
}

int call(const std::string& address, const std::string& method, int count, std::uint64_t bytes,
         std::int64_t deadline) {
  slime::PeerAgentOptions options;
  options.name = "caller";
  options.provider = slime::test::provider();
  auto agent = slime::PeerAgent::start(options);
  if (!agent) return fail(agent.error());
  slime::Peer peer = (*agent)->peer(address);
  const slime::Nanos span = slime::test::patient(std::chrono::seconds(deadline));
  const auto begin = [&] { return peer.call_bytes("work", method, ByteVector(bytes, std::byte{2}), span); };
  std::vector<slime::Future<slime::Payload>> calls;
  for (int i = 0; i < count; ++i) calls.push_back(begin());
  say("SENT");
  int ok = 0, exhausted = 0, late = 0;
  std::string other;
  for (auto& each : calls) {
    const auto outcome = each.wait();
    const slime::Code code = outcome ? slime::Code::kOk : outcome.error().code();
    ok += code == slime::Code::kOk ? 1 : 0;
    exhausted += code == slime::Code::kResourceExhausted ? 1 : 0;
    late += code == slime::Code::kDeadlineExceeded ? 1 : 0;
    if (code != slime::Code::kOk && code != slime::Code::kResourceExhausted &&
        code != slime::Code::kDeadlineExceeded)
      other += " " + outcome.error().to_string();
    each = {};
  }
  say(slime::str("ok ", ok, " exhausted ", exhausted, " late ", late, other));
  for (std::string line; std::getline(std::cin, line);) say(begin().wait().status().to_string());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "call" && argc == 7)
    return call(argv[2], argv[3], std::atoi(argv[4]), number(argv[5]), std::atoi(argv[6]));
  if (argc < 4) return 2;
  if (auto status = slime::test::go_below_ceiling(argv[2]); !status.ok()) return fail(status);
  if (role == "fill") return fill(number(argv[3]));
  if (role == "serve" && argc == 6) return serve(number(argv[3]), number(argv[4]), number(argv[5]));
  return 2;
}
