#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slime::rpc {

inline constexpr std::string_view kTraceparent = "traceparent";
inline constexpr std::string_view kTracestate = "tracestate";

// Where in a trace something happens: W3C Trace Context, version 00. A value.
struct TraceContext {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  bool sampled = true;
  std::string tracestate{};  // passed on as it came

  // A new trace, with random ids.
  static TraceContext create();
  // Nothing for a text that is not a traceparent: 55 characters in version 00, of later versions what they
  // have in common with it. A tracestate that cannot be one is left out.
  static std::optional<TraceContext> parse(std::string_view traceparent, std::string_view tracestate = {});
  // The same trace, with a span of its own.
  [[nodiscard]] TraceContext child() const;
  [[nodiscard]] std::string traceparent() const;
};

// Of what runs on this thread: inside a handler that a tracing interceptor let in, or a TraceScope; nothing:
// none.
std::optional<TraceContext> current_trace();

// Makes `context` the current one of this thread, until it ends. Scopes end in reverse order.
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
