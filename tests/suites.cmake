# One ctest entry for each suite of a program by Google Test, for the sanitizers' builds: their
# programs take a third of a second to start, which an entry for each case pays thousands of times.
#
# ctest includes this, by a file that parallax_gtest writes, with `program`, its `prefix` and the
# `properties` of its entries set. What the program lists is kept beside that file.
if(NOT EXISTS ${program})
  return()
endif()
if(NOT EXISTS ${entries} OR ${program} IS_NEWER_THAN ${entries})
  execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE listed
                  COMMAND_ERROR_IS_FATAL ANY)
  # A line of a suite ends in its dot, or goes on with the type of a typed one.
  string(REGEX MATCHALL "(^|\n)[^ \n]+[.]" suites "${listed}")
  set(text "")
  foreach(suite IN LISTS suites)
    string(STRIP "${suite}" suite)
    string(REGEX REPLACE "[.]$" "" name ${suite})
    set(entry "[=[${prefix}${name}]=]")
    string(APPEND text "add_test(${entry} [=[${program}]=] [=[--gtest_filter=${suite}*]=])\n"
           "set_tests_properties(${entry} PROPERTIES ${properties})\n")
  endforeach()
  file(WRITE ${entries} "${text}")
endif()
include(${entries})
