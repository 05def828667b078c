#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/transport/verbs/fake_fixture.h"
#include "transport/verbs/port.h"

namespace slime::transport::testing {

inline EndpointCounters operator-(const EndpointCounters& after, const EndpointCounters& before) {
  EndpointCounters out;
  out.work_requests = after.work_requests - before.work_requests;
  out.doorbells = after.doorbells - before.doorbells;
  out.completions = after.completions - before.completions;
  out.coalesced = after.coalesced - before.coalesced;
  return out;
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

inline PortCounters port_counters(Fixture& fixture, int side) { return fixture.port(side).counters(); }

// Blocks of `bytes` each, at distances of `stride_here` and `stride_there`.
struct Blocks {
  std::size_t count = 1;
  std::size_t bytes = 1024;
  std::size_t stride_here = 1024;
  std::size_t stride_there = 1024;
};

// While work waits, an endpoint posts an empty write after a keepalive interval, which on a busy
// machine would count as one of the test's own writes. The longest outage makes the interval a
// minute.
inline PortOptions unprobed() { return {.outage_tolerated = limits::kOutageMax}; }

// A connected pair on the fabric with memory on both sides.
struct Rig {
  explicit Rig(std::size_t bytes = 1 << 20, verbs::Options options = {},
               FakeOptions fabric = FakeOptions::roce(), PortOptions port = unprobed())
      : fixture(std::move(options), std::move(fabric)),
        opened(open(port)),
        connection(fixture),
        here(fixture.device(0), bytes, Rights::kLocal, 1),
        there(fixture.device(1), bytes, Rights::kReadWrite, 2),
        remote(share(connection.a(), there.region)) {}

  FakeFabric& fabric() { return fixture.fabric(); }
  Endpoint& a() { return connection.a(); }
  Endpoint& b() { return connection.b(); }
  std::vector<CopyBlock> copies(const Blocks& blocks) {
    std::vector<CopyBlock> out;
    for (std::size_t i = 0; i < blocks.count; ++i)
      out.push_back({&here.region, i * blocks.stride_here, &remote, i * blocks.stride_there, blocks.bytes});
    return out;
  }
  bool equal(const std::vector<CopyBlock>& copies) {
    return std::all_of(copies.begin(), copies.end(), [&](const CopyBlock& copy) {
      const std::byte* mine = here.bytes().data() + copy.local_offset;
      return std::equal(mine, mine + copy.length_bytes, there.bytes().data() + copy.remote_offset);
    });
  }
  // Runs one batch, from the post to its completion.
  EndpointCounters run(bool reads, const std::vector<CopyBlock>& batch) {
    const EndpointCounters before = a().counters();
    TestOperation operation;
    const Status posted = reads ? a().read(batch, operation) : a().write(batch, operation);
    REQUIRE_MESSAGE(posted.ok(), posted.text());
    REQUIRE(fixture.until([&] { return operation.done(); }));
    CHECK_MESSAGE(operation.last.ok(), operation.last.text());
    CHECK(operation.completions == 1);
    return a().counters() - before;
  }

  FakeVerbsFixture fixture;
  bool opened;
  Connection connection;
  GuardedRegion here;
  GuardedRegion there;
  RemoteRegion remote;

 private:
  bool open(const PortOptions& port) {
    fixture.open(port);
    return true;
  }
};

}  // namespace slime::transport::testing
