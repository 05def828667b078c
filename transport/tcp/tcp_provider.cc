#include "transport/tcp/tcp_provider.h"

#include "transport/soft/device.h"
#include "transport/wire.h"

namespace slime::transport::tcp {
namespace {

Result<std::unique_ptr<Wire>> make_wire(Loop& loop, UniqueFd socket, const Introduction&) {
  return make_socket_wire(loop, std::move(socket));
}

class TcpProvider final : public Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] Status available() const override { return {}; }
  Result<std::unique_ptr<Device>> open_device() override {
    return std::unique_ptr<Device>(
        std::make_unique<soft::SoftDevice>([](Loop& loop) { return soft::plain_wires(loop, &make_wire); }));
  }
};

}  // namespace

std::unique_ptr<Provider> make_tcp_provider() { return std::make_unique<TcpProvider>(); }

}  // namespace slime::transport::tcp
