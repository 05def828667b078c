#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "transport/verbs/options.h"

using namespace slime;
using transport::verbs::Options;

namespace {

// Clears the environment, because tests on a device may select it by variables.
[[maybe_unused]] const bool kCleared = [] {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (text.starts_with("SLIME_VERBS_")) names.push_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
  return true;
}();

// Sets one environment variable while it lives.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    REQUIRE(::setenv(name_.c_str(), value.c_str(), 1) == 0);
  }
  ~Variable() { ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const std::string name_;
};

bool contains(const Status& status, const std::string& what) {
  return status.text().find(what) != std::string::npos;
}

struct Number {
  const char* variable;
  const char* field;
  int Options::*value;
  int least;
  int most;
  bool may_be_chosen;
};

// The documented bounds, repeated here.
const std::vector<Number> kNumbers{
    {"SLIME_VERBS_PORT", "port", &Options::port, 1, 255, true},
    {"SLIME_VERBS_GID_INDEX", "gid_index", &Options::gid_index, 0, 255, true},
    {"SLIME_VERBS_MTU", "mtu", &Options::mtu, 256, 4096, true},
    {"SLIME_VERBS_SL", "service_level", &Options::service_level, 0, 15, false},
    {"SLIME_VERBS_TRAFFIC_CLASS", "traffic_class", &Options::traffic_class, 0, 255, false},
    {"SLIME_VERBS_PKEY_INDEX", "pkey_index", &Options::pkey_index, 0, 65535, false},
    {"SLIME_VERBS_HOP_LIMIT", "hop_limit", &Options::hop_limit, 1, 255, false},
    {"SLIME_VERBS_TIMEOUT", "timeout", &Options::timeout, 1, 31, true},
    {"SLIME_VERBS_RETRY_COUNT", "retry_count", &Options::retry_count, 0, 7, true},
    {"SLIME_VERBS_RNR_RETRY", "rnr_retry", &Options::rnr_retry, 0, 6, false},
    {"SLIME_VERBS_MIN_RNR_TIMER", "min_rnr_timer", &Options::min_rnr_timer, 1, 31, false},
    {"SLIME_VERBS_RD_ATOMIC", "rd_atomic", &Options::rd_atomic, 1, 255, false},
    {"SLIME_VERBS_DATA_QPS", "data_queue_pairs", &Options::data_queue_pairs, 1, 8, false},
    {"SLIME_VERBS_SEND_DEPTH", "send_queue_depth", &Options::send_queue_depth, 64, 32768, false},
    {"SLIME_VERBS_INLINE", "max_inline", &Options::max_inline, 0, 4096, false},
};

}  // namespace

TEST_CASE("the defaults are valid, and an empty environment gives them") {
  CHECK(Options().validate().ok());
  const auto options = Options::from_environment();
  REQUIRE_MESSAGE(options.has_value(), options.status().to_string());
  CHECK(options->device.empty());
  CHECK(options->timeout == -1);
  CHECK(options->relaxed_ordering);
  CHECK_FALSE(options->flush_read);
}

TEST_CASE("each number takes its bounds, and nothing beyond") {
  for (const Number& number : kNumbers) {
    CAPTURE(number.field);
    const auto check = [&](int value) {
      Options options;
      options.*number.value = value;
      return options.validate();
    };
    CHECK(check(number.least).ok());
    CHECK(check(number.most).ok());
    CHECK(check(-1).ok() == number.may_be_chosen);
    for (const int value : {number.least - 1, number.most + 1, -2, 1 << 30}) {
      if (value == -1 && number.may_be_chosen) continue;
      CAPTURE(value);
      const Status status = check(value);
      CHECK(status.code() == Code::kInvalidArgument);
      CHECK(contains(status, number.field));
      CHECK(contains(status, std::to_string(number.most)));
    }
  }
}

TEST_CASE("an MTU is one of five") {
  for (int mtu = 1; mtu <= 5000; ++mtu) {
    Options options;
    options.mtu = mtu;
    const bool is_one = mtu == 256 || mtu == 512 || mtu == 1024 || mtu == 2048 || mtu == 4096;
    CHECK(options.validate().ok() == is_one);
  }
}

TEST_CASE("endless retries and a timer of 655 ms are refused") {
  Options options;
  options.rnr_retry = 7;
  CHECK(options.validate().code() == Code::kInvalidArgument);
  options = {};
  options.min_rnr_timer = 0;
  CHECK(options.validate().code() == Code::kInvalidArgument);
}

TEST_CASE("a device is named, not located") {
  for (const char* name : {"../mlx5_0", "a/b", ".", "..", "/", ""}) {
    CAPTURE(name);
    Options options;
    options.device = name;
    CHECK(options.validate().ok() == options.device.empty());
  }
  Options options;
  options.device = std::string(63, 'x');
  CHECK(options.validate().ok());
  options.device += 'x';
  CHECK(options.validate().code() == Code::kInvalidArgument);
}

TEST_CASE("each variable of the environment sets its field") {
  for (const Number& number : kNumbers) {
    CAPTURE(number.variable);
    for (const int value : {number.least, number.most}) {
      const Variable variable(number.variable, std::to_string(value));
      const auto options = Options::from_environment();
      REQUIRE_MESSAGE(options.has_value(), options.status().to_string());
      CHECK((*options).*number.value == value);
    }
  }
  const Variable device("SLIME_VERBS_DEVICE", "mlx5_3");
  const Variable relaxed("SLIME_VERBS_RELAXED_ORDERING", "0");
  const Variable flush("SLIME_VERBS_FLUSH_READ", "1");
  const auto options = Options::from_environment();
  REQUIRE(options.has_value());
  CHECK(options->device == "mlx5_3");
  CHECK_FALSE(options->relaxed_ordering);
  CHECK(options->flush_read);
}

TEST_CASE("a field is set by its name") {
  for (const Number& number : kNumbers) {
    CAPTURE(number.field);
    Options options;
    REQUIRE(options.set(number.field, std::to_string(number.most)).ok());
    CHECK(options.*number.value == number.most);
    const Status status = options.set(number.field, std::to_string(number.most + 1));
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(contains(status, number.field));
    CHECK(options.*number.value == number.most);
  }
  Options options;
  CHECK(options.set("device", "mlx5_3").ok());
  CHECK(options.device == "mlx5_3");
  CHECK(options.set("relaxed_ordering", "0").ok());
  CHECK_FALSE(options.relaxed_ordering);
}

TEST_CASE("a field that does not exist is refused, and those that do are listed") {
  for (const char* name : {"", "gid", "SLIME_VERBS_PORT", "Port"}) {
    CAPTURE(name);
    Options options;
    const Status status = options.set(name, "1");
    CHECK(status.code() == Code::kInvalidArgument);
    for (const Number& number : kNumbers) CHECK(contains(status, number.field));
    CHECK(contains(status, "device"));
    CHECK(contains(status, "flush_read"));
  }
}

TEST_CASE("a bad value in the environment is refused with its variable and bounds") {
  for (const Number& number : kNumbers) {
    for (const std::string& value : {std::string(), std::string("two"), std::string("0x4"), std::string(" 1"),
                                     std::string("1 "), std::string("1.5"), std::string("99999999999999"),
                                     std::to_string(number.most + 1), std::string("-2")}) {
      CAPTURE(number.variable);
      CAPTURE(value);
      const Variable variable(number.variable, value);
      const Status status = Options::from_environment().status();
      CHECK(status.code() == Code::kInvalidArgument);
      CHECK(contains(status, number.variable));
      CHECK(contains(status, "'" + value + "'"));
      CHECK(contains(status, std::to_string(number.most)));
    }
  }
  for (const char* value : {"", "yes", "2", "-1"}) {
    const Variable variable("SLIME_VERBS_FLUSH_READ", value);
    CHECK(Options::from_environment().status().code() == Code::kInvalidArgument);
  }
  const Variable device("SLIME_VERBS_DEVICE", "../x");
  CHECK(Options::from_environment().status().code() == Code::kInvalidArgument);
}

TEST_CASE("a variable that does not exist is refused, and those that do are listed") {
  for (const char* name : {"SLIME_VERBS_", "SLIME_VERBS_GID", "SLIME_VERBS_TIMEOUTS", "SLIME_VERBS_port"}) {
    CAPTURE(name);
    const Variable variable(name, "1");
    const Status status = Options::from_environment().status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(contains(status, name));
    for (const Number& number : kNumbers) CHECK(contains(status, number.variable));
    CHECK(contains(status, "SLIME_VERBS_DEVICE"));
    CHECK(contains(status, "SLIME_VERBS_FLUSH_READ"));
  }
  const Variable others("SLIME_VERBOSE", "1");
  CHECK(Options::from_environment().has_value());
}
