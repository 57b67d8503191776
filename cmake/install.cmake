# Installs the library, its header and manual, its modules, the tool with its man pages, the CMake
# package, the pkg-config file and the Python package.

if(NOT TARGET parallax)
  return()
endif()

include(CMakePackageConfigHelpers)

install(TARGETS parallax EXPORT parallaxTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET parallax_ucx)
  install(TARGETS parallax_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/parallax)
endif()
if(TARGET parallax_cuda)
  install(TARGETS parallax_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/parallax)
endif()
if(TARGET parallax_tool)
  install(TARGETS parallax_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
endif()
# Section 3 of the manual: a page, and a link from each other name in its NAME line.
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.3)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
foreach(page IN LISTS pages)
  cmake_path(GET page FILENAME file)
  file(STRINGS ${page} names LIMIT_COUNT 1 REGEX "^parallax_.* \\\\- |^libparallax.* \\\\- ")
  string(REGEX MATCHALL "parallax_[a-z0-9_]+" names "${names}")
  foreach(name IN LISTS names)
    if(NOT "${name}.3" STREQUAL file)
      file(CONFIGURE OUTPUT man3/${name}.3 CONTENT ".so man3/${file}\n" @ONLY)
      install(FILES ${PROJECT_BINARY_DIR}/man3/${name}.3
              DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
    endif()
  endforeach()
endforeach()
install(DIRECTORY include/parallax DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/parallax)
install(EXPORT parallaxTargets NAMESPACE parallax:: DESTINATION ${package_dir})
configure_package_config_file(packaging/parallaxConfig.cmake.in parallaxConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file(parallaxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/parallaxConfig.cmake
              ${PROJECT_BINARY_DIR}/parallaxConfigVersion.cmake
        DESTINATION ${package_dir})

# Paths relative to the .pc file: the installed tree can be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(packaging/parallax.pc.in parallax.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/parallax.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY bindings/python/libparallax DESTINATION ${PARALLAX_INSTALL_PYTHONDIR}
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed"
        PATTERN "__pycache__" EXCLUDE)
if(TARGET parallax_python)
  install(TARGETS parallax_python
          LIBRARY DESTINATION ${PARALLAX_INSTALL_PYTHONDIR}/libparallax)
endif()
# Where the package finds the library, relative to itself: the installed tree can be moved.
file(RELATIVE_PATH python_library /${PARALLAX_INSTALL_PYTHONDIR}/libparallax
     /${CMAKE_INSTALL_LIBDIR})
file(CONFIGURE OUTPUT library_path.txt CONTENT "${python_library}/libparallax.so.0\n" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/library_path.txt
        DESTINATION ${PARALLAX_INSTALL_PYTHONDIR}/libparallax)
