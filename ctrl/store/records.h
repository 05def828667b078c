#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctrl/registry/registry.h"

// A registry as records, each a key and a JSON text: what stores keep and what a backup holds. Whoever reads
// them may be a later version, so decoding ignores fields that it does not know.
namespace slime::ctrl {

struct Record {
  RecordKey key;
  std::string value;
};

// Takes a record as it is now, in a time that does not depend on how large it is. The call makes its text, or
// nothing when the record was gone; it needs no registry any more, nor the lock of one.
using RecordEncoder = std::function<std::optional<std::string>()>;
RecordEncoder record_encoder(const Registry& registry, const RecordKey& key);
// Both at once.
std::optional<std::string> encode_record(const Registry& registry, const RecordKey& key);
std::vector<Record> encode_records(const Registry& registry);
std::vector<Record> encode_records(const RegistryState& state);
// One by one: how many records there are, and each of them, in an order that stays.
std::size_t record_count(const RegistryState& state);
Record encode_record_at(const RegistryState& state, std::size_t index);
// kCorrupt with the record at fault.
Result<RegistryState> decode_records(const std::vector<Record>& records);
// The same one by one: adds what the record says, and at the end, whether what must be there is.
Status decode_record(const Record& record, RegistryState& state);
Status check_whole(const RegistryState& state);

std::string_view table_name(Table table);  // "registry", "scope", "peer", "token", "links", "keys"
std::optional<Table> parse_table(std::string_view name);

}  // namespace slime::ctrl
