#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::tcp {

// The "tcp" entry of the provider table: the software engine over the connection that the handshake
// was on. Works everywhere.
std::unique_ptr<Provider> make_tcp_provider();

}  // namespace slime::transport::tcp
