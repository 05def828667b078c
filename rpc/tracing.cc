#include "rpc/tracing.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"
#include "base/str.h"
#include "rpc/limits.h"

namespace slime::rpc {
namespace {

constinit thread_local const TraceContext* current = nullptr;

constexpr std::size_t kTraceAt = 3;   // "00-"
constexpr std::size_t kSpanAt = 36;   // and 32 digits, "-"
constexpr std::size_t kFlagsAt = 53;  // and 16 digits, "-"
constexpr std::size_t kLength = 55;   // and 2 digits
constexpr std::uint8_t kSampled = 1;

// Like from_hex(), but without capitals.
template <std::size_t N>
bool read_hex(std::string_view text, std::array<std::uint8_t, N>& out) {
  const auto lower = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return std::all_of(text.begin(), text.end(), lower) &&
         from_hex(text, std::as_writable_bytes(std::span(out)));
}

template <std::size_t N>
bool all_zero(const std::array<std::uint8_t, N>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

template <std::size_t N>
void fill_random(std::array<std::uint8_t, N>& out) {
  do {
    random_bytes(std::as_writable_bytes(std::span(out)));
  } while (all_zero(out));
}

bool is_tracestate(std::string_view text) {
  return text.size() <= limits::kTracestateBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; });
}

}  // namespace

TraceContext TraceContext::create() {
  TraceContext out;
  fill_random(out.trace_id);
  fill_random(out.span_id);
  return out;
}

std::optional<TraceContext> TraceContext::parse(std::string_view text, std::string_view tracestate) {
  if (text.size() < kLength || text[kTraceAt - 1] != '-' || text[kSpanAt - 1] != '-' ||
      text[kFlagsAt - 1] != '-')
    return std::nullopt;
  std::array<std::uint8_t, 1> version{};
  std::array<std::uint8_t, 1> flags{};
  TraceContext out;
  if (!read_hex(text.substr(0, 2), version) || !read_hex(text.substr(kTraceAt, 32), out.trace_id) ||
      !read_hex(text.substr(kSpanAt, 16), out.span_id) || !read_hex(text.substr(kFlagsAt, 2), flags))
    return std::nullopt;
  // Versions after 00 may append fields to the text. Version ff is invalid.
  const bool longer_is_good = version[0] != 0 && text.size() > kLength && text[kLength] == '-';
  if (version[0] == 0xff || (text.size() != kLength && !longer_is_good)) return std::nullopt;
  if (all_zero(out.trace_id) || all_zero(out.span_id)) return std::nullopt;
  out.sampled = (flags[0] & kSampled) != 0;
  if (is_tracestate(tracestate)) out.tracestate = tracestate;
  return out;
}

TraceContext TraceContext::child() const {
  TraceContext out = *this;
  fill_random(out.span_id);
  return out;
}

std::string TraceContext::traceparent() const {
  return str("00-", to_hex(std::as_bytes(std::span(trace_id))), "-",
             to_hex(std::as_bytes(std::span(span_id))), sampled ? "-01" : "-00");
}

std::optional<TraceContext> current_trace() {
  if (current == nullptr) return std::nullopt;
  return *current;
}

TraceScope::TraceScope(const TraceContext& context)
    : context_(context), outer_(std::exchange(current, &context_)) {}

TraceScope::~TraceScope() { current = outer_; }

}  // namespace slime::rpc
