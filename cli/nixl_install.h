#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

// NIXL as a Python package, and this installation's plugin for it.
namespace slime::cli {

// The plugin is known to work with the versions from 1.0 to this one:
// integrations/nixl/interface.h.
inline constexpr const char* kNewestTestedNixl = "1.5.1";

struct NixlInstall {
  std::string python;   // path of the interpreter
  std::string package;  // "nixl_cu12"
  std::string version;  // "1.5.1"
  // other installed packages, which `import nixl` may take instead
  std::vector<std::string> others;
  std::filesystem::path libraries;    // .../site-packages/.nixl_cu12.mesonpy.libs
  std::filesystem::path third_party;  // .../site-packages/nixl_cu12.libs: UCX and others; may be missing
  bool newer_than_tested = false;
};

// Runs the interpreter `python` to find its NIXL. An empty `python`: the interpreter of
// $VIRTUAL_ENV, else of the environment that holds this program, else `python3` of $PATH. Errors:
// kNotFound without interpreter or NIXL, kUnimplemented for a version with which the plugin does
// not work.
Result<NixlInstall> find_nixl(const std::string& python);

// Returns the path of libplugin_SLIME.so. Looks only at places relative to this program.
Result<std::filesystem::path> find_nixl_plugin();

}  // namespace slime::cli
