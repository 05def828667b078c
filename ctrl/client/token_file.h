#pragma once

#include <string>

#include "base/result.h"
#include "ctrl/client.h"

namespace slime::ctrl {

// Reads a token from a file that consists of one line. kPermissionDenied if the file's mode
// lets all users of this machine use it.
Result<std::string> read_token_file(const std::string& path);

// Returns the token for requests to nanoctrl: from the file `path` if not empty, else from the file
// named by $SLIME_CTRL_TOKEN_FILE, else from $SLIME_CTRL_TOKEN, else an empty text. The token is
// never a command-line argument, because other users can see arguments.
Result<std::string> find_token(const std::string& path = {});

// Returns the options of a client for the nanoctrl at `url`. If `token` is empty, uses
// find_token(). If `ca_file` is empty, uses $SLIME_CTRL_CA_FILE.
Result<ClientOptions> client_options(std::string url, std::string token = {}, std::string ca_file = {});

}  // namespace slime::ctrl
