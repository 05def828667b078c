# One target for each layer. Flags come only through slime_warnings.
include(GNUInstallDirs)
add_library(slime_warnings INTERFACE)
target_compile_options(slime_warnings INTERFACE -Wall -Wextra -Wpedantic $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety> -Wnon-virtual-dtor -Werror
  # False alarms of GCC 12 inside std::vector and std::string at -O3 (its bugs 105329, 105651); the
  # sanitizers look for the real ones.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow$<SEMICOLON>-Wno-restrict>)
if(SLIME_SANITIZE)
  target_compile_options(slime_warnings INTERFACE -fsanitize=${SLIME_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(slime_warnings INTERFACE -fsanitize=${SLIME_SANITIZE})
  # Some 200 programs, each with a sanitizer in it: a quarter of the time of the usual linker.
  find_program(SLIME_LLD ld.lld)
  if(SLIME_LLD)
    target_link_options(slime_warnings INTERFACE -fuse-ld=lld)
  endif()
endif()

# slime_unity(TARGET): compiles ten files of the target at a time if SLIME_UNITY is on. Names in the
# anonymous namespaces of a layer must therefore differ. scripts/alone.sh checks that each file
# compiles alone, too.
function(slime_unity target)
  if(SLIME_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10
      UNITY_BUILD_RELOCATABLE ON)
    # GCC warns of types with members from an anonymous namespace of an included file, which a unity
    # build includes.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# slime_layer(<name> PUBLIC ... SOURCES ... DEPENDS ... PRIVATE_DEPENDS ...) makes slime_<name>,
# also known as slime::<name>. PUBLIC are the headers that users include; what those include is
# installed with them.
function(slime_layer name)
  cmake_parse_arguments(ARG "" "" "PUBLIC;SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  slime_part(${name} SOURCES ${ARG_SOURCES} DEPENDS ${ARG_DEPENDS} PRIVATE_DEPENDS ${ARG_PRIVATE_DEPENDS})
  set_target_properties(slime_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS slime_${name} EXPORT slime ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
  list(TRANSFORM ARG_PUBLIC PREPEND ${name}/)
  set_property(GLOBAL APPEND PROPERTY slime_public_headers ${ARG_PUBLIC})
endfunction()

# The library slime::NAME, which is not installed: what programs are made of.
function(slime_part name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(slime_${name} STATIC ${ARG_SOURCES})
  add_library(slime::${name} ALIAS slime_${name})
  target_include_directories(slime_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/slime>)
  target_link_libraries(slime_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:slime_warnings> ${ARG_PRIVATE_DEPENDS})
  target_compile_features(slime_${name} PUBLIC cxx_std_20)
  slime_unity(slime_${name})
  if(SLIME_FUZZ)
    # What the fuzzer steers by. Not for the tests, which it does not run: clang 14 cannot compile
    # their coroutines with it.
    target_compile_options(slime_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# Installs the public headers of all layers. By a script at the time of the installation, so that no
# list has to say which headers those include. (FILE_SET would want such a list, and CMake 3.23;
# Ubuntu 22.04 has 3.22.)
function(slime_install_headers)
  get_property(headers GLOBAL PROPERTY slime_public_headers)
  install(CODE "set(slime_public_headers \"${headers}\")
    set(slime_headers_from \"${PROJECT_SOURCE_DIR}\")
    set(slime_headers_to \"${CMAKE_INSTALL_INCLUDEDIR}/slime\")" COMPONENT dev)
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake COMPONENT dev)
endfunction()
