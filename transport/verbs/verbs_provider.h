#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::verbs {

struct Functions;
struct Options;

// The "verbs" entry of the provider table: RDMA through this machine's libibverbs, set up by the
// SLIME_VERBS_* variables of the environment (verbs/options.h). A variable that is wrong is the answer of
// available() and open_device().
std::unique_ptr<Provider> make_verbs_provider();
// The same on other functions, which outlive it and all that it opens.
std::unique_ptr<Provider> make_verbs_provider(const Functions& functions, Options options);

}  // namespace slime::transport::verbs
