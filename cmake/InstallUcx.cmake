# Part of the installation (BatonBundle.cmake): puts UCX into a tree that has none yet.

# PATTERN: of the folder that has libucp.so.0 and, below it, ucx/ with the modules.
function(install_ucx pattern)
  file(GLOB folder ${pattern})
  file(GLOB libraries ${folder}/libuc[mpst].so.0)
  file(GLOB modules ${folder}/ucx/libuc[mt]_*.so.0)  # all of them: for a missing one UCX looks where it was built to be
  if(NOT libraries)
    message(FATAL_ERROR "no UCX in ${pattern}; the one with CUDA comes with tools/setup --cuda")
  endif()
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${libraries} MODULES ${modules} RESOLVED_DEPENDENCIES_VAR needed
    PRE_EXCLUDE_REGEXES ${BATON_NOT_BUNDLED} "^libuc")

  file(INSTALL ${libraries} ${needed} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib FOLLOW_SYMLINK_CHAIN)
  file(INSTALL ${modules} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/ucx FOLLOW_SYMLINK_CHAIN)
  if(EXISTS ${folder}/../etc/ucx/ucx.conf)  # settings by type of processor, which UCX finds in the same way
    file(INSTALL ${folder}/../etc/ucx/ucx.conf DESTINATION ${CMAKE_INSTALL_PREFIX}/etc/ucx)
  endif()
  set(lib $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib)
  file(GLOB strippable ${lib}/libuc[mpst].so.0 ${lib}/ucx/*.so.0)
  execute_process(COMMAND ${BATON_STRIP} --strip-unneeded ${strippable} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
