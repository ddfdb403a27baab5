// The options of each program. flags.cc gives every field its name, help and limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/values.h"
#include "base/ids.h"
#include "frontend/openai/reasoning_effort.h"
#include "kv/staging/staging.h"
#include "membership/etcd_options.h"
#include "model/model_names.h"
#include "node/memory_limit.h"
#include "router/router_core.h"
#include "router/workload.h"
#include "rpc/tls_files.h"

namespace baton {

struct CommonOptions {
  std::string log_level = "info";
  std::string log_format = "text";  // or "json"
  // host:port. Empty, "off" or "0" disables the metrics server.
  std::string metrics = "127.0.0.1:0";
  // Also export metrics under vLLM's names.
  bool vllm_metrics = false;
  // Time for running requests after SIGTERM or SIGINT.
  double grace_seconds = 10;
  // Validate and exit.
  bool check = false;
  // Allow calls from other machines without keys or certificates.
  bool open = false;
  // Certificates between router and workers. Empty for no encryption.
  TlsFiles peer;
  EtcdOptions etcd;
};

struct RouterOptions {
  CommonOptions common;
  std::string listen = "127.0.0.1:7070";
  // host:port. Empty or "off" disables HTTP.
  std::string http = "127.0.0.1:8000";
  // Host names under which HTTP clients may call, beside addresses and localhost (CheckHost).
  std::vector<std::string> host_names;
  // Origins of web pages that may call over HTTP (AllowedOrigins).
  std::vector<std::string> allow_origins;
  int max_connections = 4096;  // over HTTP
  // Upper bound on the seconds in which an HTTP stream sends nothing. The default exceeds the 30 s
  // for which requests wait for a worker, or for room on one. Until the response head is sent, a
  // request may still end with a status that clients retry.
  double stream_silence = 35;
  // Default of max_tokens, except for /v1/completions. 0 for what the prompt leaves of the context
  // length.
  int32_t default_max_tokens = 0;
  ThinkingBudgets thinking;
  // File of API keys. Empty if any client may call.
  std::string keys;
  // Certificate for clients over gRPC and HTTP, without an authority.
  TlsFiles tls;
  std::vector<std::string> models;  // model directories
  // As in ModelNames::Make.
  std::vector<std::string> served_names;
  std::vector<std::string> aliases;
  // Names as in membership/worker_names.h.
  std::vector<std::string> prefill_workers;
  std::vector<std::string> decode_workers;
  // IP:PORT. Empty for the system's DNS server.
  std::string dns_server;
  double dns_seconds = 5;  // seconds between two queries
  // Time limit for one name. No flag sets it.
  std::chrono::milliseconds dns_timeout{4000};
  RouterLimits limits;
  AgentLimits agents;
  ValueLimits values;
  Schedule schedule = Schedule::kFirstCome;
  std::string max_sessions = "auto";  // a number, "auto" or "off"
  bool shadow_prefill = true;
};

// Reads a router's options again, from the command line and the configuration file.
using ReloadOptions = std::function<absl::StatusOr<RouterOptions>()>;

struct WorkerOptions {
  CommonOptions common;
  std::string listen = "127.0.0.1:0";
  // host:port under which peers reach the worker. Empty for the address on which it listens.
  std::string advertise;
  // etcd:PREFIX as in membership/worker_names.h. Empty for no registration.
  std::string register_under;
  // Time after which etcd removes a worker that stopped renewing its etcd lease.
  int64_t lease_seconds = 10;
  // Network devices for KV blocks, as in UCX_NET_DEVICES.
  std::string kv_devices = "lo";
  std::string model;  // model directory
  // decode: directory of the module whose KV the worker continues. Empty for the model itself.
  std::string prefill_module;
  int threads = 0;  // 0 for one per core
  // cpu, cuda, cuda:N,M,... or auto.
  std::string device = "auto";
  // Number of ranks that compute the model together.
  int tensor_parallel = 1;
  // cuda: results are bit-equal for any chunking and batch.
  bool same_bits = false;
  // MiB. 0 for 1024 on the CPU, or on a GPU for 9/10 of the memory that the weights and the largest
  // step leave.
  int64_t kv_memory_mb = 0;
  // 0 for as many as kv_memory_mb holds.
  int64_t kv_blocks = 0;
  // prefill: MiB of host memory for evicted KV blocks.
  int64_t kv_host_mb = 0;
  // prefill: directory for KV blocks that host memory evicts.
  std::string kv_disk_dir;
  // prefill: MiB of disk space in kv_disk_dir.
  int64_t kv_disk_mb = 0;
  // prefill: upper bound on tokens per step. 0 for the default of SetStepDefaults.
  int64_t step_tokens = 0;
  // prefill: minimum increment of a streaming prompt, in tokens, that joins a step with other
  // requests. 0 derives the minimum from measured step times.
  int64_t increment = 0;
  // prefill: upper bound in milliseconds on the measured time of a step that computes only
  // streaming prompts and low-priority jobs. In a step with other prompts they compute at most as
  // many tokens.
  int64_t streaming_step_ms = 25;
  // decode: upper bound on requests per step. 0 for the default of SetStepDefaults.
  int32_t max_batch = 0;
  // decode: upper bound on prompt tokens per step that are computed for their log probabilities.
  int32_t score_tokens = 64;
  // decode: upper bound in milliseconds on the measured time of a step that computes such tokens
  // beside sequences. 0 for no bound.
  int64_t score_step_ms = 25;
  // decode: check the SHA-256 digest of each KV block before use.
  bool verify_kv = false;
  // Write KV blocks only with the write key of a reservation.
  bool guard_kv = false;
  // prefill: upper bound on live requests, excluding streaming prompts and low-priority jobs. The
  // same bound applies separately to these two together.
  int64_t max_requests = 1024;
  // prefill: a decode worker that owes answers and sends none for this long is mute, and its
  // hand-offs fail. 0 for no limit.
  absl::Duration peer_silence = absl::Seconds(2);
};

// Options of `baton serve`, which runs all roles in one process.
struct ServeOptions {
  RouterOptions router;
  WorkerOptions worker;
  // Directories of further decoders, in addition to the model itself.
  std::vector<std::string> decoders;
};

// Returns the number of KV blocks of `block_bytes` for a worker on the CPU. Returns
// INVALID_ARGUMENT if fewer than two fit, or if they exceed the limit of FindMemoryLimit. The
// message names both values.
absl::StatusOr<int64_t> KvBlocks(const WorkerOptions& options, int64_t block_bytes);

// Sets the step limits that the options leave open. The defaults make good use of the device's
// arithmetic and of its memory bandwidth. bench/results/README.md shows the gains of longer steps.
void SetStepDefaults(WorkerOptions& options, bool on_gpu);

// Parses the GPUs in a text like "cuda:0,2". Returns an empty list for any other text.
std::vector<int> CudaDevicesIn(const std::string& text);
// Returns the GPUs that --device names, one per rank. Returns an empty list if it names none.
// Returns INVALID_ARGUMENT if their number differs from --tensor-parallel.
absl::StatusOr<std::vector<int>> CudaDevices(const WorkerOptions& options);

// Like KvBlocks, for devices on which weights and activations leave `left` bytes per worker.
absl::StatusOr<int64_t> KvBlocksOnDevice(const WorkerOptions& options, int64_t block_bytes, int64_t left);

// Returns the capacity for evicted KV, in blocks of `block_bytes`. Returns INVALID_ARGUMENT for
// each of these:
// - The capacity is below one block or above the limit of FindMemoryLimit. The message names both
//   values.
// - Only one of the disk's directory and size is given.
// - The options have a disk without --kv-host-mb.
absl::StatusOr<StagingOptions> Staging(const WorkerOptions& options, int64_t block_bytes);

// Returns INVALID_ARGUMENT if the KV blocks of all workers of this process and the host memory for
// evicted KV together exceed `limit`. The weights are not counted.
absl::Status CheckMemorySum(int64_t kv_bytes, int64_t host_bytes, const MemoryLimit& limit);

// Returns how many of `cores` the CPU quota of a control group grants, rounded up. `cpu_max` is the
// content of the file cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD".
int CoresWithin(const std::string& cpu_max, int cores);

// Returns the number of threads to use. The default and the upper bound are the cores of this
// process, by its affinity and its control group.
int Threads(const WorkerOptions& options);

// Returns the address that the worker sends to peers. Returns INVALID_ARGUMENT if it listens on all
// interfaces and --advertise is not given.
absl::StatusOr<WorkerAddress> AdvertisedAddress(const WorkerOptions& options, const std::string& listening);

// Checks whether `bytes` of KV fit into the file system of shared memory at `directory`. Returns a
// description of the problem and its remedy, or an empty string if they fit.
std::string SharedMemoryShortage(const std::string& directory, int64_t bytes);

// Returns NOT_FOUND if `directory` does not have the files of a model. The message names `flag`,
// which gives the directory.
absl::Status CheckModelDirectory(const char* flag, const std::string& directory);

// Checks the options of a router. Returns INVALID_ARGUMENT for each of these:
// - A field is missing or contradicts another field.
// - A file is malformed.
// - Other machines can reach an address without keys, and `open` is false.
absl::Status Validate(const RouterOptions& options);
// Checks only the access options, which `baton serve` also needs.
absl::Status ValidateAccess(const RouterOptions& options);
// Returns the names by which clients ask for options.models. Errors are those of ModelNames::Make.
absl::StatusOr<ModelNames> ReadModelNames(const RouterOptions& options);
// Returns a warning if API keys travel unencrypted. Returns an empty string otherwise.
std::string UnencryptedKeysWarning(const RouterOptions& options);
// Checks the options of a worker. Like Validate for a router, but access requires certificates
// instead of keys.
absl::Status Validate(const WorkerOptions& options);

}  // namespace baton
