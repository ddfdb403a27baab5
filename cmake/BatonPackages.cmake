# All third-party packages. They are Debian packages. docs/dependencies.md gives the reason for
# each.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED)  # headers only
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
# src/rpc/grpc_deadline.cc defines gpr_sleep_until in place of libgpr's. With a static libgpr, the
# linker would find two definitions.
get_target_property(grpc_kind gRPC::gpr TYPE)
if(NOT grpc_kind STREQUAL "SHARED_LIBRARY")
  message(FATAL_ERROR "gRPC: expected shared libraries, got gRPC::gpr as ${grpc_kind} (${gRPC_DIR}). "
                      "Baton replaces functions of libgpr.so (src/rpc/grpc_deadline.cc). "
                      "Install Debian's libgrpc++-dev, or build gRPC with -DBUILD_SHARED_LIBS=ON")
endif()
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(ucx CONFIG REQUIRED)
find_package(Catch2 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
