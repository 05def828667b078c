#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/log.h"

// Log lines with fields, for programs whose log other programs read: an addition to base/log.h.
namespace slime {

// A field of a log line. The name consists of letters and '_', and is not "time", "level",
// "component" or "message".
struct LogField {
  std::string_view name;
  std::string value;
};

// Like log() of base/log.h, with fields. In the text format the fields follow the message; in JSON
// each field is a member of the line's object.
void log(LogLevel level, std::string_view component, std::string_view text,
         std::initializer_list<LogField> fields);

// Sets the format of log lines. `name`: "text", the default, or "json": each line is one object
// with "time", "level", "component", "message" and the fields, all strings.
Status set_log_format(std::string_view name);

}  // namespace slime
