#include "transport/tcp/tcp_provider.h"

#include "transport/soft/device.h"
#include "transport/wire.h"

namespace slime::transport::tcp {
namespace {

Result<soft::WireFactory> make_wires(Loop& loop, const PortOptions& options) {
  return soft::plain_wires(
      loop, [outage = options.outage_tolerated](Loop& its_loop, UniqueFd socket, const Introduction&) {
        return make_socket_wire(its_loop, std::move(socket), outage);
      });
}

constexpr ProviderTraits kTraits{.automatic = true, .reaches_everyone = true};

class TcpProvider final : public Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  [[nodiscard]] const ProviderTraits& traits() const override { return kTraits; }
  [[nodiscard]] Status available() const override { return {}; }
  Result<std::unique_ptr<Device>> open_device() override {
    return std::unique_ptr<Device>(std::make_unique<soft::SoftDevice>(&make_wires));
  }
};

}  // namespace

std::unique_ptr<Provider> make_tcp_provider() { return std::make_unique<TcpProvider>(); }

}  // namespace slime::transport::tcp
