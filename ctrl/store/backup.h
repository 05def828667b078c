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

// A registry as one JSON text, independent of the store: peers, wanted links, tokens (hashed), and
// the counters from which numbers continue. Contains no keys of scopes.
namespace slime::ctrl {

// The text is the head, the records separated by kBackupSeparator, and the tail.
std::string_view backup_head();
std::string encode_backup_record(const Record& record);
std::string_view backup_tail();
inline constexpr std::string_view kBackupSeparator = ",\n";

std::string encode_backup(const std::vector<Record>& records);
// Reads and decodes a backup, record by record; passes each record to `seen` first. Errors:
// kInvalidArgument when the text is not a backup, or is a later version's; kCorrupt for a malformed
// record, and when the counters are missing.
Result<RegistryState> decode_backup(std::istream& in, const std::function<void(const Record&)>& seen = {});

// The reply of GET /v1/backup: some of the records, or a whole backup if it fits.
struct BackupPage {
  std::vector<Record> records;
  std::optional<std::string> next;  // where the next page begins
};
std::string encode_backup_page(const std::vector<Record>& records, const std::optional<std::string>& next);
// Errors as of decode_backup().
Result<BackupPage> decode_backup_page(std::string_view text);

// Writes the state to a store ("sqlite:PATH", "redis://...") that is empty or missing, and that no
// nanoctrl has open. Every lease starts anew, and numbers continue from `options.epoch`, the time
// of this restore, where they are behind it; new keys are made. kAlreadyExists when the store holds
// a registry.
Status restore_backup(const std::string& store, RegistryOptions options, RegistryState state,
                      const Clock& clock);

}  // namespace slime::ctrl
