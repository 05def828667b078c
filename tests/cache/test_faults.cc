// What happens when writers and readers die, freeze, are late or lie, and when the server goes.
#include <string>
#include <vector>

#include "cache/checksum.h"
#include "tests/cache/cluster.h"
#include "tests/support/process.h"

namespace slime::cache {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kKib = 1024;

// A writer in a process of its own: it has reserved "slow" and written half of it.
test::Process start_writer(const Cluster& c, std::size_t length) {
  auto writer = test::Process::spawn(
      {test::program_beside_this("cache_test_writer"), c.server_agent->address(), std::to_string(length)});
  REQUIRE(writer.has_value());
  const auto line = writer->read_line(test::patient(20s));
  REQUIRE_MESSAGE(line.has_value(), line.status().to_string());
  REQUIRE(*line == "half written");
  return std::move(*writer);
}

// Fills the cache with objects, and checks that those which are there are whole. Returns how many
// there are.
int fill(Cluster& c, int objects, std::size_t length) {
  for (int i = 0; i < objects; ++i) {
    const ByteVector object = random_object(static_cast<std::uint64_t>(i), length);
    const Status status = c.client->put("fill", std::to_string(i), Bytes(object), {.replace = true});
    REQUIRE_MESSAGE(status.ok(), status.to_string());
  }
  return objects;
}
int whole(Cluster& c, int objects, std::size_t length) {
  int found = 0;
  for (int i = 0; i < objects; ++i) {
    const auto got = c.client->get("fill", std::to_string(i));
    if (!got) {
      REQUIRE(got.error().code() == Code::kNotFound);
      continue;
    }
    REQUIRE(*got == random_object(static_cast<std::uint64_t>(i), length));
    ++found;
  }
  return found;
}

TEST_CASE("an object is invisible until it is sealed") {
  Cluster c;
  RawClient raw(*c.agent, c.server_agent->address());
  const ByteVector object = random_object(1, 300 * kKib);
  const auto reserved = raw.reserve("a", object.size());
  REQUIRE(reserved.outcome.status().ok());
  REQUIRE(raw.write(reserved.extents, object).ok());
  CHECK(c.client->get("ns", "a").status().code() == Code::kNotFound);
  CHECK_FALSE(*c.client->exists("ns", "a"));
  REQUIRE(raw.seal(reserved.version, checksum("ns", "a", reserved.version, object)).ok());
  CHECK(*c.client->get("ns", "a") == object);
}

TEST_CASE("bytes that do not match the writer's checksum are never handed out") {
  Cluster c;
  RawClient raw(*c.agent, c.server_agent->address());
  const ByteVector object = random_object(1, 300 * kKib);
  const auto reserved = raw.reserve("a", object.size());
  ByteVector torn = object;
  torn[299'999] ^= std::byte{1};
  REQUIRE(raw.write(reserved.extents, torn).ok());
  REQUIRE(raw.seal(reserved.version, checksum("ns", "a", reserved.version, object)).ok());
  CHECK(c.client->get("ns", "a").status().code() == Code::kCorrupt);
}

TEST_CASE("readers may not write and writers may not read") {
  Cluster c;
  RawClient raw(*c.agent, c.server_agent->address());
  const auto reserved = raw.reserve("a", 4096);
  auto memory = c.agent->allocate(4096, Rights::kLocal);
  REQUIRE(memory.has_value());
  CHECK(raw.copy(wire::kReadRegion, reserved.extents, *memory, true).code() == Code::kPermissionDenied);
  CHECK(raw.copy(wire::kWriteRegion, reserved.extents, *memory, false).code() == Code::kPermissionDenied);
}

TEST_CASE("a writer that is killed leaves nothing, visible or not") {
  Cluster c({.memory_bytes = 1 << 20, .high_percent = 100, .low_percent = 100});
  auto writer = start_writer(c, 900 * kKib);
  CHECK(c.stats().reservations == 1);
  CHECK(c.client->put("ns", "other", Bytes(ByteVector(900 * kKib))).code() == Code::kResourceExhausted);
  REQUIRE(writer.kill().ok());
  CHECK(eventually([&] { return c.stats().free_bytes == c.stats().arena_bytes; }));
  CHECK(c.stats().reservations == 0);
  CHECK(c.client->get("ns", "slow").status().code() == Code::kNotFound);
  CHECK(c.client->put("ns", "other", Bytes(ByteVector(900 * kKib))).ok());
}

TEST_CASE("a frozen writer that wakes up late destroys no object") {
  Cluster c({.memory_bytes = 1 << 20, .high_percent = 100, .low_percent = 100});
  constexpr std::size_t kLength = 60 * kKib;
  auto writer = start_writer(c, 256 * kKib);
  REQUIRE(writer.stop().ok());
  c.clock.advance(limits::kReservationTtl);
  CHECK(c.stats().quarantined_bytes == 256 * kKib);
  fill(c, 40, kLength);
  CHECK(whole(c, 40, kLength) == 12);  // as many as fit beside the quarantine
  REQUIRE(writer.resume().ok());
  REQUIRE(writer.write_line("go on").ok());  // it writes the other half, over whatever is there
  CHECK(writer.read_line(test::patient(20s)).value_or("") == "written");
  CHECK(whole(c, 40, kLength) == 12);
  REQUIRE(writer.write_line("seal").ok());
  CHECK(writer.read_line(test::patient(20s)).value_or("") == "aborted");
  CHECK(c.client->get("ns", "slow").status().code() == Code::kNotFound);
  CHECK(c.stats().quarantined_bytes == 0);  // its late seal said that it is done
  CHECK(whole(c, 40, kLength) == 12);
}

TEST_CASE("a frozen writer that is killed gives its slabs back") {
  Cluster c({.memory_bytes = 1 << 20});
  auto writer = start_writer(c, 256 * kKib);
  REQUIRE(writer.stop().ok());
  c.clock.advance(limits::kReservationTtl);
  CHECK(c.stats().quarantined_bytes == 256 * kKib);
  REQUIRE(writer.kill().ok());
  CHECK(eventually([&] { return c.stats().quarantined_bytes == 0; }));
  CHECK(c.stats().free_bytes == c.stats().arena_bytes);
}

TEST_CASE("an object that is deleted or replaced during a read is read whole") {
  for (const bool replace : {false, true}) {
    CAPTURE(replace);
    Cluster c({.memory_bytes = 1 << 20, .high_percent = 100, .low_percent = 100});
    RawClient raw(*c.agent, c.server_agent->address());
    const ByteVector object = random_object(1, 256 * kKib);
    REQUIRE(c.client->put("ns", "a", Bytes(object)).ok());
    const wire::Found found = raw.lookup("a");
    if (replace) {
      REQUIRE(c.client->put("ns", "a", Bytes(random_object(2, 256 * kKib)), {.replace = true}).ok());
    } else {
      REQUIRE(c.client->remove("ns", "a").ok());
    }
    fill(c, 40, 60 * kKib);
    CHECK(raw.read(found.extents, found.length).value_or(ByteVector()) == object);
    const std::uint64_t before = c.stats().free_bytes;
    CHECK(raw.release(found.lease).ok());
    CHECK(c.stats().free_bytes == before + 256 * kKib);
  }
}

TEST_CASE("slabs that a vanished reader may still read are not used again before its connection is over") {
  Cluster c({.memory_bytes = 1 << 20, .high_percent = 100, .low_percent = 100});
  const ByteVector object = random_object(1, 256 * kKib);
  REQUIRE(c.client->put("ns", "a", Bytes(object)).ok());
  auto reader_agent = start_agent("reader:0");
  RawClient reader(*reader_agent, c.server_agent->address());
  const wire::Found found = reader.lookup("a");
  c.clock.advance(limits::kLeaseTtl);
  REQUIRE(c.client->remove("ns", "a").ok());
  CHECK(c.stats().expired_leases == 1);
  CHECK(c.stats().quarantined_bytes == 256 * kKib);
  fill(c, 40, 60 * kKib);
  CHECK(reader.read(found.extents, found.length).value_or(ByteVector()) == object);
  CHECK(c.stats().quarantined_bytes == 256 * kKib);
  reader_agent.reset();
  CHECK(eventually([&] { return c.stats().quarantined_bytes == 0; }));
  CHECK(c.stats().expired_leases_held == 0);
}

TEST_CASE("a reader does not trust bytes that came after its lease was over") {
  Cluster c({.lease_ttl = 1ns});
  REQUIRE(c.client->put("ns", "a", std::string_view("hello")).ok());
  CHECK(c.client->get("ns", "a").status().code() == Code::kAborted);
}

TEST_CASE("in a batch each object is checked by the clock of its own lease") {
  Cluster c({.memory_bytes = 80 << 20, .lease_ttl = 1ns});
  // The lease of a large object lasts longer, here by a second.
  const ByteVector large(limits::kSlowestBytesPerSecond, std::byte{7});
  REQUIRE(c.client->put("ns", "small", std::string_view("hello")).ok());
  REQUIRE(c.client->put("ns", "large", Bytes(large)).ok());
  for (const bool small_first : {true, false}) {
    CAPTURE(small_first);
    const std::vector<std::string_view> keys{small_first ? "small" : "large",
                                             small_first ? "large" : "small"};
    const TimePoint asked = steady_clock().now();
    const auto got = c.client->get_many("ns", keys);
    const Nanos took = steady_clock().now() - asked;
    const auto& small = got[small_first ? 0 : 1];
    const auto& whole = got[small_first ? 1 : 0];
    CHECK(small.status().code() == Code::kAborted);
    CHECK_MESSAGE((whole.has_value() || took > 990ms), whole.status().to_string());
  }
}

TEST_CASE("a client whose connection was cut goes on, and loses nothing that was sealed") {
  Cluster c;
  const ByteVector object = random_object(1, 300 * kKib);
  REQUIRE(c.client->put("ns", "a", Bytes(object)).ok());
  REQUIRE(*c.client->get("ns", "a") == object);
  REQUIRE(c.agent->peer(c.server_agent->address()).disconnect().ok());
  const auto got = c.client->get("ns", "a");
  REQUIRE_MESSAGE(got.has_value(), got.status().to_string());
  CHECK(*got == object);
  REQUIRE(c.agent->peer(c.server_agent->address()).disconnect().ok());
  const Status put = c.client->put("ns", "b", Bytes(object));
  CHECK_MESSAGE(put.ok(), put.to_string());
  CHECK(*c.client->get("ns", "b") == object);
}

TEST_CASE("without its server a client says so; a new server starts empty and is used without ado") {
  Cluster c;
  const std::string address = c.server_agent->address();
  const ByteVector object = random_object(1, 300 * kKib);
  REQUIRE(c.client->put("ns", "a", Bytes(object)).ok());
  c.server.reset();
  c.server_agent.reset();
  CHECK(c.client->get("ns", "a").status().code() == Code::kUnavailable);
  CHECK(c.client->put("ns", "b", Bytes(object)).code() == Code::kUnavailable);
  CHECK(c.client->stats().status().code() == Code::kUnavailable);

  c.server_agent = start_agent("cache:0", address);
  auto started = CacheServer::start(*c.server_agent, {.memory_bytes = 8 << 20}, c.clock);
  REQUIRE(started.has_value());
  c.server = std::move(*started);
  // The agent waits a moment between attempts to reach a peer that was not there.
  CHECK(eventually([&] { return c.client->get("ns", "a").status().code() == Code::kNotFound; }));
  const Status put = c.client->put("ns", "a", Bytes(object));
  CHECK_MESSAGE(put.ok(), put.to_string());
  CHECK(*c.client->get("ns", "a") == object);
}

TEST_CASE("a server that closes answers so while its agent lives on") {
  Cluster c;
  REQUIRE(c.client->put("ns", "a", std::string_view("hello")).ok());
  REQUIRE(c.server->close().ok());
  CHECK(c.server->close().ok());
  CHECK(c.client->get("ns", "a").status().code() == Code::kUnavailable);
  CHECK(c.client->put("ns", "b", std::string_view("hello")).code() == Code::kUnavailable);
}

TEST_CASE("a cache larger than the machine's memory is refused with the reason") {
  const auto agent = start_agent("cache:0");
  const auto server = CacheServer::start(*agent, {.memory_bytes = std::uint64_t{1} << 50});
  REQUIRE_FALSE(server.has_value());
  CHECK(server.error().code() == Code::kResourceExhausted);
  CHECK(server.error().text().find("MiB of memory available") != std::string::npos);
  CHECK(CacheServer::start(*agent, {.memory_bytes = 100}).status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace slime::cache
