// One side of a large transfer, in a process of its own that says what it cost.
//
//   acceptance_peer serve PROVIDER
//       Prints READY and its address, ends with its stdin.
//   acceptance_peer stream PROVIDER ADDRESS MIB
//       Reads a stream of MIB messages of 1 MiB, slowly.
//   acceptance_peer attachment PROVIDER ADDRESS MIB
//       Has an attachment of MIB MiB sent back into its own memory.
//
// The last two print their measurements as a line of JSON, or ERROR and the reason.
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "rpc/limits.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

namespace slime {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMessageBytes = 1 << 20;
constexpr auto kWindow = static_cast<std::int64_t>(rpc::limits::kStreamWindow);
constexpr std::int64_t kPauses = 8;
const Nanos kBound = test::patient(std::chrono::minutes(20));  // of all of it: only a failure reaches it

[[noreturn]] void fail(const std::string& text) {
  std::printf("ERROR %s\n", text.c_str());
  std::fflush(stdout);
  std::exit(1);
}
template <class T>
T take(Result<T> result) {
  if (!result) fail(result.error().to_string());
  return std::move(*result);
}
void take(const Status& status) {
  if (!status.ok()) fail(status.to_string());
}

// Of this process, in bytes: "VmRSS" as it is, "VmHWM" at its peak.
std::int64_t memory(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what + ":")) return std::stoll(line.substr(what.size() + 1)) * 1024;
  return -1;
}

std::byte byte_of(std::uint64_t message, std::size_t at) {
  return static_cast<std::byte>((message * 17 + at * 7 + at / 4096) & 0xff);
}

std::unique_ptr<PeerAgent> start(const std::string& provider, const std::string& name) {
  PeerAgentOptions options;
  options.name = name;
  options.provider = provider;
  options.timeout = kBound;
  return take(PeerAgent::start(std::move(options)));
}

std::int64_t copied_bytes(const Peer& peer) {
  return static_cast<std::int64_t>(value_of(peer.info().counters, "copied_bytes"));
}

int serve(const std::string& provider) {
  const auto agent = start(provider, "server");
  std::atomic<std::int64_t> written{0};
  rpc::Service service("Large");
  take(service.add("messages", [&](rpc::ServerStream<None, ByteVector>& out, std::int64_t count) -> Status {
    for (std::int64_t i = 0; i < count; ++i) {
      ByteVector message(kMessageBytes);
      for (std::size_t at = 0; at < message.size(); ++at)
        message[at] = byte_of(static_cast<std::uint64_t>(i), at);
      if (auto done = out.write(message).wait(); !done) return std::move(done).error();
      written.fetch_add(1);
    }
    return {};
  }));
  take(service.add("written", [&] { return written.load(); }));
  take(service.add("same", [](Attachment attachment) { return attachment; }));
  take(service.add("memory", [](const std::string& what) { return memory(what); }));
  take(service.add("copied_bytes",
                   [&](const rpc::CallInfo& info) { return copied_bytes(agent->peer(info.peer)); }));
  take(agent->serve(service));
  std::printf("READY %s\n", agent->address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  return 0;
}

struct Caller {
  Caller(const std::string& provider, const std::string& address)
      : agent(start(provider, "client")), peer(agent->peer(address)) {
    server_before = ask<std::int64_t>("memory", std::string("VmRSS"));
    before = memory("VmRSS");
  }
  template <class R, class... A>
  R ask(std::string_view method, const A&... arguments) {
    return take(peer.call<R>("Large", method, arguments...).wait(kBound));
  }
  // What both processes had at most, beyond what they had before.
  Json figures() {
    return {{"client_peak_bytes", memory("VmHWM") - before},
            {"server_peak_bytes", ask<std::int64_t>("memory", std::string("VmHWM")) - server_before},
            {"copied_bytes", copied_bytes(peer) + ask<std::int64_t>("copied_bytes")}};
  }
  std::unique_ptr<PeerAgent> agent;
  Peer peer;
  std::int64_t server_before = 0;
  std::int64_t before = 0;
};

// The writer stops at the window while the reader reads nothing, however long that takes.
std::int64_t written_while_nobody_reads(Caller& caller, std::int64_t read, std::int64_t count) {
  const std::int64_t least = std::min(count, read + kWindow / 2);  // credits come half a window at a time
  if (!test::eventually([&] { return caller.ask<std::int64_t>("written") >= least; }))
    fail(str("behind ", read, " that were read, the writer stops at ", caller.ask<std::int64_t>("written")));
  std::int64_t most = 0;
  for (int i = 0; i < 100; ++i) most = std::max(most, caller.ask<std::int64_t>("written") - read);
  return most;
}

int stream(Caller& caller, std::int64_t count) {
  auto messages = caller.peer.stream<None, ByteVector>("Large", "messages", count);
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % std::max<std::int64_t>(1, count / kPauses) == 0)
      most = std::max(most, written_while_nobody_reads(caller, i, count));
    const auto message = take(messages.read().wait(kBound));
    if (!message || message->size() != kMessageBytes) fail(str("message ", i, " is not there"));
    for (std::size_t at = 0; at < kMessageBytes; ++at)
      if ((*message)[at] != byte_of(static_cast<std::uint64_t>(i), at)) fail(str("message ", i, " at ", at));
  }
  if (take(messages.read().wait(kBound))) fail("a message too many");
  take(messages.finish().wait(kBound));
  Json line = caller.figures();
  line["bytes"] = count * static_cast<std::int64_t>(kMessageBytes);
  line["most_held_bytes"] = most * static_cast<std::int64_t>(kMessageBytes);
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

int attachment(Caller& caller, std::int64_t mib) {
  const auto size = static_cast<std::size_t>(mib) << 20;
  // Of the caller's own, as applications have it: none of it is allocated by Slime.
  const auto from = std::make_shared<ByteVector>(size);
  for (std::size_t at = 0; at < size; ++at) (*from)[at] = byte_of(at >> 20, at);
  ByteVector to(size);
  CallOptions options;
  options.timeout = kBound;
  options.into.emplace_back(MutableBytes(to));
  const auto began = steady_clock().now();
  const auto back =
      take(caller.peer.call<Attachment>(std::move(options), "Large", "same", Attachment(Bytes(*from), from))
               .wait(kBound));
  const std::chrono::duration<double> took = steady_clock().now() - began;
  if (back.bytes().data() != to.data() || to != *from) fail("not the bytes that were sent");
  Json line = caller.figures();
  line["bytes"] = size;
  line["gb_per_s"] = 2 * static_cast<double>(size) / took.count() / 1e9;
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

int run(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == "serve" && argc == 3) return serve(argv[2]);
  if (argc != 5) return 2;
  Caller caller(argv[2], argv[3]);
  const std::int64_t mib = std::strtoll(argv[4], nullptr, 10);
  if (role == "stream") return stream(caller, mib);
  if (role == "attachment") return attachment(caller, mib);
  return 2;
}

}  // namespace
}  // namespace slime

int main(int argc, char** argv) {
  // Large blocks go back to the kernel as soon as they are freed: what is measured is what is in
  // use, not what malloc keeps. Left to itself it takes them from arenas of the threads once the
  // first one was freed.
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  try {
    return slime::run(argc, argv);
  } catch (const std::exception& error) {  // of the JSON library
    slime::fail(error.what());
  }
}
