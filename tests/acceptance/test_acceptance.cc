// Measures and prints the cost of large transfers between two processes. Sizes in MiB:
// SLIME_TEST_STREAM_MIB (256; a soak takes 10,240), SLIME_TEST_ATTACHMENT_MIB (64; 1,024).
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/str.h"
#include "tests/support/process.h"
#include "tests/support/sanitizers.h"
#include "tests/support/settings.h"

namespace slime {
namespace {

using namespace test;

constexpr std::int64_t kMib = 1 << 20;

std::string line_of(Process& process, Nanos bound) {
  const auto line = process.read_line(bound);
  INFO(line.status().to_string());
  REQUIRE(line.has_value());
  return *line;
}

// What the peer of that role measured against a server.
nlohmann::json measure(const std::string& role, std::int64_t mib) {
  const std::string program = program_beside_this("acceptance_peer");
  auto server = Process::spawn({program, "serve", provider()});
  REQUIRE(server.has_value());
  const std::string ready = line_of(*server, patient(std::chrono::seconds(30)));
  REQUIRE(ready.starts_with("READY "));
  auto client = Process::spawn({program, role, provider(), ready.substr(6), str(mib)});
  REQUIRE(client.has_value());
  const std::string line = line_of(*client, patient(std::chrono::minutes(20)));
  INFO(line);
  REQUIRE(line.starts_with("{"));
  MESSAGE(str(role, " over ", provider(), ": ", line));
  return nlohmann::json::parse(line);
}

TEST_CASE("a slow reader of a long stream holds its writer back: memory stays within the credits") {
  const auto figures = measure("stream", setting("SLIME_TEST_STREAM_MIB", 256));
  // 64 messages of 1 MiB, which lie with the writer or the reader.
  CHECK(figures.at("most_held_bytes").get<std::int64_t>() <= 64 * kMib);
  if (kSanitized) return;  // their allocators keep what is freed
  // Those, and the ones that are written or read; 2 MiB because blocks are rounded up; and over shm
  // the other side's blocks, whose pages count in both processes: at most 17 MiB. The peers have
  // malloc keep nothing that is freed. Six runs of 256 MiB on a busy machine took 70 to 83 MiB.
  CHECK(figures.at("client_peak_bytes").get<std::int64_t>() < 88 * kMib);
  CHECK(figures.at("server_peak_bytes").get<std::int64_t>() < 88 * kMib);
}

TEST_CASE("an attachment that comes back is copied by nobody") {
  const std::int64_t mib = setting("SLIME_TEST_ATTACHMENT_MIB", 64);
  const auto figures = measure("attachment", mib);
  CHECK(figures.at("copied_bytes").get<std::int64_t>() == 0);
  if (kSanitized) return;
  // The caller's two buffers, and the server's one.
  CHECK(figures.at("client_peak_bytes").get<std::int64_t>() < mib * kMib * 22 / 10);
  CHECK(figures.at("server_peak_bytes").get<std::int64_t>() < mib * kMib * 11 / 10);
}

}  // namespace
}  // namespace slime
