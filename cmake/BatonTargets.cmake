# Functions that declare a library, a test or a program, so that each folder's CMakeLists.txt is a
# list of dependencies.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Checkouts share the compiler cache. Paths are relative to the checkout, and debug information may
# name the folder of another build.
find_program(BATON_CCACHE ccache)
if(BATON_CCACHE)
  set(BATON_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${BATON_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BATON_LAUNCHER})
endif()

# lld links a binary in 0.2 s. GNU's linker takes more than 1 s.
find_program(BATON_LLD ld.lld)
if(BATON_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Without these parameters, the compiler spends a seventh of its time on garbage collection. With
# them, its memory grows by a third, to 1.5 GB for the largest sources. The job pool below therefore
# limits the number of concurrent compilations to the machine's memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=300 --param ggc-min-heapsize=600000>")
endif()
cmake_host_system_information(RESULT memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR compilers "${memory_mb} / 2048 + 1")
set_property(GLOBAL APPEND PROPERTY JOB_POOLS compilers=${compilers})
set(CMAKE_JOB_POOL_COMPILE compilers)

set(BATON_SANITIZE "" CACHE STRING "address (with undefined) or thread; empty for none")
# The checks of null pointers, object sizes, dynamic types and alignment take more than a third of
# the compile time. The address sanitizer finds most errors of the first two kinds.
option(BATON_SANITIZE_ALL "with address: every check of the undefined behaviour sanitizer; with thread: every test" OFF)
if(BATON_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(NOT BATON_SANITIZE_ALL)
    add_compile_options(-fno-sanitize=null,object-size,vptr,alignment)
  endif()
  add_link_options(-fsanitize=address,undefined)
elseif(BATON_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(BATON_SANITIZE)
  message(FATAL_ERROR "BATON_SANITIZE: expected address or thread, got '${BATON_SANITIZE}'")
endif()

# Flags for Baton's own code. Generated protobuf code is compiled without them.
add_library(baton_flags INTERFACE)
target_compile_options(baton_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror)
if(BATON_SANITIZE)
  # The standard library's headers cause false alarms.
  target_compile_options(baton_flags INTERFACE -Wno-maybe-uninitialized)
endif()
# Bit equality (idea 5 of docs/design/overview.md) requires that the compiler contracts no
# multiply-add by itself.
target_compile_options(baton_flags INTERFACE -ffp-contract=off)

# The option compiles several sources of a folder as one, because headers and their templates take
# most of the compile time. CMake's UNITY_BUILD names sources by absolute paths, so checkouts could
# not share the compiler cache. With OFF, each source is compiled alone. This shows missing includes
# and suits code browsers.
option(BATON_UNITY "compile the sources of a folder together" ON)
# Upper bound on the sources that are compiled as one.
set(BATON_UNITY_SOURCES 16)
if(BATON_UNITY)
  # gcc warns of a file-local type inside a class of the same file, except in the file on its
  # command line.
  target_compile_options(baton_flags INTERFACE -Wno-subobject-linkage)
endif()
# The linker drops unused functions, because sources that are compiled together contain more
# functions than a program uses.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections> $<$<COMPILE_LANGUAGE:CXX>:-fdata-sections>)
add_link_options(-Wl,--gc-sections)

# baton_unity_group(OUT BASE NAME source ...) appends to OUT the generated files that include the
# sources.
function(baton_unity_group out base name)
  set(result ${${out}})
  list(LENGTH ARGN count)
  math(EXPR files "(${count} + ${BATON_UNITY_SOURCES} - 1) / ${BATON_UNITY_SOURCES}")
  if(files GREATER 0)
    math(EXPR each "(${count} + ${files} - 1) / ${files}")
    math(EXPR last "${files} - 1")
    foreach(number RANGE ${last})
      math(EXPR begin "${number} * ${each}")
      list(SUBLIST ARGN ${begin} ${each} members)
      set(content)
      foreach(member IN LISTS members)
        file(RELATIVE_PATH relative ${base} ${member})
        string(APPEND content "#include \"${relative}\"\n")
      endforeach()
      set(unity ${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cc)
      file(CONFIGURE OUTPUT ${unity} CONTENT "${content}" @ONLY)
      list(APPEND result ${unity})
    endforeach()
  endif()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# baton_unity(OUT BASE APART source ...) sets OUT to the files to compile instead of the sources.
# The sources are below BASE, which must be an include directory. Sources that match the regular
# expression APART are compiled together, but separately from the others. The linker omits their
# object from a program that uses none of them. Sources with compile options of their own are
# compiled alone.
function(baton_unity out base apart)
  set(result)
  set(together)
  set(separate)
  foreach(source IN LISTS ARGN)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options OR NOT BATON_UNITY)
      list(APPEND result ${source})
    elseif(apart AND source MATCHES "${apart}")
      list(APPEND separate ${source})
    else()
      list(APPEND together ${source})
    endif()
  endforeach()
  baton_unity_group(result ${base} unity ${together})
  baton_unity_group(result ${base} unity_apart ${separate})
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# baton_library(NAME [APART regex] [EXCLUDE regex] [DEPS target ...]) declares a library from the
# .cc files of the current folder. It omits *_main.cc and the files that match EXCLUDE. REQUIRES:
# compile options of single sources are set before the call.
function(baton_library name)
  cmake_parse_arguments(ARG "" "APART;EXCLUDE" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_main\\.cc$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  if(sources)
    baton_unity(sources ${PROJECT_SOURCE_DIR}/src "${ARG_APART}" ${sources})
    add_library(baton_${name} STATIC ${sources})
    target_include_directories(baton_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS} PRIVATE baton_flags)
  else()
    add_library(baton_${name} INTERFACE)
    target_include_directories(baton_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(baton_${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# baton_program(NAME SOURCE [DEPS target ...]) declares a binary under bin/. Sanitized builds build
# a program only by name, because no sanitized test runs one.
function(baton_program name source)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} baton_flags)
  if(BATON_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# baton_program_name(NAME PROGRAM) declares a further name of a program, which is a symbolic link
# beside it. The program reads the name that it was started by.
function(baton_program_name name program)
  set(link ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})
  add_custom_command(OUTPUT ${link} COMMAND ${CMAKE_COMMAND} -E create_symlink ${program} ${link} DEPENDS ${program})
  if(BATON_SANITIZE)
    add_custom_target(${name} DEPENDS ${link})
  else()
    add_custom_target(${name} ALL DEPENDS ${link})
  endif()
endfunction()

# baton_install_name(NAME PROGRAM COMPONENT option ...) installs such a link into bin/. The options
# go to install().
function(baton_install_name name program)
  install(CODE "file(CREATE_LINK ${program} \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/${name}\" SYMBOLIC)" ${ARGN})
endfunction()

set(BATON_TEST_TIMEOUT 600 CACHE STRING "seconds after which ctest ends a test")

# baton_test(FOLDER [COMPUTES] [COST number] [ARGS argument ...] [SOURCES source ...] [DEPS target
# ...]) declares a Catch2 binary. Its sources are SOURCES and the *_test.cc files of the current
# folder. ctest runs it with ARGS.
#
# The sources are compiled with little optimisation, which halves the compile time. COMPUTES enables
# optimisation for tests that compute much. A test with a higher COST starts earlier, so that no
# long test runs alone at the end.
function(baton_test folder)
  cmake_parse_arguments(ARG "COMPUTES" "COST" "DEPS;SOURCES;ARGS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  baton_unity(sources ${PROJECT_SOURCE_DIR}/test "" ${sources} ${ARG_SOURCES})
  add_executable(${folder}_test ${sources})
  target_include_directories(${folder}_test PRIVATE ${PROJECT_SOURCE_DIR}/test)
  target_compile_options(${folder}_test PRIVATE $<IF:$<BOOL:${ARG_COMPUTES}>,-O2,-Og>)
  target_link_libraries(${folder}_test PRIVATE ${ARG_DEPS} baton_test_main baton_flags)
  if(BATON_SANITIZE STREQUAL "thread" AND NOT BATON_SANITIZE_ALL)
    # Skip long tests without a second thread, in which this sanitizer finds nothing.
    list(APPEND ARG_ARGS "~[one_thread]")
  endif()
  add_test(NAME ${folder} COMMAND ${folder}_test ${ARG_ARGS})
  set_tests_properties(${folder} PROPERTIES TIMEOUT ${BATON_TEST_TIMEOUT})
  if(ARG_COST)
    set_tests_properties(${folder} PROPERTIES COST ${ARG_COST})
  endif()
  if(BATON_SANITIZE STREQUAL "thread")
    # UCX hooks madvise. A thread calls madvise at its very end, when the sanitizer has already
    # freed the thread's state.
    set_tests_properties(${folder} PROPERTIES ENVIRONMENT "UCX_MEM_MMAP_HOOK_MODE=none;TSAN_OPTIONS=halt_on_error=1")
  endif()
endfunction()
