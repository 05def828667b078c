// cache_test_writer ADDRESS LENGTH: reserves ns/slow, writes half of it and says so. On a line from
// stdin it writes the other half and says so; on the next it seals, and says how that went.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "cache/method_bodies.h"
#include "tests/support/settings.h"

namespace slime::cache {
namespace {

int fail(const Status& status) {
  std::fprintf(stderr, "cache_test_writer: %s\n", status.to_string().c_str());
  return 1;
}

void say(std::string_view text) { std::cout << text << std::endl; }

int run(const std::string& address, std::uint64_t length) {
  auto agent = PeerAgent::start({.name = "writer:0", .provider = test::provider()});
  if (!agent) return fail(agent.error());
  Peer peer = (*agent)->peer(address);
  const auto region = peer.region(wire::kWriteRegion);
  if (!region) return fail(region.error());
  const auto reply = peer.call<wire::ReserveReply>(wire::kService, "reserve",
                                                   wire::ReserveRequest{"ns", false, 0, {{"slow", length}}})
                         .wait();
  if (!reply) return fail(reply.error());
  const wire::Reserved& reserved = reply->items.at(0);
  const auto extents = wire::unpack_extents(reserved.extents, length, region->length_bytes());
  if (!extents) return fail(reserved.outcome.status());
  auto memory = (*agent)->allocate(length, Rights::kLocal);
  if (!memory) return fail(memory.error());
  for (std::uint64_t i = 0; i < length; ++i) memory->data()[i] = std::byte{0xee};

  std::vector<Copy> halves[2];
  std::uint64_t at = 0;
  for (const Extent& extent : *extents) {
    const std::uint64_t half = extent.length / 2;
    halves[0].push_back({*memory, at, *region, extent.offset, half});
    halves[1].push_back({*memory, at + half, *region, extent.offset + half, extent.length - half});
    at += extent.length;
  }
  std::string line;
  if (const auto done = peer.write(halves[0]).wait(); !done) return fail(done.error());
  say("half written");
  if (!std::getline(std::cin, line)) return 0;
  if (const auto done = peer.write(halves[1]).wait(); !done) return fail(done.error());
  say("written");
  if (!std::getline(std::cin, line)) return 0;
  const auto sealed =
      peer.call<wire::Outcomes>(wire::kService, "seal", std::vector{wire::SealItem{reserved.version, 1}})
          .wait();
  if (!sealed) return fail(sealed.error());
  say(code_name(sealed->at(0).status().code()));
  return 0;
}

}  // namespace
}  // namespace slime::cache

int main(int argc, char** argv) { return argc == 3 ? slime::cache::run(argv[1], std::stoull(argv[2])) : 2; }
