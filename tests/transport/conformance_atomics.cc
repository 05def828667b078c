// Promises about remote atomics. Run on every provider by run_conformance().
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "tests/transport/fixture.h"
#include "tests/transport/keys.h"

namespace slime::transport::testing {
namespace {

std::uint64_t number_at(Bytes bytes, std::size_t offset) {
  std::uint64_t out = 0;
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

void set_number(MutableBytes bytes, std::size_t offset, std::uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Posts and waits; the outcome of the call or of the operation.
Status outcome(Fixture& fixture, const std::function<Status(Operation&)>& post) {
  TestOperation operation;
  SLIME_TRY(post(operation));
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK(operation.completions == 1);
  return operation.last;
}

// Adds 1 to a number of the peer again and again, with a few atomics in flight, and keeps the old
// values.
class Adder {
 public:
  Adder(Fixture& fixture, int side, Endpoint& endpoint, const DeviceRegion& region, std::size_t offset)
      : endpoint_(endpoint),
        results_(fixture.device(side), 8 * kDepth, Rights::kLocal, 1),
        remote_(share(endpoint, region)),
        offset_(offset),
        operations_(kDepth) {}
  void start(std::size_t count) {
    left_ = count;
    for (std::size_t i = 0; i < kDepth; ++i) {
      operations_[i].hook = [this, i] { took(i); };
      post(i);
    }
  }
  [[nodiscard]] bool done() const { return left_ == 0 && in_flight_ == 0; }
  std::vector<std::uint64_t> old_values;

 private:
  static constexpr std::size_t kDepth = 20;
  void post(std::size_t i) {
    if (left_ == 0) return;
    --left_;
    ++in_flight_;
    REQUIRE(endpoint_.fetch_add({&results_.region, 8 * i, &remote_, offset_}, 1, operations_[i]).ok());
  }
  void took(std::size_t i) {
    --in_flight_;
    CHECK(operations_[i].last.to_string() == "ok");
    old_values.push_back(number_at(results_.bytes(), 8 * i));
    post(i);
  }

  Endpoint& endpoint_;
  GuardedRegion results_;
  RemoteRegion remote_;
  std::size_t offset_;
  std::size_t left_ = 0;
  std::size_t in_flight_ = 0;
  std::vector<TestOperation> operations_;
};

// Adds 1 by compare_swap, which others may spoil: then again with the value that it told.
class Swapper {
 public:
  Swapper(Fixture& fixture, Endpoint& endpoint, const DeviceRegion& region)
      : endpoint_(endpoint),
        result_(fixture.device(0), 8, Rights::kLocal, 1),
        remote_(share(endpoint, region)) {
    operation_.hook = [this] { took(); };
  }
  void start(std::size_t count) {
    left_ = count;
    post();
  }
  [[nodiscard]] bool done() const { return left_ == 0; }

 private:
  void post() {
    REQUIRE(
        endpoint_.compare_swap({&result_.region, 0, &remote_, 0}, expected_, expected_ + 1, operation_).ok());
  }
  void took() {
    CHECK(operation_.last.to_string() == "ok");
    const std::uint64_t old = number_at(result_.bytes(), 0);
    if (old == expected_) {
      --left_;
      ++expected_;
    } else {
      expected_ = old;
    }
    if (left_ > 0) post();
  }

  Endpoint& endpoint_;
  GuardedRegion result_;
  RemoteRegion remote_;
  TestOperation operation_;
  std::uint64_t expected_ = 0;
  std::size_t left_ = 0;
};

}  // namespace

CONFORMANCE("fetch_add adds to exactly 8 bytes and tells what was there before") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 100, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 100, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const std::uint64_t before = number_at(target.bytes(), 16);
  ByteVector expected_target = target.copy();
  ByteVector expected_local = local.copy();
  set_number(expected_target, 16, before + 0x1'0000'0001);
  set_number(expected_local, 13, before);
  CHECK(outcome(fixture, [&](Operation& operation) {
          return c.a().fetch_add({&local.region, 13, &remote, 16}, 0x1'0000'0001, operation);
        }).to_string() == "ok");
  CHECK(same(target.bytes(), expected_target));
  CHECK(same(local.bytes(), expected_local));
  CHECK(c.a().counters().atomics == 1);
  CHECK(c.a().counters().reads == 0);
  CHECK(c.a().counters().writes == 0);
}

CONFORMANCE("fetch_add wraps around, and with zero it only reads") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 8, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  set_number(target.bytes(), 0, kMost - 1);
  const auto add = [&](std::uint64_t value) {
    CHECK(outcome(fixture, [&](Operation& operation) {
            return c.a().fetch_add({&local.region, 0, &remote, 0}, value, operation);
          }).to_string() == "ok");
    return number_at(local.bytes(), 0);
  };
  CHECK(add(0) == kMost - 1);
  CHECK(add(4) == kMost - 1);
  CHECK(add(kMost) == 2);
  CHECK(number_at(target.bytes(), 0) == 1);
}

CONFORMANCE("compare_swap stores only over the expected value, and tells the old one either way") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 16, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 24, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  ByteVector expected_target = target.copy();
  set_number(target.bytes(), 8, 41);
  const auto swap = [&](std::uint64_t expected, std::uint64_t desired) {
    CHECK(outcome(fixture, [&](Operation& operation) {
            return c.a().compare_swap({&local.region, 5, &remote, 8}, expected, desired, operation);
          }).to_string() == "ok");
    return number_at(local.bytes(), 5);
  };
  CHECK(swap(41, 0xfeed'face'cafe'beef) == 41);
  CHECK(number_at(target.bytes(), 8) == 0xfeed'face'cafe'beef);
  CHECK(swap(41, 7) == 0xfeed'face'cafe'beef);
  CHECK(number_at(target.bytes(), 8) == 0xfeed'face'cafe'beef);
  CHECK(swap(0xfeed'face'cafe'beef, 0) == 0xfeed'face'cafe'beef);
  set_number(expected_target, 8, 0);
  CHECK(same(target.bytes(), expected_target));
  CHECK(c.a().counters().atomics == 3);
}

CONFORMANCE("many adders on both sides: no addition is lost, no old value comes twice") {
  constexpr std::size_t kConnections = 3;
  constexpr std::size_t kEach = 200;
  GuardedRegion at_a(fixture.device(0), 64, Rights::kReadWrite, 1);
  GuardedRegion at_b(fixture.device(1), 64, Rights::kReadWrite, 2);
  set_number(at_a.bytes(), 0, 0);
  set_number(at_b.bytes(), 56, 0);
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::unique_ptr<Adder>> adders;  // those of side a at even places
  for (std::size_t i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<Connection>(fixture));
    Connection& c = *connections.back();
    adders.push_back(std::make_unique<Adder>(fixture, 0, c.a(), at_b.region, 56));
    adders.push_back(std::make_unique<Adder>(fixture, 1, c.b(), at_a.region, 0));
  }
  for (auto& adder : adders) adder->start(kEach);
  REQUIRE(fixture.until(
      [&] { return std::all_of(adders.begin(), adders.end(), [](const auto& a) { return a->done(); }); }));
  CHECK(number_at(at_a.bytes(), 0) == kConnections * kEach);
  CHECK(number_at(at_b.bytes(), 56) == kConnections * kEach);
  for (std::size_t side = 0; side < 2; ++side) {
    std::set<std::uint64_t> seen;
    for (std::size_t i = side; i < adders.size(); i += 2)
      seen.insert(adders[i]->old_values.begin(), adders[i]->old_values.end());
    CHECK(seen.size() == kConnections * kEach);
    CHECK(*seen.rbegin() == kConnections * kEach - 1);
  }
}

CONFORMANCE("compare_swap of two connections on one number: each value is stored once") {
  Connection one(fixture);
  Connection two(fixture);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  set_number(target.bytes(), 0, 0);
  Swapper first(fixture, one.a(), target.region);
  Swapper second(fixture, two.a(), target.region);
  first.start(50);
  second.start(70);
  REQUIRE(fixture.until([&] { return first.done() && second.done(); }));
  CHECK(number_at(target.bytes(), 0) == 120);
}

CONFORMANCE("hundreds of atomics between reads and writes all end right") {
  Connection c(fixture);
  constexpr std::size_t kCount = 300;
  constexpr std::size_t kBlock = 40'000;
  GuardedRegion local(fixture.device(0), 2 * kBlock, Rights::kLocal, 1);
  GuardedRegion results(fixture.device(0), 8 * kCount, Rights::kLocal, 2);
  GuardedRegion target(fixture.device(1), 2 * kBlock, Rights::kReadWrite, 3);
  GuardedRegion number(fixture.device(1), 8, Rights::kReadWrite, 4);
  set_number(number.bytes(), 0, 0);
  const RemoteRegion remote = share(c.a(), target.region);
  const RemoteRegion counter = share(c.a(), number.region);
  const CopyBlock reads[] = {{&local.region, 0, &remote, 0, kBlock}};
  const CopyBlock writes[] = {{&local.region, kBlock, &remote, kBlock, kBlock}};
  std::vector<TestOperation> operations(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i % 10 == 3)
      REQUIRE(c.a().read(reads, operations[i]).ok());
    else if (i % 10 == 6)
      REQUIRE(c.a().write(writes, operations[i]).ok());
    else
      REQUIRE(c.a().fetch_add({&results.region, 8 * i, &counter, 0}, 1, operations[i]).ok());
  }
  REQUIRE(fixture.until([&] {
    return std::all_of(operations.begin(), operations.end(), [](const auto& o) { return o.done(); });
  }));
  for (const TestOperation& operation : operations) CHECK(operation.last.to_string() == "ok");
  CHECK(number_at(number.bytes(), 0) == kCount / 10 * 8);
  CHECK(std::equal(local.bytes().begin(), local.bytes().begin() + kBlock, target.bytes().begin()));
  CHECK(std::equal(local.bytes().begin() + kBlock, local.bytes().end(), target.bytes().begin() + kBlock));
}

CONFORMANCE("a marked message comes after the atomics that were posted before it") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 8, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  set_number(target.bytes(), 0, 100);
  std::uint64_t seen = 0;
  c.receiver_b.on_message_hook = [&] { seen = number_at(target.bytes(), 0); };
  TestOperation adding;
  TestOperation message;
  REQUIRE(c.a().fetch_add({&local.region, 0, &remote, 0}, 11, adding).ok());
  REQUIRE(send(c.a(), as_bytes("added"), message, {.after_writes = true}).ok());
  REQUIRE(fixture.until([&] { return c.receiver_b.messages.size() == 1; }));
  CHECK(seen == 111);
}

CONFORMANCE("the number's address is what must be aligned, not its offset") {
  std::vector<std::uint64_t> memory(16);
  auto* base = reinterpret_cast<std::byte*>(memory.data()) + 3;
  auto region = fixture.device(1).register_memory(base, 64, Rights::kReadWrite);
  REQUIRE(region.has_value());
  GuardedRegion local(fixture.device(0), 8, Rights::kLocal, 1);
  const ByteVector local_before = local.copy();
  for (std::uint64_t offset : {0, 4, 8, 1, 6}) {
    // A connection of its own for each: a provider may break it on a refusal by the target.
    Connection c(fixture);
    const RemoteRegion remote = share(c.a(), *region);
    const AtomicTarget at{&local.region, 0, &remote, offset};
    CHECK(outcome(fixture, [&](Operation& o) { return c.a().fetch_add(at, 1, o); }).code() ==
          Code::kInvalidArgument);
    CHECK(same(local.bytes(), local_before));
  }
  for (std::uint64_t offset : {0, 4, 8}) {
    Connection c(fixture);
    const RemoteRegion remote = share(c.a(), *region);
    const AtomicTarget at{&local.region, 0, &remote, offset};
    CHECK(outcome(fixture, [&](Operation& o) { return c.a().compare_swap(at, 0, 1, o); }).code() ==
          Code::kInvalidArgument);
  }
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::uint64_t n) { return n == 0; }));
  Connection c(fixture);
  const RemoteRegion remote = share(c.a(), *region);
  const AtomicTarget at{&local.region, 0, &remote, 5};
  CHECK(outcome(fixture, [&](Operation& o) { return c.a().fetch_add(at, 9, o); }).to_string() == "ok");
  CHECK(memory[1] == 9);
}

CONFORMANCE("bounds, rights and regions of an atomic are checked before anything is posted") {
  Connection c(fixture);
  Connection other(fixture);
  GuardedRegion local(fixture.device(0), 20, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 24, Rights::kReadWrite, 2);
  GuardedRegion readable(fixture.device(1), 24, Rights::kRemoteRead, 3);
  GuardedRegion writable(fixture.device(1), 24, Rights::kRemoteWrite, 4);
  const RemoteRegion remote = share(c.a(), target.region);
  const RemoteRegion read_only = share(c.a(), readable.region);
  const RemoteRegion write_only = share(c.a(), writable.region);
  const RemoteRegion elsewhere = share(other.a(), target.region);
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max() - 7;
  const struct {
    AtomicTarget target;
    Code code;
  } bad[] = {{{&local.region, 0, &remote, 24}, Code::kInvalidArgument},
             {{&local.region, 0, &remote, kHuge}, Code::kInvalidArgument},
             {{&local.region, 13, &remote, 0}, Code::kInvalidArgument},
             {{&local.region, kHuge, &remote, 0}, Code::kInvalidArgument},
             {{nullptr, 0, &remote, 0}, Code::kInvalidArgument},
             {{&local.region, 0, nullptr, 0}, Code::kInvalidArgument},
             {{&target.region, 0, &remote, 0}, Code::kInvalidArgument},  // of the other process's device
             {{&local.region, 0, &read_only, 0}, Code::kPermissionDenied},
             {{&local.region, 0, &write_only, 0}, Code::kPermissionDenied},
             {{&local.region, 0, &elsewhere, 0}, Code::kAborted}};
  TestOperation operation;
  for (const auto& [at, code] : bad) {
    CHECK(c.a().fetch_add(at, 1, operation).code() == code);
    CHECK_FALSE(operation.posted());
    CHECK(c.a().compare_swap(at, 0, 1, operation).code() == code);
    CHECK_FALSE(operation.posted());
  }
  fixture.settle();
  CHECK(operation.completions == 0);
  CHECK(c.a().counters().atomics == 0);
  for (const auto& [region, seed] : {std::pair{&target, 2}, std::pair{&readable, 3}, std::pair{&writable, 4}})
    CHECK(region->copy() == random_data(24, static_cast<std::uint64_t>(seed)));
  REQUIRE(c.a().fetch_add({&local.region, 12, &remote, 16}, 1, operation).ok());
  REQUIRE(fixture.until([&] { return operation.done(); }));
  CHECK(operation.last.to_string() == "ok");
}

CONFORMANCE("the target refuses an atomic with a forged key, forged rights or forged bounds") {
  GuardedRegion local(fixture.device(0), 8, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 4096, Rights::kReadWrite, 2);
  GuardedRegion readable(fixture.device(1), 4096, Rights::kRemoteRead, 3);
  GuardedRegion writable(fixture.device(1), 4096, Rights::kRemoteWrite, 4);
  RegionDescriptor forged[] = {target.region.describe(), target.region.describe(), target.region.describe(),
                               readable.region.describe(), writable.region.describe()};
  forged[0].key = flipped(forged[0].key, 1);
  forged[1].length_bytes = 1 << 20;
  ++forged[2].id.generation;
  forged[2].key = flipped(forged[2].key, 2);  // providers that know no generations know keys
  for (RegionDescriptor& descriptor : forged) descriptor.rights = Rights::kReadWrite;
  for (std::size_t i = 0; i < std::size(forged); ++i) {
    CAPTURE(i);
    for (const bool swap : {false, true}) {
      Connection c(fixture);
      const auto remote = c.a().import_region(forged[i]);
      REQUIRE(remote.has_value());
      const AtomicTarget at{&local.region, 0, &*remote, i == 1 ? 64u * 1024 : 0};
      const Status status = outcome(fixture, [&](Operation& o) {
        return swap ? c.a().compare_swap(at, number_at(target.bytes(), 0), 1, o) : c.a().fetch_add(at, 1, o);
      });
      CHECK_FALSE(status.ok());
    }
  }
  CHECK(target.copy() == random_data(4096, 2));
  CHECK(readable.copy() == random_data(4096, 3));
  CHECK(writable.copy() == random_data(4096, 4));
  CHECK(local.copy() == random_data(8, 1));
}

CONFORMANCE("an atomic on a closed region fails and changes nothing, on either side") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 8, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  const AtomicTarget at{&local.region, 0, &remote, 0};
  CHECK(target.region.close().ok());
  CHECK_FALSE(outcome(fixture, [&](Operation& o) { return c.a().fetch_add(at, 1, o); }).ok());
  CHECK(target.copy() == random_data(8, 2));
  CHECK(local.copy() == random_data(8, 1));
  Connection again(fixture);
  GuardedRegion open(fixture.device(1), 8, Rights::kReadWrite, 3);
  const RemoteRegion second = share(again.a(), open.region);
  CHECK(local.region.close().ok());
  TestOperation operation;
  CHECK_FALSE(again.a().fetch_add({&local.region, 0, &second, 0}, 1, operation).ok());
  CHECK_FALSE(operation.posted());
  fixture.settle();
  CHECK(open.copy() == random_data(8, 3));
}

CONFORMANCE("closing the local region of atomics in flight ends them, and nothing lands later") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 800, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  std::vector<TestOperation> operations(100);
  for (std::size_t i = 0; i < operations.size(); ++i)
    REQUIRE(c.a().fetch_add({&local.region, 8 * i, &remote, 0}, 1, operations[i]).ok());
  fixture.step();
  local.region.close(Nanos::zero()).ignore();
  const ByteVector at_close = local.copy();
  REQUIRE(fixture.until([&] {
    return std::all_of(operations.begin(), operations.end(), [](const auto& o) { return o.done(); });
  }));
  fixture.settle();
  CHECK(same(local.bytes(), at_close));
  for (const TestOperation& operation : operations) CHECK(operation.completions == 1);
}

CONFORMANCE("a peer that dies ends atomics in flight once each, and none took effect twice") {
  GuardedRegion local(fixture.device(0), 1600, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  for (int steps = 0; steps < 12; ++steps) {
    Connection c(fixture);
    set_number(target.bytes(), 0, 0);
    const RemoteRegion remote = share(c.a(), target.region);
    std::vector<TestOperation> operations(200);
    for (std::size_t i = 0; i < operations.size(); ++i)
      REQUIRE(c.a().fetch_add({&local.region, 8 * i, &remote, 0}, 1, operations[i]).ok());
    for (int i = 0; i < steps; ++i) fixture.step();
    fixture.cut(c.pair);
    REQUIRE(fixture.until([&] {
      return c.receiver_a.closed > 0 && c.receiver_b.closed > 0 &&
             std::all_of(operations.begin(), operations.end(), [](const auto& o) { return o.done(); });
    }));
    fixture.settle();
    std::uint64_t succeeded = 0;
    for (const TestOperation& operation : operations) {
      CHECK(operation.completions == 1);
      CHECK((operation.last.ok() || operation.last.code() == Code::kUnavailable));
      succeeded += operation.last.ok() ? 1 : 0;
    }
    CHECK(number_at(target.bytes(), 0) >= succeeded);
    CHECK(number_at(target.bytes(), 0) <= operations.size());
  }
}

CONFORMANCE("with a stopped peer an atomic ends by its deadline, and resets the connection") {
  Connection c(fixture);
  GuardedRegion local(fixture.device(0), 16, Rights::kLocal, 1);
  GuardedRegion target(fixture.device(1), 8, Rights::kReadWrite, 2);
  const RemoteRegion remote = share(c.a(), target.region);
  fixture.freeze_b(c.pair);
  TestOperation late;
  TestOperation patient;
  const TimePoint deadline = fixture.now() + std::chrono::milliseconds(100);
  late.deadline = deadline;
  patient.deadline = fixture.now() + std::chrono::seconds(50);
  REQUIRE(c.a().fetch_add({&local.region, 0, &remote, 0}, 1, late).ok());
  REQUIRE(c.a().compare_swap({&local.region, 8, &remote, 0}, 0, 1, patient).ok());
  REQUIRE(fixture.until([&] { return late.done() && patient.done(); }));
  CHECK(fixture.now() < deadline + std::chrono::seconds(5));
  if (fixture.works_alone()) return;
  CHECK(fixture.now() >= deadline);
  CHECK(late.last.code() == Code::kDeadlineExceeded);
  CHECK(patient.last.code() == Code::kUnavailable);
  REQUIRE(fixture.until([&] { return c.receiver_a.closed > 0; }));
  CHECK(c.receiver_a.close_reason.code() == Code::kDeadlineExceeded);
  CHECK(local.copy() == random_data(16, 1));
}

}  // namespace slime::transport::testing
