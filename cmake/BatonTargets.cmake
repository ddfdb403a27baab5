# One way to declare a library, a test and a program, so that every folder's CMakeLists.txt is a list of dependencies.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# What one checkout has compiled, others find: paths are taken relative to the checkout, and debug information may name
# the folder of another build.
find_program(BATON_CCACHE ccache)
if(BATON_CCACHE)
  set(BATON_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${BATON_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BATON_LAUNCHER})
endif()

set(BATON_SANITIZE "" CACHE STRING "address (with undefined) or thread; empty for none")
if(BATON_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(BATON_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(BATON_SANITIZE)
  message(FATAL_ERROR "BATON_SANITIZE: expected address or thread, got '${BATON_SANITIZE}'")
endif()

# Flags for our own code only; generated protobuf code is compiled without them.
add_library(baton_flags INTERFACE)
target_compile_options(baton_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror)
if(BATON_SANITIZE)
  target_compile_options(baton_flags INTERFACE -Wno-maybe-uninitialized)  # false alarms in the standard library's headers
endif()
# Bit-equality (design idea 5) needs every multiply-add to be contracted only where the source says so.
target_compile_options(baton_flags INTERFACE -ffp-contract=off)

# baton_library(NAME [DEPS target ...]): one library from the .cc files of the current folder, except *_main.cc.
function(baton_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_main\\.cc$")
  if(sources)
    add_library(baton_${name} STATIC ${sources})
    target_include_directories(baton_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS} PRIVATE baton_flags)
  else()
    add_library(baton_${name} INTERFACE)
    target_include_directories(baton_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(baton_${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# baton_program(NAME SOURCE [DEPS target ...]): a binary under bin/. No sanitized test runs one, so that it is built there only by name.
function(baton_program name source)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton_flags)
  if(BATON_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# baton_test(FOLDER [DEPS target ...]): one Catch2 binary from the *_test.cc files of the current folder, run by ctest.
# With COST (a number) it starts before those that cost less: none that takes long should run alone at the end.
function(baton_test folder)
  cmake_parse_arguments(ARG "" "COST" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${folder}_test ${sources})
  target_include_directories(${folder}_test PRIVATE ${PROJECT_SOURCE_DIR}/test)
  target_link_libraries(${folder}_test PRIVATE ${ARG_DEPS} baton_test_main baton_flags)
  add_test(NAME ${folder} COMMAND ${folder}_test)
  set_tests_properties(${folder} PROPERTIES TIMEOUT 600)
  if(ARG_COST)
    set_tests_properties(${folder} PROPERTIES COST ${ARG_COST})
  endif()
  if(BATON_SANITIZE STREQUAL "thread")
    # UCX hooks madvise, which a thread calls at its very end, when the sanitizer's state of it is gone.
    set_tests_properties(${folder} PROPERTIES ENVIRONMENT UCX_MEM_MMAP_HOOK_MODE=none)
  endif()
endfunction()
