#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"

// A registry as separate records, the form in which stores and backups keep it. A record is a key
// and a JSON text. Decoding ignores unknown fields, because a later version may have written the
// record.
namespace slime::ctrl {

struct Record {
  RecordKey key;
  std::string value;
};

// Encodes a record as it was when record_encoder() captured it; returns nullopt if there was no
// such record. Capturing is fast for records of any size. Encoding needs neither the registry nor
// its lock.
using RecordEncoder = std::function<std::optional<std::string>()>;
RecordEncoder record_encoder(const Registry& registry, const RecordKey& key);
// Captures and encodes.
std::optional<std::string> encode_record(const Registry& registry, const RecordKey& key);
std::vector<Record> encode_records(const Registry& registry);
std::vector<Record> encode_records(const RegistryState& state);
// record_count() returns the number of records of `state`. encode_record_at() encodes the record at
// an index below it; the order of records does not change.
std::size_t record_count(const RegistryState& state);
Record encode_record_at(const RegistryState& state, std::size_t index);
// kCorrupt with the record at fault.
Result<RegistryState> decode_records(const std::vector<Record>& records);
// Decodes a state step by step. decode_record() adds one record to `state`. At the end,
// check_whole() checks that the required records were present.
Status decode_record(const Record& record, RegistryState& state);
Status check_whole(const RegistryState& state);

std::string_view table_name(Table table);  // "registry", "scope", "peer", "token", "links", "keys"
std::optional<Table> parse_table(std::string_view name);
// The four texts of a stored record: its table's name, scope, name and value.
using RecordTexts = std::array<std::string, 4>;
// kCorrupt for an unknown table.
Result<Record> record_from_texts(RecordTexts texts);

}  // namespace slime::ctrl
