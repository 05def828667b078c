#include "transport/outage.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport {
namespace {

constexpr const char* kVariable = "SLIME_OUTAGE_TOLERATED";
constexpr int kTimeoutMax = 31;
constexpr int kRetriesMax = 7;

using Seconds = std::chrono::duration<double>;
constexpr double kSecondsMin = Seconds(limits::kOutageMin).count();
constexpr double kSecondsMax = Seconds(limits::kOutageMax).count();

int divide_up(Nanos value, Nanos by) { return static_cast<int>((value + by - Nanos(1)) / by); }

std::string range() { return str(kSecondsMin, " to ", kSecondsMax, " s"); }

}  // namespace

Keepalive keepalive_for(Nanos outage) {
  Keepalive out;
  out.interval_seconds = divide_up(outage, limits::kKeepaliveSpan);
  out.idle_seconds = out.interval_seconds;
  out.probes = divide_up(outage, out.interval()) + 1;
  return out;
}

RetryPolicy retries_for(Nanos outage, int timeout, int retry_count) {
  if (timeout >= 0) return {timeout, retry_count >= 0 ? retry_count : kRetriesMax};
  // With `retry_count` 0 there is a single try, which has to last as long as the outage: so it
  // counts as 1 here.
  const int most = retry_count >= 0 ? std::max(retry_count, 1) : kRetriesMax;
  RetryPolicy out{1, retry_count};
  while (out.timeout < kTimeoutMax && out.one_try() * most < outage) ++out.timeout;
  if (retry_count < 0) out.retry_count = divide_up(outage, out.one_try());
  return out;
}

Status check_outage(std::string_view label, Nanos outage) {
  if (outage >= limits::kOutageMin && outage <= limits::kOutageMax) return {};
  return Status(Code::kInvalidArgument, str(label, " is ", Seconds(outage).count(), " s, must be ", range()));
}

Result<Nanos> outage_from_environment() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return limits::kOutageTolerated;
  const std::string_view value(text);
  double seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  const bool number = error == std::errc() && end == value.data() + value.size();
  // Checks the range before the conversion, which is undefined for values that Nanos cannot hold.
  // Written so that NaN is refused, too.
  if (!number || !(seconds >= kSecondsMin && seconds <= kSecondsMax))
    return Status(Code::kInvalidArgument,
                  str(kVariable, " is '", value.substr(0, 100), "', must be ", range(), ", in seconds"));
  return to_nanos(seconds);
}

}  // namespace slime::transport
