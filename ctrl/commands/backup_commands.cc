#include "ctrl/commands/backup_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
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

constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

// Writes a file that appears complete or not at all: under a temporary name that finish() replaces
// with `path`. Only the owner may read the file, because it contains hashes of tokens.
class NewFile {
 public:
  static Result<NewFile> create(std::string path) {
    // The temporary name is unique, because another backup may be under way.
    std::string part = str(path, ".part-XXXXXX");
    UniqueFd fd(::mkostemp(part.data(), O_CLOEXEC));
    if (!fd.valid()) return from_errno(part, errno);
    return NewFile(std::move(path), std::move(part), std::move(fd));
  }
  NewFile(NewFile&&) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile() {
    if (fd_.valid()) ::unlink(part_.c_str());
  }

  Status append(std::string_view text) {
    buffer_.append(text);
    return buffer_.size() < kWriteBytes ? Status() : flush();
  }
  Status finish() {
    SLIME_TRY(flush());
    if (::fsync(fd_.get()) != 0) return from_errno(part_, errno);
    if (std::rename(part_.c_str(), path_.c_str()) != 0) return from_errno(path_, errno);
    fd_.reset();
    return {};
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_ + buffer_.size(); }

 private:
  NewFile(std::string path, std::string part, UniqueFd fd)
      : path_(std::move(path)), part_(std::move(part)), fd_(std::move(fd)) {}
  Status flush() {
    for (std::size_t done = 0; done < buffer_.size();) {
      const ssize_t count = ::write(fd_.get(), buffer_.data() + done, buffer_.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return from_errno(part_, errno);
      done += static_cast<std::size_t>(count);
    }
    bytes_ += buffer_.size();
    buffer_.clear();
    return {};
  }

  std::string path_, part_;
  UniqueFd fd_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;  // written so far
};

// Shows one line of progress on a terminal, only if the operation takes longer than half a second.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  void at(std::uint64_t bytes, std::size_t records) {
    const TimePoint now = steady_clock().now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    shown_ = true;
    std::fprintf(stderr, "\r\x1b[K%s: %.1f MiB, %zu records", what_.c_str(),
                 static_cast<double>(bytes) / (1 << 20), records);
  }

 private:
  const std::string what_;
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  TimePoint next_ = steady_clock().now() + std::chrono::milliseconds(500);
  bool shown_ = false;
};

struct Counts {
  std::size_t scopes = 0, peers = 0, tokens = 0, links = 0;
};
Json to_json(const Counts& counts) {
  return {
      {"scopes", counts.scopes}, {"peers", counts.peers}, {"tokens", counts.tokens}, {"links", counts.links}};
}
std::string text_of(const Counts& counts) {
  return str(counts.peers, " peers, ", counts.tokens, " tokens and the links of ", counts.links, " in ",
             counts.scopes, " scopes");
}
Counts counts_of(const RegistryState& state) {
  return {state.revisions.size(), state.peers.size(), state.tokens.size(), state.links.size()};
}

// Validates records as a restore would, and counts them. Does not keep the records.
class Checker {
 public:
  Status add(const Record& record) {
    RegistryState one;
    SLIME_TRY(decode_record(record, one));
    const Counts more = counts_of(one);
    counts_.scopes += more.scopes;
    counts_.peers += more.peers;
    counts_.tokens += more.tokens;
    counts_.links += more.links;
    if (one.epoch != 0) whole_.epoch = one.epoch;
    ++records_;
    return {};
  }
  [[nodiscard]] Status finish() const { return check_whole(whole_); }
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::size_t records() const { return records_; }

 private:
  RegistryState whole_;  // the counters only
  Counts counts_;
  std::size_t records_ = 0;
};

// Downloads a backup page by page into `file`, so that neither client nor server has the whole text
// in memory.
Status download(Client& client, NewFile& file, Checker& checker) {
  Progress progress("backup");
  SLIME_TRY(file.append(backup_head()));
  std::optional<std::string> next = std::string();
  while (next) {
    if (g_interrupted) break;
    const Result<std::string> text = client.backup_page(*next);
    if (!text) return text.error();
    const Result<BackupPage> page = decode_backup_page(*text);
    if (!page) return page.error();
    for (const Record& record : page->records) {
      SLIME_TRY(checker.add(record));
      if (checker.records() > 1) SLIME_TRY(file.append(kBackupSeparator));
      SLIME_TRY(file.append(encode_backup_record(record)));
    }
    progress.at(file.bytes(), checker.records());
    next = page->next;
  }
  if (g_interrupted) return {Code::kCancelled, "interrupted"};
  SLIME_TRY(file.append(backup_tail()));
  SLIME_TRY(checker.finish());
  return file.finish();
}

Result<RegistryState> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return from_errno(path, errno);
  Progress progress("restore");
  std::size_t records = 0;
  std::uint64_t bytes = 0;
  Result<RegistryState> state = decode_backup(file, [&](const Record& record) {
    bytes += record.value.size();
    progress.at(bytes, ++records);
  });
  if (!state) return Status(state.error()).with_context(path);
  return state;
}

}  // namespace

BackupCommands::BackupCommands(command_line::Command& program) {
  command_line::Command backup =
      program.add_command("backup", "write the registry of a running nanoctrl to a file");
  backup.option("file", file_, "file to write; replaces an existing file once the backup is complete")
      .required();
  asking_.add_options(backup);
  backup.action([this] { return this->backup(); });

  command_line::Command restore =
      program.add_command("restore", "write a backup to an empty store that no nanoctrl has open");
  restore.option("file", file_, "file written by nanoctrl backup").required();
  restore.option("--store", store_, "sqlite:PATH or redis://host:port").required().env("SLIME_CTRL_STORE");
  rules_.add_options(restore, "; must match the nanoctrl that will use the store");
  restore.flag("--json", asking_.json, "print JSON");
  restore.action([this] { return this->restore(); });
}

int BackupCommands::backup() {
  const auto fail = [this](const Status& status) {
    return daemon::fail<Json>(asking_.json, "nanoctrl backup", status);
  };
  const Result<std::unique_ptr<Client>> client = asking_.client();
  if (!client) return fail(client.error());
  // The first SIGINT or SIGTERM ends the backup after the current page and removes its file. A
  // second signal ends the process at once.
  for (const int number : {SIGINT, SIGTERM}) {
    std::signal(number, [](int same) {
      g_interrupted = true;
      std::signal(same, SIG_DFL);
    });
  }
  Result<NewFile> file = NewFile::create(file_);
  if (!file) return fail(file.error());
  Checker checker;
  if (Status status = download(**client, *file, checker); !status.ok()) return fail(status);
  Json json = to_json(checker.counts());
  json["file"] = file_;
  json["bytes"] = file->bytes();
  return daemon::say(asking_.json, daemon::kExitOk, str(file_, ": ", text_of(checker.counts())), json);
}

int BackupCommands::restore() {
  const auto fail = [this](const Status& status) {
    return daemon::fail<Json>(asking_.json, "nanoctrl restore", status);
  };
  Result<RegistryState> state = read_file(file_);
  if (!state) return fail(state.error());
  const Counts counts = counts_of(*state);
  Json json = to_json(counts);
  const Result<redis::Address> redis = redis::parse_url(store_);
  json["store"] = redis ? redis::to_string(*redis) : store_;  // without the password
  RegistryOptions options;
  options.epoch = wall_clock_epoch();
  rules_.apply(options);
  if (Status status = restore_backup(store_, options, std::move(*state), steady_clock()); !status.ok())
    return fail(status);
  return daemon::say(asking_.json, daemon::kExitOk, str("restored ", text_of(counts)), json);
}

}  // namespace slime::ctrl
