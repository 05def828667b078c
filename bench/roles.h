#pragma once

#include <string>

#include "bench/options.h"

namespace slime::bench {

// The two processes of a measurement, spoken to in lines by the driver (driver.cc). Each returns the exit
// code.

// Serves echo calls and a region. Says "READY <address>", then answers until its stdin ends:
// "CPU" -> "CPU <seconds>"; "RAW" -> "RAW <port>".
int run_server(const Options& options);

// Loads the server at `address`. Says "READY -" when warm, starts at "GO" and says "RESULT <json>"; "RAW
// <port>" measures the limit against it and says "LIMIT <json>".
int run_client(const Options& options, const std::string& address);

}  // namespace slime::bench
