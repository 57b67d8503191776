# Clang's thread safety analysis, as errors, of every target of ours: locks are annotated
# (src/base/mutex.h). The order of locks is in the part that Clang calls beta. Included by
# flags.cmake where the compiler is Clang, as in the preset fuzz, which .ci/run builds.

set(thread_safety -Wthread-safety -Wthread-safety-beta
    -Werror=thread-safety -Werror=thread-safety-beta)
target_compile_options(parallax_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${thread_safety}>")

# A check that finds nothing looks like code without faults. So each configuration shows it the
# faults of thread_safety.cc, all of which it must refuse, and the case without one.
function(parallax_check_thread_safety)
  set(source ${PROJECT_SOURCE_DIR}/cmake/thread_safety.cc)
  set(base ${PROJECT_SOURCE_DIR}/src/base)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source} ${base}/mutex.h
               ${base}/thread_annotations.h)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  foreach(case RANGE 6)
    try_compile(compiles SOURCES ${source} NO_CACHE OUTPUT_VARIABLE said
                COMPILE_DEFINITIONS ${thread_safety} -DPARALLAX_CASE=${case}
                CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}/src
                CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    if(case EQUAL 0 AND NOT compiles)
      message(FATAL_ERROR "The thread safety analysis refuses case 0 of ${source}, which is "
                          "correct:\n${said}")
    elseif(NOT case EQUAL 0 AND compiles)
      message(FATAL_ERROR "The thread safety analysis is not alive: case ${case} of ${source} "
                          "misuses a lock and compiles. See src/base/thread_annotations.h and the "
                          "flags in cmake/thread_safety.cmake.")
    elseif(NOT case EQUAL 0 AND NOT said MATCHES "-Wthread-safety")
      message(FATAL_ERROR "Case ${case} of ${source} was refused for another reason than its "
                          "misuse of a lock:\n${said}")
    endif()
  endforeach()
endfunction()
parallax_check_thread_safety()
