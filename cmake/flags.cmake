# Flags of every target of ours, as the interface library parallax_flags. Nothing of it is exported.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "GCC ${CMAKE_CXX_COMPILER_VERSION} is too old: libparallax needs GCC >= 12.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR
          "Clang ${CMAKE_CXX_COMPILER_VERSION} is too old: libparallax needs Clang >= 14.")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(parallax_flags INTERFACE)
target_compile_options(parallax_flags INTERFACE -Wall -Wextra -Wpedantic)

# GCC 12 at -O3 sees overlapping copies in string concatenation that are not there (GCC bug 105651),
# and fills of negative length in vectors that it has just seen resized.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(parallax_flags INTERFACE
                         $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-stringop-overflow>)
endif()

# The promise that placements and methods agree bit for bit rests on every sum and update rounding
# each operation once. A compiler that contracts a * b + c into a fused multiply-add, as GCC does by
# default outside ISO modes, rounds once for two operations, and does so in one loop and not in
# another. So contraction is off in every translation unit, tests and oracles included.
target_compile_options(parallax_flags INTERFACE -ffp-contract=off)

# Nobody here reads errno after sqrt, nor the exception flags of the floating-point unit; with
# either the compiler may put no root and no choice between numbers into vectors. The bits are the
# same.
target_compile_options(parallax_flags INTERFACE -fno-math-errno -fno-trapping-math)

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(cmake/thread_safety.cmake)
endif()

if(PARALLAX_WERROR)
  target_compile_options(parallax_flags INTERFACE -Werror)
endif()

# What distributions harden their packages with, for what is installed: the libraries and the tool.
# Where PARALLAX_FORTIFY is on, tests/abi reads it back out of the files.
include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported()
add_library(parallax_hardening INTERFACE)
target_compile_options(parallax_hardening INTERFACE -fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
  check_cxx_compiler_flag(-fcf-protection parallax_has_cf_protection)
  if(parallax_has_cf_protection)
    target_compile_options(parallax_hardening INTERFACE -fcf-protection)
  endif()
endif()
target_link_options(parallax_hardening INTERFACE LINKER:-z,relro LINKER:-z,now
                    LINKER:-z,noexecstack)
# It works on optimised code alone, hides bugs from sanitizers, and a packager's own level stays.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(build_flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
set(PARALLAX_FORTIFY OFF)
if(build_flags MATCHES "-O[123sgz]|-Ofast" AND NOT build_flags MATCHES "-O0"
   AND NOT PARALLAX_SANITIZE)
  set(PARALLAX_FORTIFY ON)
  if(NOT build_flags MATCHES "_FORTIFY_SOURCE")
    target_compile_options(parallax_hardening INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
endif()

if(PARALLAX_SANITIZE)
  target_compile_options(parallax_flags INTERFACE
                         -fsanitize=${PARALLAX_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(parallax_flags INTERFACE -fsanitize=${PARALLAX_SANITIZE})
  if(PARALLAX_SANITIZE MATCHES "undefined")
    # A finding ends the test, instead of a line that nobody reads.
    target_compile_options(parallax_flags INTERFACE -fno-sanitize-recover=undefined)
    # The vptr check opens a pipe to probe memory, and takes "no descriptor left" for a bad object:
    # wrong in the tests that use descriptors up.
    target_compile_options(parallax_flags INTERFACE -fno-sanitize=vptr)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 finds values "maybe uninitialized" in instrumented code that it does not find without.
    target_compile_options(parallax_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

if(PARALLAX_COVERAGE)
  target_compile_options(parallax_flags INTERFACE --coverage)
  target_link_options(parallax_flags INTERFACE --coverage)
endif()

# Tests are compiled with little optimisation: what they call is measured, they are not, and the
# instrumentation of code that was inlined is what a sanitizer's build takes its time for.
add_library(parallax_test_flags INTERFACE)
if(PARALLAX_SANITIZE)
  target_compile_options(parallax_test_flags INTERFACE -O0)
  if(PARALLAX_SANITIZE MATCHES "undefined")
    # Half of all checks by number. The library keeps them, and AddressSanitizer sees what the
    # first and the last would.
    target_compile_options(parallax_test_flags INTERFACE
                           -fno-sanitize=null,alignment,object-size)
  endif()
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(parallax_test_flags INTERFACE -O1)
endif()

# Where PARALLAX_QUICK_BUILD is on, headers that most sources include are compiled once a target,
# and the sources of a folder as one: no two of them share a name. A source still includes what it
# uses: the preset dev compiles each by itself.
function(parallax_quick_build target)
  if(NOT PARALLAX_QUICK_BUILD)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # The same concatenations; of a precompiled header it forgets that it is the system's.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>)
  endif()
  target_precompile_headers(
    ${target} PRIVATE <algorithm> <array> <chrono> <cstring> <functional> <map> <memory> <mutex>
                      <span> <string> <thread> <vector> ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE folder)
    cmake_path(GET folder PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder})
  endforeach()
endfunction()
