#pragma once

#include <array>
#include <cstddef>

#include "base/bytes.h"
#include "base/secret.h"

namespace slime::transport {

using HandshakeMac = std::array<std::byte, 32>;

// HMAC-SHA256. Takes no lock, so a child of fork() can call it whatever its parent's threads were
// doing. Thread: any.
HandshakeMac hmac_sha256(const Secret& key, Bytes text);

}  // namespace slime::transport
