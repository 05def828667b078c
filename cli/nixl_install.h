#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

// Finds NIXL's Python package, and the plugin for NIXL that belongs to this installation of Slime.
namespace slime::cli {

// The newest version of NIXL with which the plugin was tested; 1.0 is the oldest. See
// integrations/nixl/interface.h.
inline constexpr const char* kNewestTestedNixl = "1.5.1";

struct NixlInstall {
  std::string python;   // path of the interpreter
  std::string package;  // "nixl_cu12"
  std::string version;  // "1.5.1"
  // names of the other installed NIXL packages, which `import nixl` may import instead of `package`
  std::vector<std::string> others;
  std::filesystem::path libraries;    // .../site-packages/.nixl_cu12.mesonpy.libs
  std::filesystem::path third_party;  // .../site-packages/nixl_cu12.libs: UCX and others; may be missing
  bool newer_than_tested = false;
};

// Runs the interpreter `python` to find its NIXL. If `python` is empty, uses the interpreter of
// $VIRTUAL_ENV, else of the virtual environment that contains this program, else `python3` of
// $PATH. Errors: kNotFound without an interpreter or NIXL, kUnimplemented if the plugin does not
// work with the version of NIXL.
Result<NixlInstall> find_nixl(const std::string& python);

// Returns the path of libplugin_SLIME.so. Searches only folders relative to the running program.
Result<std::filesystem::path> find_nixl_plugin();

}  // namespace slime::cli
