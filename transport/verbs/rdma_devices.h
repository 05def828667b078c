#pragma once

#include <vector>

#include "transport/rdma_devices.h"
#include "transport/verbs/functions.h"

namespace slime::transport::verbs {

// As transport::devices(), of the library whose functions these are.
Result<std::vector<RdmaDevice>> devices(const Functions& functions);

}  // namespace slime::transport::verbs
