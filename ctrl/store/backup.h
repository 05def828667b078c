#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ctrl/registry/registry.h"
#include "ctrl/store/records.h"

// A backup: a registry as one JSON text that can be restored to any kind of store. Contains the
// peers, wanted links, tokens (as hashes) and counters. Does not contain the keys of scopes.
namespace slime::ctrl {

// A backup consists of backup_head(), the records separated by kBackupSeparator, and backup_tail().
std::string_view backup_head();
std::string encode_backup_record(const Record& record);
std::string_view backup_tail();
inline constexpr std::string_view kBackupSeparator = ",\n";

std::string encode_backup(const std::vector<Record>& records);
// Reads and decodes a backup, record by record. Passes each record to `seen` before it decodes it.
// kInvalidArgument: the text is not a backup, or a later version has made it. kCorrupt: a record is
// malformed, or the counters are missing.
Result<RegistryState> decode_backup(std::istream& in, const std::function<void(const Record&)>& seen = {});

// The reply of GET /v1/backup: the records of one page. If the whole backup fits into one page, the
// reply is a complete backup.
struct BackupPage {
  std::vector<Record> records;
  std::optional<std::string> next;  // cursor of the next page; empty: last page
};
std::string encode_backup_page(const std::vector<Record>& records, const std::optional<std::string>& next);
// Errors as of decode_backup().
Result<BackupPage> decode_backup_page(std::string_view text);

// Writes the state to `store` ("sqlite:PATH" or "redis://..."), which must be empty or missing, and
// must not be open in a nanoctrl. Gives every lease a full TTL, leaves out the keys, and raises
// revisions and incarnations to at least `options.epoch`, the time of the restore. kAlreadyExists
// when the store has a registry.
Status restore_backup(const std::string& store, RegistryOptions options, RegistryState state,
                      const Clock& clock);

}  // namespace slime::ctrl
