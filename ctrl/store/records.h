#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"

// A registry as records, each a key and a JSON text: the format of stores and backups. A later
// version may have written the records, so decoding ignores unknown fields.
namespace slime::ctrl {

struct Record {
  RecordKey key;
  std::string value;
};

// Captures a record as it is now, in a time independent of the record's size. The returned function
// encodes the captured record (empty if the record was gone); it needs neither the registry nor its
// lock.
using RecordEncoder = std::function<std::optional<std::string>()>;
RecordEncoder record_encoder(const Registry& registry, const RecordKey& key);
// Captures and encodes.
std::optional<std::string> encode_record(const Registry& registry, const RecordKey& key);
std::vector<Record> encode_records(const Registry& registry);
std::vector<Record> encode_records(const RegistryState& state);
// Access by index: the number of records, and each record, in a stable order.
std::size_t record_count(const RegistryState& state);
Record encode_record_at(const RegistryState& state, std::size_t index);
// kCorrupt with the record at fault.
Result<RegistryState> decode_records(const std::vector<Record>& records);
// Incremental decoding: decode_record() adds one record to `state`; check_whole() then checks that
// the required records were there.
Status decode_record(const Record& record, RegistryState& state);
Status check_whole(const RegistryState& state);

std::string_view table_name(Table table);  // "registry", "scope", "peer", "token", "links", "keys"
std::optional<Table> parse_table(std::string_view name);
// The four texts of a stored record: table_name(), scope, name, value.
using RecordTexts = std::array<std::string, 4>;
// kCorrupt for an unknown table.
Result<Record> record_from_texts(RecordTexts texts);

}  // namespace slime::ctrl
