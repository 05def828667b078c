#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/reflection.h"
#include "rpc/stream.h"
#include "tests/rpc/channel_fixture.h"

namespace slime::rpc::testing {

using Ints = Stream<int, int, int>;
using Blobs = Stream<ByteVector, ByteVector, int>;

// Serves "streams" on both sides, inline; its methods keep their streams, which the test drives by
// hand.
class StreamLink : public Link {
 public:
  explicit StreamLink(Fixture& f, LinkOptions link_options = {}) : Link(f, std::move(link_options)) {
    for (int side = 0; side < 2; ++side) {
      Service service("streams");
      const auto keep = [](auto& kept) {
        return
            [&kept](auto stream) { kept.push_back(std::make_unique<decltype(stream)>(std::move(stream))); };
      };
      const auto added = [](const Status& status) { REQUIRE_MESSAGE(status.ok(), status.to_string()); };
      const auto ints = keep(this->ints);
      const auto blobs = keep(this->blobs);
      added(service.add("ints", [ints](ServerStream<int, int, int> stream) { ints(std::move(stream)); },
                        {.run = Run::kInline}));
      added(service.add(
          "blobs", [blobs](ServerStream<ByteVector, ByteVector, int> stream) { blobs(std::move(stream)); },
          {.run = Run::kInline}));
      added(servers[side]->add(service));
    }
  }
  ~StreamLink() {
    ints.clear();
    blobs.clear();
  }

  // A stream from `side` to the other one.
  template <class S, class... A>
  S open(std::string_view method, int side = 0, Nanos within = std::chrono::seconds(40),
         const A&... arguments) {
    return open_on<S>("streams", method, side, within, arguments...);
  }
  template <class S, class... A>
  S open_on(std::string_view service, std::string_view method, int side, Nanos within,
            const A&... arguments) {
    auto end = std::make_shared<StreamEnd>(nullptr, true);
    Promise<Payload> promise;
    auto result = promise.future();
    const auto ticket = std::make_shared<Ticket>();
    promise.on_cancel([this, side, ticket] {
      if (channels[side] != nullptr) channels[side]->cancel(*ticket);
    });
    *ticket = channels[side]->stream({service, method, within == Nanos::max() ? kNever : in(within)},
                                     {encode_arguments(arguments...)}, end,
                                     [promise = std::move(promise)](Result<Payload> reply) mutable {
                                       promise.complete(std::move(reply));
                                     });
    return {std::move(end), std::move(result)};
  }
  // The outcome of what makes progress by stepping.
  template <class T>
  Result<T> wait(Future<T> future) {
    REQUIRE(until([&] { return future.done(); }));
    return future.wait();
  }
  template <class T>
  T get(Future<T> future) {
    auto result = wait(std::move(future));
    REQUIRE_MESSAGE(result.has_value(), result.status().to_string());
    return std::move(*result);
  }
  // The handler's side of the next stream of ints.
  ServerStream<int, int, int>& taken(std::size_t n = 0) {
    REQUIRE(until([&] { return ints.size() > n; }));
    return *ints[n];
  }
  ServerStream<ByteVector, ByteVector, int>& taken_blobs(std::size_t n = 0) {
    REQUIRE(until([&] { return blobs.size() > n; }));
    return *blobs[n];
  }
  // Nothing is left of any stream, and the connection works.
  void check_clean() {
    ints.clear();
    blobs.clear();
    held.clear();
    REQUIRE(until([&] { return a().idle() && b().idle(); }));
    for (auto& channel : channels) {
      CHECK(channel->counters().streams == 0);
      CHECK(channel->counters().lent_buffers == 0);
    }
    CHECK(value_of<int>(call("add", 1, 2)) == 3);
  }

  std::vector<std::unique_ptr<ServerStream<int, int, int>>> ints;
  std::vector<std::unique_ptr<ServerStream<ByteVector, ByteVector, int>>> blobs;
};

}  // namespace slime::rpc::testing
