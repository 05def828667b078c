#include "ctrl/client/token_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/str.h"

namespace slime::ctrl {

Result<std::string> read_token_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return from_errno(str("token file ", path), errno);
  if (S_ISREG(info.st_mode) && (info.st_mode & 007) != 0)
    return Status(
        Code::kPermissionDenied,
        str("token file ", path, " may be read by everybody on this machine (try: chmod 600 ", path, ")"));
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text) || text.empty())
    return Status(Code::kInvalidArgument, str("token file ", path, " has no first line"));
  return text;
}

Result<std::string> find_token(const std::string& path) {
  if (!path.empty()) return read_token_file(path);
  if (const char* file = std::getenv("SLIME_CTRL_TOKEN_FILE"); file != nullptr && *file != '\0')
    return read_token_file(file);
  const char* token = std::getenv("SLIME_CTRL_TOKEN");
  return token == nullptr ? std::string() : std::string(token);
}

Result<ClientOptions> client_options(std::string url, std::string token, std::string ca_file) {
  ClientOptions out;
  out.url = std::move(url);
  out.ca_file = std::move(ca_file);
  if (const char* file = std::getenv("SLIME_CTRL_CA_FILE"); out.ca_file.empty() && file != nullptr)
    out.ca_file = file;
  out.token = std::move(token);
  if (out.token.empty()) {
    Result<std::string> found = find_token();
    if (!found) return found.error();
    out.token = std::move(*found);
  }
  return out;
}

}  // namespace slime::ctrl
