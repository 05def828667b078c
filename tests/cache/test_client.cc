#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/cache/cluster.h"

namespace slime::cache::client_test {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kKib = 1024;

TEST_CASE("objects of every size come back as they went, copied or in place") {
  // Small staging, so that objects go in pieces.
  Cluster c({.memory_bytes = 16 << 20}, {.staging_buffers = 2, .staging_buffer_bytes = 48 * kKib});
  auto memory = c.agent->allocate(4 << 20, Rights::kLocal);
  REQUIRE(memory.has_value());
  const std::size_t sizes[] = {
      0,          1,          4095,           4096,     4097,   48 * kKib, 48 * kKib + 1,
      255 * kKib, 256 * kKib, 256 * kKib + 1, 1000'003, 3 << 20};
  for (const std::size_t size : sizes) {
    CAPTURE(size);
    const ByteVector object = random_object(size, size);
    const std::string copied = "copied" + std::to_string(size), placed = "placed" + std::to_string(size);
    REQUIRE(c.client->put("ns", copied, Bytes(object)).ok());
    constexpr std::uint64_t kOffset = 12345;
    std::copy(object.begin(), object.end(), memory->data() + kOffset);
    REQUIRE(c.client->put("ns", placed, Source(*memory, kOffset, size)).ok());
    for (const std::string& key : {copied, placed}) {
      CAPTURE(key);
      const auto whole = c.client->get("ns", key);
      REQUIRE_MESSAGE(whole.has_value(), whole.status().to_string());
      CHECK(*whole == object);
      ByteVector out(size + 10);
      const auto length = c.client->get("ns", key, MutableBytes(out));
      REQUIRE(length.has_value());
      CHECK(*length == size);
      CHECK(std::equal(object.begin(), object.end(), out.begin()));
      std::fill_n(memory->data(), memory->length_bytes(), std::byte{0});
      REQUIRE(c.client->get("ns", key, Target(*memory, 777, size)).has_value());
      CHECK(std::equal(object.begin(), object.end(), memory->data() + 777));
    }
  }
  CHECK(eventually([&] { return c.stats().leases == 0; }));
  CHECK(c.stats().reservations == 0);
}

TEST_CASE("errors say what to do") {
  Cluster c;
  const ByteVector object = random_object(1, 1000);
  CHECK(c.client->get("ns", "a").status().code() == Code::kNotFound);
  CHECK(c.client->put("ns", "a", Bytes(object)).ok());
  CHECK(c.client->put("ns", "a", Bytes(object)).code() == Code::kAlreadyExists);
  CHECK(c.client->put("ns", "a", std::string_view("short"), {.replace = true}).ok());
  CHECK(c.client->get("ns", "a")->size() == 5);
  ByteVector small(4);
  CHECK(c.client->get("ns", "a", MutableBytes(small)).status().code() == Code::kInvalidArgument);
  CHECK(c.client->put("ns", "", Bytes(object)).code() == Code::kInvalidArgument);
  CHECK(c.client->put("ns", "x", Bytes(object), {.ttl = -1s}).code() == Code::kInvalidArgument);
  CHECK(c.client->put("ns", "huge", Bytes(ByteVector(9 << 20))).code() == Code::kInvalidArgument);
  CHECK(c.client->remove("ns", "b").code() == Code::kNotFound);
  CHECK(c.client->pin("ns", "b").code() == Code::kNotFound);
  CHECK(c.client->get(std::string(300, 'n'), "a").status().code() == Code::kInvalidArgument);
  CHECK(eventually([&] { return c.stats().leases == 0; }));

  const auto no_cache = start_agent("plain:0");
  CacheClient lost = client_of(*c.agent, no_cache->address());
  CHECK(lost.get("ns", "a").status().code() == Code::kUnavailable);
  CHECK(lost.put("ns", "a", Bytes(object)).code() == Code::kUnavailable);
}

TEST_CASE("objects can be asked about, pinned and removed") {
  Cluster c;
  REQUIRE(c.client->put("ns", "a", std::string_view("hello")).ok());
  CHECK(*c.client->exists("ns", "a"));
  CHECK_FALSE(*c.client->exists("ns", "b"));
  CHECK(c.client->info("ns", "a")->length == 5);
  CHECK(c.client->pin("ns", "a").ok());
  CHECK(c.client->info("ns", "a")->pinned);
  CHECK(c.client->stats()->pinned_objects == 1);
  CHECK(c.client->unpin("ns", "a").ok());
  CHECK_FALSE(c.client->info("ns", "a")->pinned);
  const std::string_view keys[] = {"a", "b"};
  const auto removed = c.client->remove_many("ns", keys);
  CHECK(removed[0].ok());
  CHECK(removed[1].code() == Code::kNotFound);
  CHECK_FALSE(*c.client->exists("ns", "a"));
}

TEST_CASE("objects live as long as they were put for") {
  Cluster c;
  REQUIRE(c.client->put("ns", "a", std::string_view("hello"), {.ttl = 5s}).ok());
  c.clock.advance(5s - 1ns);
  CHECK(c.client->get("ns", "a").has_value());
  c.clock.advance(1ns);
  CHECK(c.client->get("ns", "a").status().code() == Code::kNotFound);
}

TEST_CASE("a batch puts and gets many objects of mixed sizes, each with its own outcome") {
  Cluster c({.memory_bytes = 64 << 20}, {.staging_buffers = 3, .staging_buffer_bytes = 256 * kKib});
  constexpr std::size_t kObjects = 2500;  // more than one call takes
  Rng rng(5);
  std::vector<std::string> keys;
  std::vector<ByteVector> objects;
  for (std::size_t i = 0; i < kObjects; ++i) {
    keys.push_back("key" + std::to_string(i));
    objects.push_back(random_object(i, rng.below(rng.chance(1, 20) ? 300'000 : 5000)));
  }
  REQUIRE(c.client->put("ns", keys[7], std::string_view("here before")).ok());
  std::vector<PutItem> puts;
  for (std::size_t i = 0; i < kObjects; ++i) puts.push_back({keys[i], Bytes(objects[i])});
  const auto put = c.client->put_many("ns", puts);
  REQUIRE(put.size() == kObjects);
  for (std::size_t i = 0; i < kObjects; ++i)
    REQUIRE_MESSAGE(put[i].code() == (i == 7 ? Code::kAlreadyExists : Code::kOk), put[i].to_string());
  objects[7] = ByteVector(11);
  REQUIRE(c.client->remove("ns", keys[9]).ok());

  const std::vector<std::string_view> wanted(keys.begin(), keys.end());
  const auto got = c.client->get_many("ns", wanted);
  REQUIRE(got.size() == kObjects);
  for (std::size_t i = 0; i < kObjects; ++i) {
    if (i == 9) {
      REQUIRE(got[i].status().code() == Code::kNotFound);
    } else {
      REQUIRE_MESSAGE(got[i].has_value(), got[i].status().to_string());
      REQUIRE(got[i]->size() == objects[i].size());
      if (i != 7) REQUIRE(*got[i] == objects[i]);
    }
  }

  // Into the caller's memory: some registered, some not, one too small.
  auto memory = c.agent->allocate(8 << 20, Rights::kLocal);
  REQUIRE(memory.has_value());
  std::vector<ByteVector> out;
  for (std::size_t i = 0; i < 40; ++i) out.emplace_back(i == 3 ? 0 : objects[i].size());
  std::vector<GetItem> gets;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    if (i % 2 == 0) {
      gets.push_back({keys[i], Target(*memory, at, objects[i].size())});
      at += objects[i].size() + 3;
    } else {
      gets.push_back({keys[i], MutableBytes(out[i])});
    }
  }
  const auto lengths = c.client->get_many("ns", gets);
  for (std::size_t i = 0; i < 40; ++i) {
    CAPTURE(i);
    if (i == 9 || i == 3) {
      CHECK(lengths[i].status().code() == (i == 9 ? Code::kNotFound : Code::kInvalidArgument));
    } else if (i != 7) {
      REQUIRE(lengths[i].has_value());
      CHECK(*lengths[i] == objects[i].size());
      CHECK(std::equal(objects[i].begin(), objects[i].end(), gets[i].target.bytes.begin()));
    }
  }
  CHECK(c.client->put_many("ns", {}).empty());
  CHECK(c.client->get_many("ns", std::span<const GetItem>()).empty());
  CHECK(eventually([&] { return c.stats().leases == 0; }));
  CHECK(c.stats().reservations == 0);
}

TEST_CASE("a batch larger than the whole cache goes through it") {
  Cluster c({.memory_bytes = 1 << 20});
  const ByteVector object = random_object(3, 64 * kKib);
  std::vector<std::string> keys;
  std::vector<PutItem> puts;
  for (int i = 0; i < 64; ++i) keys.push_back("key" + std::to_string(i));
  for (const std::string& key : keys) puts.push_back({key, Bytes(object)});
  for (const Status& status : c.client->put_many("ns", puts))
    REQUIRE_MESSAGE(status.ok(), status.to_string());
  CHECK(c.stats().sealed == 64);
  CHECK(c.stats().evicted >= 48);
  CHECK(*c.client->exists("ns", "key63"));
  CHECK_FALSE(*c.client->exists("ns", "key0"));
}

TEST_CASE("a cache full of pinned objects refuses, and takes again when one is unpinned") {
  Cluster c({.memory_bytes = 1 << 20, .high_percent = 100, .low_percent = 100});
  const ByteVector object = random_object(3, 256 * kKib);
  for (const char* key : {"a", "b", "c", "d"}) {
    REQUIRE(c.client->put("ns", key, Bytes(object)).ok());
    REQUIRE(c.client->pin("ns", key).ok());
  }
  CHECK(c.client->put("ns", "e", Bytes(object)).code() == Code::kResourceExhausted);
  REQUIRE(c.client->unpin("ns", "b").ok());
  CHECK(c.client->put("ns", "e", Bytes(object)).ok());
  CHECK_FALSE(*c.client->exists("ns", "b"));
  CHECK(*c.client->get("ns", "a") == object);
}

TEST_CASE("what one client puts another gets") {
  Cluster c;
  const auto other_agent = start_agent("user:1");
  CacheClient other = client_of(*other_agent, c.server_agent->address());
  const ByteVector object = random_object(9, 700'000);
  REQUIRE(c.client->put("ns", "a", Bytes(object)).ok());
  CHECK(*other.get("ns", "a") == object);
  CHECK(other.get("else", "a").status().code() == Code::kNotFound);
  REQUIRE(other.remove("ns", "a").ok());
  CHECK(c.client->get("ns", "a").status().code() == Code::kNotFound);
}

TEST_CASE("many threads share one client, its staging and each other's objects") {
  Cluster c({.memory_bytes = 32 << 20}, {.staging_buffers = 2, .staging_buffer_bytes = 64 * kKib});
  constexpr int kThreads = 6, kRounds = 30, kKeys = 8;
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(static_cast<std::uint64_t>(t) + 1);
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t which = rng.below(kKeys);
        const std::string key = "shared" + std::to_string(which);
        // The first byte says which fill the rest must have.
        ByteVector object(100'000 + rng.below(200'000), static_cast<std::byte>(rng.below(256)));
        if (const Status status = c.client->put("ns", key, Bytes(object), {.replace = true}); !status.ok())
          failures[static_cast<std::size_t>(t)] = status.to_string();
        const auto got = c.client->get("ns", "shared" + std::to_string(rng.below(kKeys)));
        if (!got && got.error().code() != Code::kNotFound)
          failures[static_cast<std::size_t>(t)] = got.error().to_string();
        if (got &&
            std::count(got->begin(), got->end(), got->front()) != static_cast<std::ptrdiff_t>(got->size()))
          failures[static_cast<std::size_t>(t)] = "torn bytes";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) CHECK(failure == "");
  CHECK(eventually([&] { return c.stats().leases == 0; }));
  CHECK(c.stats().reservations == 0);
  CHECK(c.stats().quarantined_bytes == 0);
}

TEST_CASE("an agent that makes progress only in its callers can use a cache") {
  Cluster c;
  auto agent =
      PeerAgent::start({.name = "caller:0", .provider = test::provider(), .progress = Progress::kCaller});
  REQUIRE(agent.has_value());
  CacheClient client = client_of(**agent, c.server_agent->address());
  const ByteVector object = random_object(4, 3 << 20);
  REQUIRE(client.put("ns", "a", Bytes(object)).ok());
  CHECK(*client.get("ns", "a") == object);
  CHECK(*c.client->get("ns", "a") == object);
}

TEST_CASE("a client with impossible options is refused") {
  const auto agent = start_agent("user:0");
  const auto code = [&](std::string_view server, CacheClientOptions options) {
    return CacheClient::create(*agent, server, options).status().code();
  };
  CHECK(code("", {}) == Code::kInvalidArgument);
  CHECK(code("cache:0", {.timeout = Nanos::zero()}) == Code::kInvalidArgument);
  CHECK(code("cache:0", {.staging_buffers = 0}) == Code::kInvalidArgument);
  CHECK(code("cache:0", {.staging_buffer_bytes = 4095}) == Code::kInvalidArgument);
  CHECK(code("cache:0", {}) == Code::kOk);
}

TEST_CASE("put and get without waiting: futures, in the order of the calls") {
  Cluster c;
  const ByteVector object = random_object(5, 300'000);
  auto put = c.client->put_async("ns", "a", Bytes(object));
  ByteVector target(object.size());
  auto into = c.client->get_async("ns", "a", MutableBytes(target));
  auto got = c.client->get_async("ns", "a");
  auto missing = c.client->get_async("ns", "b");
  CHECK(put.wait().has_value());
  CHECK(*into.wait() == object.size());
  CHECK(target == object);
  CHECK(*got.wait() == object);
  CHECK(missing.wait().status().code() == Code::kNotFound);
  CHECK(c.client->put_async("ns", "a", Bytes(object)).wait().status().code() == Code::kAlreadyExists);
}

TEST_CASE("a client that goes ends its calls: the running one well, those that wait with kCancelled") {
  Cluster c;
  const ByteVector object = random_object(6, 4 << 20);
  std::vector<Future<None>> puts;
  puts.reserve(20);
  for (int i = 0; i < 20; ++i)
    puts.push_back(c.client->put_async("ns", "a", Bytes(object), {.replace = true}));
  c.client.reset();
  for (auto& put : puts) {
    REQUIRE(put.done());
    const auto outcome = put.wait();
    if (!outcome) CHECK(outcome.error().code() == Code::kCancelled);
  }
}

TEST_CASE("the callback of a call may destroy the client") {
  Cluster c;
  const ByteVector object = random_object(7, 4096);
  std::atomic<bool> gone = false;
  c.client->put_async("ns", "a", Bytes(object)).then([&](const Result<None>& outcome) {
    CHECK(outcome.has_value());
    c.client.reset();
    gone = true;
  });
  CHECK(eventually([&] { return gone.load(); }));
}

}  // namespace
}  // namespace slime::cache::client_test
