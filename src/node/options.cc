#include "node/options.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/logging.h"
#include "base/loopback.h"
#include "base/status.h"
#include "membership/name_resolver.h"
#include "membership/worker_names.h"
#include "model/served_model.h"
#include "rpc/tls.h"

namespace baton {
namespace {

// Returns whether an address listens on all interfaces. Peers cannot dial such an address.
bool IsWildcard(const std::string& host_port) {
  const std::string host = host_port.substr(0, host_port.rfind(':'));
  return host == "0.0.0.0" || host == "[::]" || host == "::";
}

// Returns whether other machines can reach an address. `listen` is host:port, or "off" or "0" for
// none.
bool IsPublic(const std::string& listen) { return listen != "off" && listen != "0" && !IsLoopback(listen); }

// Refuses an unprotected address that other machines can reach. `guard` names the flags that would
// protect the address.
absl::Status CheckReach(const char* flag, const std::string& listen, bool guarded, bool open, const char* guard) {
  if (guarded || open || !IsPublic(listen)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", listen, " may be reached from other machines, and any client there may call. Give ",
                   guard, ", or --open to allow this"));
}

// As CheckReach, for --metrics. `flags` names the flags that allow the address. They do not protect
// it.
absl::Status CheckMetrics(const std::string& listen, bool allowed, const char* flags) {
  if (allowed || !IsPublic(listen)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metrics: ", listen, " may be reached from other machines, and /metrics asks for no key. Give ",
                   flags, " to allow this"));
}

absl::Status CheckPeer(const TlsFiles& files) {
  RETURN_IF_ERROR(Check(files, "peer"));
  if (files.empty() || !files.authority.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("peer-ca: required with peer-cert");
}

absl::Status NeedsAdvertise(const std::string& listening) {
  return absl::InvalidArgumentError(
      absl::StrCat("advertise: required with --listen ", listening,
                   ". Give the HOST:PORT under which routers and other workers reach this worker"));
}

// Returns the number of blocks that the options request. They must fit into `memory` bytes. `where`
// has the words for this memory in errors.
absl::StatusOr<int64_t> BlocksWithin(const WorkerOptions& options, int64_t default_mb, int64_t block_bytes,
                                     int64_t memory, const std::string& where) {
  if (options.kv_blocks == 1) return absl::InvalidArgumentError("kv-blocks: expected at least 2, got 1");
  const int64_t megabytes = options.kv_memory_mb > 0 ? options.kv_memory_mb : default_mb;
  const int64_t blocks = options.kv_blocks > 0 ? options.kv_blocks : megabytes * (int64_t{1} << 20) / block_bytes;
  if (blocks < 2) {
    return absl::InvalidArgumentError(absl::StrCat("kv-memory-mb: ", megabytes, " MiB hold ", blocks, " blocks of ",
                                                   block_bytes, " bytes, expected at least 2"));
  }
  // Block numbers have 32 bits.
  if (blocks > memory / block_bytes || blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("kv blocks: ", blocks, " of ", block_bytes,
                                                   " bytes do not fit into ", where, " ", memory >> 20,
                                                   " MiB. Lower --kv-memory-mb or --kv-blocks"));
  }
  return blocks;
}

}  // namespace

absl::StatusOr<int64_t> KvBlocks(const WorkerOptions& options, int64_t block_bytes) {
  const MemoryLimit limit = FindMemoryLimit();
  return BlocksWithin(options, 1024, block_bytes, limit.bytes, limit.source);
}

void SetStepDefaults(WorkerOptions& options, bool on_gpu) {
  if (options.step_tokens == 0) options.step_tokens = on_gpu ? 2048 : 512;
  if (options.max_batch == 0) options.max_batch = on_gpu ? 256 : 64;
}

std::vector<int> CudaDevicesIn(const std::string& text) {
  std::vector<int> devices;
  absl::string_view list = text;
  if (!absl::ConsumePrefix(&list, "cuda:")) return {};
  for (const absl::string_view number : absl::StrSplit(list, ',')) {
    int device = 0;
    if (!absl::SimpleAtoi(number, &device) || device < 0) return {};
    devices.push_back(device);
  }
  return devices;
}

absl::StatusOr<std::vector<int>> CudaDevices(const WorkerOptions& options) {
  std::vector<int> devices = CudaDevicesIn(options.device);
  if (!devices.empty() && std::ssize(devices) != options.tensor_parallel) {
    return absl::InvalidArgumentError(absl::StrCat("device: expected one GPU per rank of --tensor-parallel (",
                                                   options.tensor_parallel, "), got ", options.device));
  }
  return devices;
}

absl::StatusOr<int64_t> KvBlocksOnDevice(const WorkerOptions& options, int64_t block_bytes, int64_t left) {
  if (left < 2 * block_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("device: weights and the largest step leave ", left >> 20,
                                                   " MiB of free memory for KV, expected at least two blocks of ",
                                                   block_bytes,
                                                   " bytes. Workers that share a GPU need --kv-memory-mb"));
  }
  return BlocksWithin(options, left / 10 * 9 >> 20, block_bytes, left,
                      "the device's free memory without weights and the largest step,");
}

absl::StatusOr<StagingOptions> Staging(const WorkerOptions& options, int64_t block_bytes) {
  StagingOptions staging;
  if (options.kv_disk_dir.empty() != (options.kv_disk_mb == 0)) {
    return absl::InvalidArgumentError("kv-disk-dir, kv-disk-mb: expected both or none");
  }
  if (options.kv_disk_mb > 0 && options.kv_host_mb == 0) {
    return absl::InvalidArgumentError(
        "kv-disk-mb: requires kv-host-mb, because KV moves to and from disk through host memory");
  }
  if (options.kv_host_mb == 0) return staging;
  if (options.kv_disk_mb > 0 && options.kv_disk_mb * (int64_t{1} << 20) < block_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("kv-disk-mb: expected at least one block (", block_bytes,
                                                   " bytes), got ", options.kv_disk_mb, " MiB"));
  }
  staging.disk = options.kv_disk_mb * (int64_t{1} << 20) / block_bytes;
  staging.host = options.kv_host_mb * (int64_t{1} << 20) / block_bytes;
  const MemoryLimit limit = FindMemoryLimit();
  if (staging.host == 0 || options.kv_host_mb > limit.bytes >> 20) {
    return absl::InvalidArgumentError(absl::StrCat("kv-host-mb: expected from one block (", block_bytes, " bytes) to ",
                                                   limit.source, " ", limit.bytes >> 20, " MiB, got ",
                                                   options.kv_host_mb, " MiB"));
  }
  return staging;
}

absl::Status CheckMemorySum(int64_t kv_bytes, int64_t host_bytes, const MemoryLimit& limit) {
  if (kv_bytes <= limit.bytes - host_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kv-memory-mb, kv-host-mb: the workers' KV blocks (", kv_bytes >> 20, " MiB) and --kv-host-mb (",
                   host_bytes >> 20, " MiB) together do not fit into ", limit.source, " ", limit.bytes >> 20, " MiB"));
}

int CoresWithin(const std::string& cpu_max, int cores) {
  int64_t quota = 0, period = 0;
  if (std::sscanf(cpu_max.c_str(), "%" SCNd64 " %" SCNd64, &quota, &period) != 2 || quota <= 0 || period <= 0) {
    return cores;
  }
  return static_cast<int>(std::clamp<int64_t>((quota + period - 1) / period, 1, cores));
}

int Threads(const WorkerOptions& options) {
  cpu_set_t set;
  const int may_run_on = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
  std::string cpu_max;
  std::getline(std::ifstream("/sys/fs/cgroup/cpu.max"), cpu_max);
  const int cores = CoresWithin(cpu_max, may_run_on);
  if (options.threads <= cores) return options.threads > 0 ? options.threads : cores;
  spdlog::warn("--threads {}: this process has {} cores, using {} threads", options.threads, cores, cores);
  return cores;
}

absl::StatusOr<WorkerAddress> AdvertisedAddress(const WorkerOptions& options, const std::string& listening) {
  if (!options.advertise.empty()) return options.advertise;
  if (IsWildcard(listening)) return NeedsAdvertise(listening);
  return listening;
}

std::string SharedMemoryShortage(const std::string& directory, int64_t bytes) {
  constexpr char kOtherwise[] = ". Until then KV blocks move over a network device even within this machine";
  struct statvfs info {};
  if (statvfs(directory.c_str(), &info) != 0 || access(directory.c_str(), W_OK | X_OK) != 0) {
    return absl::StrCat(directory, " cannot be written (", std::strerror(errno),
                        "): mount a tmpfs there that this user may write", kOtherwise);
  }
  rlimit file_size{};
  if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur < static_cast<rlim_t>(bytes)) {
    return absl::StrCat(directory, " holds files of at most ", file_size.rlim_cur >> 10,
                        " KiB, by the limit on file size, and the KV blocks need ", (bytes >> 20) + 1,
                        " MiB: raise the limit (ulimit -f) or lower --kv-memory-mb", kOtherwise);
  }
  const auto free = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  if (bytes <= free) return "";
  return absl::StrCat(directory, " has ", free >> 20, " MiB free, the KV blocks need ", (bytes >> 20) + 1,
                      " MiB: enlarge it (containers: --shm-size) or lower --kv-memory-mb", kOtherwise);
}

absl::Status CheckModelDirectory(const char* flag, const std::string& directory) {
  const auto lacks = [](const std::string& path) { return access(path.c_str(), F_OK) != 0 && errno != EACCES; };
  if (!lacks(absl::StrCat(directory, "/config.json"))) return absl::OkStatus();
  std::error_code ignored;
  const char* problem = lacks(directory) ? "it does not exist (Baton downloads nothing; tools/fetch_model does)"
                        : !std::filesystem::is_directory(directory, ignored) ? "it is not a directory"
                                                                             : "it has no config.json";
  return absl::NotFoundError(absl::StrCat(flag, ": expected a Hugging Face directory (config.json, tokenizer.json, ",
                                          "*.safetensors), got ", directory, ": ", problem));
}

absl::Status ValidateAccess(const RouterOptions& options) {
  RETURN_IF_ERROR(Check(options.tls, "tls"));
  RETURN_IF_ERROR(CheckPeer(options.common.peer));
  const bool guarded = !options.keys.empty(), open = options.common.open;
  RETURN_IF_ERROR(CheckReach("listen", options.listen, guarded, open, "--keys"));
  RETURN_IF_ERROR(CheckReach("http", options.http, guarded, open, "--keys"));
  return CheckMetrics(options.common.metrics, guarded || open, "--keys or --open");
}

absl::StatusOr<ModelNames> ReadModelNames(const RouterOptions& options) {
  std::vector<std::string> models;
  for (const std::string& directory : options.models) models.push_back(ModelName(directory));
  return ModelNames::Make(models, options.served_names, options.aliases);
}

std::string UnencryptedKeysWarning(const RouterOptions& options) {
  const auto leaves = [](const std::string& listen) { return listen != "off" && !IsLoopback(listen); };
  if (options.keys.empty() || !options.tls.empty() || !(leaves(options.listen) || leaves(options.http))) return "";
  return "not encrypted: API keys can be read on the network. Give --tls-cert and --tls-key";
}

namespace {

bool HasWorkerOfKind(const RouterOptions& options, const std::vector<std::string>& kinds) {
  const auto is_one = [&](const std::string& name) {
    return std::ranges::any_of(kinds, [&](const std::string& kind) { return name.starts_with(kind); });
  };
  return std::ranges::any_of(options.prefill_workers, is_one) || std::ranges::any_of(options.decode_workers, is_one);
}

absl::Status CheckDns(const RouterOptions& options) {
  if (options.dns_server.empty()) return absl::OkStatus();
  if (HasWorkerOfKind(options, {"dns:", "srv:"})) {
    return NameResolver::Make(options.dns_server, options.dns_timeout).status();
  }
  return absl::InvalidArgumentError("dns-server: unused, because no worker is named by dns: or srv:");
}

// `is_used` is true if the options use etcd. `user` names the option that uses it.
absl::Status CheckEtcd(const EtcdOptions& options, bool is_used, const char* user) {
  if (options.servers.empty() && is_used) {
    return absl::InvalidArgumentError(absl::StrCat("etcd: HOST:PORT is required with ", user));
  }
  if (!options.servers.empty() && !is_used) {
    return absl::InvalidArgumentError(absl::StrCat("etcd: unused without ", user));
  }
  if (options.servers.empty() && !options.tls.empty()) {
    return absl::InvalidArgumentError("etcd-ca, etcd-cert, etcd-key: require --etcd");
  }
  std::set<std::string> seen;
  for (const std::string& server : options.servers) {
    if (!seen.insert(server).second) {
      return absl::InvalidArgumentError(absl::StrCat("etcd: '", server, "' is named twice"));
    }
    if (IsWorkerAddress(server)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("etcd: expected a DNS name or an IP address and a port from 1 to 65535, got '", server, "'"));
  }
  RETURN_IF_ERROR(CheckForClient(options.tls, "etcd"));
  return absl::OkStatus();
}

absl::Status CheckRegistration(const WorkerOptions& options) {
  const bool registers = !options.register_under.empty();
  RETURN_IF_ERROR(CheckEtcd(options.common.etcd, registers, "--register etcd:PREFIX"));
  if (!registers) return absl::OkStatus();
  const auto servers = static_cast<int64_t>(options.common.etcd.servers.size());
  // A renewal takes at most a third of the lease, even if most servers do not answer.
  if (options.lease_seconds < servers) {
    return absl::InvalidArgumentError(absl::StrCat("lease-seconds: expected at least one per server of --etcd (",
                                                   servers, "), got ", options.lease_seconds));
  }
  const std::string& address = options.advertise.empty() ? options.listen : options.advertise;
  const bool any_port = options.advertise.empty() && address.ends_with(":0");
  if (!any_port && !IsWorkerAddress(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("advertise: expected a DNS name or an IP address and a port, for etcd, got '", address, "'"));
  }
  if (!IsLoopback(address) || std::ranges::all_of(options.common.etcd.servers, IsLoopback)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("advertise: etcd is on another machine, and routers there cannot reach '", address,
                   "', which is a loopback address. Give --advertise or --listen an address that routers can reach"));
}

// Refuses a prefix within another prefix, because a key under both would name a worker twice.
absl::Status CheckPrefixes(const RouterOptions& options) {
  std::vector<std::string> prefixes;  // each ends in a slash
  for (const auto* list : {&options.prefill_workers, &options.decode_workers}) {
    for (const std::string& text : *list) {
      const auto name = ParseWorkerName(text);
      if (!name.ok() || name->kind != WorkerName::Kind::kEtcd) continue;
      for (const std::string& other : prefixes) {
        if (!name->name.starts_with(other) && !other.starts_with(name->name)) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "workers: expected prefixes that do not contain each other, got etcd:", other, " and etcd:", name->name));
      }
      prefixes.push_back(name->name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const RouterOptions& options) {
  if (options.models.empty()) return absl::InvalidArgumentError("model: at least one directory is required");
  if (options.prefill_workers.empty()) return absl::InvalidArgumentError("prefill-workers: at least one is required");
  if (options.decode_workers.empty()) return absl::InvalidArgumentError("decode-workers: at least one is required");
  RETURN_IF_ERROR(CheckModelNames(options.models));
  RETURN_IF_ERROR(ReadModelNames(options).status());
  RETURN_IF_ERROR(ValidateAccess(options));
  RETURN_IF_ERROR(CheckDns(options));
  RETURN_IF_ERROR(CheckEtcd(options.common.etcd, HasWorkerOfKind(options, {"etcd:"}), "a worker named by etcd:PREFIX"));
  RETURN_IF_ERROR(CheckPrefixes(options));
  std::set<std::string> seen;
  for (const auto* list : {&options.prefill_workers, &options.decode_workers}) {
    for (const std::string& address : *list) {
      if (!seen.insert(address).second) {
        return absl::InvalidArgumentError(absl::StrCat("workers: '", address, "' is named twice"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const WorkerOptions& options) {
  if (options.model.empty()) return absl::InvalidArgumentError("model: a directory is required");
  RETURN_IF_ERROR(CheckPeer(options.common.peer));
  if (options.advertise.empty() && IsWildcard(options.listen)) return NeedsAdvertise(options.listen);
  if (IsWildcard(options.advertise) || options.advertise.ends_with(":0")) {
    return absl::InvalidArgumentError(
        absl::StrCat("advertise: '", options.advertise, "' cannot be dialed: expected a host and a port"));
  }
  RETURN_IF_ERROR(CheckRegistration(options));
  constexpr char kGuard[] = "--peer-cert, --peer-key and --peer-ca";
  const bool guarded = !options.common.peer.empty(), open = options.common.open;
  RETURN_IF_ERROR(CheckReach("listen", options.listen, guarded, open, kGuard));
  RETURN_IF_ERROR(
      CheckMetrics(options.common.metrics, guarded || open, "--peer-cert, --peer-key and --peer-ca, or --open,"));
  // With --guard-kv, no UCX endpoint listens on these devices. UCX does not check certificates.
  if (options.kv_devices == "lo" || options.guard_kv || open) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("kv-devices: '", options.kv_devices,
                   "' may be reached from other machines, and any process there can write into this worker's memory, "
                   "even if there are certificates. Give --guard-kv, or --open if only workers are on that network"));
}

}  // namespace baton
