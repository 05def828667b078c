#include "transport/verbs/verbs_provider.h"

#include "base/str.h"
#include "transport/verbs/device.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {
namespace {

struct Setup {
  const Functions* functions = nullptr;
  Options options;
};

Result<Setup> setup_of_this_machine(const std::optional<Options>& given) {
  Result<Options> options = given ? *given : Options::from_environment();
  if (!options) return std::move(options).error();
  const auto functions = load_functions();
  if (!functions) return functions.error();
  return Setup{*functions, std::move(*options)};
}

constexpr ProviderTraits kTraits{
    .automatic = true,
    .slow_to_prepare = true,  // an adapter takes time to make queue pairs
    .may_refuse_memory = true,
    .fits = "both have an active RDMA port",
    .check_hints = &check_hints,
};

class VerbsProvider final : public Provider {
 public:
  // `required`: see Provider::required().
  explicit VerbsProvider(Result<Setup> setup, bool required)
      : setup_(std::move(setup)), required_(required) {}

  [[nodiscard]] std::string_view name() const override { return "verbs"; }
  [[nodiscard]] const ProviderTraits& traits() const override { return kTraits; }

  [[nodiscard]] Status available() const override {
    SLIME_TRY(setup_.status());
    SLIME_TRY(setup_->options.validate());
    const auto ports = list_ports(*setup_->functions);
    if (!ports) return asked(ports.error());
    return asked(select_port(*ports, setup_->options).status());
  }

  Result<std::unique_ptr<Device>> open_device() override {
    SLIME_TRY(setup_.status());
    auto context = Context::open(*setup_->functions, setup_->options);
    if (!context) return std::move(context).error();
    return std::unique_ptr<Device>(
        std::make_unique<VerbsDevice>(std::make_shared<DeviceState>(std::move(*context))));
  }

  [[nodiscard]] bool required() const override { return required_; }

 private:
  // Names the device that the user asked for in the text of an error.
  [[nodiscard]] Status asked(Status status) const {
    return required_ ? std::move(status).with_context(str("asked for ", setup_->options.device)) : status;
  }

  const Result<Setup> setup_;
  const bool required_;
};

}  // namespace

std::unique_ptr<Provider> make_verbs_provider(const std::optional<Options>& options) {
  return std::make_unique<VerbsProvider>(setup_of_this_machine(options), options && !options->device.empty());
}

std::unique_ptr<Provider> make_verbs_provider(const Functions& functions, Options options) {
  return std::make_unique<VerbsProvider>(Setup{&functions, std::move(options)}, false);
}

}  // namespace slime::transport::verbs
