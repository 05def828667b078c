#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::verbs {

struct Functions;
struct Options;

// Makes the "verbs" provider: RDMA through this machine's libibverbs, with the settings of the
// environment's SLIME_VERBS_* variables (verbs/options.h). If a variable is wrong, available() and
// open_device() return the error.
std::unique_ptr<Provider> make_verbs_provider();
// Makes a provider that calls `functions`, which outlive the provider and everything that it opens.
std::unique_ptr<Provider> make_verbs_provider(const Functions& functions, Options options);

}  // namespace slime::transport::verbs
