#pragma once

#include <string>

#include "base/result.h"
#include "ctrl/client.h"

namespace slime::ctrl {

// Reads the token from a file of one line. kPermissionDenied when all users of this machine may
// read it.
Result<std::string> read_token_file(const std::string& path);

// Returns the token to send to nanoctrl: from `path` if not empty, else from the file
// $SLIME_CTRL_TOKEN_FILE, else from $SLIME_CTRL_TOKEN, else none. Never from the command line,
// which other users can see.
Result<std::string> find_token(const std::string& path = {});

// Returns the options for a nanoctrl at `url`. An empty token is found as by find_token(), an empty
// CA file in $SLIME_CTRL_CA_FILE.
Result<ClientOptions> client_options(std::string url, std::string token = {}, std::string ca_file = {});

}  // namespace slime::ctrl
