#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "ctrl/store/records.h"
#include "ctrl/wire/json_fields.h"

// A record as JSON: the list of its four texts [table, scope, name, value]. Used in backups and in
// snapshots of the log. Only for .cc files of ctrl, because it includes the JSON library.
namespace slime::ctrl {

Json json_of(const Record& record);
// Parses a record. kCorrupt when `item` is not a list of four texts, or names an unknown table.
Result<Record> parse_record(const Json& item);

// Builds a record from its four texts, which add() receives one by one.
class RecordParser {
 public:
  // kCorrupt for a fifth text.
  Status add(std::string text);
  // Returns the record, and starts with the next record. kCorrupt if add() has received fewer than
  // four texts, or the table is unknown.
  Result<Record> finish();
  // Returns the error for a list that does not consist of four texts.
  static Status malformed();

 private:
  RecordTexts texts_;
  std::size_t count_ = 0;
};

}  // namespace slime::ctrl
