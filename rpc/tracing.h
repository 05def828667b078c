#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slime::rpc {

inline constexpr std::string_view kTraceparent = "traceparent";
inline constexpr std::string_view kTracestate = "tracestate";

// A position in a trace: W3C Trace Context, version 00.
struct TraceContext {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  bool sampled = true;
  std::string tracestate{};  // passed on unchanged

  // Makes a new trace with random ids.
  static TraceContext create();
  // Returns nothing if the text is no traceparent: 55 characters in version 00; of later versions,
  // the first 55 count. Leaves out an invalid tracestate.
  static std::optional<TraceContext> parse(std::string_view traceparent, std::string_view tracestate = {});
  // Returns a new span of this trace.
  [[nodiscard]] TraceContext child() const;
  [[nodiscard]] std::string traceparent() const;
};

// Returns the trace of this thread: inside a handler with a tracing interceptor, or a TraceScope;
// else nothing.
std::optional<TraceContext> current_trace();

// Sets current_trace() of this thread while the scope is alive. Scopes end in reverse order.
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
