#pragma once

#include <optional>

#include "agent/peer_agent.h"
#include "python/binding.h"

namespace slime::python {

// Returns the settings of verbs: those of the environment, changed by a dict of field names and
// values (int, bool or str); None: no settings. Raises InvalidArgument for an unknown field or a
// bad value.
std::optional<VerbsOptions> verbs_from(nb::handle settings);

}  // namespace slime::python
