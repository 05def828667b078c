// A peer in a process of its own, for tests that kill or stop it. Does what its first argument
// says, tells its address as the first line of its stdout, ends at the end of its stdin. On the
// provider that SLIME_TEST_PROVIDER names.
//
//   transport_peer serve             exports a region to each peer and swallows what is sent to it
//   transport_peer serve-registered  the same, with memory that Slime has not allocated, so that no
//                                    peer maps it
//   transport_peer write ADDRESS     writes into the region that the peer exports, without end
//   transport_peer read ADDRESS      reads that region, without end
//
// write and read print "going" after a while, and "over" when they are refused.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/support/settings.h"
#include "transport/connect.h"

namespace slime::transport {
namespace {

constexpr std::size_t kRegionBytes = 8 << 20;
constexpr std::size_t kBlockBytes = 1 << 20;
constexpr int kInFlight = 4;
constexpr int kGoing = 32;  // operations after which it is in the middle of it
constexpr std::byte kRegionFill{0x22};

void tell(std::string_view line) {
  std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stdout);
}

[[noreturn]] void give_up(const Status& status) {
  std::fprintf(stderr, "transport_peer: %s\n", status.to_string().c_str());
  std::_Exit(1);
}
template <class T>
T must(Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

struct Sending final : Operation {
  void complete(Status) noexcept override { delete this; }
};

struct Swallow final : Receiver {
  void on_message(Message) noexcept override {}
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override {}
};

class Server final : public Acceptor {
 public:
  Server(Loop& loop, Device& device, Port& port, bool registered) {
    if (registered) memory_.resize(kRegionBytes);
    region_ = must(registered ? device.register_memory(memory_.data(), kRegionBytes, Rights::kReadWrite)
                              : device.allocate(kRegionBytes, Rights::kReadWrite));
    HandshakeOptions options;
    options.self = {"peer", InstanceId::random()};
    options.provider = test::endpoint_provider();
    listener_ = must(Listener::listen(loop, port, "127.0.0.1:0", false, options, *this));
  }
  [[nodiscard]] std::string address() const { return listener_->address(); }

 private:
  Status on_hello(const PeerIdentity&) noexcept override { return {}; }
  void on_connected(Connected connected) noexcept override {
    endpoints_.push_back(std::move(connected.endpoint));
    endpoints_.back()->set_receiver(swallow_);
    ByteVector text;
    ByteWriter writer(text);
    region_.describe().encode(writer);
    const Bytes parts[] = {text};
    if (Status sent = endpoints_.back()->send(parts, *new Sending); !sent.ok()) give_up(sent);
  }

  Swallow swallow_;
  ByteVector memory_;
  DeviceRegion region_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::unique_ptr<Listener> listener_;
};

// Keeps kInFlight one-sided operations under way for as long as it lives.
class Hammer final : public Receiver {
 public:
  Hammer(Device& device, bool writes) : writes_(writes) {
    region_ = must(device.allocate(kBlockBytes, Rights::kLocal));
    std::fill(region_.bytes().begin(), region_.bytes().end(), writes ? std::byte{0xee} : kRegionFill);
    for (Stroke& stroke : strokes_) stroke.hammer = this;
  }
  void use(std::unique_ptr<Endpoint> endpoint) {
    endpoint_ = std::move(endpoint);
    endpoint_->set_receiver(*this);
  }

 private:
  struct Stroke final : Operation {
    void complete(Status status) noexcept override {
      if (status.ok()) {
        if (++hammer->struck_ == kGoing) tell("going");
        hammer->strike(*this);
      } else if (++hammer->refused_ == kInFlight)
        tell("over");
    }
    Hammer* hammer = nullptr;
    CopyBlock copy;
  };

  void on_message(Message message) noexcept override {
    ByteReader reader(message.bytes());
    const auto descriptor = RegionDescriptor::decode(reader);
    SLIME_CHECK(descriptor.has_value());
    remote_ = must(endpoint_->import_region(*descriptor));
    for (Stroke& stroke : strokes_) strike(stroke);
  }
  void strike(Stroke& stroke) {
    const MutableBytes got = region_.bytes();
    if (!writes_ && !std::all_of(got.begin(), got.end(), [](std::byte b) { return b == kRegionFill; }))
      tell("leak");
    const std::uint64_t blocks = remote_.length_bytes() / kBlockBytes;
    stroke.copy = {&region_, 0, &remote_, next_++ % blocks * kBlockBytes, kBlockBytes};
    const std::span<const CopyBlock> copies(&stroke.copy, 1);
    const Status posted = writes_ ? endpoint_->write(copies, stroke) : endpoint_->read(copies, stroke);
    if (!posted.ok() && ++refused_ == kInFlight) tell("over");
  }
  void on_imm(std::uint32_t) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override {}

  const bool writes_;
  DeviceRegion region_;
  RemoteRegion remote_;
  std::uint64_t next_ = 0;
  int refused_ = 0;
  int struck_ = 0;
  std::array<Stroke, kInFlight> strokes_;
  std::unique_ptr<Endpoint> endpoint_;
};

bool stdin_ended() {
  pollfd entry{STDIN_FILENO, POLLIN, 0};
  if (::poll(&entry, 1, 0) <= 0) return false;
  char byte;
  return ::read(STDIN_FILENO, &byte, 1) <= 0;
}

int run(std::string_view what, const std::string& address) {
  const std::shared_ptr<Loop> loop = must(Loop::create());
  const auto device = must(must(make_provider(test::endpoint_provider()))->open_device());
  const auto port = must(device->open_port(*loop));
  std::unique_ptr<Server> server;
  std::unique_ptr<Hammer> hammer;
  std::unique_ptr<Connecting> connecting;
  if (what == "serve" || what == "serve-registered") {
    server = std::make_unique<Server>(*loop, *device, *port, what == "serve-registered");
    tell(server->address());
  } else {
    hammer = std::make_unique<Hammer>(*device, what == "write");
    HandshakeOptions options;
    options.self = {"peer", InstanceId::random()};
    options.provider = test::endpoint_provider();
    connecting = connect(*loop, *port, address, {}, options, [&](Result<Connected> connected) {
      hammer->use(must(std::move(connected)).endpoint);
      tell("connected");
    });
  }
  while (!stdin_ended()) loop->poll(std::chrono::milliseconds(20));
  return 0;
}

}  // namespace
}  // namespace slime::transport

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const bool needs_address = what == "write" || what == "read";
  if ((what != "serve" && what != "serve-registered" && !needs_address) || argc != (needs_address ? 3 : 2)) {
    std::fprintf(stderr, "usage: transport_peer serve | serve-registered | write ADDRESS | read ADDRESS\n");
    return 2;
  }
  return slime::transport::run(what, needs_address ? argv[2] : "");
}
