#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "ctrl/store/records.h"
#include "ctrl/wire/json_fields.h"

// The text form of a record, in backups and in snapshots of the log: the JSON list of its four
// texts [table, scope, name, value]. Private to ctrl's .cc files: it includes the JSON library.
namespace slime::ctrl {

Json json_of(const Record& record);
// kCorrupt when `item` is not a list of four texts, or the table is unknown.
Result<Record> parse_record(const Json& item);

// Builds records from their texts, which arrive one by one in the order of the list.
class RecordParser {
 public:
  // kCorrupt for a fifth text.
  Status add(std::string text);
  // Returns the record, and begins the next one. kCorrupt for fewer than four texts, and for an
  // unknown table.
  Result<Record> finish();
  // Returns the error for a list that holds anything but four texts.
  static Status malformed();

 private:
  RecordTexts texts_;
  std::size_t count_ = 0;
};

}  // namespace slime::ctrl
