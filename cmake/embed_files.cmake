# Turns files into a source file that has them as page_files() (ctrl/page.h):
#   cmake -DOUTPUT=page_files.cc -DFOLDER=... -DFILES="a.html;b.js" -P embed_files.cmake
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")

set(arrays)
set(entries)
set(number 0)
foreach(name ${FILES})
  string(REGEX REPLACE "^.*\\." "" suffix ${name})
  if(NOT DEFINED type_${suffix})
    message(FATAL_ERROR "${name}: what type has a file that ends so?")
  endif()
  file(READ ${FOLDER}/${name} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  file(SHA256 ${FOLDER}/${name} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  string(APPEND arrays "constexpr unsigned char kBytes${number}[] = {${bytes}};\n")
  string(APPEND entries "      {\"${name}\", \"${type_${suffix}}\", \"\\\"${hash}\\\"\", text(kBytes${number})},\n")
  math(EXPR number "${number} + 1")
endforeach()

file(WRITE ${OUTPUT} "// Made of ctrl/page by cmake/embed_files.cmake.
#include \"ctrl/page.h\"

namespace slime::ctrl {
namespace {

${arrays}
template <std::size_t N>
std::string_view text(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char*>(bytes), N};
}

}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace slime::ctrl
")
