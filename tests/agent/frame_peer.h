#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/codec/frame.h"
#include "tests/agent/members.h"
#include "transport/connect.h"
#include "transport/provider.h"

namespace slime::test {

// A member of the scope that connects to an agent as every agent does, and then sends whatever it
// likes.
class FramePeer final : private transport::Receiver {
 public:
  using FrameType = rpc::wire::FrameType;

  FramePeer(Members& members, const PeerAgent& agent, std::string peer_name = "raw",
            std::uint64_t features = rpc::wire::kOptionalFeatures)
      : name(std::move(peer_name)),
        device_(take(take(transport::make_provider(endpoint_provider()))->open_device())),
        loop_(take(transport::Loop::create())),
        port_(take(device_->open_port(*loop_))) {
    keys = fresh_keys(members);
    loop_->start_thread();
    transport::HandshakeOptions options;
    options.self = {name, InstanceId::random()};
    options.provider = endpoint_provider();
    options.keys = [this] {
      return transport::HandshakeKeys{{keys[keys.size() > 1 ? keys.size() - 2 : 0].secret}, {}};
    };
    loop_->run([&] {
      connecting_ = transport::connect(*loop_, *port_, agent.address(), {}, std::move(options),
                                       [this](Result<transport::Connected> made) { begin(std::move(made)); });
    });
    REQUIRE(eventually([&] { return ended_ || count(FrameType::kHello) == 1; }));
    REQUIRE(!ended_);
    rpc::wire::Hello hello;
    hello.max_requests = 100;
    hello.optional_features = features;
    hello.max_payload_bytes = 1 << 20;
    send(FrameType::kHello, std::as_bytes(std::span(&hello, 1)));
  }
  ~FramePeer() {
    loop_->run([this] {
      connecting_.reset();
      connected_.reset();
      port_.reset();
    });
  }

  void send(FrameType type, Bytes body) {
    rpc::wire::FrameHeader header;
    header.type = type;
    header.body_bytes = static_cast<std::uint32_t>(body.size());
    const std::array<Bytes, 2> parts = {std::as_bytes(std::span(&header, 1)), body};
    const auto post = [&] {
      sent_.push_back(std::make_unique<Sent>());
      Status posted = connected_->endpoint->send(parts, *sent_.back());
      if (!posted.ok()) sent_.pop_back();
      return posted.code();
    };
    // Waits for credits. The agent may have ended the connection.
    REQUIRE(eventually([&] { return loop_->run(post) != Code::kResourceExhausted; }));
  }
  // The scope's keys, as a member gets them now.
  static ctrl::ScopeKeys fresh_keys(Members& members) {
    ctrl::Registration self;
    self.name = "member-" + InstanceId::random().to_string();
    self.instance = InstanceId::random();
    self.address = "127.0.0.1:1";
    return take(members.registry.client(members.token())->register_peer(self)).keys;
  }
  // A good proof of this key.
  ByteVector proof(const ctrl::ScopeKey& key, std::uint64_t number) const {
    return transport::encode_key_proof(connected_->proofs, key.secret, {key.id, number});
  }
  // Frames of this type that have come.
  int count(FrameType type) const {
    const std::lock_guard lock(mutex_);
    int out = 0;
    for (const ByteVector& frame : frames_) out += frame[0] == static_cast<std::byte>(type) ? 1 : 0;
    return out;
  }
  // The body of the last proof that has come.
  ByteVector last_proof() const {
    const std::lock_guard lock(mutex_);
    ByteVector out;
    for (const ByteVector& frame : frames_) {
      const auto decoded = rpc::wire::decode_frame(frame);
      if (decoded && decoded->header.type == FrameType::kProof && decoded->header.code == 0)
        out.assign(decoded->body.begin(), decoded->body.end());
    }
    return out;
  }
  // Why the agent ends the connection, as it says; empty: it has not said so.
  std::string told() const {
    const std::lock_guard lock(mutex_);
    for (const ByteVector& frame : frames_) {
      const auto decoded = rpc::wire::decode_frame(frame);
      if (decoded && decoded->header.type == FrameType::kProof && decoded->header.code != 0)
        return std::string(code_name(error_code_from_wire(decoded->header.code))) + ": " +
               std::string(rpc::wire::error_text_of(*decoded));
    }
    return {};
  }
  bool ended() const { return ended_; }

  const std::string name;
  ctrl::ScopeKeys keys;  // as of the start

 private:
  struct Sent final : transport::Operation {
    void complete(Status) noexcept override {}
  };

  void begin(Result<transport::Connected> made) {
    if (!made) {
      ended_ = true;
      return;
    }
    connected_.emplace(std::move(*made));
    connected_->endpoint->set_receiver(*this);
  }
  void on_message(transport::Message message) noexcept override {
    const std::lock_guard lock(mutex_);
    frames_.emplace_back(message.bytes().begin(), message.bytes().end());
  }
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override { ended_ = true; }

  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::Loop> loop_;
  std::unique_ptr<transport::Port> port_;
  std::unique_ptr<transport::Connecting> connecting_;
  std::optional<transport::Connected> connected_;
  std::vector<std::unique_ptr<Sent>> sent_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  std::vector<ByteVector> frames_;
};

}  // namespace slime::test
