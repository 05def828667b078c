// Defines the symbols that NIXL looks up in libplugin_SLIME.so.

#include <exception>

#include "base/log.h"
#include "integrations/nixl/engine.h"

namespace {

using slime::nixl::Engine;

nixlBackendEngine* create_engine(const nixlBackendInitParams* params) {
  try {
    return new Engine(params);
  } catch (const std::exception& error) {  // of the standard library: memory is short
    SLIME_LOG(slime::LogLevel::kError, "nixl", "the backend SLIME could not start: ", error.what());
    return nullptr;
  }
}
void destroy_engine(nixlBackendEngine* engine) { delete engine; }
const char* name() { return "SLIME"; }
const char* version() { return SLIME_VERSION; }
nixl_b_params_t options() { return slime::nixl::Options::defaults(); }
nixl_mem_list_t memory_kinds() { return {DRAM_SEG}; }

}  // namespace

extern "C" {
__attribute__((visibility("default"))) nixlBackendPlugin* nixl_plugin_init() {
  static nixlBackendPlugin plugin{
      NIXL_PLUGIN_API_VERSION, create_engine, destroy_engine, name, version, options, memory_kinds};
  return &plugin;
}
__attribute__((visibility("default"))) void nixl_plugin_fini() {}
}
