#include "transport/sim/provider.h"

#include "transport/soft/device.h"

namespace slime::transport::sim {
namespace {

Status needs_fabric() {
  return Status(Code::kUnimplemented,
                "sim connects endpoints of one process, through sim::SimFabric; use tcp between processes");
}

class SimProvider final : public Provider {
 public:
  [[nodiscard]] std::string_view name() const override { return "sim"; }
  [[nodiscard]] Status available() const override { return needs_fabric(); }
  Result<std::unique_ptr<Device>> open_device() override {
    return std::unique_ptr<Device>(std::make_unique<soft::SoftDevice>([](Loop& loop, const PortOptions&) {
      return soft::plain_wires(loop,
                               [](Loop&, UniqueFd, const Introduction&) -> Result<std::unique_ptr<Wire>> {
                                 return needs_fabric();
                               });
    }));
  }
};

}  // namespace

std::unique_ptr<Provider> make_sim_provider() { return std::make_unique<SimProvider>(); }

}  // namespace slime::transport::sim
