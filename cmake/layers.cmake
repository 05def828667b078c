# One target for each layer. Flags come only through slime_warnings.
add_library(slime_warnings INTERFACE)
target_compile_options(slime_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow=local -Wnon-virtual-dtor -Werror)
if(SLIME_SANITIZE)
  target_compile_options(slime_warnings INTERFACE -fsanitize=${SLIME_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(slime_warnings INTERFACE -fsanitize=${SLIME_SANITIZE})
endif()

# slime_layer(<name> SOURCES ... DEPENDS ... PRIVATE_DEPENDS ...) makes slime_<name>, also known as slime::<name>.
function(slime_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(slime_${name} STATIC ${ARG_SOURCES})
  add_library(slime::${name} ALIAS slime_${name})
  target_include_directories(slime_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/slime>)
  target_link_libraries(slime_${name} PUBLIC ${ARG_DEPENDS} PRIVATE slime_warnings ${ARG_PRIVATE_DEPENDS})
  target_compile_features(slime_${name} PUBLIC cxx_std_20)
endfunction()
