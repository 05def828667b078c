#pragma once

#include <memory>

#include "transport/provider.h"

namespace slime::transport::tcp {

// Makes the provider "tcp" of the provider table: the software engine over the TCP connection that
// the handshake was on. Works on every machine.
std::unique_ptr<Provider> make_tcp_provider();

}  // namespace slime::transport::tcp
