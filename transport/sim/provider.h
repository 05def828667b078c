#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::sim {

// Makes the provider "sim" of the provider table. Its devices register memory, but only a SimFabric
// (sim/sim.h) makes endpoints: two processes cannot share a simulation.
std::unique_ptr<Provider> make_sim_provider();

}  // namespace slime::transport::sim
