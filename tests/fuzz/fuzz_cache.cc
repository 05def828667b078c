// Sends any sequence of requests with any bodies to a cache service: it answers each request, and
// no slab is lost or allocated twice.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "tests/cache/service_driver.h"

namespace slime::cache {
namespace {

constexpr std::uint64_t kArena = 256 * 1024;

void check_stats(const StoreStats& stats) {
  std::uint64_t covered = 0;
  std::uint64_t quarantined = 0;
  for (const ClassStats& size : stats.classes) {
    covered += size.slab_bytes * (size.used + size.free + size.quarantined);
    quarantined += size.slab_bytes * size.quarantined;
  }
  SLIME_CHECK(covered == stats.arena_bytes && quarantined == stats.quarantined_bytes);
  SLIME_CHECK(stats.reserved_bytes + stats.quarantined_bytes + stats.free_bytes <= stats.arena_bytes);
}

// Makes bodies that convert, with parts of the input in them: random msgpack rarely passes the
// decoder.
ByteVector make_body(std::string_view method, ByteReader& in) {
  const std::string space(1, static_cast<char>(in.read<std::uint8_t>() % 2));
  const std::string key = in.text(8);
  const auto number = in.read<std::uint64_t>();
  // Ids count up from 1, so small numbers often name existing objects.
  const std::uint64_t id = number % 64;
  if (method == "reserve") {
    const wire::ReserveItem item{key, number % 3 == 0 ? number : number % (2 * kArena)};
    return rpc::encode_arguments(
        wire::ReserveRequest{space, (number & 4) != 0, number % 5 == 0 ? number : 0, {item, item}});
  }
  if (method == "seal") return rpc::encode_arguments(std::vector{wire::SealItem{id, number}});
  if (method == "abort" || method == "release") return rpc::encode_arguments(wire::Ids{id, id});
  if (method == "stats") return rpc::encode_arguments();
  return rpc::encode_arguments(space, wire::Keys{key, key});
}

}  // namespace
}  // namespace slime::cache

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slime;
  using namespace slime::cache;
  ByteReader in(Bytes(reinterpret_cast<const std::byte*>(data), size));
  ManualClock clock;
  const ByteVector arena(kArena);
  ServiceDriver driver({.arena_bytes = kArena, .slab_bytes = 64 * 1024, .leases_per_client = 8},
                       in.read<std::uint8_t>() % 2 == 0, arena, clock);
  while (in.remaining() > 0 && !in.failed()) {
    const auto choice = in.read<std::uint8_t>();
    const std::uint64_t connection = choice % 3;
    clock.advance(std::chrono::seconds(in.read<std::uint8_t>() % 16));
    if (choice % 32 == 31) driver.cache->client_gone(connection);
    const auto method = std::next(driver.methods().begin(),
                                  static_cast<std::ptrdiff_t>(choice / 3 % driver.methods().size()));
    ByteVector body;
    if (choice % 8 == 0) {
      const Bytes raw = in.take(in.read<std::uint8_t>());
      body.assign(raw.begin(), raw.end());
    } else {
      body = make_body(method->first, in);
    }
    driver.call_raw(method->first, std::move(body), connection).status().ignore();
    check_stats(driver.cache->stats());
  }
  for (std::uint64_t connection = 0; connection < 3; ++connection) driver.cache->client_gone(connection);
  const StoreStats stats = driver.cache->stats();
  SLIME_CHECK(stats.quarantined_bytes == 0 && stats.reservations == 0 && stats.leases == 0);

  // The other direction: the client decodes the input as a server's reply.
  const Bytes all(reinterpret_cast<const std::byte*>(data), size);
  const auto found = rpc::decode_value<wire::LookupReply>(all);
  if (found) {
    for (const wire::Found& item : found->items)
      wire::unpack_extents(item.extents, item.length, kArena).has_value();
  }
  wire::unpack_extents(all, size, kArena).has_value();
  const auto counted = rpc::decode_value<wire::Stats>(all);
  if (counted) to_json(counted->stats());
  return 0;
}
