#pragma once

// precompiled.h, and the headers behind which msgpack is.
#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/service.h"
#include "tests/support/precompiled.h"
