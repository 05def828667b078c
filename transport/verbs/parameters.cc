#include "transport/verbs/parameters.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::verbs {
namespace {

constexpr std::uint32_t kNumberMask = (1U << 24) - 1;

std::optional<Hint> decode_hint(Bytes bytes) {
  ByteReader reader(bytes);
  Hint out;
  out.active = reader.read<std::uint8_t>();
  out.link_layer = reader.read<std::uint8_t>();
  out.gid_type = reader.read<std::uint8_t>();
  out.reserved = reader.read<std::uint8_t>();
  const Bytes gid = reader.take(sizeof out.gid.raw);
  if (!reader.complete()) return std::nullopt;
  std::memcpy(out.gid.raw, gid.data(), sizeof out.gid.raw);
  return out;
}

// Returns the IP version of the GID in a hint of RoCE v2. Both ends must have the same version,
// because RoCE v2 sends IP packets, which routers carry between subnets. InfiniBand and RoCE v1
// need the same subnet instead: see same_subnet().
std::string_view family_of(const Hint& hint) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(hint.gid.raw, kMapped.data(), kMapped.size()) == 0) return "an IPv4 address";
  return hint.gid.raw[0] == 0xfe && (hint.gid.raw[1] & 0xc0) == 0x80 ? "a link-local address"
                                                                     : "an IPv6 address";
}

bool same_subnet(const Hint& a, const Hint& b) {
  constexpr std::size_t kPrefixBytes = 8;
  return std::memcmp(a.gid.raw, b.gid.raw, kPrefixBytes) == 0;
}

Status corrupt(std::string_view what) { return {Code::kCorrupt, str("the peer's verbs parameters: ", what)}; }

}  // namespace

ByteVector Parameters::encode() const {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(kVersion);
  writer.write(slot_bytes);
  writer.write(initial_credits);
  writer.append(std::as_bytes(std::span(gid.raw)));
  writer.write(lid);
  writer.write(link_layer);
  writer.write(mtu);
  writer.write(read_responses);
  writer.write(read_requests);
  writer.write(atomics);
  writer.write(queue_pair_count);
  for (std::size_t i = 0; i < queue_pair_count; ++i) {
    writer.write(queue_pairs[i].number);
    writer.write(queue_pairs[i].psn);
  }
  writer.write(credit_word);
  writer.write(credit_key);
  return out;
}

Result<Parameters> Parameters::decode(Bytes bytes) {
  ByteReader reader(bytes);
  Parameters out;
  const auto version = reader.read<std::uint32_t>();
  if (!reader.failed() && version != kVersion)
    return corrupt(str("version ", version, ", this side speaks ", kVersion));
  out.slot_bytes = reader.read<std::uint32_t>();
  out.initial_credits = reader.read<std::uint32_t>();
  const Bytes gid = reader.take(sizeof out.gid.raw);
  if (!gid.empty()) std::memcpy(out.gid.raw, gid.data(), gid.size());
  out.lid = reader.read<std::uint16_t>();
  out.link_layer = reader.read<std::uint8_t>();
  out.mtu = reader.read<std::uint8_t>();
  out.read_responses = reader.read<std::uint8_t>();
  out.read_requests = reader.read<std::uint8_t>();
  out.atomics = reader.read<std::uint8_t>();
  out.queue_pair_count = reader.read<std::uint8_t>();
  if (out.queue_pair_count < 2 || out.queue_pair_count > kMaxQueuePairs)
    return corrupt(str(int{out.queue_pair_count}, " queue pairs"));
  for (std::size_t i = 0; i < out.queue_pair_count; ++i) {
    QueuePairAddress& address = out.queue_pairs[i];
    address.number = reader.read<std::uint32_t>();
    address.psn = reader.read<std::uint32_t>();
    if (address.number > kNumberMask || address.psn > kNumberMask)
      return corrupt("a queue pair's number or PSN of more than 24 bits");
  }
  out.credit_word = reader.read<std::uint64_t>();
  out.credit_key = reader.read<std::uint32_t>();
  if (!reader.complete()) return corrupt("a wrong size");
  if (out.slot_bytes < limits::kMinSlotBytes || out.slot_bytes > limits::kMaxSlotBytes)
    return corrupt(str("slots of ", out.slot_bytes, " bytes"));
  if (out.initial_credits < 1 || out.initial_credits > limits::kMaxPoolSlots)
    return corrupt(str(out.initial_credits, " credits"));
  if (out.link_layer != IBV_LINK_LAYER_INFINIBAND && out.link_layer != IBV_LINK_LAYER_ETHERNET)
    return corrupt(str("link layer ", int{out.link_layer}));
  if (out.mtu < IBV_MTU_256 || out.mtu > IBV_MTU_4096) return corrupt(str("MTU ", int{out.mtu}));
  if (out.atomics > 1) return corrupt("an unknown way of doing atomics");
  if (out.credit_word % sizeof(std::uint64_t) != 0) return corrupt("a misaligned credit word");
  return out;
}

ByteVector Hint::encode() const {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(active);
  writer.write(link_layer);
  writer.write(gid_type);
  writer.write(reserved);
  writer.append(std::as_bytes(std::span(gid.raw)));
  return out;
}

Status check_hints(Bytes our_bytes, std::string_view self_name, Bytes their_bytes,
                   std::string_view peer_name) {
  const std::optional<Hint> ours = decode_hint(our_bytes);
  const std::optional<Hint> theirs = decode_hint(their_bytes);
  if (!ours || !theirs)
    return Status(Code::kUnimplemented,
                  str("'", peer_name, "' and '", self_name, "' have verbs of different versions"));
  for (const auto& [hint, name] : {std::pair(*theirs, peer_name), std::pair(*ours, self_name)}) {
    if (hint.active == 0)
      return Status(Code::kUnavailable, str("no active RDMA port: that of '", name, "' is down"));
  }
  const auto apart = [&](std::string_view what) {
    return Status(Code::kUnavailable, str("the RDMA ports of '", peer_name, "' and '", self_name,
                                          "' do not reach each other: ", what));
  };
  if (ours->link_layer != theirs->link_layer) return apart("one is Ethernet and one InfiniBand");
  if (ours->gid_type != theirs->gid_type) return apart("their GIDs are of different types");
  if (ours->gid_type != IBV_GID_TYPE_ROCE_V2)
    return same_subnet(*ours, *theirs) ? Status() : apart("they are in different subnets");
  if (family_of(*ours) != family_of(*theirs))
    return apart(str("one has ", family_of(*theirs), ", the other ", family_of(*ours)));
  return {};
}

}  // namespace slime::transport::verbs
