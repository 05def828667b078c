#pragma once

#include <cstdint>
#include <memory>

#include "transport/provider.h"

namespace slime::transport::toy {

// Makes a provider that shows what a new one needs: a Wire, parameters, a hint, and traits. Its
// wire is the socket of the handshake; each side masks every byte that it sends with a mask of its
// own. Peers of the same `group` reach each other.
std::unique_ptr<Provider> make_toy_provider(std::uint8_t group = 1);

// The line for a provider table.
ProviderEntry toy_entry(std::uint8_t group = 1);

}  // namespace slime::transport::toy
