// The sockets at which a process listens by TCP, or receives UDP packets of any sender.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {

struct ListeningSocket {
  // As in /proc/net/tcp: hexadecimal, each 32 bits in the host's byte order, with the port.
  std::string address;
  bool loopback = false;
};

inline bool IsLoopbackInHex(absl::string_view address) {
  constexpr absl::string_view kMapped = "0000000000000000FFFF0000", kOne = "00000000000000000000000001000000";
  const absl::string_view host = address.substr(0, address.find(':'));
  if (host.size() == 8) return absl::EndsWith(host, "7F");
  return host == kOne || (absl::StartsWith(host, kMapped) && absl::EndsWith(host, "7F"));
}

inline std::vector<ListeningSocket> ListeningSockets(pid_t pid) {
  const std::string process = absl::StrCat("/proc/", pid);
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    std::error_code gone;
    sockets.insert(std::filesystem::read_symlink(entry, gone).string());
  }
  std::vector<ListeningSocket> listening;
  // The states TCP_LISTEN and TCP_CLOSE. A UDP socket has the state TCP_CLOSE until it is
  // connected.
  constexpr absl::string_view kListen = "0A", kUnconnected = "07";
  for (const auto& [table, state] : {std::pair("/net/tcp", kListen), std::pair("/net/tcp6", kListen),
                                     std::pair("/net/udp", kUnconnected), std::pair("/net/udp6", kUnconnected)}) {
    std::ifstream lines(process + table);
    for (std::string line; std::getline(lines, line);) {
      const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (fields.size() < 10 || fields[3] != state) continue;
      if (!sockets.contains(absl::StrCat("socket:[", fields[9], "]"))) continue;
      listening.push_back({fields[1], IsLoopbackInHex(fields[1])});
    }
  }
  return listening;
}

}  // namespace baton
