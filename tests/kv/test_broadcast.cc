// Broadcasts among agents of this process, over the provider of the run.
#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tests/kv/broadcasts.h"

namespace slime::kv::broadcast_test {
namespace {

using namespace slime::kv::test;
using slime::test::patient;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Nanos kSoon = patient(seconds(20));
// Chunks of 64 KiB cross the borders of the regions; the last one is short.
const std::vector<std::uint64_t> kSizes{200'000, 1, 3 << 20, 70'001};

BroadcastOptions options(std::uint32_t fan_out = 2) {
  return {.fan_out = fan_out, .chunk_bytes = 64 << 10, .patience = patient(seconds(5))};
}

struct Owner {
  explicit Owner(BroadcastOptions with = options(), const std::vector<std::uint64_t>& sizes = kSizes)
      : agent(broadcast_agent()), parts(sizes) {
    parts.fill(1);
    auto made = Broadcast::over(*agent, parts.named(), std::move(with));
    INFO(made.status().to_string());
    REQUIRE(made.has_value());
    broadcast = std::move(*made);
  }
  std::unique_ptr<PeerAgent> agent;
  Parts parts;
  Broadcast broadcast;
};

struct Reader {
  explicit Reader(const std::vector<std::uint64_t>& sizes = kSizes, Progress progress = Progress::kThread)
      : agent(broadcast_agent(progress)), parts(sizes) {
    auto made = Replica::over(*agent, parts.named());
    INFO(made.status().to_string());
    REQUIRE(made.has_value());
    replica = std::move(*made);
  }
  Move fetch(const Owner& owner, Nanos timeout = kSoon) {
    return replica.fetch(agent->peer(owner.agent->address()), timeout);
  }
  std::unique_ptr<PeerAgent> agent;
  Parts parts;
  Replica replica;
};

void check_ok(Move& move) {
  const Status status = move.wait(kSoon).status();
  INFO(status.to_string());
  REQUIRE(status.ok());
}

void check_fails(Move move, Code code, std::string_view text) {
  const Status status = move.wait(kSoon).status();
  INFO(status.to_string());
  CHECK(status.code() == code);
  CHECK(status.text().find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("four readers at once get every byte, and at most two copies leave the owner") {
  Owner owner;
  std::vector<std::unique_ptr<Reader>> readers(4);
  for (auto& reader : readers) reader = std::make_unique<Reader>();
  std::vector<Move> moves;
  moves.reserve(readers.size());
  for (const auto& reader : readers) moves.push_back(reader->fetch(owner));
  for (Move& move : moves) check_ok(move);
  for (const auto& reader : readers) {
    CHECK(reader->parts.wrong_bytes(1) == 0);
    CHECK(reader->replica.version() == 1);
  }
  const BroadcastInfo info = owner.broadcast.info();
  CHECK(info.readers == 4);
  CHECK(info.complete == 4);
  CHECK(info.from_owner == 2);
  CHECK(info.bytes_out == 2 * info.total_bytes);
  CHECK(info.moves == 0);
}

TEST_CASE("with a fan-out of one, one copy leaves the owner") {
  Owner owner(options(1));
  std::vector<std::unique_ptr<Reader>> readers(3);
  for (auto& reader : readers) reader = std::make_unique<Reader>();
  std::vector<Move> moves;
  moves.reserve(readers.size());
  for (const auto& reader : readers) moves.push_back(reader->fetch(owner));
  for (Move& move : moves) check_ok(move);
  for (const auto& reader : readers) CHECK(reader->parts.wrong_bytes(1) == 0);
  CHECK(owner.broadcast.info().bytes_out == owner.broadcast.info().total_bytes);
}

TEST_CASE("a late reader reads from a reader that has all bytes") {
  Owner owner(options(1));
  Reader first;
  Move move = first.fetch(owner);
  check_ok(move);
  Reader second;
  move = second.fetch(owner);
  check_ok(move);
  CHECK(second.parts.wrong_bytes(1) == 0);
  CHECK(owner.broadcast.info().bytes_out == owner.broadcast.info().total_bytes);
}

TEST_CASE("when a reader has closed, its place at the owner is free") {
  Owner owner(options(1));
  {
    Reader first;
    Move move = first.fetch(owner);
    check_ok(move);
  }
  CHECK(slime::test::eventually([&] { return owner.broadcast.info().readers == 0; }));
  Reader second;
  Move move = second.fetch(owner);
  check_ok(move);
  CHECK(owner.broadcast.info().bytes_out == 2 * owner.broadcast.info().total_bytes);
}

TEST_CASE("a fetch has progress in bytes and chunks") {
  Owner owner;
  Reader reader;
  Move move = reader.fetch(owner);
  check_ok(move);
  const MoveProgress progress = move.progress();
  CHECK(progress.bytes_done == owner.broadcast.info().total_bytes);
  CHECK(progress.bytes_total == progress.bytes_done);
  CHECK(progress.layers_done == (progress.bytes_total + 65535) / 65536);
  CHECK(progress.layers_total == progress.layers_done);
  CHECK(progress.bytes_per_second > 0);
}

TEST_CASE("a reader whose regions have other names or sizes is refused before a byte moves") {
  Owner owner;
  std::vector<std::uint64_t> sizes = kSizes;
  ++sizes[2];
  Reader larger(sizes);
  check_fails(larger.fetch(owner), Code::kInvalidArgument,
              "region 2 of this reader is w2 with 3145729 bytes");
  sizes.pop_back();
  Reader fewer(sizes);
  check_fails(fewer.fetch(owner), Code::kInvalidArgument, "has 3 regions, the owner offers 4");
  CHECK(owner.broadcast.info().readers == 0);
  CHECK(std::all_of(larger.parts.bytes[2].begin(), larger.parts.bytes[2].end(),
                    [](std::byte each) { return each == std::byte{0}; }));
}

TEST_CASE("a fetch from a process without the broadcast, or after its close, fails") {
  Owner owner;
  Reader reader;
  Reader other;
  check_fails(reader.replica.fetch(reader.agent->peer(other.agent->address()), kSoon), Code::kNotFound,
              "weights");
  REQUIRE(owner.broadcast.close().ok());
  check_fails(reader.fetch(owner), Code::kUnavailable, "closed");
}

TEST_CASE("a new version is fetched into the same memory, and passed on") {
  Owner owner(options(1));
  Reader first;
  Reader second;
  for (std::uint64_t version = 1; version <= 3; ++version) {
    Move one = first.fetch(owner);
    Move two = second.fetch(owner);
    check_ok(one);
    check_ok(two);
    CHECK(first.parts.wrong_bytes(version) == 0);
    CHECK(second.parts.wrong_bytes(version) == 0);
    CHECK(second.replica.version() == version);
    REQUIRE(owner.broadcast.begin_update().ok());
    owner.parts.fill(version + 1);
    const auto next = owner.broadcast.publish();
    REQUIRE(next.has_value());
    CHECK(*next == version + 1);
  }
  CHECK(owner.broadcast.info().bytes_out == 3 * owner.broadcast.info().total_bytes);
}

TEST_CASE("a fetch that begins while the memory is changed waits for the next version") {
  Owner owner;
  Reader reader;
  REQUIRE(owner.broadcast.begin_update().ok());
  Move move = reader.fetch(owner);
  CHECK(!move.future().wait_done(milliseconds(50)));
  CHECK(owner.broadcast.info().version == 0);
  owner.parts.fill(2);
  REQUIRE(owner.broadcast.publish().has_value());
  check_ok(move);
  CHECK(reader.parts.wrong_bytes(2) == 0);
}

TEST_CASE("a fetch never succeeds with bytes of two versions") {
  Owner owner(options(), {16 << 20});
  Reader reader({16 << 20});
  std::uint64_t version = 1;
  int outdated = 0;
  for (int i = 0; i < 20; ++i) {
    Move move = reader.fetch(owner);
    move.future().wait_done(milliseconds(i % 5));
    REQUIRE(owner.broadcast.begin_update().ok());
    owner.parts.fill_while_read(++version);
    REQUIRE(owner.broadcast.publish().has_value());
    const Status status = move.wait(kSoon).status();
    INFO(status.to_string());
    if (status.ok()) {
      CHECK(reader.parts.wrong_bytes(reader.replica.version()) == 0);
    } else {
      CHECK(status.code() == Code::kAborted);
      CHECK(status.text().find("out of date") != std::string::npos);
      CHECK(reader.replica.version() == 0);
      ++outdated;
    }
  }
  CHECK(outdated > 0);
}

TEST_CASE("after retire() no reader reads from the memory, and the next reader reads elsewhere") {
  Owner owner(options(1));
  Reader first;
  Reader second;
  Move move = first.fetch(owner);
  check_ok(move);
  REQUIRE(first.replica.retire().ok());
  CHECK(first.replica.children() == 0);
  for (auto& part : first.parts.bytes) std::fill(part.begin(), part.end(), std::byte{0});
  move = second.fetch(owner);
  check_ok(move);
  CHECK(second.parts.wrong_bytes(1) == 0);
  CHECK(owner.broadcast.info().bytes_out == 2 * owner.broadcast.info().total_bytes);
}

TEST_CASE("a reader that closes while others read from it is routed around") {
  Owner owner(options(1), {32 << 20});
  auto first = std::make_unique<Reader>(std::vector<std::uint64_t>{32 << 20});
  Reader second({32 << 20});
  Move one = first->fetch(owner);
  REQUIRE(slime::test::eventually([&] { return owner.broadcast.info().readers == 1; }));
  Move two = second.fetch(owner);
  REQUIRE(slime::test::eventually([&] { return two.progress().bytes_done > 0; }));
  first.reset();
  check_ok(two);
  CHECK(second.parts.wrong_bytes(1) == 0);
}

TEST_CASE("one fetch runs at a time, and close() ends it") {
  Owner owner;
  Reader reader;
  REQUIRE(owner.broadcast.begin_update().ok());
  Move move = reader.fetch(owner);
  check_fails(reader.fetch(owner), Code::kInvalidArgument, "under way");
  CHECK(reader.replica.retire().code() == Code::kInvalidArgument);
  REQUIRE(reader.replica.close().ok());
  check_fails(move, Code::kCancelled, "closed");
  check_fails(reader.fetch(owner), Code::kUnavailable, "closed");
}

TEST_CASE("a reader whose waiting threads drive its loop gets every byte") {
  Owner owner;
  Reader reader(kSizes, Progress::kCaller);
  Move move = reader.fetch(owner);
  check_ok(move);
  CHECK(reader.parts.wrong_bytes(1) == 0);
}

TEST_CASE("wrong options and names are refused") {
  Owner owner;
  Parts parts(kSizes);
  const auto refused = [&](BroadcastOptions with, std::string_view text) {
    const Status status = Broadcast::over(*owner.agent, parts.named(), std::move(with)).status();
    INFO(status.to_string());
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find(text) != std::string::npos);
  };
  refused({.name = "a/b"}, "no name of a broadcast");
  refused({.name = "b", .fan_out = 0}, "fan_out is 0");
  refused({.name = "b", .fan_out = 65}, "fan_out is 65");
  refused({.name = "b", .chunk_bytes = 100}, "chunk_bytes is 100");
  refused({.name = "b", .patience = milliseconds(1)}, "patience");
  CHECK(Broadcast::over(*owner.agent, parts.named(), {}).status().code() == Code::kAlreadyExists);
  CHECK(Broadcast::over(*owner.agent, {}, {.name = "b"}).status().code() == Code::kInvalidArgument);
  CHECK(owner.broadcast.publish().status().code() == Code::kInvalidArgument);
}

}  // namespace slime::kv::broadcast_test
