// A change reads little of its file: not the large records beside it.
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/str.h"
#include "ctrl/store/engine.h"
#include "ctrl/store/sqlite.h"
#include "tests/ctrl/samples.h"
#include "tests/support/folder.h"

namespace {
std::atomic<std::uint64_t> g_read{0};
}  // namespace

// SQLite calls this instead of the C library's function.
extern "C" ssize_t pread64(int fd, void* bytes, size_t count, off64_t offset) {
  const ssize_t out = ::syscall(SYS_pread64, fd, bytes, count, offset);
  if (out > 0) g_read += static_cast<std::uint64_t>(out);
  return out;
}
extern "C" ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  return pread64(fd, bytes, count, offset);
}

namespace slime::ctrl::store_reads_test {
namespace {

using namespace std::chrono_literals;
using test::registration;

constexpr int kNeighbours = 40;

Registration large(const std::string& name) {
  Registration out = registration(name, 1);
  for (int i = 0; i < 4096; ++i) out.regions.push_back({str("region-of-some-length-", i), 1});
  return out;
}

TEST_CASE("a change beside large records reads little of the file") {
  const slime::test::Folder folder;
  const std::string path = folder.file("registry.db");
  const auto open = [&] {
    Result<std::unique_ptr<Engine>> out = open_engine("sqlite:" + path, {.ttl = 60s}, steady_clock());
    REQUIRE_MESSAGE(out, out.status().to_string());
    return std::move(*out);
  };
  {
    const std::unique_ptr<Engine> engine = open();
    // Names between which small records are sorted: "large-10", "large-10-small", ...
    for (int i = 0; i < kNeighbours; ++i)
      REQUIRE(
          engine->submit(RegisterCommand{large(str("large-", 100 + i)), 0, Proof::trusted()}).status.ok());
  }
  std::uint64_t texts = 0;
  {
    Result<sqlite::Connection> connection = sqlite::Connection::open(path);
    REQUIRE(connection);
    texts = static_cast<std::uint64_t>(*connection->integer("SELECT sum(length(value)) FROM records"));
  }
  REQUIRE(texts > std::uint64_t{10} << 20);  // more than SQLite's cache
  const std::unique_ptr<Engine> engine = open();
  REQUIRE(g_read > texts);  // opening reads the whole file, which shows that pread64 is counted
  const std::uint64_t before = g_read;
  for (int i = 0; i < kNeighbours; ++i) {
    const std::string name = str("large-", 100 + i, "-small");
    REQUIRE(engine->submit(RegisterCommand{registration(name, 1), 0, Proof::trusted()}).status.ok());
  }
  // A page or two of each kind per change: keys, rows, and free pages.
  CHECK(g_read - before < std::uint64_t{kNeighbours} * 16 * 4096);
}

}  // namespace
}  // namespace slime::ctrl::store_reads_test
