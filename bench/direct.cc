#include "bench/direct.h"

#include <algorithm>
#include <vector>

#include "base/str.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

constexpr const char* kServer = "bench-server";
constexpr const char* kRegion = "bench";

}  // namespace

// Reused after completion, which may be later than the peer's answer.
class Direct::Notification final : public transport::Operation {
 public:
  void complete(Status) noexcept override {}  // a broken connection ends the measurement
  transport::CopyBlock copy;
  std::uint32_t imm = 0;
};

Direct::Direct(const Options& options, std::string name) : options_(options) {
  handshake_.self = {std::move(name), InstanceId::random()};
  handshake_.provider = options.provider;
  handshake_.token = shared_token();
}

Result<std::unique_ptr<Direct>> Direct::create(const Options& options, std::string name,
                                               std::uint64_t region_bytes) {
  std::unique_ptr<Direct> out(new Direct(options, std::move(name)));
  SLIME_TRY(out->open(region_bytes));
  return out;
}

Status Direct::open(std::uint64_t region_bytes) {
  auto loop = transport::Loop::create({.max_spin = transport::limits::kCallerSpin});
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  auto provider = transport::make_provider(options_.provider);
  if (!provider) return std::move(provider).error();
  provider_ = std::move(*provider);
  SLIME_TRY(provider_->available());
  auto device = provider_->open_device();
  if (!device) return std::move(device).error();
  device_ = std::move(*device);
  auto port = device_->open_port(*loop_);
  if (!port) return std::move(port).error();
  port_ = std::move(*port);
  auto region = make_region(*device_, options_, region_bytes, transport::Rights::kReadWrite, foreign_);
  if (!region) return std::move(region).error();
  region_ = std::move(*region);
  return {};
}

Direct::~Direct() {
  listener_.reset();
  for (auto& channel : channels_) channel->close(limits::kCloseBound);
  const auto closed = [this] {
    for (auto& channel : channels_) {
      if (!channel->closed()) return false;
    }
    return true;
  };
  if (loop_) loop_->wait_until(closed, deadline_after(steady_clock().now(), 2 * limits::kCloseBound));
  channels_.clear();
}

Status Direct::serve() {
  rpc::Service service("bench");
  SLIME_TRY(service.add("echo", [](ByteVector data) { return data; }, {.run = rpc::Run::kInline}));
  SLIME_TRY(server_.add(service));
  auto listener = transport::Listener::listen(*loop_, *port_, listen_address(options_), options_.insecure,
                                              handshake_, *this);
  if (!listener) return std::move(listener).error();
  listener_ = std::move(*listener);
  return {};
}

Status Direct::connect(const std::string& address) {
  Status failed;
  const auto connecting = transport::connect(*loop_, *port_, address, {kServer, {}}, handshake_,
                                             [&](Result<transport::Connected> connected) {
                                               if (connected)
                                                 adopt(std::move(*connected));
                                               else
                                                 failed = std::move(connected).error();
                                             });
  loop_->wait_until([&] { return ready_ || !failed.ok() || !lost_.ok(); },
                    deadline_after(steady_clock().now(), kAnswer));
  if (!failed.ok()) return failed;
  if (!lost_.ok()) return lost_;
  return ready_ ? Status() : Status(Code::kDeadlineExceeded, str("no connection to ", address, " in time"));
}

void Direct::adopt(transport::Connected connected) {
  rpc::ChannelOptions options;
  options.peer_name = connected.peer.name;
  channels_.push_back(rpc::Channel::create(*loop_, *device_, std::move(connected.endpoint), &server_, *this,
                                           std::move(options)));
  if (answer_bytes_ == 0) return;
  channel().lookup_region(kRegion, kNever, [this](Result<transport::RemoteRegion> region) {
    if (region) answer_to_ = *region;
  });
}

Result<transport::RemoteRegion> Direct::peer_region() {
  std::unique_ptr<Result<transport::RemoteRegion>> out;
  channel().lookup_region(kRegion, deadline_after(steady_clock().now(), kAnswer),
                          [&](Result<transport::RemoteRegion> region) {
                            out = std::make_unique<Result<transport::RemoteRegion>>(std::move(region));
                          });
  loop_->wait_until([&] { return out != nullptr; }, kNever);
  return std::move(*out);
}

void Direct::answer_notifications(std::uint64_t bytes) {
  answer_bytes_ = bytes;
  imm_handler_ = [this](std::uint32_t imm) { answer(imm); };
}

void Direct::answer(std::uint32_t imm) {
  const Status posted = notify({&region_, 0, &answer_to_, 0, answer_bytes_}, imm);
  if (!posted.ok()) channel().reset(posted);
}

Status Direct::notify(const transport::CopyBlock& copy, std::uint32_t imm) {
  const auto idle = std::find_if(notifications_.begin(), notifications_.end(),
                                 [](const auto& notification) { return !notification->posted(); });
  waiting_ = idle != notifications_.end()
                 ? idle->get()
                 : notifications_.emplace_back(std::make_unique<Notification>()).get();
  waiting_->copy = copy;
  waiting_->imm = imm;
  return post_waiting();
}

Status Direct::post_waiting() {
  if (waiting_ == nullptr) return {};
  Status posted = channel().endpoint().write_with_imm({&waiting_->copy, 1}, waiting_->imm, *waiting_);
  if (posted.code() == Code::kResourceExhausted) return {};  // on_channel_writable() tries again
  waiting_ = nullptr;
  return posted;
}

void Direct::on_channel_writable() noexcept {
  const Status posted = post_waiting();
  if (!posted.ok()) channel().reset(posted);
}

void Direct::on_channel_imm(std::uint32_t imm) noexcept {
  if (imm_handler_) imm_handler_(imm);
}

Result<transport::RegionDescriptor> Direct::on_region_lookup(std::string_view name) noexcept {
  if (name != kRegion) return Status(Code::kNotFound, str("no region '", name, "'"));
  return region_.describe();
}

void Direct::on_channel_closed(const Status& reason) noexcept {
  if (lost_.ok()) lost_ = reason.ok() ? Status(Code::kCancelled, "closed") : reason;
}

}  // namespace slime::bench
