#pragma once

// precompiled.h, and the headers that include msgpack.
#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/service.h"
#include "tests/support/precompiled.h"
