#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::verbs {

struct Functions;
struct Options;

// Makes the "verbs" provider: RDMA through this machine's libibverbs, with the settings of the
// SLIME_VERBS_* variables of the environment (verbs/options.h). available() and open_device()
// return the error of a variable that is wrong.
std::unique_ptr<Provider> make_verbs_provider();
// Makes a provider on other functions, which outlive the provider and all that it opens.
std::unique_ptr<Provider> make_verbs_provider(const Functions& functions, Options options);

}  // namespace slime::transport::verbs
