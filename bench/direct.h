#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "bench/options.h"
#include "bench/pages.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "transport/connect.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::bench {

// One end without an agent: a device, a port, a loop that its caller drives, a channel for each
// connection, and one region with the name "bench". Thread: one.
class Direct final : private transport::Acceptor, private rpc::ChannelOwner {
 public:
  // Peers may read and write `region_bytes` of memory.
  static Result<std::unique_ptr<Direct>> create(const Options& options, std::string name,
                                                std::uint64_t region_bytes);
  ~Direct();

  // Serves "bench" with the method "echo" on a free port of the host of the options.
  Status serve();
  [[nodiscard]] std::string address() const { return listener_->address(); }
  // Connects, and waits until a message went both ways.
  Status connect(const std::string& address);

  [[nodiscard]] transport::Loop& loop() { return *loop_; }
  [[nodiscard]] transport::DeviceRegion& region() { return region_; }
  // The channel to the one peer, after connect().
  [[nodiscard]] rpc::Channel& channel() { return *channels_.front(); }
  Result<transport::RemoteRegion> peer_region();
  // Writes with an immediate, as soon as the peer has given a credit. Call it again only after the
  // peer has answered.
  Status notify(const transport::CopyBlock& copy, std::uint32_t imm);
  // Calls `handler` on the loop for each notification.
  void on_imm(std::function<void(std::uint32_t)> handler) { imm_handler_ = std::move(handler); }
  // Answers each notification: writes the first `bytes` of the region back, with the notification's
  // immediate.
  void answer_notifications(std::uint64_t bytes);

 private:
  class Notification;
  Direct(const Options& options, std::string name);
  Status open(std::uint64_t region_bytes);
  void adopt(transport::Connected connected);
  void answer(std::uint32_t imm);
  Status post_waiting();

  Status on_hello(const transport::PeerIdentity&) noexcept override { return {}; }
  void on_connected(transport::Connected connected) noexcept override { adopt(std::move(connected)); }
  void on_channel_ready() noexcept override { ready_ = true; }
  void on_channel_imm(std::uint32_t imm) noexcept override;
  void on_channel_writable() noexcept override;
  Result<transport::RegionDescriptor> on_region_lookup(std::string_view name) noexcept override;
  void on_region_revoked(std::string_view) noexcept override {}
  void on_channel_closed(const Status& reason) noexcept override;

  const Options options_;
  transport::HandshakeOptions handshake_;
  std::shared_ptr<transport::Loop> loop_;
  std::unique_ptr<transport::Provider> provider_;
  std::unique_ptr<transport::Device> device_;
  std::unique_ptr<transport::Port> port_;
  Pages foreign_;  // outlives the region over it
  transport::DeviceRegion region_;
  rpc::Server server_;
  std::unique_ptr<transport::Listener> listener_;
  std::vector<std::unique_ptr<rpc::Channel>> channels_;
  bool ready_ = false;
  Status lost_;
  std::function<void(std::uint32_t)> imm_handler_;
  transport::RemoteRegion answer_to_;
  std::uint64_t answer_bytes_ = 0;
  std::vector<std::unique_ptr<Notification>> notifications_;
  Notification* waiting_ = nullptr;  // for a credit
};

}  // namespace slime::bench
