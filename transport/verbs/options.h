#pragma once

#include "transport/verbs_options.h"

namespace slime::transport::verbs {

using Options = VerbsOptions;

}  // namespace slime::transport::verbs
