#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/provider.h"

namespace slime::transport {

// One provider that the initiator of a handshake has. The hint is what the acceptor needs to tell
// whether the two can reach each other over it (Device::hint()), in bytes that only that provider
// reads; empty: nothing.
struct Offer {
  std::string provider;
  ByteVector hint;
};

// One provider as the acceptor has it, or why it does not.
struct Holding {
  std::string provider;
  ByteVector hint;
  Status available;
  const ProviderTraits* traits = &kPlainTraits;  // never null
};

// Which offer, which holding goes with it, and why: "same host and user", or what was passed over
// before it.
struct Choice {
  std::size_t offer = 0;
  std::size_t holding = 0;
  std::string reason;
};

// The first offer that both sides can have. No I/O: the hints say all there is to know, and those
// of `offers` are a peer's bytes. When there is none: kUnimplemented (no provider in common), or
// the code of what keeps the last one apart, with the names and the reasons of both sides.
Result<Choice> choose(std::string_view peer_name, std::span<const Offer> offers, std::string_view self_name,
                      std::span<const Holding> holdings);

// Returns the index of the offer that the acceptor will most likely choose, so that the initiator
// can prepare an endpoint for it in advance. Returns nothing if that endpoint is slow to prepare
// and the choice is not certain. `offered` has the traits of each offer, in order. `same_machine`:
// the connection goes to an address of this machine.
std::optional<std::size_t> likely_choice(std::span<const ProviderTraits* const> offered, bool same_machine);

}  // namespace slime::transport
