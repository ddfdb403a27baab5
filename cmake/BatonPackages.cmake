# All third-party packages. They are Debian packages. docs/dependencies.md gives the reason for
# each.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED)  # headers only
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
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
