#include "scrape.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

// Returns the whole answer to an HTTP/1.0 GET, or an empty string if no process answers.
std::string HttpGet(const std::string& host_port, const std::string& path) {
  const size_t colon = host_port.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(host_port.c_str() + colon + 1)));
  inet_pton(AF_INET, host_port.substr(0, colon).c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string answer;
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t n = 0; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return answer;
}

}  // namespace

std::optional<double> Scrape(const std::string& host_port, const std::string& series) {
  const std::string text = HttpGet(host_port, "/metrics");
  const size_t brace = series.find('{');
  const std::string name = series.substr(0, brace);
  std::vector<std::string> labels;
  if (brace != std::string::npos) labels = absl::StrSplit(series.substr(brace + 1, series.size() - brace - 2), ',');
  std::optional<double> sum;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t end = line.find_first_of("{ ");
    if (line.substr(0, end) != name) continue;
    const auto has = [&](const std::string& label) { return absl::StrContains(line, label); };
    if (std::ranges::all_of(labels, has)) sum = sum.value_or(0) + std::strtod(&line[line.rfind(' ')], nullptr);
  }
  return sum;
}

}  // namespace baton
