// A peer's data over shared memory. The first byte of the input chooses the test: 0 the parameters
// of the handshake, 1 the packets of the local socket, 2 the ring that the peer writes, 3 the
// peer's read position of our ring.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "transport/limits.h"
#include "transport/shm/packet.h"
#include "transport/shm/parameters.h"
#include "transport/shm/ring.h"

namespace {

using namespace slime::transport;
using slime::ByteReader;
using slime::Bytes;
using slime::ByteVector;
using slime::Code;

constexpr std::uint32_t kRing = 2 * limits::kRingRecordBytes;

void require(bool condition) {
  if (!condition) std::abort();
}

void parameters(Bytes input) {
  const auto decoded = shm::Parameters::decode(input);
  if (decoded)
    require(std::ranges::equal(decoded->encode(), input));
  else
    require(decoded.status().code() == Code::kCorrupt && !decoded.status().text().empty());
}

void packets(Bytes input) {
  shm::Packet packet;
  packet.bytes.assign(input.begin(), input.end());
  const auto attach = shm::decode_attach(packet);
  require(!attach && attach.status().code() == Code::kCorrupt);  // it has no descriptors
  const auto attached = shm::decode_attached(packet);
  if (attached)
    require(attached->code != 0 && attached->word == 0 && attached->fetches == 0);
  else
    require(attached.status().code() == Code::kCorrupt);
  const auto met = shm::decode_met(packet);
  require(met ? met->fetches <= 1 : met.status().code() == Code::kCorrupt);
  const auto request = shm::decode_window_request(packet);
  require(request || request.status().code() == Code::kCorrupt);
  const auto right = [](const shm::WindowReply& reply) {
    return reply.code == 0 && reply.slot < limits::kExports && reply.rights >= 1 && reply.rights <= 3 &&
           reply.ticket != 0 && reply.length_bytes > 0;
  };
  const auto bare = shm::decode_window_reply(packet);
  if (bare)
    require(bare->code != 0
                ? bare->ticket == 0 && bare->address == 0
                : right(*bare) && bare->address != 0 && bare->address + bare->length_bytes > bare->address);
  else
    require(bare.status().code() == Code::kCorrupt);
  packet.descriptors.emplace_back();
  require(!shm::decode_window_request(packet) && !shm::decode_met(packet));
  const auto mapped = shm::decode_window_reply(packet);
  if (mapped)
    require(right(*mapped) && mapped->address == 0);
  else
    require(mapped.status().code() == Code::kCorrupt);
}

// A ring that ends at the end of its memory.
struct Ring {
  Ring() {
    const std::size_t page = 4096;
    base =
        static_cast<std::byte*>(::mmap(nullptr, kRing + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    require(base != MAP_FAILED && ::mprotect(base, kRing, PROT_READ | PROT_WRITE) == 0);
  }
  ~Ring() { ::munmap(base, kRing + 4096); }
  shm::RingMemory memory() { return {&control, base, kRing}; }
  shm::RingControl control;
  std::byte* base;
};

// The peer writes anything anywhere in the ring while we read.
void written(Bytes input) {
  Ring ring;
  shm::RingReader reader(ring.memory());
  ByteReader bytes(input);
  ByteVector out(40'000);
  while (!bytes.failed() && bytes.remaining() > 0) {
    const auto line = bytes.read<std::uint16_t>() % (kRing / shm::kRingLine);
    const auto word = bytes.read<std::uint64_t>();
    std::memcpy(ring.base + line * shm::kRingLine, &word, sizeof word);
    const std::size_t wanted = 1 + bytes.read<std::uint16_t>() % out.size();
    const iovec part{out.data(), wanted};
    const auto got = reader.read(std::span(&part, 1));
    if (!got) {
      require(got.status().code() == Code::kCorrupt);
      return;
    }
    require(*got <= wanted);
  }
}

// The peer reports any read position while we write.
void read(Bytes input) {
  Ring ring;
  shm::RingWriter writer(ring.memory());
  ByteReader bytes(input);
  ByteVector out(40'000, std::byte{0x5a});
  while (!bytes.failed() && bytes.remaining() > 0) {
    ring.control.head.store(bytes.read<std::uint64_t>());
    ring.control.parked.store(bytes.read<std::uint8_t>());
    const iovec part{out.data(), 1 + bytes.read<std::uint16_t>() % out.size()};
    const auto taken = writer.write(std::span(&part, 1));
    if (!taken) {
      require(taken.status().code() == Code::kCorrupt);
      return;
    }
    require(*taken <= part.iov_len);
    (void)writer.reader_parked();
    const auto waits = writer.await_room();
    if (!waits) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes input = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 4) {
    case 0:
      parameters(input);
      break;
    case 1:
      packets(input);
      break;
    case 2:
      written(input);
      break;
    default:
      read(input);
      break;
  }
  return 0;
}
