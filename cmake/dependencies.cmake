# Finds what the build needs. What is required and missing is collected and named in one message;
# what is optional and missing is shown, with what it switches off, by cmake/summary.cmake.

set(parallax_missing "")

find_package(PkgConfig QUIET)
if(NOT PkgConfig_FOUND)
  message(FATAL_ERROR "pkg-config was not found (Debian package pkg-config).")
endif()

find_package(Threads REQUIRED)

pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc>=2.0)
if(NOT HWLOC_FOUND)
  list(APPEND parallax_missing "hwloc >= 2.0 (Debian package libhwloc-dev)")
endif()

pkg_check_modules(IBVERBS QUIET IMPORTED_TARGET libibverbs)
if(NOT IBVERBS_FOUND)
  list(APPEND parallax_missing "libibverbs (Debian package libibverbs-dev)")
endif()

find_package(nlohmann_json 3.11 QUIET)
if(NOT nlohmann_json_FOUND)
  list(APPEND parallax_missing "nlohmann_json >= 3.11 (Debian package nlohmann-json3-dev)")
endif()

find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto SSL)
if(NOT OPENSSL_FOUND)
  list(APPEND parallax_missing "OpenSSL >= 3.0 (Debian package libssl-dev)")
endif()

if(PARALLAX_BUILD_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    list(APPEND parallax_missing
         "GoogleTest (Debian package libgtest-dev), or -DPARALLAX_BUILD_TESTS=OFF")
  endif()
endif()

if(PARALLAX_BUILD_TOOL)
  find_package(CLI11 QUIET)
  if(NOT CLI11_FOUND)
    list(APPEND parallax_missing
         "CLI11 (Debian package libcli11-dev), or -DPARALLAX_BUILD_TOOL=OFF")
  endif()
endif()

# Optional: without it the library is complete except for its transport between hosts.
pkg_check_modules(UCX QUIET IMPORTED_TARGET ucx>=1.13)

# Optional: bench/kernels.
if(PARALLAX_BUILD_BENCH)
  find_package(benchmark 1.7 QUIET)
endif()

if(parallax_missing)
  list(JOIN parallax_missing "\n  " parallax_missing_lines)
  message(FATAL_ERROR "libparallax cannot be built, because this was not found:\n  "
                      "${parallax_missing_lines}\n"
                      "./tests/run installs what cmake/packages.txt lists.")
endif()
