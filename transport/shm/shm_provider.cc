#include "transport/shm/shm_provider.h"

#include "transport/shm/hub.h"
#include "transport/shm/parameters.h"
#include "transport/shm/shm_wire.h"
#include "transport/soft/device.h"

namespace slime::transport::shm {
namespace {

class ShmPending final : public soft::PendingWire {
 public:
  explicit ShmPending(std::shared_ptr<Hub> hub) : hub_(std::move(hub)), ours_(hub_->expect()) {}
  ~ShmPending() override {
    if (!finished_) hub_->forget(ours_.cookie);
  }
  [[nodiscard]] ByteVector parameters() const override { return ours_.encode(); }
  Result<std::unique_ptr<Wire>> finish(Bytes peer_parameters, UniqueFd socket,
                                       const Introduction& who) override {
    const Result<Parameters> theirs = Parameters::decode(peer_parameters);
    if (!theirs) return theirs.error();
    SLIME_TRY(check_same_host(ours_, *theirs, who.peer_name));
    finished_ = true;  // from here on the wire owns the socket and the cookie
    return ShmWire::create(hub_, ours_, *theirs, std::move(socket), who.initiator);
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const Parameters ours_;
  bool finished_ = false;
};

Result<soft::WireFactory> make_wires(Loop& loop, Options options) {
  Result<std::shared_ptr<Hub>> hub = Hub::create(loop, options);
  if (!hub) return std::move(hub).error();
  return soft::WireFactory([hub = std::move(*hub)]() -> Result<std::unique_ptr<soft::PendingWire>> {
    return std::unique_ptr<soft::PendingWire>(std::make_unique<ShmPending>(hub));
  });
}

constexpr ProviderTraits kTraits{
    .automatic = true,
    .same_machine_only = true,
    .fits = "same host and user",
    .check_hints = &check_hints,
};

class ShmProvider final : public Provider {
 public:
  explicit ShmProvider(Options options) : options_(options) {}
  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] const ProviderTraits& traits() const override { return kTraits; }
  [[nodiscard]] Status available() const override { return boot_id().status(); }
  Result<std::unique_ptr<Device>> open_device() override {
    const Result<Hint> hint = Hint::of_this_process();
    if (!hint) return hint.error();
    return std::unique_ptr<Device>(std::make_unique<soft::SoftDevice>(
        [options = options_](Loop& loop, const PortOptions&) { return make_wires(loop, options); },
        hint->encode(), true));
  }

 private:
  const Options options_;
};

}  // namespace

std::unique_ptr<Provider> make_shm_provider() { return make_shm_provider(Options{}); }
std::unique_ptr<Provider> make_shm_provider(Options options) {
  return std::make_unique<ShmProvider>(options);
}

}  // namespace slime::transport::shm
