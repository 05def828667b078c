# Included by project() of an earlier version (scripts/mixed_versions.sh), which is compiled ten
# files at a time: that takes a third of the time. These files have names that another one of theirs
# has too. The other way, precompiled headers, takes longer.
function(slime_compile_alone target)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
cmake_language(DEFER CALL slime_compile_alone slime_bench
  bench/ctrl_store.cc bench/lines.cc bench/process.cc bench/raw_ring.cc)
cmake_language(DEFER CALL slime_compile_alone slime
  cli/call.cc cli/doctor_verbs.cc cli/peers.cc cli/services.cc cli/stubs.cc cli/stubs_python.cc)
cmake_language(DEFER CALL slime_compile_alone _slime python/bind_proxy.cc python/value_encoder.cc)
cmake_language(DEFER CALL slime_compile_alone matrix_client
  tests/matrix/client_bytes.cc tests/matrix/client_endings.cc tests/matrix/client_server.cc tests/matrix/client_streams.cc)
cmake_language(DEFER CALL slime_compile_alone slime_agent agent/info.cc)
# These take more than ten.
cmake_language(DEFER CALL set_property TARGET slime_agent slime_transport PROPERTY UNITY_BUILD_BATCH_SIZE 40)
