# Puts files into a program. As a module it has the function; as a script (-P) it is what the
# function has run.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(slime_embed_script ${CMAKE_CURRENT_LIST_FILE})

  # slime_embed(TARGET NAME FILES...) adds the function std::string_view
  # slime::embedded::NAME(std::string_view file) to a target: the bytes of the file with that name,
  # without its folder; empty if there is no such file. The caller declares it. A file that changes
  # is put in anew.
  function(slime_embed target name)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cc)
    list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DOUTPUT=${output} "-DFILES=${files}" -P ${slime_embed_script}
      DEPENDS ${files} ${slime_embed_script} VERBATIM)
    target_sources(${target} PRIVATE ${output})
  endfunction()
  return()
endif()

# Names of this file alone: a unity build may compile two such files as one.
set(arrays)
set(cases)
set(number 0)
foreach(file ${FILES})
  get_filename_component(base ${file} NAME)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char k_${NAME}_${number}[] = {${bytes}0};\n")
  string(APPEND cases "  if (file == \"${base}\") return {reinterpret_cast<const char*>(k_${NAME}_${number}), sizeof k_${NAME}_${number} - 1};\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include <string_view>

namespace slime::embedded {
namespace {
${arrays}}  // namespace

std::string_view ${NAME}(std::string_view file);
std::string_view ${NAME}(std::string_view file) {
${cases}  return {};
}

}  // namespace slime::embedded
")
