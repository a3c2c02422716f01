# Reads "module : dep dep" lines into KVR_DEPS_<module>, so that what links and what
# tools/check_layers.py allows cannot differ.
macro(kvr_read_layers file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} kvr_lines REGEX "^[a-z_]+ *:")
  foreach(line IN LISTS kvr_lines)
    string(REGEX MATCH "^([a-z_]+) *:(.*)$" _ "${line}")
    set(kvr_name ${CMAKE_MATCH_1})
    string(REGEX MATCHALL "[a-z_]+" KVR_DEPS_${kvr_name} "${CMAKE_MATCH_2}")
    list(APPEND KVR_MODULES ${kvr_name})
  endforeach()
endmacro()

# kvr_module(name SOURCES a.cc HEADERS a.h [LIBS pkg::pkg] [PRIVATE_LIBS pkg::pkg])
#
# Target kvr::name, linked to exactly the modules LAYERS gives it. A module that is not there yet is
# skipped, so that the tree can grow from the bottom.
function(kvr_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;LIBS;PRIVATE_LIBS")
  set(kind INTERFACE)
  set(scope INTERFACE)
  if(arg_SOURCES)
    set(kind STATIC)
    set(scope PUBLIC)
  endif()
  add_library(kvr_${name} ${kind} ${arg_SOURCES})
  add_library(kvr::${name} ALIAS kvr_${name})
  target_include_directories(kvr_${name} ${scope} ${PROJECT_SOURCE_DIR}/src)
  target_sources(kvr_${name} ${scope}
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${arg_HEADERS})
  foreach(dep IN LISTS KVR_DEPS_${name})
    if(TARGET kvr_${dep})
      target_link_libraries(kvr_${name} ${scope} kvr::${dep})
    endif()
  endforeach()
  target_link_libraries(kvr_${name} ${scope} kvr::options ${arg_LIBS})
  if(arg_PRIVATE_LIBS)
    target_link_libraries(kvr_${name} PRIVATE ${arg_PRIVATE_LIBS})
  endif()
endfunction()

# kvr_part(name SOURCES a.cc [LIBS kvr::x] [PRIVATE_LIBS pkg::pkg])
#
# Target kvr::name: some sources of a module as a library of their own, so that a fuzz target builds
# without the rest. The module lists the headers, and the part among its LIBS.
function(kvr_part name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;PRIVATE_LIBS")
  add_library(kvr_${name} STATIC ${arg_SOURCES})
  add_library(kvr::${name} ALIAS kvr_${name})
  target_include_directories(kvr_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(kvr_${name} PUBLIC ${arg_LIBS} kvr::options PRIVATE ${arg_PRIVATE_LIBS})
endfunction()

# kvr_test(name SOURCES a_test.cc [LIBS kvr::x] [LABELS unit] [TIMEOUT s])
#
# One GoogleTest executable and one ctest entry. Default label: unit.
function(kvr_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBS;LABELS;ARGS")
  if(NOT KVR_BUILD_TESTS)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  add_executable(${name} ${arg_SOURCES} ${KVR_SANITIZER_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} kvr::options GTest::gmock GTest::gtest_main)
  if(arg_LABELS MATCHES "concurrency|integration|simulation")
    set_property(GLOBAL APPEND PROPERTY KVR_THREADED_TESTS ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# kvr_bench(name SOURCES a_bench.cc [LIBS kvr::x] [SMOKE regex])
#
# A Google Benchmark executable; ctest runs those that match SMOKE, or all, shortly, so that they cannot
# rot.
function(kvr_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SMOKE" "SOURCES;LIBS")
  if(NOT arg_SMOKE)
    set(arg_SMOKE .)
  endif()
  if(NOT KVR_BUILD_BENCH)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} kvr::options benchmark::benchmark)
  add_test(NAME ${name}_smoke COMMAND ${name} --benchmark_min_time=0.001 --benchmark_filter=${arg_SMOKE})
  set_tests_properties(${name}_smoke PROPERTIES LABELS bench-smoke TIMEOUT 300)
endfunction()

# kvr_fuzz(name SOURCES a_fuzz.cc CORPUS dir [MUTATOR a.cc b.cc] [LIBS kvr::x])
#
# With the fuzz preset a libFuzzer target. In every other build the same entry point is linked with a
# driver that replays the corpus, so that each corpus file is a regression test under each compiler.
function(kvr_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS" "SOURCES;LIBS;MUTATOR")
  if(KVR_FUZZ)
    add_executable(${name} ${arg_SOURCES} ${arg_MUTATOR})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE ${arg_LIBS} kvr::options)
    set_property(GLOBAL APPEND PROPERTY KVR_FUZZ_TARGETS ${name})
  elseif(KVR_BUILD_TESTS)
    add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc)
    target_link_libraries(${name} PRIVATE ${arg_LIBS} kvr::options)
    add_test(NAME ${name}_corpus COMMAND ${name} ${arg_CORPUS})
    set_tests_properties(${name}_corpus PROPERTIES LABELS fuzz-corpus TIMEOUT 300)
  endif()
endfunction()
