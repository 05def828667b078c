#include "transport/verbs_options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport {
namespace {

constexpr std::string_view kPrefix = "SLIME_VERBS_";
constexpr std::string_view kDevice = "device";
constexpr std::string_view kDeviceVariable = "SLIME_VERBS_DEVICE";
constexpr std::size_t kMaxDeviceName = 63;  // of the kernel

struct NumberField {
  std::string_view name;
  std::string_view variable;
  int VerbsOptions::*value;
  int least;
  int most;
  bool may_be_chosen;  // by Slime: -1

  [[nodiscard]] bool takes(int number) const {
    if (may_be_chosen && number == -1) return true;
    return number >= least && number <= most && (value != &VerbsOptions::mtu || is_mtu(number));
  }
  [[nodiscard]] std::string bounds() const {
    std::string out = value == &VerbsOptions::mtu ? "256, 512, 1024, 2048 or 4096" : str(least, " to ", most);
    if (may_be_chosen) out += ", or -1: Slime chooses";
    return out;
  }
  static bool is_mtu(int number) {
    return number == 256 || number == 512 || number == 1024 || number == 2048 || number == 4096;
  }
};

constexpr std::array kNumbers{
    NumberField{"port", "SLIME_VERBS_PORT", &VerbsOptions::port, 1, 255, true},
    NumberField{"gid_index", "SLIME_VERBS_GID_INDEX", &VerbsOptions::gid_index, 0, 255, true},
    NumberField{"mtu", "SLIME_VERBS_MTU", &VerbsOptions::mtu, 256, 4096, true},
    NumberField{"service_level", "SLIME_VERBS_SL", &VerbsOptions::service_level, 0, 15, false},
    NumberField{"traffic_class", "SLIME_VERBS_TRAFFIC_CLASS", &VerbsOptions::traffic_class, 0, 255, false},
    NumberField{"pkey_index", "SLIME_VERBS_PKEY_INDEX", &VerbsOptions::pkey_index, 0, 65535, false},
    NumberField{"hop_limit", "SLIME_VERBS_HOP_LIMIT", &VerbsOptions::hop_limit, 1, 255, false},
    NumberField{"timeout", "SLIME_VERBS_TIMEOUT", &VerbsOptions::timeout, 1, 31, true},
    NumberField{"retry_count", "SLIME_VERBS_RETRY_COUNT", &VerbsOptions::retry_count, 0, 7, true},
    NumberField{"rnr_retry", "SLIME_VERBS_RNR_RETRY", &VerbsOptions::rnr_retry, 0, 6, false},
    NumberField{"min_rnr_timer", "SLIME_VERBS_MIN_RNR_TIMER", &VerbsOptions::min_rnr_timer, 1, 31, false},
    NumberField{"rd_atomic", "SLIME_VERBS_RD_ATOMIC", &VerbsOptions::rd_atomic, 1, 255, false},
    NumberField{"data_queue_pairs", "SLIME_VERBS_DATA_QPS", &VerbsOptions::data_queue_pairs, 1, 8, false},
    NumberField{"send_queue_depth", "SLIME_VERBS_SEND_DEPTH", &VerbsOptions::send_queue_depth, 64, 32768,
                false},
    NumberField{"max_inline", "SLIME_VERBS_INLINE", &VerbsOptions::max_inline, 0, 4096, false},
};

struct SwitchField {
  std::string_view name;
  std::string_view variable;
  bool VerbsOptions::*value;
};

constexpr std::array kSwitches{
    SwitchField{"relaxed_ordering", "SLIME_VERBS_RELAXED_ORDERING", &VerbsOptions::relaxed_ordering},
    SwitchField{"flush_read", "SLIME_VERBS_FLUSH_READ", &VerbsOptions::flush_read},
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

// How a caller names the fields.
enum class Names : std::uint8_t { kFields, kVariables };

template <class Field>
std::string_view name_of(const Field& field, Names names) {
  return names == Names::kFields ? field.name : field.variable;
}

std::string all_of(Names names) {
  std::string out(names == Names::kFields ? kDevice : kDeviceVariable);
  for (const NumberField& field : kNumbers) out.append(", ").append(name_of(field, names));
  for (const SwitchField& field : kSwitches) out.append(", ").append(name_of(field, names));
  return out;
}

Status set_field(VerbsOptions& options, Names names, std::string_view key, std::string_view value) {
  if (key == (names == Names::kFields ? kDevice : kDeviceVariable)) {
    options.device = value;
    return check_device_name(key, value);
  }
  for (const NumberField& field : kNumbers) {
    if (name_of(field, names) != key) continue;
    const auto number = parse_number(value);
    if (!number || !field.takes(*number)) {
      return invalid(str(key, " is '", value.substr(0, 100), "', must be ", field.bounds()));
    }
    options.*field.value = *number;
    return {};
  }
  for (const SwitchField& field : kSwitches) {
    if (name_of(field, names) != key) continue;
    if (value != "0" && value != "1") {
      return invalid(str(key, " is '", value.substr(0, 100), "', must be 0 or 1"));
    }
    options.*field.value = value == "1";
    return {};
  }
  const char* const what = names == Names::kFields ? "' is no setting of verbs; there are "
                                                   : "' is no setting of Slime; there are ";
  return invalid(str("'", key.substr(0, 100), what, all_of(names)));
}

}  // namespace

Status VerbsOptions::set(std::string_view field, std::string_view value) {
  return set_field(*this, Names::kFields, field, value);
}

Status VerbsOptions::validate() const {
  SLIME_TRY(check_device_name("VerbsOptions::device", device));
  for (const NumberField& field : kNumbers) {
    const int number = this->*field.value;
    if (!field.takes(number)) {
      return invalid(str("VerbsOptions::", field.name, " is ", number, ", must be ", field.bounds()));
    }
  }
  return {};
}

Result<VerbsOptions> VerbsOptions::from_environment() {
  VerbsOptions options;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(kPrefix)) continue;
    const std::size_t equals = std::min(text.find('='), text.size());
    SLIME_TRY(set_field(options, Names::kVariables, text.substr(0, equals),
                        text.substr(std::min(equals + 1, text.size()))));
  }
  return options;
}

}  // namespace slime::transport
