#include "ctrl/commands/asking.h"

#include <utility>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/str.h"
#include "ctrl/client/token_file.h"
#include "ctrl/limits.h"

namespace slime::ctrl {
namespace {

std::string default_url() { return str("http://127.0.0.1:", limits::kDefaultPort); }

}  // namespace

void Asking::add_options(command_line::Command& command) {
  command
      .option("--ctrl", url,
              str("URL of nanoctrl, or several separated by commas (default: ", default_url(), ")"))
      .env("SLIME_CTRL_URL");
  command.option("--token-file", token_file,
                 "file with the token to send (default: $SLIME_CTRL_TOKEN_FILE, else the token in "
                 "$SLIME_CTRL_TOKEN)");
  command.refused_option("--token",
                         "others would see it in the list of processes: give --token-file, or set "
                         "SLIME_CTRL_TOKEN_FILE or SLIME_CTRL_TOKEN");
  command.option("--timeout", timeout_s, "seconds to wait for each reply")
      .show_default()
      .in_range(0.1, 3600.0);
  command.flag("--json", json, "print JSON");
}

Result<std::unique_ptr<Client>> Asking::client() const {
  Result<std::string> token = find_token(token_file);
  if (!token) return token.error();
  Result<ClientOptions> options = client_options(url.empty() ? default_url() : url, std::move(*token));
  if (!options) return options.error();
  options->timeout = to_nanos(timeout_s);
  return Client::create(std::move(*options));
}

}  // namespace slime::ctrl
