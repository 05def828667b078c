#include "transport/verbs/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::verbs {
namespace {

constexpr std::string_view kPrefix = "SLIME_VERBS_";
constexpr std::string_view kDeviceVariable = "SLIME_VERBS_DEVICE";
constexpr std::size_t kMaxDeviceName = 63;  // of the kernel

struct NumberField {
  std::string_view name;
  std::string_view variable;
  int Options::*value;
  int least;
  int most;
  bool may_be_chosen;  // by Slime: -1

  [[nodiscard]] bool takes(int number) const {
    if (may_be_chosen && number == -1) return true;
    return number >= least && number <= most && (value != &Options::mtu || is_mtu(number));
  }
  [[nodiscard]] std::string bounds() const {
    std::string out = value == &Options::mtu ? "256, 512, 1024, 2048 or 4096" : str(least, " to ", most);
    if (may_be_chosen) out += ", or -1: Slime chooses";
    return out;
  }
  static bool is_mtu(int number) {
    return number == 256 || number == 512 || number == 1024 || number == 2048 || number == 4096;
  }
};

constexpr std::array kNumbers{
    NumberField{"port", "SLIME_VERBS_PORT", &Options::port, 1, 255, true},
    NumberField{"gid_index", "SLIME_VERBS_GID_INDEX", &Options::gid_index, 0, 255, true},
    NumberField{"mtu", "SLIME_VERBS_MTU", &Options::mtu, 256, 4096, true},
    NumberField{"service_level", "SLIME_VERBS_SL", &Options::service_level, 0, 15, false},
    NumberField{"traffic_class", "SLIME_VERBS_TRAFFIC_CLASS", &Options::traffic_class, 0, 255, false},
    NumberField{"pkey_index", "SLIME_VERBS_PKEY_INDEX", &Options::pkey_index, 0, 65535, false},
    NumberField{"hop_limit", "SLIME_VERBS_HOP_LIMIT", &Options::hop_limit, 1, 255, false},
    NumberField{"timeout", "SLIME_VERBS_TIMEOUT", &Options::timeout, 1, 31, true},
    NumberField{"retry_count", "SLIME_VERBS_RETRY_COUNT", &Options::retry_count, 0, 7, true},
    NumberField{"rnr_retry", "SLIME_VERBS_RNR_RETRY", &Options::rnr_retry, 0, 6, false},
    NumberField{"min_rnr_timer", "SLIME_VERBS_MIN_RNR_TIMER", &Options::min_rnr_timer, 1, 31, false},
    NumberField{"rd_atomic", "SLIME_VERBS_RD_ATOMIC", &Options::rd_atomic, 1, 255, false},
    NumberField{"data_queue_pairs", "SLIME_VERBS_DATA_QPS", &Options::data_queue_pairs, 1, 8, false},
    NumberField{"send_queue_depth", "SLIME_VERBS_SEND_DEPTH", &Options::send_queue_depth, 64, 32768, false},
    NumberField{"max_inline", "SLIME_VERBS_INLINE", &Options::max_inline, 0, 4096, false},
};

struct SwitchField {
  std::string_view variable;
  bool Options::*value;
};

constexpr std::array kSwitches{
    SwitchField{"SLIME_VERBS_RELAXED_ORDERING", &Options::relaxed_ordering},
    SwitchField{"SLIME_VERBS_FLUSH_READ", &Options::flush_read},
};

Status invalid(std::string text) { return Status(Code::kInvalidArgument, std::move(text)); }

Status check_device_name(std::string_view label, std::string_view name) {
  // The name becomes part of a path.
  const bool fine = name.size() <= kMaxDeviceName && name.find('/') == std::string_view::npos &&
                    name != "." && name != "..";
  if (fine) return {};
  return invalid(str(label, " is '", name.substr(0, 100), "', must be the name of a device such as mlx5_0"));
}

std::optional<int> parse_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string all_variables() {
  std::string out(kDeviceVariable);
  for (const NumberField& field : kNumbers) out.append(", ").append(field.variable);
  for (const SwitchField& field : kSwitches) out.append(", ").append(field.variable);
  return out;
}

Status set(Options& options, std::string_view variable, std::string_view value) {
  if (variable == kDeviceVariable) {
    options.device = value;
    return check_device_name(variable, value);
  }
  for (const NumberField& field : kNumbers) {
    if (field.variable != variable) continue;
    const auto number = parse_number(value);
    if (!number || !field.takes(*number)) {
      return invalid(str(variable, " is '", value.substr(0, 100), "', must be ", field.bounds()));
    }
    options.*field.value = *number;
    return {};
  }
  for (const SwitchField& field : kSwitches) {
    if (field.variable != variable) continue;
    if (value != "0" && value != "1") {
      return invalid(str(variable, " is '", value.substr(0, 100), "', must be 0 or 1"));
    }
    options.*field.value = value == "1";
    return {};
  }
  return invalid(str(variable.substr(0, 100), " is no setting of Slime; there are ", all_variables()));
}

}  // namespace

Status Options::validate() const {
  SLIME_TRY(check_device_name("verbs::Options::device", device));
  for (const NumberField& field : kNumbers) {
    const int number = this->*field.value;
    if (!field.takes(number)) {
      return invalid(str("verbs::Options::", field.name, " is ", number, ", must be ", field.bounds()));
    }
  }
  return {};
}

Result<Options> Options::from_environment() {
  Options options;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(kPrefix)) continue;
    const std::size_t equals = std::min(text.find('='), text.size());
    SLIME_TRY(set(options, text.substr(0, equals), text.substr(std::min(equals + 1, text.size()))));
  }
  return options;
}

}  // namespace slime::transport::verbs
