#pragma once

#include <sstream>
#include <string>

#include "ctrl/store/backup.h"

namespace slime::ctrl::test {

inline Result<RegistryState> decoded(const std::string& backup) {
  std::istringstream in(backup);
  return decode_backup(in);
}

}  // namespace slime::ctrl::test
