#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rpc/codec/frame.h"
#include "tests/rpc/channel_fixture.h"

namespace slime::rpc::testing {

using wire::FrameHeader;
using wire::FrameType;

// A channel on side 1, and on side 0 a peer that sends whatever it likes.
struct Forger {
  explicit Forger(Fixture& f, ChannelOptions options = {.peer_name = "forger"},
                  transport::PortOptions port = {})
      : fixture(f) {
    f.open(port);
    auto connected = f.connect();
    REQUIRE(connected.has_value());
    endpoint = std::move(connected->a);
    endpoint->set_receiver(received);
    Service service("s");
    REQUIRE(service.add("one", [] { return 1; }, {Run::kInline}).ok());
    REQUIRE(
        service.add_raw("raw",
                        [](Request r) {
                          r.reply({r.body().begin(), r.body().end()});
                        },
                        {Run::kInline})
            .ok());
    REQUIRE(server.add(service).ok());
    channel =
        Channel::create(f.loop(1), f.device(1), std::move(connected->b), &server, owner, std::move(options));
  }
  ~Forger() {
    endpoint.reset();
    channel.reset();
    fixture.settle();
  }
  void send_bytes(Bytes bytes) {
    operations.push_back(std::make_unique<transport::testing::TestOperation>());
    const Bytes part = bytes;
    REQUIRE(fixture.until([&] {
      return endpoint->closed() || !endpoint->error().ok() ||
             endpoint->send(std::span(&part, 1), *operations.back()).ok();
    }));
  }
  void send(FrameHeader header, Bytes text = {}, Bytes body = {}) {
    header.text_bytes = static_cast<std::uint32_t>(text.size());
    header.body_bytes = static_cast<std::uint32_t>(body.size());
    ByteVector bytes;
    ByteWriter out(bytes);
    out.append(std::as_bytes(std::span(&header, 1)));
    out.append(text);
    out.append(body);
    send_bytes(bytes);
  }
  void hello(wire::Hello greeting = {.max_requests = 100, .max_payload_bytes = 1 << 20}) {
    FrameHeader header;
    header.type = FrameType::kHello;
    send(header, {}, std::as_bytes(std::span(&greeting, 1)));
  }
  static FrameHeader header(FrameType type, std::uint64_t id) {
    FrameHeader out;
    out.type = type;
    out.id = id;
    return out;
  }
  // The n-th message that came from the channel.
  wire::Frame frame(std::size_t n) {
    REQUIRE(fixture.until([&] { return received.messages.size() > n; }));
    auto frame = wire::decode_frame(received.messages[n]);
    REQUIRE(frame.has_value());
    return *frame;
  }
  FrameHeader wait(std::size_t n) { return frame(n).header; }
  void expect_reset(Code code) {
    REQUIRE(fixture.until([&] { return owner.closed == 1; }));
    CHECK(owner.reason.code() == Code::kUnavailable);
    CHECK_MESSAGE(owner.reason.text().find(code_name(code)) != std::string::npos, owner.reason.text());
  }

  Fixture& fixture;
  Server server;
  Owner owner;
  transport::testing::Recorder received;
  std::vector<std::unique_ptr<transport::testing::TestOperation>> operations;
  std::unique_ptr<transport::Endpoint> endpoint;
  std::unique_ptr<Channel> channel;
};

inline constexpr std::uint64_t kId = std::uint64_t{5} << 32 | 1;

}  // namespace slime::rpc::testing
