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

// A registry as one JSON text, whatever store it came from: peers, wanted links, tokens (hashed), and the
// counters that its numbers go on from. It has no keys of scopes.
namespace slime::ctrl {

// The text is its head, records with kBackupSeparator between them, and its tail.
std::string_view backup_head();
std::string encode_backup_record(const Record& record);
std::string_view backup_tail();
inline constexpr std::string_view kBackupSeparator = ",\n";

std::string encode_backup(const std::vector<Record>& records);
std::string encode_backup(const Registry& registry);
// Hands each record on as it is read, and keeps none. Errors: what `take` returns; kInvalidArgument when the
// text is no backup, or a later version's; kCorrupt for what is no record.
Status read_backup(std::istream& in, const std::function<Status(const Record&)>& take);
// The same, decoded. kCorrupt also when the records do not fit together.
Result<RegistryState> decode_backup(std::istream& in);
Result<RegistryState> decode_backup(std::string_view text);

// What GET /v1/backup answers: a part of the records, or a whole backup if all of them fit.
struct BackupPage {
  std::vector<Record> records;
  std::optional<std::string> next;  // where the rest begins
};
std::string encode_backup_page(const std::vector<Record>& records, const std::optional<std::string>& next);
// Errors as of decode_backup().
Result<BackupPage> decode_backup_page(std::string_view text);

// Puts it into a store that is empty or not there yet, and that no nanoctrl has open ("sqlite:PATH",
// "redis://..."). Every lease starts anew, and numbers go on from `options.epoch`, the time of this restore,
// where they are behind it; the keys are made anew. kAlreadyExists when there is a registry.
Status restore_backup(const std::string& store, RegistryOptions options, RegistryState state,
                      const Clock& clock);

}  // namespace slime::ctrl
