#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::shm {

// Shared memory between processes of one user on one host.
std::unique_ptr<Provider> make_shm_provider();

}  // namespace slime::transport::shm
