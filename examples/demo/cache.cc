// Puts objects into a slime-cache, reads all of them back and compares every byte. Part of
// scripts/demo.py.
//
//   demo_cache CACHE_NAME CTRL_URL MEBIBYTES
//       Prints one line of progress for each quarter; the last line is "put GB/s get GB/s".
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "cache/client.h"

namespace {

using slime::Status;

constexpr std::size_t kObjectBytes = 256 * 1024;
constexpr std::size_t kBatch = 32;
constexpr std::string_view kSpace = "demo";

std::string key(std::size_t object) { return "object-" + std::to_string(object); }

// Fills `bytes` with data that differs for each object number, so that swapped objects are noticed.
void fill(slime::MutableBytes bytes, std::size_t object) { slime::Rng(object + 1).fill(bytes); }

slime::MutableBytes place(const slime::MemoryRegion& region, std::size_t i) {
  return region.bytes().subspan(i * kObjectBytes, kObjectBytes);
}

void show_progress(const char* what, std::size_t done, std::size_t all) {
  const std::size_t quarter = all / 4;
  if (done % quarter < kBatch)
    std::printf("%s %zu of %zu MiB\n", what, done * kObjectBytes >> 20, all * kObjectBytes >> 20);
  std::fflush(stdout);
}

// Adds up the time between start() and stop(). The program starts it only around calls of the
// cache.
class Stopwatch {
 public:
  void start() { begin_ = std::chrono::steady_clock::now(); }
  void stop() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  [[nodiscard]] double gb_per_s(std::size_t bytes) const {
    return static_cast<double>(bytes) / seconds_ / 1e9;
  }

 private:
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0;
};

Status put_all(slime::cache::CacheClient& cache, const slime::MemoryRegion& region, std::size_t objects,
               Stopwatch& watch) {
  for (std::size_t first = 0; first < objects; first += kBatch) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < kBatch; ++i) {
      keys.push_back(key(first + i));
      fill(place(region, i), first + i);
    }
    std::vector<slime::cache::PutItem> items;
    for (std::size_t i = 0; i < kBatch; ++i) {
      items.push_back({keys[i], slime::cache::Source(region, i * kObjectBytes, kObjectBytes)});
    }
    watch.start();
    const std::vector<Status> outcomes = cache.put_many(kSpace, items);
    watch.stop();
    for (const Status& outcome : outcomes) SLIME_TRY(outcome);
    show_progress("put", first + kBatch, objects);
  }
  return {};
}

Status get_all(slime::cache::CacheClient& cache, const slime::MemoryRegion& region, std::size_t objects,
               Stopwatch& watch) {
  std::vector<std::byte> expected(kObjectBytes);
  for (std::size_t first = 0; first < objects; first += kBatch) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < kBatch; ++i) keys.push_back(key(first + i));
    std::vector<slime::cache::GetItem> items;
    for (std::size_t i = 0; i < kBatch; ++i) {
      items.push_back({keys[i], slime::cache::Target(region, i * kObjectBytes, kObjectBytes)});
    }
    watch.start();
    const auto outcomes = cache.get_many(kSpace, items);
    watch.stop();
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (!outcomes[i]) return outcomes[i].error();
      fill(expected, first + i);
      if (*outcomes[i] != kObjectBytes ||
          std::memcmp(place(region, i).data(), expected.data(), kObjectBytes) != 0) {
        return {slime::Code::kCorrupt, keys[i] + " is not what was put"};
      }
    }
    show_progress("got", first + kBatch, objects);
  }
  return {};
}

int fail(const Status& status) {
  std::fprintf(stderr, "demo_cache: %s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const long mebibytes = argc == 4 ? std::strtol(argv[3], nullptr, 10) : 0;
  if (mebibytes < 32 || mebibytes % 32 != 0) {
    std::fprintf(stderr, "usage: demo_cache CACHE_NAME CTRL_URL MEBIBYTES (a multiple of 32)\n");
    return 2;
  }
  const std::size_t objects = (static_cast<std::size_t>(mebibytes) << 20) / kObjectBytes;
  auto agent = slime::PeerAgent::start({.name = "demo-cache-user", .ctrl_url = argv[2]});
  if (!agent) return fail(agent.error());
  auto region = (*agent)->allocate(kBatch * kObjectBytes, slime::Rights::kLocal);
  if (!region) return fail(region.error());
  Stopwatch put_watch;
  Stopwatch get_watch;
  {
    auto cache = slime::cache::CacheClient::create(**agent, argv[1]);
    if (!cache) return fail(cache.error());
    if (const Status put = put_all(*cache, *region, objects, put_watch); !put.ok()) return fail(put);
    if (const Status got = get_all(*cache, *region, objects, get_watch); !got.ok()) return fail(got);
  }
  if (const Status closed = (*agent)->close(); !closed.ok()) return fail(closed);
  std::printf("put %.2f get %.2f\n", put_watch.gb_per_s(objects * kObjectBytes),
              get_watch.gb_per_s(objects * kObjectBytes));
  return 0;
}
