#pragma once

#include <memory>

#include "transport/provider.h"
#include "transport/shm/hub.h"

namespace slime::transport::shm {

// Makes the provider "shm": shared memory between processes of one user on one host.
std::unique_ptr<Provider> make_shm_provider();
std::unique_ptr<Provider> make_shm_provider(Options options);

}  // namespace slime::transport::shm
