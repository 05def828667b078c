#include "ctrl/store/record_text.h"

#include <utility>

namespace slime::ctrl {

Json json_of(const Record& record) {
  return Json::array({table_name(record.key.table), record.key.scope, record.key.name, record.value});
}

Result<Record> parse_record(const Json& item) {
  if (!item.is_array()) return RecordParser::malformed();
  RecordParser parser;
  for (const Json& each : item) {
    const auto* text = each.get_ptr<const std::string*>();
    if (text == nullptr) return RecordParser::malformed();
    SLIME_TRY(parser.add(*text));
  }
  return parser.finish();
}

Status RecordParser::malformed() { return {Code::kCorrupt, "a record is not a list of four texts"}; }

Status RecordParser::add(std::string text) {
  if (count_ == texts_.size()) return malformed();
  texts_[count_++] = std::move(text);
  return {};
}

Result<Record> RecordParser::finish() {
  if (std::exchange(count_, 0) != texts_.size()) return malformed();
  return record_from_texts(std::exchange(texts_, {}));
}

}  // namespace slime::ctrl
