// Empty: CMake needs a source file to precompile precompiled.h for. main.cc does not use that
// header.
