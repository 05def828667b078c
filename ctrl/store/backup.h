#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/registry.h"
#include "ctrl/store/records.h"

// A registry as one JSON text, whatever store it came from: peers, wanted links, tokens (hashed), keys of
// scopes, and the counters that its numbers go on from.
namespace slime::ctrl {

std::string encode_backup(const Registry& registry);
// kInvalidArgument when the text is none, or a later version's; kCorrupt when its records do not fit
// together.
Result<RegistryState> decode_backup(std::string_view text);

// Puts it into a store that is empty or not there yet, and that no nanoctrl has open ("sqlite:PATH",
// "redis://..."). Every lease starts anew, and numbers go on from `options.epoch`, the time of this restore,
// where they are behind it; the keys are made anew. kAlreadyExists when there is a registry.
Status restore_backup(const std::string& store, RegistryOptions options, RegistryState state,
                      const Clock& clock);

}  // namespace slime::ctrl
