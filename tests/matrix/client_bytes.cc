// Bytes: bodies of all sizes, messages by tag, the server's memory, calls in the other direction.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/matrix/client.h"

namespace slime::matrix {
namespace {

ByteVector bytes_of(std::size_t size) {
  ByteVector out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * 31 + i / 251) & 0xff);
  return out;
}

void large_bodies(Run& run) {
  const auto echoes = [&](std::size_t size) {
    const ByteVector bytes = bytes_of(size);
    expect(run.ask<ByteVector>("echo_bytes", bytes) == bytes, str(size, " bytes come back"));
  };
  for (const std::size_t size : {0, 1, 1 << 20, (16 << 20) + 1}) echoes(size);
  // Sizes around the payload of a slot of 8 KiB, whatever the header takes.
  for (std::size_t size = 8192 - 128; size <= 8192 + 8; ++size) echoes(size);
}

void raw(Run& run) {
  for (const std::size_t size : {0, 1, 100, 8100, 9000, 1 << 20}) {
    const ByteVector body = bytes_of(size);
    for (const std::string_view method : {"raw_reverse", "raw_inline"}) {
      const Payload reply = take(run.peer.call_bytes("Matrix", method, body).wait(kSoon), "call_bytes");
      expect(std::equal(body.rbegin(), body.rend(), reply.bytes().begin(), reply.bytes().end()),
             str(size, " bytes come back reversed from ", method));
    }
    const Payload place = take(run.peer.call_bytes("Matrix", "raw_place", body).wait(kSoon), "raw_place");
    expect(size == 0 || as_text(place.bytes()) == std::string_view("\0", 1), "they lie at a multiple of 8");
  }
  take(run.peer.one_way_bytes("Matrix", "raw_reverse", bytes_of(10)).wait(kSoon), "one-way");
}

void raw_refused(Run& run) {
  const auto refused = [](const auto& outcome, std::string_view hint) {
    const Status status = error_of(outcome, Code::kUnimplemented, hint);
    expect(!status.maybe_executed(), "not executed");
    expect(status.text().find(hint) != std::string::npos, str("says why: ", status.text()));
  };
  for (int i = 0; i < 2; ++i) {  // the first call names the method, the second uses its number
    refused(run.peer.call<std::string>("Matrix", "raw_reverse", "x").wait(kSoon), "takes bytes");
    refused(run.peer.call_bytes("Matrix", "add", bytes_of(3)).wait(kSoon), "takes arguments");
    take(run.peer.call_bytes("Matrix", "raw_reverse", {}).wait(kSoon), "the right way");
  }
}

void big_refused(Run& run) {
  const auto agent = run.start();
  Peer peer = run.peer_of(*agent);
  const ByteVector message(32 << 20, std::byte{1});
  for (int i = 0; i < 2; ++i) take(peer.send(5, message).wait(kSoon), "what its inbox takes");
  const auto refused = peer.send(5, message).wait(kSoon);
  const Status status = error_of(refused, Code::kResourceExhausted, "a message that nobody takes");
  expect(status.text().find("inbox") != std::string::npos, str("says why: ", status.text()));
  expect_equal(take(peer.call<std::int64_t>("Matrix", "add", 1, 2).wait(kSoon)), 3, "the next call");
}

void messages(Run& run) {
  for (const std::size_t size : {0, 10, 9000, 3 << 20}) {
    const ByteVector bytes = bytes_of(size);
    auto relayed = run.peer.call<void>("Matrix", "relay", 71, 72);
    take(run.peer.send(71, bytes).wait(kSoon), "send");
    const Payload back = take(run.peer.recv(72).wait(kSoon), "recv");
    take(relayed.wait(kSoon), "relay");
    expect(std::equal(bytes.rbegin(), bytes.rend(), back.bytes().begin(), back.bytes().end()),
           str(size, " bytes come back reversed"));
  }
}

void regions(Run& run) {
  auto local = take(run.agent->allocate(70'000, Rights::kLocal), "memory");
  const RemoteRegion area = take(run.peer.region("area"), "area");
  const RemoteRegion fixed = take(run.peer.region("fixed"), "fixed");
  take(run.peer.read(std::array{Copy{local, 8, fixed, 1000, 3000}}).wait(kSoon), "read");
  for (std::size_t i = 0; i < 3000; ++i)
    expect(local.data()[8 + i] == static_cast<std::byte>(((1000 + i) * 7 + 3) & 0xff),
           "the bytes of the server");
  const ByteVector bytes = bytes_of(60'000);
  std::copy(bytes.begin(), bytes.end(), local.data() + 100);
  take(
      run.peer
          .write(std::array{Copy{local, 100, area, 4096, 40'000}, Copy{local, 40'100, area, 200'000, 20'000}})
          .wait(kSoon),
      "write");
  ByteVector there = run.ask<ByteVector>("peek", 4096, 40'000);
  const ByteVector rest = run.ask<ByteVector>("peek", 200'000, 20'000);
  there.insert(there.end(), rest.begin(), rest.end());
  expect(there == bytes, "the server sees what was written");
}

void region_refusals(Run& run) {
  auto local = take(run.agent->allocate(4096, Rights::kLocal), "memory");
  const RemoteRegion fixed = take(run.peer.region("fixed"), "fixed");
  const auto write = run.peer.write(std::array{Copy{local, 0, fixed, 0, 16}}).wait(kSoon);
  expect_code(write, Code::kPermissionDenied, "a write to what is read-only");
  const auto outside = run.peer.read(std::array{Copy{local, 0, fixed, 4090, 16}}).wait(kSoon);
  expect_code(outside, Code::kInvalidArgument, "a read beyond the end");
  expect_code(run.peer.region("nowhere"), Code::kNotFound, "an unknown region");
  take(run.peer.read(std::array{Copy{local, 0, fixed, 0, 16}}).wait(kSoon), "the next read");
}

void notify(Run& run) {
  auto local = take(run.agent->allocate(64, Rights::kLocal), "memory");
  const RemoteRegion area = take(run.peer.region("area"), "area");
  const auto number = static_cast<std::uint32_t>(std::hash<std::string>()(run.key));
  local.data()[0] = std::byte{0x5a};
  take(run.peer.write_with_imm(std::array{Copy{local, 0, area, 300'000, 1}}, number).wait(kSoon),
       "write_with_imm");
  run.await_count(str("imm:", number), 1);
  expect(run.ask<ByteVector>("peek", 300'000, 1) == ByteVector{std::byte{0x5a}}, "the byte came before");
}

void atomics(Run& run) {
  const RemoteRegion area = take(run.peer.region("area"), "area");
  constexpr std::uint64_t kAt = 512 << 10;
  const auto before = take(run.peer.fetch_add(area, kAt, 5).wait(kSoon), "fetch_add");
  expect_equal(take(run.peer.fetch_add(area, kAt, 1).wait(kSoon)), before + 5, "what it was");
  const auto wrong = take(run.peer.compare_swap(area, kAt, before, 0).wait(kSoon), "compare_swap");
  expect_equal(wrong, before + 6, "another number is left alone");
  take(run.peer.compare_swap(area, kAt, before + 6, 40).wait(kSoon), "compare_swap");
  expect_equal(take(run.peer.fetch_add(area, kAt, 0).wait(kSoon)), std::uint64_t{40}, "what was stored");
}

void call_backs(Run& run) {
  rpc::Service back("Back");
  take(back.add("twice", [](std::int64_t x) { return 2 * x; }), "a method");
  take(run.agent->serve(back), "serve");
  std::vector<Future<std::int64_t>> calls;
  for (std::int64_t i = 0; i < 50; ++i)
    calls.push_back(run.peer.call<std::int64_t>("Matrix", "call_back", i));
  for (std::int64_t i = 0; i < 50; ++i)
    expect_equal(take(calls[static_cast<std::size_t>(i)].wait(kSoon), "call_back"), 2 * i, "what came back");
  expect_equal(counter(run.peer, "requests"), 50, "requests on the one connection");
}

constexpr std::array kByteFeatures{
    Feature{"large_bodies", large_bodies},
    Feature{"raw", raw},
    Feature{"raw_refused", raw_refused},
    Feature{"big_refused", big_refused},
    Feature{"messages", messages},
    Feature{"regions", regions},
    Feature{"region_refusals", region_refusals},
    Feature{"notify", notify},
    Feature{"atomics", atomics},
    Feature{"call_backs", call_backs},
};

}  // namespace

std::span<const Feature> byte_features() { return kByteFeatures; }

}  // namespace slime::matrix
