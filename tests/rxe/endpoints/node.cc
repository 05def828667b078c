#include "tests/rxe/endpoints/node.h"

#include <algorithm>
#include <unordered_map>

#include "base/str.h"
#include "bench/process.h"
#include "tests/rxe/endpoints/bare.h"
#include "tests/rxe/endpoints/watched.h"
#include "transport/verbs/options.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::bench {
namespace {

using namespace transport;

constexpr std::byte kFill{0x5a};
constexpr std::size_t kRegionBytes = 4096;

// Posted once; the waiting thread polls it.
class Done final : public Operation {
 public:
  void complete(Status status) noexcept override {
    status_ = std::move(status);
    over_ = true;
  }
  [[nodiscard]] bool over() const { return over_; }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  Status status_;
  bool over_ = false;
};

HandshakeOptions handshake(const std::string& name) {
  HandshakeOptions out;
  out.self = {name, InstanceId::random()};
  out.provider = "verbs";
  out.timeout = kPatience;
  return out;
}

// One endpoint of the server. Deletes itself, in a later turn, when it has ended.
class Served final : public Receiver {
 public:
  Served(Loop& loop, std::unordered_map<Served*, std::unique_ptr<Served>>& all, const DeviceRegion& region,
         std::unique_ptr<Endpoint> endpoint)
      : loop_(loop), all_(all), region_(region), endpoint_(std::move(endpoint)) {}
  void start() { endpoint_->set_receiver(*this); }

 private:
  void on_message(Message) noexcept override {
    ByteVector text;
    ByteWriter writer(text);
    region_.describe().encode(writer);
    const Bytes parts[] = {text};
    if (const Status sent = endpoint_->send(parts, answer_); !sent.ok()) endpoint_->reset(sent);
  }
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override {
    loop_.post([this] { all_.erase(this); });
  }

  Loop& loop_;
  std::unordered_map<Served*, std::unique_ptr<Served>>& all_;
  const DeviceRegion& region_;
  Done answer_;
  std::unique_ptr<Endpoint> endpoint_;  // last: it may complete the operation
};

class Server final : public Acceptor {
 public:
  static Result<std::unique_ptr<Server>> open() {
    std::unique_ptr<Server> out(new Server);
    auto node = Node::open();
    if (!node) return std::move(node).error();
    out->node_ = std::move(*node);
    auto region = out->node_->device->allocate(kRegionBytes, Rights::kRemoteRead);
    if (!region) return std::move(region).error();
    out->region_ = std::move(*region);
    std::fill(out->region_.bytes().begin(), out->region_.bytes().end(), kFill);
    auto listener = Listener::listen(*out->node_->loop, *out->node_->port, "127.0.0.1:0", false,
                                     handshake("server"), *out);
    if (!listener) return std::move(listener).error();
    out->listener_ = std::move(*listener);
    out->node_->loop->start_thread();
    return out;
  }
  ~Server() {
    if (node_ == nullptr) return;
    node_->loop->stop();
    listener_.reset();
    endpoints_.clear();
  }
  [[nodiscard]] std::string address() const { return listener_->address(); }
  [[nodiscard]] std::size_t endpoints() {
    return node_->loop->run([this] { return node_->port->endpoints(); });
  }

 private:
  Server() = default;
  Status on_hello(const PeerIdentity&) noexcept override { return {}; }
  void on_connected(Connected connected) noexcept override {
    auto served = std::make_unique<Served>(*node_->loop, endpoints_, region_, std::move(connected.endpoint));
    Served* const at = served.get();
    endpoints_[at] = std::move(served);
    at->start();
  }

  std::unique_ptr<Node> node_;
  DeviceRegion region_;
  std::unique_ptr<Listener> listener_;
  std::unordered_map<Served*, std::unique_ptr<Served>> endpoints_;
};

}  // namespace

Result<std::unique_ptr<Node>> Node::open() {
  const auto functions = verbs::load_functions();
  if (!functions) return functions.error();
  auto options = verbs::Options::from_environment();
  if (!options) return std::move(options).error();
  auto out = std::make_unique<Node>();
  auto loop = Loop::create();
  if (!loop) return std::move(loop).error();
  out->loop = std::move(*loop);
  out->provider = verbs::make_verbs_provider(watch(**functions), std::move(*options));
  auto device = out->provider->open_device();
  if (!device) return std::move(device).error();
  out->device = std::move(*device);
  auto port = out->device->open_port(*out->loop);
  if (!port) return std::move(port).error();
  out->port = std::move(*port);
  return out;
}

Status Client::wait_for(const char* what, UniqueFunction<bool()> done) {
  const TimePoint end = steady_clock().now() + kPatience;
  while (!done()) {
    if (!broken_.ok()) return broken_;
    if (interrupted()) return {Code::kCancelled, "interrupted"};
    if (steady_clock().now() >= end) return {Code::kDeadlineExceeded, str("waited in vain for ", what)};
    node_.loop->poll(std::chrono::milliseconds(1));
  }
  return {};
}

Status Client::connect(const std::string& address) {
  Status failed;
  const TimePoint begin = steady_clock().now();
  const auto connecting = transport::connect(*node_.loop, *node_.port, address, {"server", {}},
                                             handshake("client"), [&](Result<Connected> result) {
                                               connect_ns_ = (steady_clock().now() - begin).count();
                                               if (result)
                                                 endpoint_ = std::move(result->endpoint);
                                               else
                                                 failed = std::move(result).error();
                                             });
  SLIME_TRY(wait_for("a connection", [&] { return endpoint_ != nullptr || !failed.ok(); }));
  SLIME_TRY(failed);
  endpoint_->set_receiver(*this);
  return {};
}

Status Client::use() {
  static constexpr std::byte kQuestion[8]{};
  const Bytes parts[] = {kQuestion};
  Done sent;
  const TimePoint begin = steady_clock().now();
  SLIME_TRY(endpoint_->send(parts, sent));
  Status answered = wait_for("an answer", [&] { return sent.over() && !answer_.empty(); });
  answer_ns_ = (steady_clock().now() - begin).count();
  if (answered.ok()) answered = sent.status();
  if (answered.ok()) answered = read();
  if (!sent.over()) endpoint_.reset();  // completes it
  return answered;
}

Status Client::read() {
  ByteReader reader(answer_);
  const auto descriptor = RegionDescriptor::decode(reader);
  if (!descriptor) return {Code::kInternal, "the answer is no region"};
  auto remote = endpoint_->import_region(*descriptor);
  if (!remote) return std::move(remote).error();
  auto local = node_.device->allocate(kReadBytes, Rights::kLocal);
  if (!local) return std::move(local).error();
  const CopyBlock copy{&*local, 0, &*remote, 0, kReadBytes};
  Done done;
  SLIME_TRY(endpoint_->read(std::span(&copy, 1), done));
  Status over = wait_for("a read", [&] { return done.over(); });
  if (!done.over()) endpoint_.reset();
  SLIME_TRY(over);
  SLIME_TRY(done.status());
  const MutableBytes got = local->bytes();
  if (!std::all_of(got.begin(), got.begin() + kReadBytes, [](std::byte b) { return b == kFill; }))
    return {Code::kInternal, "a read brought other bytes than there were"};
  return {};
}

Status Client::close() {
  if (endpoint_ == nullptr) return {};
  endpoint_->close();
  SLIME_TRY(wait_for("the end of an endpoint", [&] { return closed_; }));
  endpoint_.reset();
  return {};
}

void Client::on_message(Message message) noexcept {
  answer_.assign(message.bytes().begin(), message.bytes().end());
}

void Client::on_closed(const Status& reason) noexcept {
  closed_ = true;
  if (!reason.ok()) broken_ = reason;
}

int run_server() {
  auto server = Server::open();
  auto functions = transport::verbs::load_functions();
  Result<std::uint16_t> bare_port = Status(Code::kInternal, "");
  if (server && functions) {
    auto bare = BareDevice::open(**functions);
    if (bare)
      bare_port = serve_bare(std::move(*bare));
    else
      bare_port = bare.status();
  }
  if (!server || !bare_port) {
    answer(str("ERROR ", (!server ? server.status() : bare_port.status()).to_string()));
    return 1;
  }
  answer(str("READY ", (*server)->address(), " ", *bare_port));
  while (const auto command = read_command()) {
    if (*command == "ENDPOINTS") answer(str("ENDPOINTS ", (*server)->endpoints()));
    if (*command == "ERRORS") answer(str("ERRORS ", watched().async_events.load()));
  }
  return 0;
}

}  // namespace slime::bench
