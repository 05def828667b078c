#include "transport/huge_pages.h"

#include <fstream>
#include <limits>
#include <string>

#include "base/str.h"

namespace slime::transport {

HugePages parse_huge_pages(std::istream& meminfo) {
  HugePages out;
  for (std::string line; std::getline(meminfo, line);) {
    const auto number = [&line](std::string_view name, std::uint64_t& value) {
      if (line.rfind(name, 0) != 0) return;
      std::uint64_t read = 0;
      std::size_t at = line.find_first_not_of(' ', name.size());
      for (; at < line.size() && line[at] >= '0' && line[at] <= '9'; ++at) {
        const auto digit = static_cast<std::uint64_t>(line[at] - '0');
        if (read > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) return;
        read = read * 10 + digit;
      }
      value = read;
    };
    std::uint64_t kib = 0;
    number("Hugepagesize:", kib);
    if (kib != 0 && kib <= std::numeric_limits<std::size_t>::max() / 1024) out.page_bytes = kib * 1024;
    number("HugePages_Total:", out.total);
    number("HugePages_Free:", out.free);
    number("HugePages_Rsvd:", out.reserved);
  }
  return out;
}

HugePages read_huge_pages() {
  std::ifstream meminfo("/proc/meminfo");
  return parse_huge_pages(meminfo);
}

Status no_huge_pages(const HugePages& pool, std::size_t bytes) {
  const std::uint64_t needed = (bytes - 1) / pool.page_bytes + 1;
  const std::uint64_t available = pool.available();
  const std::string what = str(bytes, " bytes take ", needed, " huge pages of ", pool.page_bytes >> 10,
                               " KiB; ", available, " of this machine's ", pool.total, " are free");
  // Pages were free, but this process did not get them: either it has a limit, or another process
  // took them meanwhile.
  if (available >= needed)
    return Status(Code::kResourceExhausted,
                  str(what,
                      ", but this process gets them not: see hugetlb of its control group, and its "
                      "NUMA nodes (numactl --show)"));
  return Status(Code::kResourceExhausted,
                str(what, "; as root: sysctl vm.nr_hugepages=", pool.total - available + needed));
}

}  // namespace slime::transport
