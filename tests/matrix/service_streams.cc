// "Streams" and "Attached" of the C++ server.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/str.h"
#include "tests/matrix/server.h"

namespace slime::matrix {

using rpc::ServerStream;

Status add_streams(World& world, rpc::Service& service) {
  Board& board = world.board();
  SLIME_TRY(service.add("range", [](ServerStream<None, std::int64_t>& out, std::int64_t n) -> Status {
    for (std::int64_t i = 0; i < n; ++i)
      if (auto written = out.write(i).wait(); !written) return std::move(written).error();
    return {};
  }));
  // Fails after n messages.
  SLIME_TRY(
      service.add("range_and_fail", [](ServerStream<None, std::int64_t>& out, std::int64_t n) -> Status {
        for (std::int64_t i = 0; i < n; ++i)
          if (auto written = out.write(i).wait(); !written) return std::move(written).error();
        return {Code::kAborted, "behind the last one"};
      }));
  SLIME_TRY(service.add("sum", [](ServerStream<std::int64_t, None>& in) -> Result<std::int64_t> {
    std::int64_t sum = 0;
    for (;;) {
      auto next = in.read().wait();
      if (!next) return std::move(next).error();
      if (!*next) return sum;
      sum += **next;
    }
  }));
  // Returns each message; the result is the number of messages.
  SLIME_TRY(service.add("echo", [](ServerStream<ByteVector, ByteVector>& both) -> Result<std::int64_t> {
    for (std::int64_t count = 0;; ++count) {
      auto next = both.read().wait();
      if (!next) return std::move(next).error();
      if (!*next) return count;
      if (auto written = both.write(**next).wait(); !written) return std::move(written).error();
    }
  }));
  // Sends one message when the caller has closed its direction.
  SLIME_TRY(service.add("total", [](ServerStream<std::int64_t, std::int64_t>& both) -> Status {
    std::int64_t sum = 0;
    for (;;) {
      auto next = both.read().wait();
      if (!next) return std::move(next).error();
      if (!*next) break;
      sum += **next;
    }
    return both.write(sum).wait().status();
  }));
  // Writes until the stream ends: counts "written:KEY", and at the end "ended:KEY".
  return service.add("endless",
                     [&board](ServerStream<None, std::int64_t>& out, const std::string& key) -> Status {
                       for (std::int64_t i = 0;; ++i) {
                         auto written = out.write(i).wait();
                         if (!written) {
                           board.bump(str("ended:", key));
                           return std::move(written).error();
                         }
                         board.bump(str("written:", key));
                       }
                     });
}

Status add_attachments(rpc::Service& service) {
  SLIME_TRY(service.add("same", [](Attachment attachment) { return attachment; }));
  return service.add(
      "size", [](const Attachment& attachment) { return static_cast<std::int64_t>(attachment.size()); });
}

}  // namespace slime::matrix
