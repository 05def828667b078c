#pragma once

#include <array>
#include <cstddef>

#include "base/bytes.h"
#include "base/secret.h"

namespace slime::transport {

using HandshakeMac = std::array<std::byte, 32>;

// Returns the HMAC-SHA256 of `text`. Takes no lock, so a child of fork() can call this even if
// threads of its parent held locks. Thread: any.
HandshakeMac hmac_sha256(const Secret& key, Bytes text);

}  // namespace slime::transport
