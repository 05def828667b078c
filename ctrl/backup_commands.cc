#include "ctrl/backup_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/command_line.h"
#include "base/program.h"
#include "base/str.h"
#include "base/unique_fd.h"
#include "ctrl/server.h"
#include "ctrl/store/backup.h"
#include "ctrl/store/redis_url.h"

namespace slime::ctrl {
namespace {

using Json = nlohmann::ordered_json;

// The whole text or nothing: beside it first, then in its place. For its owner only, since it has the hashes
// of tokens and the keys of scopes.
Status write_file(const std::string& path, const std::string& text) {
  const std::string part = str(path, ".part");
  ::unlink(part.c_str());  // what an earlier one left, whoever may read that
  const UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return from_errno(part, errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return from_errno(part, errno);
    done += static_cast<std::size_t>(count);
  }
  if (::fsync(fd.get()) != 0) return from_errno(part, errno);
  if (std::rename(part.c_str(), path.c_str()) != 0) return from_errno(path, errno);
  return {};
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return from_errno(path, errno);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Json counts(const RegistryState& state) {
  return {{"scopes", state.revisions.size()},
          {"peers", state.peers.size()},
          {"tokens", state.tokens.size()},
          {"links", state.links.size()}};
}
std::string text_of(const RegistryState& state) {
  return str(state.peers.size(), " peers, ", state.tokens.size(), " tokens and the links of ",
             state.links.size(), " in ", state.revisions.size(), " scopes");
}

}  // namespace

BackupCommands::BackupCommands(command_line::Command& program) {
  command_line::Command backup =
      program.add_command("backup", "write all that a running nanoctrl keeps to a file");
  backup.option("file", file_, "where to; an earlier file is replaced once the new one is whole").required();
  asking_.add_options(backup);
  backup.action([this] { return this->backup(); });

  command_line::Command restore =
      program.add_command("restore", "put a backup into an empty store that no nanoctrl has open");
  restore.option("file", file_, "what backup wrote").required();
  restore.option("--store", store_, "sqlite:PATH or redis://host:port").required().env("SLIME_CTRL_STORE");
  ttl_s_ = std::chrono::duration<double>(limits::kTtlDefault).count();
  restore.option("--ttl", ttl_s_, "of the nanoctrl that will use it: in Redis all must have the same")
      .show_default()
      .in_range(0.1, 86400.0);
  restore.flag("--json", asking_.json, "print JSON");
  restore.action([this] { return this->restore(); });
}

int BackupCommands::backup() {
  const auto fail = [this](const Status& status) {
    return daemon::fail<Json>(asking_.json, "nanoctrl backup", status);
  };
  const Result<std::unique_ptr<Client>> client = asking_.client();
  if (!client) return fail(client.error());
  const Result<std::string> text = (*client)->backup();
  if (!text) return fail(text.error());
  // Read it as a restore would, before it replaces one that is good.
  const Result<RegistryState> state = decode_backup(*text);
  if (!state) return fail(state.error());
  if (Status status = write_file(file_, *text); !status.ok()) return fail(status);
  Json json = counts(*state);
  json["file"] = file_;
  json["bytes"] = text->size();
  return daemon::say(asking_.json, daemon::kExitOk, str(file_, ": ", text_of(*state)), json);
}

int BackupCommands::restore() {
  const auto fail = [this](const Status& status) {
    return daemon::fail<Json>(asking_.json, "nanoctrl restore", status);
  };
  const Result<std::string> text = read_file(file_);
  if (!text) return fail(text.error());
  Result<RegistryState> state = decode_backup(*text);
  if (!state) return fail(Status(state.error()).with_context(file_));
  Json json = counts(*state);
  const Result<redis::Address> redis = redis::parse_url(store_);
  json["store"] = redis ? redis::to_string(*redis) : store_;  // without the password
  const std::string said = text_of(*state);
  RegistryOptions options;
  options.epoch = wall_clock_epoch();
  options.ttl = std::chrono::round<std::chrono::milliseconds>(to_nanos(ttl_s_));
  if (Status status = restore_backup(store_, options, std::move(*state), steady_clock()); !status.ok())
    return fail(status);
  return daemon::say(asking_.json, daemon::kExitOk, str("restored ", said), json);
}

}  // namespace slime::ctrl
