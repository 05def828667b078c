#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::sim {

// The "sim" entry of the provider table. Its devices register memory, but its endpoints are made by
// a SimFabric (sim/sim.h) only: two processes cannot share a simulation.
std::unique_ptr<Provider> make_sim_provider();

}  // namespace slime::transport::sim
