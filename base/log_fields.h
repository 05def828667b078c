#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/log.h"

// What programs that other programs read the log of need beside base/log.h.
namespace slime {

// A name, of letters and '_', and what it is. "time", "level", "component" and "message" are taken.
struct LogField {
  std::string_view name;
  std::string value;
};

// As log() of base/log.h. In text the fields come after the text, in JSON each is a member of the line.
void log(LogLevel level, std::string_view component, std::string_view text,
         std::initializer_list<LogField> fields);

// "text", as it is from the start, or "json": each line one object with "time", "level", "component",
// "message" and the fields, all of them strings.
Status set_log_format(std::string_view name);

}  // namespace slime
