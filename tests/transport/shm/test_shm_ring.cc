// A ring between a writer and a reader, in ordinary memory.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/support/settings.h"
#include "transport/shm/ring.h"
#include "transport/shm/shared_memory.h"

namespace slime::transport::shm {
namespace {

constexpr std::uint32_t kBytes = 64 * 1024;

struct Memory {
  Memory() : data(static_cast<std::byte*>(std::aligned_alloc(kRingLine, kBytes))) {
    std::memset(data.get(), 0, kBytes);
  }
  RingMemory ring() { return {&control, data.get(), kBytes}; }
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  RingControl control;
  std::unique_ptr<std::byte, Free> data;
};

iovec part_of(ByteVector& bytes, std::size_t begin, std::size_t count) {
  return {bytes.data() + begin, count};
}

std::size_t write_some(RingWriter& writer, ByteVector& bytes, std::size_t begin, std::size_t count) {
  const iovec part = part_of(bytes, begin, count);
  const auto taken = writer.write(std::span(&part, 1));
  REQUIRE(taken.has_value());
  return *taken;
}

std::size_t read_some(RingReader& reader, ByteVector& bytes, std::size_t begin, std::size_t count) {
  const iovec part = part_of(bytes, begin, count);
  const auto got = reader.read(std::span(&part, 1));
  REQUIRE(got.has_value());
  return *got;
}

std::uint64_t seed() {
  const std::int64_t value = test::setting("SLIME_TEST_SEED", 1);
  MESSAGE("SLIME_TEST_SEED=", value);
  return static_cast<std::uint64_t>(value);
}

ByteVector random_stream(Rng& rng, std::size_t bytes) {
  ByteVector out(bytes);
  rng.fill(out);
  return out;
}

TEST_CASE("a stream of random pieces comes out as it went in, over many rounds of the ring") {
  Rng rng(seed());
  Memory memory;
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  ByteVector in = random_stream(rng, 4 << 20);
  ByteVector out(in.size());
  std::size_t written = 0;
  std::size_t got = 0;
  while (got < in.size()) {
    const std::size_t wanted = std::min<std::size_t>(in.size() - written, 1 + rng.below(40'000));
    if (written < in.size()) written += write_some(writer, in, written, wanted);
    CHECK(reader.readable() == (got < written));
    got += read_some(reader, out, got, std::min<std::size_t>(out.size() - got, 1 + rng.below(40'000)));
    REQUIRE(got <= written);
  }
  CHECK(in == out);
  CHECK_FALSE(reader.readable());
}

TEST_CASE("gathered and scattered parts of any size, empty ones too, keep the order of their bytes") {
  Rng rng(seed());
  Memory memory;
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  for (int round = 0; round < 500; ++round) {
    ByteVector in = random_stream(rng, 1 + rng.below(20'000));
    ByteVector out(in.size());
    const auto cut = [&](ByteVector& bytes) {
      std::vector<iovec> parts;
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t count = std::min<std::size_t>(bytes.size() - at, rng.below(3'000));
        parts.push_back(part_of(bytes, at, count));
        at += count;
      }
      return parts;
    };
    const std::vector<iovec> from = cut(in);
    const std::vector<iovec> to = cut(out);
    REQUIRE(*writer.write(from) == in.size());
    REQUIRE(*reader.read(to) == out.size());
    REQUIRE(in == out);
  }
}

TEST_CASE("a full ring takes nothing, says when it has room, and loses nothing") {
  Rng rng(seed());
  Memory memory;
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  ByteVector in = random_stream(rng, 2 * kBytes);
  ByteVector out(in.size());
  std::size_t written = 0;
  while (const std::size_t taken = write_some(writer, in, written, in.size() - written)) written += taken;
  CHECK(written < kBytes);
  CHECK(written > kBytes / 2);
  CHECK_FALSE(*writer.has_room());
  CHECK(*writer.await_room());
  CHECK(reader.writer_waits());
  CHECK_FALSE(reader.writer_waits());  // told once
  CHECK(read_some(reader, out, 0, written) == written);
  CHECK(*writer.has_room());
  CHECK_FALSE(*writer.await_room());
  CHECK_FALSE(reader.writer_waits());
  written += write_some(writer, in, written, 100);
  CHECK(read_some(reader, out, written - 100, 100) == 100);
  CHECK(std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(written), out.begin()));
}

TEST_CASE("a reader that parks is seen by the writer; with something to read it cannot park") {
  Memory memory;
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  ByteVector bytes(100);
  CHECK_FALSE(writer.reader_parked());
  CHECK(reader.park());
  CHECK(writer.reader_parked());
  reader.unpark();
  CHECK_FALSE(writer.reader_parked());
  write_some(writer, bytes, 0, 100);
  CHECK_FALSE(reader.park());
  CHECK_FALSE(writer.reader_parked());
  CHECK(read_some(reader, bytes, 0, 50) == 50);
  CHECK_FALSE(reader.park());  // half of the record is left
  CHECK(read_some(reader, bytes, 50, 50) == 50);
  CHECK(reader.park());
}

TEST_CASE("two threads: whoever parks or waits for room is told, and the stream is whole") {
  Rng rng(seed());
  Memory memory;
  ByteVector in = random_stream(rng, static_cast<std::size_t>(test::scaled(8)) << 20);
  ByteVector out(in.size());
  std::atomic<int> bell_of_reader{0};
  std::atomic<int> bell_of_writer{0};
  const auto wait = [](std::atomic<int>& bell) {
    bell.wait(0);
    bell.store(0);
  };
  const auto ring = [](std::atomic<int>& bell) {
    bell.store(1);
    bell.notify_one();
  };
  std::thread other([&, sizes = Rng(rng.next())]() mutable {
    RingWriter writer(memory.ring());
    std::size_t written = 0;
    while (written < in.size()) {
      const std::size_t wanted = std::min<std::size_t>(in.size() - written, 1 + sizes.below(30'000));
      const iovec part = part_of(in, written, wanted);
      const std::size_t taken = *writer.write(std::span(&part, 1));
      written += taken;
      if (taken > 0 && writer.reader_parked()) ring(bell_of_reader);
      if (taken == 0 && *writer.await_room()) wait(bell_of_writer);
    }
  });
  RingReader reader(memory.ring());
  std::size_t got = 0;
  while (got < out.size()) {
    const std::size_t now =
        read_some(reader, out, got, std::min<std::size_t>(out.size() - got, 1 + rng.below(30'000)));
    got += now;
    if (now > 0) {
      if (reader.writer_waits()) ring(bell_of_writer);
    } else if (reader.park()) {
      if (reader.writer_waits()) ring(bell_of_writer);
      wait(bell_of_reader);
      reader.unpark();
    }
  }
  other.join();
  CHECK(in == out);
}

TEST_CASE("an empty ring gives its pages back, and the stream goes on; one with a byte in it keeps them") {
  UniqueFd fd;
  auto shared = SharedMemory::create(kBytes, fd);
  REQUIRE_MESSAGE(shared.has_value(), shared.status().to_string());
  const auto pages = [&] {
    struct stat state {};
    REQUIRE(::fstat(fd.get(), &state) == 0);
    return state.st_blocks;
  };
  RingControl control;
  const RingMemory memory{&control, shared->data(), kBytes};
  RingWriter writer(memory);
  RingReader reader(memory);
  Rng rng(seed());
  for (int round = 0; round < 20; ++round) {
    ByteVector in = random_stream(rng, 1 + rng.below(30'000));
    ByteVector out(in.size());
    REQUIRE(write_some(writer, in, 0, in.size()) == in.size());
    CHECK(pages() > 0);
    CHECK_FALSE(writer.trim());
    REQUIRE(read_some(reader, out, 0, out.size()) == out.size());
    REQUIRE(in == out);
    CHECK(writer.trim());
    CHECK(pages() == 0);
    CHECK_FALSE(reader.readable());
  }
}

// -------------------------------------------------------------------- a peer that does as it likes

TEST_CASE("a record that cannot be is corrupt, and nothing is read past it") {
  for (const std::uint64_t length : {std::uint64_t{limits::kRingRecordBytes} - kRingWord + 1,
                                     std::uint64_t{kBytes}, ~std::uint64_t{0}, std::uint64_t{1} << 32 | 8}) {
    CAPTURE(length);
    Memory memory;
    RingReader reader(memory.ring());
    std::memcpy(memory.data.get(), &length, sizeof length);
    ByteVector out(kBytes);
    const iovec part = part_of(out, 0, out.size());
    const auto got = reader.read(std::span(&part, 1));
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().code() == Code::kCorrupt);
  }
}

TEST_CASE("a record across the end of the ring is corrupt") {
  Memory memory;
  RingWriter writer(memory.ring());
  RingReader reader(memory.ring());
  ByteVector bytes(kRingLine - kRingWord);
  for (std::uint32_t line = 0; line + 1 < kBytes / kRingLine; ++line) {
    REQUIRE(write_some(writer, bytes, 0, bytes.size()) == bytes.size());
    REQUIRE(read_some(reader, bytes, 0, bytes.size()) == bytes.size());
  }
  const std::uint64_t length = kRingLine;  // one line is left, this needs two
  std::memcpy(memory.data.get() + kBytes - kRingLine, &length, sizeof length);
  ByteVector out(2 * kRingLine);
  const iovec part = part_of(out, 0, out.size());
  CHECK(reader.read(std::span(&part, 1)).status().code() == Code::kCorrupt);
}

TEST_CASE("a reader that says it has taken what was never there breaks the writer's ring") {
  for (const std::uint64_t head : {std::uint64_t{64}, std::uint64_t{1}, ~std::uint64_t{0} - 63}) {
    CAPTURE(head);
    Memory memory;
    RingWriter writer(memory.ring());
    memory.control.head.store(head);
    CHECK(writer.await_room().status().code() == Code::kCorrupt);
  }
}

}  // namespace
}  // namespace slime::transport::shm
