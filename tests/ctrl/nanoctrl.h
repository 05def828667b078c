#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ctrl/client.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

namespace slime::ctrl::test {

// Runs the program nanoctrl as a child process, ready for requests, with a TTL longer than any
// test.
class Nanoctrl {
 public:
  explicit Nanoctrl(const std::string& store) {
    Result<slime::test::Process> spawned =
        slime::test::Process::spawn({slime::test::built_file("ctrl/nanoctrl"), "server", "--port", "0",
                                     "--ttl", "600", "--store", store, "--log-level", "warning", "--json"},
                                    {"SLIME_RUNTIME_DIR=" + folder_.path().string()});
    REQUIRE(spawned);
    process_.emplace(std::move(*spawned));
    const Result<std::string> line = process_->read_line(slime::test::patient(std::chrono::seconds(60)));
    REQUIRE(line);
    const auto said = nlohmann::json::parse(*line);
    REQUIRE_MESSAGE(said.contains("url"), *line);
    url_ = said.at("url");
  }
  void kill() {
    REQUIRE(process_->kill().ok());
    REQUIRE(process_->wait(slime::test::patient(std::chrono::seconds(60))));
  }
  [[nodiscard]] slime::test::Process& process() { return *process_; }
  [[nodiscard]] std::uint16_t port() const {
    return static_cast<std::uint16_t>(std::stoi(url_.substr(url_.rfind(':') + 1)));
  }
  [[nodiscard]] std::unique_ptr<Client> client() const {
    ClientOptions options;
    options.url = url_;
    Result<std::unique_ptr<Client>> made = Client::create(options);
    REQUIRE(made);
    return std::move(*made);
  }

 private:
  const slime::test::Folder folder_;
  std::optional<slime::test::Process> process_;
  std::string url_;
};

}  // namespace slime::ctrl::test
