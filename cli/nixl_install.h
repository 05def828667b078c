#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

// NIXL as a Python package, and this installation's plugin for it.
namespace slime::cli {

// Of the versions from 1.0 to this one, the plugin is known to work: integrations/nixl/interface.h.
inline constexpr const char* kNewestTestedNixl = "1.5.1";

struct NixlInstall {
  std::string python;                 // path of the interpreter
  std::string package;                // "nixl_cu12"
  std::string version;                // "1.5.1"
  std::vector<std::string> others;    // installed as well, and perhaps the ones that `import nixl` takes
  std::filesystem::path libraries;    // .../site-packages/.nixl_cu12.mesonpy.libs
  std::filesystem::path third_party;  // .../site-packages/nixl_cu12.libs: UCX and others; may be missing
  bool newer_than_tested = false;
};

// Runs the interpreter `python` to find its NIXL. Empty: the interpreter of $VIRTUAL_ENV, else that of the
// environment that holds this program, else `python3` of $PATH. kNotFound without interpreter or NIXL,
// kUnimplemented for a version that the plugin does not work with.
Result<NixlInstall> find_nixl(const std::string& python);

// Returns the path of libplugin_SLIME.so. Looks only at places relative to this program.
Result<std::filesystem::path> find_nixl_plugin();

}  // namespace slime::cli
