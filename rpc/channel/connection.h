#pragma once

// Private to rpc: the connection of a channel, which all parts of the channel use.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "rpc/channel.h"
#include "rpc/codec/connection_blocks.h"
#include "rpc/codec/frame.h"
#include "transport/endpoint.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::rpc {

// The endpoint of a channel, the peer's hello, and the state of the channel. ChannelImpl changes
// the state; the other parts read the state, or break the connection. Thread: the loop.
class Connection {
 public:
  Connection(transport::Loop& loop, transport::Device& device, std::unique_ptr<transport::Endpoint> endpoint,
             ChannelOptions options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  [[nodiscard]] transport::Loop& loop() const { return loop_; }
  [[nodiscard]] transport::Device& device() const { return device_; }
  [[nodiscard]] transport::Endpoint& endpoint() const { return *endpoint_; }
  // Registered memory for what is received and lent.
  [[nodiscard]] ConnectionBlocks& blocks() const { return *blocks_; }
  [[nodiscard]] const ChannelOptions& options() const { return options_; }
  [[nodiscard]] const std::string& peer_name() const { return options_.peer_name; }
  [[nodiscard]] TimePoint now() const { return loop_.now(); }
  // message_bytes() returns the most bytes of a message. fits() returns whether a frame with so
  // many bytes of text and body fits into a message.
  [[nodiscard]] std::size_t message_bytes() const { return message_bytes_; }
  [[nodiscard]] bool fits(std::size_t text, std::size_t body) const {
    return text <= message_bytes_ && body <= message_bytes_ &&
           sizeof(wire::FrameHeader) + text + body <= message_bytes_;
  }

  // Returns whether a frame of so many bytes of text and body may leave now in a long message.
  [[nodiscard]] bool takes_long(std::size_t text, std::size_t body) const {
    return ready_ && peer_has(wire::kFeatureLongMessages) && body <= peer_.max_payload_bytes &&
           endpoint_->takes_long(std::uint64_t{sizeof(wire::FrameHeader)} + text + body);
  }
  // Returns whether a message of the peer, which has so many bytes, is a long one.
  [[nodiscard]] bool is_long(std::size_t message) const { return message > short_bytes_; }

  // ---- the peer's hello
  void greet(const wire::Hello& hello);
  [[nodiscard]] bool ready() const { return ready_; }  // the hello has come
  // Returns whether the peer has this feature. Returns true as long as the peer's hello has not
  // arrived.
  [[nodiscard]] bool peer_has(std::uint64_t feature) const {
    return (peer_.optional_features & feature) != 0;
  }
  // max_payload_bytes() returns the most bytes of one payload to the peer; max_requests() returns
  // the most unanswered requests to the peer.
  [[nodiscard]] std::uint64_t max_payload_bytes() const {
    return ready_ ? peer_.max_payload_bytes : options_.max_payload_bytes;
  }
  [[nodiscard]] std::size_t max_requests() const {
    return ready_ ? std::min<std::size_t>(options_.max_calls, peer_.max_requests) : options_.max_calls;
  }

  // ---- the end, in this order
  // stop_asking() records that this side makes no more requests, peer_stopped_asking() that the
  // peer makes no more requests.
  void stop_asking() { closing_ = true; }
  void peer_stopped_asking() { peer_closing_ = true; }
  void mark_closed_by_peer() { closed_by_peer_ = true; }
  void expel(Status reason);
  [[nodiscard]] bool closing() const { return closing_; }
  [[nodiscard]] bool peer_closing() const { return peer_closing_; }
  [[nodiscard]] bool closed_by_peer() const { return closed_by_peer_; }  // the peer began to close
  [[nodiscard]] bool expelled() const { return !expelled_.ok(); }
  // close_endpoint() closes the endpoint if it is open; reset_endpoint() resets it. Afterwards
  // nothing is sent, and incoming frames are dropped.
  void close_endpoint(Nanos bound);
  void reset_endpoint(Status reason);
  // Resets the endpoint because the peer violated the protocol or the network failed.
  void break_by(Status reason);
  [[nodiscard]] bool endpoint_closing() const { return endpoint_closing_; }
  // Records that the endpoint is closed, and why.
  void end(const Status& cause);
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] bool over() const { return closed_ || endpoint_closing_; }
  [[nodiscard]] const Status& closed_reason() const { return closed_reason_; }
  // Called in the channel's destructor. destroy_endpoint() completes posted operations.
  void begin_destroying() { destroying_ = true; }
  void destroy_endpoint() { endpoint_.reset(); }
  [[nodiscard]] bool destroying() const { return destroying_; }
  // Returns the error for requests to a channel that is closing or closed.
  [[nodiscard]] Status closing_status() const;

 private:
  [[nodiscard]] Status broken_by(const Status& reason) const;

  transport::Loop& loop_;
  transport::Device& device_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  const std::shared_ptr<ConnectionBlocks> blocks_;
  const std::size_t message_bytes_;
  const std::size_t short_bytes_;  // of the largest message of the peer that is no long one
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
  Status expelled_;  // if not OK, the reason why this side ends the channel
};

}  // namespace slime::rpc
