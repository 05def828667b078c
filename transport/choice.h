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

// A provider that the initiator of a handshake offers. `hint` (Device::hint()) tells the acceptor
// whether the two sides can reach each other over the provider. Only that provider reads the bytes.
// Empty: no hint is needed.
struct Offer {
  std::string provider;
  ByteVector hint;
};

// A provider that the acceptor knows. If it cannot be used, `available` is the reason.
struct Holding {
  std::string provider;
  ByteVector hint;
  Status available;
  const ProviderTraits* traits = &kPlainTraits;  // never null
};

// The result of choose(): the indices of the chosen offer and of the acceptor's holding of the same
// provider, and a reason for people: "same host and user", or why earlier offers were passed over.
struct Choice {
  std::size_t offer = 0;
  std::size_t holding = 0;
  std::string reason;
};

// Chooses the first offer that both sides can use. No I/O: the hints decide. The hints of `offers`
// come from the peer and may be any bytes. Errors: kUnimplemented if no provider is in common, else
// the code of the problem with the last common provider. The text has the names and the reasons of
// both sides.
Result<Choice> choose(std::string_view peer_name, std::span<const Offer> offers, std::string_view self_name,
                      std::span<const Holding> holdings);

// Returns the index of the offer that the acceptor will most likely choose, so that the initiator
// can prepare an endpoint for it in advance. Returns nothing if that endpoint is slow to prepare
// and the choice is not certain. `offered` has the traits of each offer, in order. `same_machine`:
// the connection goes to an address of this machine.
std::optional<std::size_t> likely_choice(std::span<const ProviderTraits* const> offered, bool same_machine);

}  // namespace slime::transport
