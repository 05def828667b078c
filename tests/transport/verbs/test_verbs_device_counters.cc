#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/str.h"
#include "tests/support/folder.h"
#include "transport/verbs/device_counters.h"

namespace slime::transport::verbs {

TEST_CASE("the counters of a device: what is not zero, and what tells of receivers that were not ready") {
  const test::Folder temporary;
  const std::filesystem::path& root = temporary.path();
  const std::string folder = "sys/class/infiniband/fake0/ports/1/";
  std::filesystem::create_directories(root / folder / "hw_counters");
  std::filesystem::create_directories(root / folder / "counters");
  const auto write = [&](const std::string& counter, const std::string& text) {
    std::ofstream(root / folder / counter) << text;
  };
  write("hw_counters/lifespan", "10\n");
  write("hw_counters/rcvd_rnr_err", "0\n");
  write("hw_counters/out_of_buffer", "0\n");
  write("hw_counters/duplicate_request", "0\n");
  write("hw_counters/sent_pkts", "18446744073709551615\n");
  write("counters/port_xmit_wait", "7\n");
  write("counters/symbol_error", "N/A (no PMA)\n");
  const std::vector<DeviceCounter> counters = read_device_counters("fake0", 1, root);
  std::string text;
  for (const DeviceCounter& counter : counters) text += str(counter.name, "=", counter.value, " ");
  CHECK(text == "out_of_buffer=0 port_xmit_wait=7 rcvd_rnr_err=0 sent_pkts=18446744073709551615 ");
  CHECK(read_device_counters("fake0", 2, root).empty());
  CHECK(read_device_counters("fake1", 1, root).empty());
}

}  // namespace slime::transport::verbs
