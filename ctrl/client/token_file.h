#pragma once

#include <string>

#include "base/result.h"
#include "ctrl/client.h"

namespace slime::ctrl {

// The token in a file of one line. kPermissionDenied when everybody on this machine may read it.
Result<std::string> read_token_file(const std::string& path);

// What programs send to nanoctrl: of that file if it is not empty, else of $SLIME_CTRL_TOKEN_FILE, else
// $SLIME_CTRL_TOKEN itself, else none. Never an option of a command line, which others see.
Result<std::string> find_token(const std::string& path = {});

// For a nanoctrl at `url`; an empty token is looked for as above, an empty CA file in $SLIME_CTRL_CA_FILE.
Result<ClientOptions> client_options(std::string url, std::string token = {}, std::string ca_file = {});

}  // namespace slime::ctrl
