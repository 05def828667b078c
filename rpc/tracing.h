#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slime::rpc {

inline constexpr std::string_view kTraceparent = "traceparent";
inline constexpr std::string_view kTracestate = "tracestate";

// A position in a trace, as in W3C Trace Context, version 00.
struct TraceContext {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  bool sampled = true;
  std::string tracestate{};  // passed on unchanged

  // Makes a new trace with random ids.
  static TraceContext create();
  // Parses the two header values. Returns nullopt if `traceparent` is invalid. A traceparent of
  // version 00 has 55 characters; of later versions only the first 55 are used. An invalid
  // `tracestate` is left out.
  static std::optional<TraceContext> parse(std::string_view traceparent, std::string_view tracestate = {});
  // Returns a new span of this trace.
  [[nodiscard]] TraceContext child() const;
  [[nodiscard]] std::string traceparent() const;
};

// Returns the trace of the calling thread: that of the handler if a tracing interceptor is used, or
// that of a TraceScope; otherwise nullopt.
std::optional<TraceContext> current_trace();

// Sets current_trace() of the calling thread while the scope is alive. Nested scopes must end in
// reverse order.
class TraceScope {
 public:
  explicit TraceScope(const TraceContext& context);
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope();

 private:
  TraceContext context_;
  const TraceContext* outer_;
};

}  // namespace slime::rpc
