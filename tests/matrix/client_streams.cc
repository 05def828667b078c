// Streams, and attachments beside a body.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rpc/limits.h"
#include "tests/matrix/client.h"
#include "tests/support/bytes.h"
#include "tests/support/eventually.h"

namespace slime::matrix {
namespace {

using Number = std::int64_t;
using test::same;

void stream_server(Run& run) {
  auto range = run.peer.stream<None, Number>("Streams", "range", Number{1000});
  for (Number i = 0; i < 1000; ++i) expect(take(range.read().wait(kSoon)) == i, "each message, in order");
  expect(!take(range.read().wait(kSoon)), "the end");
  take(range.finish().wait(kSoon), "the result");
}

void stream_client(Run& run) {
  auto sum = run.peer.stream<Number, None, Number>("Streams", "sum");
  for (Number i = 0; i < 1000; ++i) take(sum.write(i).wait(kSoon), "write");
  expect_equal(take(sum.finish().wait(kSoon), "the result"), 999 * 500, "the sum");
}

void stream_both(Run& run) {
  auto echo = run.peer.stream<ByteVector, ByteVector, Number>("Streams", "echo");
  for (std::size_t i = 0; i < 40; ++i) {
    const ByteVector message(i % 4 == 3 ? 300'000 + i : i * 10, static_cast<std::byte>(i));
    take(echo.write(message).wait(kSoon), "write");
    expect(take(echo.read().wait(kSoon)) == message, str("message ", i, " comes back"));
  }
  expect_equal(take(echo.finish().wait(kSoon)), 40, "what the handler counted");
}

void stream_half_close(Run& run) {
  auto total = run.peer.stream<Number, Number>("Streams", "total");
  for (Number i = 1; i <= 3; ++i) take(total.write(i).wait(kSoon), "write");
  total.close_writing();
  expect(take(total.read().wait(kSoon)) == 6, "the answer behind the end of the other direction");
  expect(!take(total.read().wait(kSoon)), "the end");
  take(total.finish().wait(kSoon), "the result");
}

void stream_error(Run& run) {
  auto range = run.peer.stream<None, Number>("Streams", "range_and_fail", Number{5});
  for (Number i = 0; i < 5; ++i) expect(take(range.read().wait(kSoon)) == i, "what came before");
  expect_code(range.read().wait(kSoon), Code::kAborted, "the error behind it");
  expect_code(range.finish().wait(kSoon), Code::kAborted, "the result");
}

void stream_unknown(Run& run) {
  auto none = run.peer.stream<None, Number>("Streams", "nowhere");
  const auto end = none.finish().wait(kSoon);
  expect(!error_of(end, Code::kNotFound, "an unknown method").maybe_executed(), "not executed");
}

void stream_credits(Run& run) {
  auto endless = run.peer.stream<None, Number>("Streams", "endless", run.key);
  constexpr Number kWindow = rpc::limits::kStreamWindow;
  const std::string written = str("written:", run.key);
  run.await_count(written, kWindow);
  for (int i = 0; i < 50; ++i) run.ask<Number>("add", 1, 2);
  expect_equal(run.ask<Number>("count", written), kWindow, "written while nobody reads");
  for (Number i = 0; i < kWindow; ++i) expect(take(endless.read().wait(kSoon)) == i, "a message");
  run.await_count(written, kWindow + kWindow / 2);
  endless.cancel();
  run.await_count(str("ended:", run.key), 1);
}

void stream_cancel(Run& run) {
  auto endless = run.peer.stream<None, Number>("Streams", "endless", run.key);
  expect(take(endless.read().wait(kSoon)) == 0, "a message");
  endless.cancel();
  expect_code(endless.finish().wait(kSoon), Code::kCancelled, "the result");
  run.await_count(str("ended:", run.key), 1);
  {
    const auto dropped = run.peer.stream<None, Number>("Streams", "endless", run.key + "-dropped");
    run.await_count(str("written:", run.key, "-dropped"), 1);
  }
  run.await_count(str("ended:", run.key, "-dropped"), 1);
}

constexpr std::array kStreamFeatures{
    Feature{"stream_server", stream_server},   Feature{"stream_client", stream_client},
    Feature{"stream_both", stream_both},       Feature{"stream_half_close", stream_half_close},
    Feature{"stream_error", stream_error},     Feature{"stream_unknown", stream_unknown},
    Feature{"stream_credits", stream_credits}, Feature{"stream_cancel", stream_cancel},
};

// ---- attachments

ByteVector pattern(std::size_t size) {
  ByteVector out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * 13 + i / 253) & 0xff);
  return out;
}

void attach_small(Run& run) {
  for (const std::size_t size : {0, 1, 500, 3000}) {
    const ByteVector bytes = pattern(size);
    const auto back = run.peer.call<Attachment>("Attached", "same", Attachment(bytes)).wait(kSoon);
    expect(same(take(back).bytes(), bytes), str(size, " bytes come back"));
  }
  expect_equal(counter(run.peer, "pulled_bytes"), 0, "bytes that were read apart");
}

void attach_large(Run& run) {
  const ByteVector bytes = pattern((4 << 20) + 1);
  const auto back = run.peer.call<Attachment>("Attached", "same", Attachment(bytes)).wait(kSoon);
  expect(same(take(back).bytes(), bytes), "the bytes come back");
  expect_equal(counter(run.peer, "copied_bytes"), 0, "bytes that were copied");
}

void attach_into(Run& run) {
  const ByteVector bytes = pattern(1 << 20);
  auto to = take(run.agent->allocate(2 << 20, Rights::kLocal), "memory");
  CallOptions options;
  options.into.push_back(take(into(to, 4096)));
  const auto called =
      run.peer.call<Attachment>(std::move(options), "Attached", "same", Attachment(bytes)).wait(kSoon);
  expect(take(called).bytes().data() == to.data() + 4096, "it lies where the caller said");
  expect(same(to.bytes().subspan(4096, bytes.size()), bytes), "the bytes");
  auto small = take(run.agent->allocate(1000, Rights::kLocal), "memory");
  CallOptions tight;
  tight.into.push_back(take(into(small)));
  const auto refused =
      run.peer.call<Attachment>(std::move(tight), "Attached", "same", Attachment(bytes)).wait(kSoon);
  expect_code(refused, Code::kInvalidArgument, "what does not fit");
}

void attach_release(Run& run) {
  const auto keeper = std::make_shared<const ByteVector>(pattern(1 << 20));
  const auto size = run.peer.call<Number>("Attached", "size", Attachment(Bytes(*keeper), keeper)).wait(kSoon);
  expect_equal(take(size), 1 << 20, "its size");
  expect(test::eventually([&] { return keeper.use_count() == 1; }), "the memory is the caller's again");
  expect(test::eventually([&] { return counter(run.peer, "lent_buffers") == 0; }), "nothing is lent");
}

constexpr std::array kAttachmentFeatures{
    Feature{"attach_small", attach_small},
    Feature{"attach_large", attach_large},
    Feature{"attach_into", attach_into},
    Feature{"attach_release", attach_release},
};

}  // namespace

std::span<const Feature> stream_features() { return kStreamFeatures; }
std::span<const Feature> attachment_features() { return kAttachmentFeatures; }

}  // namespace slime::matrix
