#include "membership/name_resolver.h"

#include <ares.h>
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

// Each try waits longer than the previous one.
constexpr int kTries = 2;
// The first try waits for timeout / kFirstTry.
constexpr int kFirstTry = 4;

// The answer to one query, filled in by c-ares.
struct DnsAnswer {
  std::string port;  // of the hosts in the query
  bool done = false;
  int status = ARES_SUCCESS;
  std::vector<WorkerAddress> addresses{};
};

std::string HostOf(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool six = address.sa_family == AF_INET6;
  const void* bytes = six ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
                          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  BATON_CHECK(ares_inet_ntop(address.sa_family, bytes, text.data(), text.size()) != nullptr, "an address fits");
  return six ? absl::StrCat("[", text.data(), "]") : text.data();
}

void OnHosts(void* argument, int status, int /*timeouts*/, ares_addrinfo* found) {
  auto& answer = *static_cast<DnsAnswer*>(argument);
  answer.done = true;
  answer.status = status;
  if (found == nullptr) return;
  for (const ares_addrinfo_node* node = found->nodes; node != nullptr; node = node->ai_next) {
    answer.addresses.push_back(absl::StrCat(HostOf(*node->ai_addr), ":", answer.port));
  }
  ares_freeaddrinfo(found);
}

void OnService(void* argument, int status, int /*timeouts*/, unsigned char* reply, int length) {
  auto& answer = *static_cast<DnsAnswer*>(argument);
  answer.done = true;
  answer.status = status;
  if (status != ARES_SUCCESS) return;
  ares_srv_reply* found = nullptr;
  answer.status = ares_parse_srv_reply(reply, length, &found);
  for (const ares_srv_reply* record = found; record != nullptr; record = record->next) {
    WorkerAddress address = absl::StrCat(record->host, ":", record->port);
    // This also skips the host ".", with which a domain declares that it does not offer the service
    // (RFC 2782).
    if (!IsWorkerAddress(address)) continue;
    answer.addresses.push_back(std::move(address));
  }
  if (found != nullptr) ares_free_data(found);
}

// Returns the addresses of an answer, sorted and without duplicates.
absl::StatusOr<std::vector<WorkerAddress>> AddressesOf(const WorkerName& name, DnsAnswer answer) {
  if (answer.status == ARES_ENOTFOUND || answer.status == ARES_ENODATA) return std::vector<WorkerAddress>();
  if (answer.status != ARES_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("DNS: ", name.name, ": ", ares_strerror(answer.status)));
  }
  std::vector<WorkerAddress> addresses = std::move(answer.addresses);
  if (addresses.size() > kMaxWorkers) {
    return absl::UnavailableError(
        absl::StrCat("DNS: ", name.name, ": expected at most ", kMaxWorkers, " workers, got ", addresses.size()));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NameResolver>> NameResolver::Make(const std::string& server,
                                                                 std::chrono::milliseconds timeout) {
  static const int library = ares_library_init(ARES_LIB_INIT_ALL);
  ares_options options{};
  options.timeout = static_cast<int>(timeout.count()) / kFirstTry;
  options.tries = kTries;
  ares_channel channel = nullptr;
  int status = library;
  if (status == ARES_SUCCESS) {
    status = ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
  }
  if (status != ARES_SUCCESS) return absl::UnavailableError(absl::StrCat("DNS: ", ares_strerror(status)));
  std::unique_ptr<NameResolver> resolver(new NameResolver(channel, timeout));
  if (!server.empty() && ares_set_servers_ports_csv(channel, server.c_str()) != ARES_SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat("dns-server: expected IP:PORT, got '", server, "'"));
  }
  return resolver;
}

NameResolver::~NameResolver() { ares_destroy(channel_); }

// Waits until a callback of c-ares sets `done`. Uses poll, because select cannot handle descriptors
// above 1,023.
void NameResolver::Wait(const bool& done) {
  // c-ares applies its timeout to each server and search domain. This limit covers them together.
  const auto end = std::chrono::steady_clock::now() + timeout_;
  while (!done) {
    // ares_cancel invokes the callback, which sets `done`.
    if (cancelled_ || std::chrono::steady_clock::now() > end) return ares_cancel(channel_);
    std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets{};
    const int wanted = ares_getsock(channel_, sockets.data(), ARES_GETSOCK_MAXNUM);
    std::vector<pollfd> polled;
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
      const int events =
          (ARES_GETSOCK_READABLE(wanted, i) ? POLLIN : 0) | (ARES_GETSOCK_WRITABLE(wanted, i) ? POLLOUT : 0);
      if (events != 0) polled.push_back({sockets[static_cast<size_t>(i)], static_cast<int16_t>(events), 0});
    }
    timeval left{};
    timeval most{.tv_sec = 0, .tv_usec = 100'000};
    const timeval* timeout = ares_timeout(channel_, &most, &left);
    poll(polled.data(), polled.size(), static_cast<int>(timeout->tv_sec * 1000 + timeout->tv_usec / 1000 + 1));
    // Handle timeouts.
    ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    for (const pollfd& socket : polled) {
      const bool read = (socket.revents & (POLLIN | POLLERR | POLLHUP)) != 0, write = (socket.revents & POLLOUT) != 0;
      ares_process_fd(channel_, read ? socket.fd : ARES_SOCKET_BAD, write ? socket.fd : ARES_SOCKET_BAD);
    }
  }
}

absl::StatusOr<std::vector<WorkerAddress>> NameResolver::ResolveHost(const WorkerName& name, int family) {
  DnsAnswer answer{.port = name.port};
  ares_addrinfo_hints hints{};
  hints.ai_family = family;
  hints.ai_flags = ARES_AI_NOSORT;
  ares_getaddrinfo(channel_, name.name.c_str(), nullptr, &hints, OnHosts, &answer);
  Wait(answer.done);
  return AddressesOf(name, std::move(answer));
}

absl::StatusOr<std::vector<WorkerAddress>> NameResolver::ResolveService(const WorkerName& name) {
  DnsAnswer answer{.port = ""};
  ares_search(channel_, name.name.c_str(), ns_c_in, ns_t_srv, OnService, &answer);
  Wait(answer.done);
  return AddressesOf(name, std::move(answer));
}

absl::StatusOr<std::vector<WorkerAddress>> NameResolver::Resolve(const WorkerName& name) {
  if (name.kind == WorkerName::Kind::kAddress) return std::vector<WorkerAddress>{name.name};
  if (name.kind == WorkerName::Kind::kService) return ResolveService(name);
  // IPv4 and IPv6 are queried one after the other. If c-ares queries both and one fails, it returns
  // the result of the other as a success. A worker with an address of each family also counts as
  // one worker.
  ASSIGN_OR_RETURN(auto addresses, ResolveHost(name, AF_INET));
  if (!addresses.empty()) return addresses;
  return ResolveHost(name, AF_INET6);
}

}  // namespace baton
