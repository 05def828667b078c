// A connection that is being made: reserves what an endpoint needs, sends this side's parameters to
// the peer, and makes the endpoint from the peer's parameters.
#include <algorithm>

#include "base/str.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/errors.h"
#include "transport/wire.h"

namespace slime::transport::verbs {
namespace {

std::uint8_t narrow(int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

ibv_mtu mtu_of(const Context& context) {
  const ibv_mtu active = context.port_attributes().active_mtu;
  if (context.options.mtu < 0) return active;
  ibv_mtu wanted = IBV_MTU_256;
  for (int bytes = 256; bytes < context.options.mtu; bytes *= 2) wanted = static_cast<ibv_mtu>(wanted + 1);
  return std::min(wanted, active);
}

class VerbsPending final : public PendingEndpoint {
 public:
  VerbsPending(std::shared_ptr<PortState> port, Handle place) : port_(std::move(port)), place_(place) {}
  ~VerbsPending() override {
    if (over_) return;
    if (making_ != nullptr) making_->pending = nullptr;
    // Destroys the queue pairs on another thread. They were never connected, so no completion
    // follows.
    if (!queue_pairs_.empty())
      port_->off_loop([pairs = std::move(queue_pairs_)]() mutable { pairs.clear(); }, {});
    if (account_ != nullptr) port_->pool().close(*account_);
    port_->unreserve(place_);
  }

  Status open() {
    auto account = std::make_shared<CreditAccount>();
    if (!port_->pool().open(*account)) {
      const PortOptions& options = port_->pool().options();
      return {Code::kResourceExhausted,
              str("the receive pool of ", options.pool_slots, " slots has ", port_->pool().unreserved(),
                  " free, another peer needs ", options.base_credits + 1,
                  "; raise pool_slots or close connections")};
    }
    account_ = std::move(account);
    return {};
  }

  void when_ready(UniqueFunction<void(Status)> ready) override {
    ready_ = std::move(ready);
    making_ = std::make_shared<Making>();
    making_->pending = this;
    const auto count = 1 + static_cast<std::size_t>(port_->context()->options.data_queue_pairs);
    port_->off_loop(
        [making = making_, port = port_, count] {
          for (std::size_t i = 0; i < count; ++i) {
            auto pair = port->make_queue_pair(i);
            if (!pair) {
              making->outcome = std::move(pair).error();
              return making->queue_pairs.clear();
            }
            making->queue_pairs.push_back(std::move(*pair));
          }
        },
        [making = making_, port = port_] {
          if (making->pending != nullptr) return making->pending->made();
          port->off_loop([making] { making->queue_pairs.clear(); }, {});
        });
  }

  [[nodiscard]] ByteVector parameters() const override { return ours_.encode(); }

  Result<std::unique_ptr<Endpoint>> finish(Bytes peer_parameters, UniqueFd socket,
                                           Introduction who) override {
    if (over_) return Status(Code::kInvalidArgument, "this endpoint was made already");
    Result<Parameters> peer = Parameters::decode(peer_parameters);
    if (!peer) return std::move(peer).error();
    const std::shared_ptr<Loop> loop = port_->users_loop();
    if (loop == nullptr) return Status(Code::kCancelled, "the port was closed");
    if (peer->link_layer != ours_.link_layer) {
      unreached_ = true;
      SideChannel::say_once(socket.get(), SideFrameType::kUnreached);
      return Status(Code::kUnavailable, str(who.peer_name,
                                            " is on another kind of network: one of us on Ethernet (RoCE), "
                                            "the other on InfiniBand"));
    }
    auto wire = make_socket_wire(*loop, std::move(socket), port_->pool().options().outage_tolerated);
    if (!wire) return std::move(wire).error();
    over_ = true;
    EndpointParts parts;
    parts.port = port_;
    parts.place = place_;
    parts.account = std::move(account_);
    std::vector<std::shared_ptr<QueuePair>> spare;
    while (queue_pairs_.size() > peer->queue_pair_count) {
      spare.push_back(std::move(queue_pairs_.back()));
      queue_pairs_.pop_back();
    }
    if (!spare.empty()) port_->off_loop([spare = std::move(spare)]() mutable { spare.clear(); }, {});
    parts.queue_pairs = std::move(queue_pairs_);
    parts.routes = routes(*peer);
    parts.ours = ours_;
    parts.peer = *peer;
    parts.mtu = mtu(*peer);
    parts.side = std::move(*wire);
    parts.who = std::move(who);
    return std::unique_ptr<Endpoint>(std::make_unique<VerbsEndpoint>(std::move(parts)));
  }

  [[nodiscard]] bool unreached() const override { return unreached_; }

 private:
  void describe() {
    const Context& context = *port_->context();
    const ibv_port_attr port = context.port_attributes();
    ours_.slot_bytes = port_->pool().options().slot_bytes;
    ours_.initial_credits = port_->pool().options().base_credits;
    gid_ = context.gid();
    ours_.gid = gid_.gid;
    ours_.lid = port.lid;
    ours_.link_layer =
        port.link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    ours_.mtu = static_cast<std::uint8_t>(mtu_of(context));
    ours_.read_responses = narrow(std::min(context.options.rd_atomic, context.device.max_qp_rd_atom));
    ours_.read_requests = narrow(std::min(context.options.rd_atomic, context.device.max_qp_init_rd_atom));
    ours_.atomics = context.device.atomic_cap != IBV_ATOMIC_NONE ? 1 : 0;
    ours_.queue_pair_count = static_cast<std::uint8_t>(queue_pairs_.size());
    for (std::size_t i = 0; i < queue_pairs_.size(); ++i) ours_.queue_pairs[i] = queue_pairs_[i]->address();
    ours_.credit_word = port_->words().address(place_.index);
    ours_.credit_key = port_->words().rkey();
  }

  [[nodiscard]] ibv_mtu mtu(const Parameters& peer) const {
    return static_cast<ibv_mtu>(std::min(ours_.mtu, peer.mtu));
  }

  [[nodiscard]] std::vector<QueuePairRoute> routes(const Parameters& peer) const {
    QueuePairRoute route;
    route.local_gid = ours_.gid;
    route.local_gid_index = gid_.index;
    route.mtu = mtu(peer);
    route.read_requests = std::min(ours_.read_requests, peer.read_responses);
    route.read_responses = ours_.read_responses;
    route.remote_gid = peer.gid;
    route.remote_lid = peer.lid;
    route.ethernet = ours_.link_layer == IBV_LINK_LAYER_ETHERNET;
    route.retries = port_->retries();
    std::vector<QueuePairRoute> out;
    for (std::size_t i = 0; i < std::min<std::size_t>(ours_.queue_pair_count, peer.queue_pair_count); ++i) {
      route.remote = peer.queue_pairs[i];
      out.push_back(route);
    }
    return out;
  }

  // Queue pairs that another thread makes.
  struct Making {
    VerbsPending* pending = nullptr;  // used on the loop only; null: gone
    Status outcome;
    std::vector<std::shared_ptr<QueuePair>> queue_pairs;
  };

  // Takes the queue pairs that another thread made. Calls `ready` last, because `ready` may destroy
  // this object.
  void made() {
    const std::shared_ptr<Making> making = std::exchange(making_, nullptr);
    queue_pairs_ = std::move(making->queue_pairs);
    if (making->outcome.ok()) describe();
    UniqueFunction<void(Status)> ready = std::move(ready_);
    ready(std::move(making->outcome));
  }

  const std::shared_ptr<PortState> port_;
  const Handle place_;
  std::shared_ptr<CreditAccount> account_;
  std::shared_ptr<Making> making_;
  UniqueFunction<void(Status)> ready_;
  std::vector<std::shared_ptr<QueuePair>> queue_pairs_;
  Parameters ours_;
  GidInfo gid_;
  bool over_ = false;
  bool unreached_ = false;
};

}  // namespace

Result<std::unique_ptr<PendingEndpoint>> PortState::prepare(std::shared_ptr<PortState> self) {
  SLIME_TRY(device_->usable());
  Result<Handle> place = reserve();
  if (!place) return std::move(place).error();
  auto pending = std::make_unique<VerbsPending>(std::move(self), *place);
  SLIME_TRY(pending->open());
  return std::unique_ptr<PendingEndpoint>(std::move(pending));
}

}  // namespace slime::transport::verbs
