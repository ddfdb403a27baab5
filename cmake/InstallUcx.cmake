# A part of the installation (see BatonBundle.cmake) that copies UCX into a tree without UCX.

# PATTERN matches the folder that has libucp.so.0 and the modules below ucx/.
function(install_ucx pattern)
  file(GLOB folder ${pattern})
  file(GLOB libraries ${folder}/libuc[mpst].so.0)
  # All modules, because UCX would look for a missing one in the folder for which it was built.
  file(GLOB modules ${folder}/ucx/libuc[mt]_*.so.0)
  if(NOT libraries)
    message(FATAL_ERROR "no UCX in ${pattern}; the one with CUDA comes with tools/setup --cuda")
  endif()
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${libraries} MODULES ${modules} RESOLVED_DEPENDENCIES_VAR needed
    PRE_EXCLUDE_REGEXES ${BATON_NOT_BUNDLED} "^libuc")

  file(INSTALL ${libraries} ${needed} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib FOLLOW_SYMLINK_CHAIN)
  file(INSTALL ${modules} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/ucx FOLLOW_SYMLINK_CHAIN)
  # Settings by type of processor, which UCX finds in the same way as its modules.
  if(EXISTS ${folder}/../etc/ucx/ucx.conf)
    file(INSTALL ${folder}/../etc/ucx/ucx.conf DESTINATION ${CMAKE_INSTALL_PREFIX}/etc/ucx)
  endif()
  set(lib $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib)
  file(GLOB strippable ${lib}/libuc[mpst].so.0 ${lib}/ucx/*.so.0)
  execute_process(COMMAND ${BATON_STRIP} --strip-unneeded ${strippable} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
