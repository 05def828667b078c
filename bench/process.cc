#include "bench/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "base/str.h"

namespace slime::bench {

std::optional<std::string> read_command() {
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

void answer(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

void show(std::string_view what) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(what.size()), what.data());
  std::fflush(stderr);
}

int exit_status_of(const Status& status) {
  if (status.ok()) return 0;
  answer(str("ERROR ", status.to_string()));
  return 1;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::uint64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt);
}

double number_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  double out = 0;
  for (std::string word; file >> word;) {
    if (word == key) {
      file >> out;
      break;
    }
  }
  return out;
}

}  // namespace slime::bench
