#include "base/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "base/fork.h"
#include "base/limits.h"
#include "base/log_fields.h"
#include "base/mutex.h"
#include "base/utf8.h"

namespace slime {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};

// Guards every use of spdlog, so that a child of fork() never inherits spdlog's lock in locked
// state; the sinks have no locks. Never destroyed, because threads may log at process exit.
struct Sink {
  ForkMutex mutex;
  bool json SLIME_GUARDED_BY(mutex) = false;
  std::shared_ptr<spdlog::logger> logger SLIME_GUARDED_BY(mutex);
};
Sink& sink() {
  static Sink* const kSink = new Sink;
  return *kSink;
}
[[maybe_unused]] const Sink& made_before_any_fork = sink();

// Sets the pattern of a line: time, level, and the text for %v. With `json` the pattern opens and
// closes the object, and the text has its other members.
void set_pattern(spdlog::logger& logger, bool json) {
  logger.set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                          : "%Y-%m-%dT%H:%M:%S.%e %L %v");
}

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr target, bool json) {
  auto logger = std::make_shared<spdlog::logger>("slime", std::move(target));
  set_pattern(*logger, json);
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  // Keeps spdlog's default error handler, which never throws: it writes to stderr at most once a
  // second, for example that the disk is full.
  return logger;
}

// Escapes control characters: a text may quote a peer, whose line breaks and escape sequences must
// not reach the log.
std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const bool cut = text.size() > limits::kLogLineBytes;
  std::string out;
  out.reserve(text.size());
  for (const char c : text.substr(0, limits::kLogLineBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out.push_back(c);
    } else {
      out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    }
  }
  return cut ? out.append("...") : out;
}

// Returns `text` as a JSON string; invalid UTF-8 becomes U+FFFD. (Not named quoted():
// argument-dependent lookup would also find std::quoted where <iomanip> is included.)
std::string json_text(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\"";
  std::string_view rest = text.substr(0, limits::kLogLineBytes);
  while (!rest.empty()) {
    const std::size_t length = utf8_length(rest);
    const auto byte = static_cast<unsigned char>(rest[0]);
    if (length == 0) {
      out.append("\xef\xbf\xbd");
    } else if (rest[0] == '"' || rest[0] == '\\') {
      out.append(1, '\\').append(1, rest[0]);
    } else if (byte < 0x20 || byte == 0x7f) {
      out.append("\\u00").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    } else {
      out.append(rest.substr(0, length));
    }
    rest.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out.append(text.size() > limits::kLogLineBytes ? "...\"" : "\"");
}

std::string text_line(std::string_view component, std::string_view text,
                      std::initializer_list<LogField> fields) {
  std::string out(text);
  for (const LogField& field : fields) {
    if (!field.value.empty()) out.append(", ").append(field.name).append(" ").append(field.value);
  }
  return str(component, ": ", printable(out));
}

std::string json_line(std::string_view component, std::string_view text,
                      std::initializer_list<LogField> fields) {
  std::string out = str("\"component\":", json_text(component), ",\"message\":", json_text(text));
  for (const LogField& field : fields) {
    if (!field.value.empty()) out += str(",", json_text(field.name), ":", json_text(field.value));
  }
  return out;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

}  // namespace

bool log_enabled(LogLevel level) {
  return level < LogLevel::kOff && static_cast<int>(level) >= g_level.load(std::memory_order_relaxed);
}

void set_log_level(LogLevel level) { g_level.store(static_cast<int>(level), std::memory_order_relaxed); }

Status set_log_level(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warning", "error", "off"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      set_log_level(static_cast<LogLevel>(i));
      return {};
    }
  }
  return {Code::kInvalidArgument, str("log level '", name, "': use debug, info, warning, error or off")};
}

void log(LogLevel level, std::string_view component, std::string_view text) {
  log(level, component, text, {});
}

void log(LogLevel level, std::string_view component, std::string_view text,
         std::initializer_list<LogField> fields) {
  if (!log_enabled(level)) return;
  Sink& s = sink();
  const MutexLock lock(s.mutex);
  if (!s.logger) s.logger = make_logger(std::make_shared<spdlog::sinks::stderr_sink_st>(), s.json);
  s.logger->log(to_spdlog(level), "{}",
                s.json ? json_line(component, text, fields) : text_line(component, text, fields));
}

Status set_log_format(std::string_view name) {
  if (name != "text" && name != "json")
    return {Code::kInvalidArgument, str("log format '", name, "': use text or json")};
  Sink& s = sink();
  const MutexLock lock(s.mutex);
  s.json = name == "json";
  if (s.logger) set_pattern(*s.logger, s.json);
  return {};
}

Status log_to_file(const std::string& path) {
  try {
    auto target = std::make_shared<spdlog::sinks::rotating_file_sink_st>(path, limits::kLogFileBytes,
                                                                         limits::kLogFileCount);
    Sink& s = sink();
    const MutexLock lock(s.mutex);
    s.logger = make_logger(std::move(target), s.json);
    return {};
  } catch (const std::exception& e) {
    return {Code::kInvalidArgument, str("log file ", path, ": ", e.what())};
  }
}

}  // namespace slime
