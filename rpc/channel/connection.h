#pragma once

// Private to rpc: what all parts of a channel know of the connection under it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "rpc/channel.h"
#include "rpc/codec/frame.h"
#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::rpc {

// The endpoint under a channel, the peer's hello, and how far the channel has come. The channel moves it
// on; the parts of the channel read it, or break it. Thread: the loop.
class Connection {
 public:
  Connection(transport::Loop& loop, transport::Device& device, std::unique_ptr<transport::Endpoint> endpoint,
             ChannelOptions options);

  [[nodiscard]] transport::Loop& loop() const { return loop_; }
  [[nodiscard]] transport::Device& device() const { return device_; }
  [[nodiscard]] transport::Endpoint& endpoint() const { return *endpoint_; }
  [[nodiscard]] const ChannelOptions& options() const { return options_; }
  [[nodiscard]] const std::string& peer_name() const { return options_.peer_name; }
  [[nodiscard]] TimePoint now() const { return loop_.now(); }
  // Bytes of one message, and whether a frame with this text and body fits into one.
  [[nodiscard]] std::size_t message_bytes() const { return message_bytes_; }
  [[nodiscard]] bool fits(std::size_t text, std::size_t body) const {
    return text <= message_bytes_ && body <= message_bytes_ &&
           sizeof(wire::FrameHeader) + text + body <= message_bytes_;
  }

  // ---- the peer's hello
  void greet(const wire::Hello& hello);
  [[nodiscard]] bool ready() const { return ready_; }  // the hello has come
  // Whether the peer has this feature. Before its hello: true.
  [[nodiscard]] bool peer_has(std::uint64_t feature) const {
    return (peer_.optional_features & feature) != 0;
  }
  // The most bytes of a payload for the peer, and the most unanswered requests to the peer.
  [[nodiscard]] std::uint64_t max_payload_bytes() const {
    return ready_ ? peer_.max_payload_bytes : options_.max_payload_bytes;
  }
  [[nodiscard]] std::size_t max_requests() const {
    return ready_ ? std::min<std::size_t>(options_.max_calls, peer_.max_requests) : options_.max_calls;
  }

  // ---- the end, in this order
  // This side, or the peer, asks for nothing more.
  void stop_asking() { closing_ = true; }
  void peer_stopped_asking() { peer_closing_ = true; }
  void mark_closed_by_peer() { closed_by_peer_ = true; }
  void expel(Status reason);
  [[nodiscard]] bool closing() const { return closing_; }
  [[nodiscard]] bool peer_closing() const { return peer_closing_; }
  [[nodiscard]] bool closed_by_peer() const { return closed_by_peer_; }  // the peer began to close
  [[nodiscard]] bool expelled() const { return !expelled_.ok(); }
  // Closes or resets the endpoint, once; afterwards nothing is sent, and what comes is dropped.
  void close_endpoint(Nanos bound);
  void reset_endpoint(Status reason);
  // Resets the endpoint because the peer, or the wire, is broken. Nothing more is asked.
  void break_by(Status reason);
  [[nodiscard]] bool endpoint_closing() const { return endpoint_closing_; }
  // The endpoint has told that it is closed; `cause` is its reason.
  void end(const Status& cause);
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] bool over() const { return closed_ || endpoint_closing_; }
  [[nodiscard]] const Status& closed_reason() const { return closed_reason_; }
  // The channel is in its destructor; then its endpoint goes, which completes what is posted.
  void begin_destroying() { destroying_ = true; }
  void destroy_endpoint() { endpoint_.reset(); }
  [[nodiscard]] bool destroying() const { return destroying_; }
  // The error of what is asked for now that the channel is closing or closed.
  [[nodiscard]] Status closing_status() const;

 private:
  [[nodiscard]] Status broken_by(const Status& reason) const;

  transport::Loop& loop_;
  transport::Device& device_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  const std::size_t message_bytes_;
  const ChannelOptions options_;
  wire::Hello peer_;
  bool ready_ = false;
  bool closing_ = false;
  bool peer_closing_ = false;
  bool closed_by_peer_ = false;
  bool endpoint_closing_ = false;
  bool closed_ = false;
  bool destroying_ = false;
  Status closed_reason_;
  Status expelled_;  // not OK: why this side ends the channel
};

}  // namespace slime::rpc
