#include "transport/verbs/parameters.h"

#include <cstring>
#include <optional>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::verbs {
namespace {

constexpr std::uint32_t kNumberMask = (1U << 24) - 1;

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

}  // namespace slime::transport::verbs
