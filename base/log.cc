#include "base/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/limits.h"

namespace slime {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};

// Leaked on purpose: threads may log while the process exits.
struct Sink {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
};
Sink& sink() {
  static Sink* const kSink = new Sink;
  return *kSink;
}

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr target) {
  auto logger = std::make_shared<spdlog::logger>("slime", std::move(target));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  // spdlog's default handler writes to stderr, once a second: it says that the disk is full, and never
  // throws.
  return logger;
}

// A text may quote a peer: no line break or escape sequence of its own reaches the log.
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
  if (!log_enabled(level)) return;
  std::shared_ptr<spdlog::logger> logger;
  {
    Sink& s = sink();
    const std::lock_guard lock(s.mutex);
    if (!s.logger) s.logger = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger = s.logger;
  }
  logger->log(to_spdlog(level), "{}: {}", component, printable(text));
}

Status log_to_file(const std::string& path) {
  try {
    auto logger = make_logger(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
        path, limits::kLogFileBytes, limits::kLogFileCount));
    Sink& s = sink();
    const std::lock_guard lock(s.mutex);
    s.logger = std::move(logger);
    return {};
  } catch (const std::exception& e) {
    return {Code::kInvalidArgument, str("log file ", path, ": ", e.what())};
  }
}

}  // namespace slime
