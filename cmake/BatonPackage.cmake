# The Debian package (component `deb`), which `tools/package` makes from a build. Unlike the bundle,
# it depends on Debian's libraries, at the versions of the build.
if(BATON_SANITIZE)
  return()
endif()

set(deb COMPONENT deb EXCLUDE_FROM_ALL)
set(deploy ${PROJECT_SOURCE_DIR}/deploy)
install(TARGETS baton baton-router RUNTIME DESTINATION bin ${deb})
install(CODE [[
  foreach(program baton baton-router)
    # The RPATH is for the bundle.
    file(RPATH_REMOVE FILE $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin/${program})
  endforeach()]] ${deb})
foreach(name baton-prefill baton-decode)
  baton_install_name(${name} baton ${deb})
endforeach()

file(GLOB units ${deploy}/systemd/baton*)
install(FILES ${units} DESTINATION lib/systemd/system ${deb})
install(FILES ${deploy}/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME baton.conf ${deb})
install(FILES ${deploy}/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME baton.conf ${deb})
install(FILES ${deploy}/config/router.toml ${deploy}/config/prefill-0.toml ${deploy}/config/decode-0.toml
  DESTINATION /etc/baton ${deb})
install(FILES README.md DESTINATION share/doc/baton ${deb})
set(pages install configuration security sizing kubernetes observability runbook agents openai)
list(TRANSFORM pages PREPEND docs/)
list(TRANSFORM pages APPEND .md)
install(FILES ${pages} DESTINATION share/doc/baton/docs ${deb})
install(FILES ${deploy}/systemd/gpu.conf ${deploy}/systemd/network.conf DESTINATION share/doc/baton/examples ${deb})
install(FILES ${deploy}/prometheus/alerts.yml ${deploy}/prometheus/rules.yml ${deploy}/prometheus/prometheus.yml
  DESTINATION share/baton/prometheus ${deb})
install(FILES ${deploy}/grafana/baton.json DESTINATION share/baton RENAME grafana.json ${deb})

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL deb)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME baton)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Baton developers <baton@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "disaggregated LLM inference server for agents")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Prefill workers turn prompts into KV cache, decode workers turn KV cache into \
tokens, and a router joins them; on CPUs and NVIDIA GPUs.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS systemd)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${deploy}/debian/conffiles ${deploy}/debian/postinst ${deploy}/debian/prerm
  ${deploy}/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
