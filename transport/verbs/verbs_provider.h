#pragma once

#include <memory>
#include <optional>

#include "transport/provider.h"
#include "transport/verbs/options.h"

namespace slime::transport::verbs {

struct Functions;

// Makes the "verbs" provider: RDMA through this machine's libibverbs. Without `options`, with the
// settings of the environment's SLIME_VERBS_* variables. If a setting is wrong, available() and
// open_device() return the error.
std::unique_ptr<Provider> make_verbs_provider(const std::optional<Options>& options);
// Makes a provider that calls `functions`, which outlive the provider and everything that it opens.
std::unique_ptr<Provider> make_verbs_provider(const Functions& functions, Options options);

}  // namespace slime::transport::verbs
